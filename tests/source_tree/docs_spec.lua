-- long: 60 s
-- What the documents show runs, and what they name is there: commands, Lua, links, headings, files, words, options.

local documents = require "tests.support.source_tree.documents"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local lines_of = require "tests.support.source_tree.lines_of"
local slurp = require("tests.support.files").slurp

local root = lines_of "pwd"[1]
local all, shown = {}, {} -- every document, and those whose code is run: other notes tell how files were made once
for _, path in ipairs(lines_of "find * -name '*.md' -not -path 'build*' | sort") do
  local document = documents.read(path)
  all[#all + 1] = document
  if not path:match "^tests/" then shown[#shown + 1] = document end
end

-- Commands run one after the other in a folder where the tree is, and the files that documents speak of; `shardrt` is
-- on the path, as after `make install`.
local MAKE_FILES = [[
set -e
mkdir bin build build-test train
ln -s "$PROGRAM" build/shardrt
ln -s "$PROGRAM" build-test/shardrt
ln -s "$PROGRAM" bin/shardrt
ln -s /usr/bin/python3 bin/python3
# Debian 12's PyTorch, whose torchrun fails with Debian 12's Python unless it sends output on.
echo 'exec python3 -m torch.distributed.run -r 1 -t 1 "$@"' >bin/torchrun
chmod +x bin/torchrun
ln -s "$ROOT/build/python" build/python
for file in "$(dirname "$PROGRAM")"/*.so "$(dirname "$PROGRAM")"/libshardrt.so.0 "$(dirname "$PROGRAM")"/include; do
  ln -s "$file" build/
done
for name in docs examples lua python recipes runtime tests; do ln -s "$ROOT/$name" $name; done
cp tests/files/int32.npy train/a.npy
cp tests/files/uint16.npy train/b.npy
tar xzf tests/files/arrays.tar.gz data.h5 zarr/v2-big
mv zarr/v2-big images.zarr
head -c 100000 /dev/zero >corpus.bin
echo "for _, device in ipairs(require('shardrt').local_devices()) do print(device) end" >recipe.lua
cp recipe.lua see.lua
]]

-- make is asked what it would do, as most of it takes long; where the document shows what it prints, the last command
-- of these, which prints it, is run.
-- Where other libraries or another MPI are asked for, in a folder of their own: the tree's stays as it was found.
local function of_make(text, with_output, folder)
  local is_other = text:find "WITHOUT=" or text:find "MPI%u*=" or text:find "FLAGS=" or text:find "CC="
  local words = "make -n --no-print-directory" .. (is_other and (" BUILD=%s/other"):format(folder) or "")
  local asked = ("cd '%s' && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u BUILD -u ASSERTS %s"):format(root,
    text:gsub("%f[%w]make%f[%s%z]", words, 1))
  if not with_output then return asked end
  local last = assert(lines_of(asked .. " 2>/dev/null | tail -n 1")[1], text .. " does nothing")
  return (last:gsub("SHARDRT=%S+ ", ""))
end

describe("a document's", function()
  local folder, environment
  setup(function()
    folder = mpi.folder()
    local program = lines_of(("readlink -f '%s'"):format(mpi.program()))[1]
    local made = mpi.shell(("cd %s && PROGRAM='%s' ROOT='%s'\n%s"):format(folder, program, root, MAKE_FILES))
    assert.equal(0, made.status, made.output)
    environment = ("cd %s && export PATH=%s/bin:$PATH SHARDRT=%s %s && "):format(folder, folder, program,
      mpi.environment)
  end)
  teardown(function() mpi.remove(folder) end)

  -- What puts a Python with JAX before Debian's, for what is about JAX.
  local function with_framework(block) return block.framework == "jax" and "PATH=build/python/bin:$PATH; " or "" end

  local function runs(command, block)
    local text = command.text
    local is_make = text:match "^make%f[%s%z]" or text:match "^[%u_]+=%S+ make%f[%s%z]" -- with a variable
    local words = is_make and of_make(text, command.output, folder) or with_framework(block) .. text
    local result = mpi.shell(environment .. words, 180)
    assert.equal(0, result.status, text .. "\n" .. result.output)
    if command.output and command.output ~= "" then
      local output = result.output:gsub("\r", "")
      assert.truthy(output:find(command.output), ("%s\nprints\n%s\nand not\n%s"):format(text, output, command.output))
    end
  end

  local function runs_lua(block)
    local file = assert(io.open(folder .. "/shown.lua", "wb"))
    file:write('local shardrt = require "shardrt"; local P, T = shardrt.P, shardrt.transform\n', block.before or "",
      "\n", block.text)
    file:close()
    local result = mpi.shell(environment .. "build/shardrt --devices 8 shown.lua", 180)
    assert.equal(0, result.status, result.output)
  end

  local function runs_python(block)
    local file = assert(io.open(folder .. "/shown.py", "wb"))
    file:write(block.before or "", "\n", block.text)
    file:close()
    local command = environment .. with_framework(block)
      .. "PYTHONPATH=python SHARDRT_LIBRARY=build/libshardrt.so.0 python3 -B shown.py"
    local result = mpi.shell(command, 180)
    assert.equal(0, result.status, result.output)
  end

  for _, document in ipairs(shown) do
    for _, block in ipairs(document.blocks) do
      if block.text:find "%f[%w]python3 " or block.text:find "%f[%w]torchrun " or block.language == "python" then
        block.skip = block.skip or not library.python() and "no shared library is built with sanitizers" or nil
        for _, framework in ipairs { "torch", "jax" } do
          if block.text:find("shardrt." .. framework, 1, true) or block.text:find("train_" .. framework, 1, true) then
            local python, missing = library[framework]()
            block.framework, block.skip = framework, block.skip or not python and missing or nil
          end
        end
      end
      local name = ("%s:%d"):format(document.path, block.line)
      if block.language == "sh" or block.language == "console" then
        local commands = documents.commands(block)
        if block.text:find("-lshardrt", 1, true) and os.getenv "SHARDRT_SANITIZER" then
          block.skip = "a sanitizer's library is static"
        end
        if block.skip then
          for _, command in ipairs(commands) do
            pending(("command %s: %s (not run: %s)"):format(name, command.text, block.skip))
          end
        else
          it("commands run: " .. name, function()
            assert.is_true(#commands > 0)
            for _, command in ipairs(commands) do runs(command, block) end
          end)
        end
      elseif block.language == "lua" then
        if block.skip then
          pending(("Lua %s (not run: %s)"):format(name, block.skip))
        else
          it("Lua runs: " .. name, function() runs_lua(block) end)
        end
      elseif block.language == "python" then
        if block.skip then
          pending(("Python %s (not run: %s)"):format(name, block.skip))
        else
          it("Python runs: " .. name, function() runs_python(block) end)
        end
      end
    end
  end

  it("code blocks say what they are", function()
    local languages = {
      sh = true, console = true, lua = true, python = true, c = true, cpp = true, text = true, make = true,
    }
    for _, document in ipairs(shown) do
      for _, block in ipairs(document.blocks) do
        assert.is_true(languages[block.language], ("%s:%d is %q"):format(document.path, block.line, block.language))
      end
      assert.same({}, document.indented, document.path .. ": code without a fence")
    end
  end)

  -- The examples are built and run by specs of their own: tests/library, tests/cuda.
  it("C and C++ are lines of the examples", function()
    local examples, count = {}, 0
    for _, path in ipairs(lines_of "find examples -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu'") do
      examples[#examples + 1] = slurp(path)
    end
    local text = table.concat(examples, "\n"):gsub("%s+", " ")
    for _, document in ipairs(shown) do
      for _, block in ipairs(document.blocks) do
        local is_code = block.language == "c" or block.language == "cpp"
        for line in (is_code and block.text or ""):gmatch "[^\n]+" do
          local code = line:gsub("%s*/%*.-%*/", ""):gsub("%s*//.*", ""):gsub("^%s+", ""):gsub("%s+", " ")
          assert.truthy(text:find(code, 1, true), ("%s:%d: %s"):format(document.path, block.line, line))
          count = count + 1
        end
      end
    end
    assert.is_true(count > 20)
  end)

  it("sentences have at most 25 words", function()
    local count = 0
    for _, document in ipairs(shown) do
      for _, sentence in ipairs(documents.sentences(document)) do
        local words = 0
        for word in sentence:gmatch "%S+" do words = words + (word:find "%w" and 1 or 0) end
        assert.is_true(words <= 25, ("%s has a sentence of %d words: %s"):format(document.path, words, sentence))
        count = count + 1
      end
    end
    assert.is_true(count > 400)
  end)

  it("links lead to files and headings that are there", function()
    local count = 0
    for _, document in ipairs(all) do
      for _, target in ipairs(documents.links(document)) do
        local path, anchor = target:match "^([^#]*)#?(.*)$"
        local file = path == "" and document.path or document.folder .. path
        assert.equal(0, os.execute(("test -e '%s'"):format(file)), document.path .. " links to " .. target)
        if anchor ~= "" then
          assert.is_true(documents.anchors(documents.read(file))[anchor], document.path .. " links to " .. target)
        end
        count = count + 1
      end
    end
    assert.is_true(count > 50)
  end)

  it("links lead on where it is installed, with every document and recipe", function()
    local prefix = mpi.folder()
    local command = "env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u BUILD -u ASSERTS make install-docs PREFIX=/usr "
      .. "BUILD=%s/build DESTDIR=%s >%s/log 2>&1"
    assert.equal(0, os.execute(command:format(prefix, prefix, prefix)), slurp(prefix .. "/log"))
    local there, count = prefix .. "/usr/share/doc/shardrt/", 0
    local laid = "find README.md CONTRIBUTING.md LICENSE docs examples recipes -type f ! -name '*.shardrt-index' "
      .. "! -path '*/__pycache__/*'"
    for _, path in ipairs(lines_of(laid)) do
      assert.equal(slurp(path), slurp(there .. path))
    end
    for _, path in ipairs(lines_of("find " .. there .. " -name '*.md'")) do
      local document = documents.read(path)
      for _, target in ipairs(documents.links(document)) do
        local file = target:match "^[^#]*"
        assert.equal(0, os.execute(("test -e '%s'"):format(document.folder .. file)), path .. " links to " .. target)
        count = count + 1
      end
    end
    mpi.remove(prefix)
    assert.is_true(count > 50)
  end)

  it("paths of the tree are there", function()
    local folders = {}
    for _, path in ipairs(lines_of "ls -d */") do folders[path:sub(1, -2)] = "" end
    folders.build = nil
    for _, path in ipairs(lines_of "cd runtime && ls -d */") do
      folders[path:sub(1, -2)] = folders[path:sub(1, -2)] or "runtime/"
    end
    local count = 0
    for _, document in ipairs(shown) do
      for _, code in ipairs(documents.code(document)) do
        local first, rest = code:match "^([%w_]+)/([%w_./*-]*)$"
        local above = first and folders[first]
        -- runtime's own folders are named without it only in its README, in which `lua/` is one of them, too
        local own = document.folder == "runtime/"
        if above and (above == "" or own) then
          local path = first .. "/" .. rest
          local places = own and ("%s runtime/%s"):format(path, path) or path
          assert.truthy(lines_of(("ls -d %s 2>/dev/null"):format(places))[1], document.path .. " names " .. code)
          count = count + 1
        end
      end
    end
    assert.is_true(count > 20)
  end)

  it("words are those of a recipe", function()
    local words = { shardrt = shardrt, np = require "shardrt.numpy", random = shardrt.random, T = shardrt.transform }
    local count = 0
    local function check(document, text)
      for table_name, names in text:gmatch "%f[%w_./%-]([%a]+)%.([%a_][%w_%.]*)" do
        local value = words[table_name]
        for name in (value and names or ""):gmatch "[%a_][%w_]*" do
          if type(value) ~= "table" or name == "h" or name == "lua" then break end -- a file
          value = value[name] -- of a name that is none, an error that says so
          assert.is_not_nil(value, document.path .. " names " .. table_name .. "." .. names)
          count = count + 1
        end
      end
    end
    for _, document in ipairs(shown) do
      local is_of_python = document.path == "docs/python.md" -- whose shardrt is another module
      for _, code in ipairs(is_of_python and {} or documents.code(document)) do check(document, code) end
    end
    assert.is_true(count > 100)
  end)

  it("table of shardrt.numpy has every word, and no other", function()
    local np, text = require "shardrt.numpy", slurp "docs/compute.md"
    local told = {}
    for row in text:match "| words | |\n[^\n]+\n(.-)\n\n":gmatch "[^\n]+" do
      for code in row:match "^| (.-) |":gsub("%b()", ""):gmatch "`([^`]+)`" do
        for word in code:gmatch "%a[%w_]+" do told[word] = true end
      end
    end
    local made = {}
    for word in pairs(np) do made[word] = true end
    assert.is_true(made.sin)
    assert.same(made, told)
  end)

  it("table of a loader's options has every one, and no other", function()
    local told, taken = {}, {}
    for row in slurp "docs/data.md":match "| option | .-\n\n":gmatch "\n| (`.-) |" do
      for option in row:gmatch "`([%l_]+)`" do told[option] = true end
    end
    for option in pairs(require("shardrt.loader.options").KEYWORDS) do taken[option] = true end
    assert.same(taken, told)
  end)

  it("options of the manual are those of --help", function()
    local function options(text)
      local set = {}
      for option in text:gmatch "%f[%w%-]%-%-[%l][%l%-]+" do set[option] = true end
      return set
    end
    local manual = slurp "runtime/shardrt.1":gsub("\\%-", "-"):gsub("%-%-mpi=pmix", "")
    local help = mpi.shell(environment .. "shardrt --help; shardrt index --help").stdout:gsub("busted's.-\n", "")
    assert.same(options(help), options(manual))
  end)

  it("options, variables and targets of make are there", function()
    local manual = slurp "runtime/shardrt.1":gsub("\\%-", "-") .. slurp "lua/shardrt/program/index_files.lua"
    local targets, variables = {}, {}
    for _, document in ipairs(shown) do
      for _, code in ipairs(documents.code(document)) do
        if code:match "^shardrt " or code:match "^build/shardrt " then
          for option in code:gmatch "%s(%-%-[%l%-]+)" do
            assert.truthy(manual:find(option, 1, true), document.path .. " names " .. option)
          end
        end
        targets[code:match "^make ([%l][%l%-]*)" or "all"] = true
        for name in code:gmatch "SHARDRT_[%u_]+" do variables[name] = document.path end
      end
      for name in document.prose:gmatch "SHARDRT_[%u_]+" do variables[name] = document.path end
    end
    for name, path in pairs(variables) do
      assert.equal(0, os.execute(("grep -rqw '%s' runtime lua tests Makefile"):format(name)),
        path .. " names " .. name)
    end
    local rules = table.concat(lines_of "cat Makefile make/*.mk tests/*/*.mk", "\n")
    for target in pairs(targets) do
      assert.truthy(rules:find("%.PHONY:[^\n]*%f[%w%-]" .. target:gsub("%-", "%%-") .. "%f[^%w%-]"), "make " .. target)
    end
  end)
end)

describe("the documents", function()
  local function block(path, pattern)
    for _, one in ipairs(documents.read(path).blocks) do
      if one.language == "lua" and one.text:find(pattern) then return one.text end
    end
    error(path .. " shows no " .. pattern)
  end

  it("list every recipe and no other", function()
    local list, listed = slurp "recipes/README.md", {}
    for name, path in list:gmatch "\n| %[([%w_]+)%]%(([%w_]+%.lua)%) | [^\n]+ |" do
      assert.equal(name .. ".lua", path)
      listed[#listed + 1] = "recipes/" .. path
    end
    table.sort(listed)
    assert.same(lines_of "ls recipes/*.lua", listed)
  end)

  it("begin with a README of at most 150 lines", function()
    assert.is_true(select(2, slurp "README.md":gsub("\n", "")) <= 150)
  end)

  it("show a recipe whose processes read their own rows", function()
    local result = mpi.run { source = block("README.md", "source.idx"), processes = 4, devices = 2 }
    assert.equal(0, result.status, result.output)
    for process = 0, 3 do -- 234 batches of 256 rows, a quarter of them each
      local line = ("process %d read %d bytes"):format(process, 234 * 64 * 785)
      assert.truthy(result.stdout:find(line, 1, true), result.output)
    end
  end)

  it("show computation that runs in several processes", function()
    local source = 'local shardrt = require "shardrt" ' .. block("docs/compute.md", "np.maximum")
    local result = mpi.run { source = source, processes = 4, devices = 2 }
    assert.equal(0, result.status, result.output)
    assert.equal('P("data", nil)\n', result.stdout, result.output)
  end)

  it("show training that is alike in every topology", function()
    local source = 'local shardrt = require "shardrt" ' .. block("docs/compute.md", "optimizer.adam {")
    local function losses(job)
      job.source = source
      local result, made = mpi.run(job), {}
      assert.equal(0, result.status, result.output)
      for loss in result.stdout:gmatch "loss ([%d.]+)" do made[#made + 1] = tonumber(loss) end
      return made
    end
    local alone, shared = losses { devices = 1 }, losses { processes = 2, devices = 4 }
    assert.equal(50, #alone)
    assert.is_true(alone[50] < alone[1] / 20, table.concat(alone, " "))
    for i, loss in ipairs(alone) do assert.is_true(math.abs(shared[i] - loss) <= 2e-4) end
  end)
end)
