-- long: 10 s
-- The Makefile: whose flags a compiler is given, and where asserts are on.

local lines_of = require "tests.support.source_tree.lines_of"
local mpi = require "tests.support.mpi"

-- What this run has from a make above it, and must not hand on.
local CLEAN = "env -u MAKEFLAGS -u CFLAGS -u CPPFLAGS -u LDFLAGS -u ASSERTS -u SANITIZE -u OPTIMIZE -u CUDA_KERNELS"

-- The commands that make would run from nothing, as lines; `before` stands before make, as variables of the environment
-- do.
local function commands(words, before)
  local folder = mpi.folder()
  local result = mpi.shell(("%s %s make -n V=1 CUDA_HOME=/nowhere BUILD=%s/build %s"):format(CLEAN, before or "",
    folder, words:gsub("BUILD/", folder .. "/build/")), 120)
  mpi.remove(folder)
  assert.equal(0, result.status, result.output)
  local list = {}
  for line in result.stdout:gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

-- The command that compiles a C file of runtime/, by the file; and the one that links the program.
local function compiled(words, before)
  local files, link, count = {}, nil, 0
  for _, line in ipairs(commands(words, before)) do
    local file = line:match "^gcc .* %-c .* (runtime/%S+%.c)$"
    if file and not line:find("/standin/", 1, true) then files[file], count = line, count + 1 end
    if line:match "^gcc .* %-o %S+/shardrt " then link = line end
  end
  assert.is_true(count > 100)
  return files, assert(link)
end

describe("the flags of whoever builds", function()
  for how, words in pairs {
    ["from the command line"] = { "all CFLAGS='-O1 -Wmine' CPPFLAGS=-DMINE LDFLAGS=-Wl,--mine" },
    ["from the environment"] = { "all", "CFLAGS='-O1 -Wmine' CPPFLAGS=-DMINE LDFLAGS=-Wl,--mine" },
  } do
    it("stand behind the project's own, " .. how, function()
      local files, link = compiled(words[1], words[2])
      for file, line in pairs(files) do
        assert.truthy(line:find(" -std=c11 .* -O2 .* -DMINE .*-O1 %-Wmine "), file .. ": " .. line)
      end
      assert.truthy(link:find " '%-Wl,%-%-export%-dynamic%-symbol=shardrt_%*'.* %-Wl,%-%-mine .*%-lm ", link)
    end)
  end
end)

describe("the flags of whoever builds", function()
  it("come to every other compiler, too: of benchmarks, of kernels, of the stand-in", function()
    local home = mpi.folder() -- looks like CUDA's toolkit
    for _, name in ipairs {
      "bin/nvcc", "include/cuda_runtime_api.h", "include/nv/target", "include/cublas_v2.h", "include/nccl.h",
      "lib64/libcudart_static.a",
    } do
      assert.equal(0, os.execute(("mkdir -p %s/%s && touch %s/%s"):format(home, name:match "^(.*)/", home, name)))
    end
    local words = "all standin BUILD/bench/gather BUILD/bench/gather-scalar BUILD/bench/upload BUILD/fuzz/replay "
      .. "BUILD/job/slices "
      .. "CFLAGS=-Wmine CXXFLAGS=-Wmine CPPFLAGS='-DMINE -Wdate-time' LDFLAGS=-Wl,--mine CUDA_HOME=" .. home
    local seen = {}
    local function note(kind, line, pattern)
      assert.truthy(line:find(pattern), line)
      seen[kind] = (seen[kind] or 0) + 1
    end
    for _, line in ipairs(commands(words)) do
      if line:find("^%S*nvcc ") or line:find("/bin/nvcc ", 1, true) then
        note("kernel", line, " %-DMINE %-Xcompiler %-Wdate%-time %-Xcompiler %-Wmine .*%.cu$")
      elseif line:find "^g[c+][c+] .* %-c " then
        note(line:match "^g..", line, " %-DMINE %-Wdate%-time .*%-Wmine ")
      elseif line:find "^gcc .*tests/bench/" then
        note("bench", line, " %-DMINE %-Wdate%-time %-Wmine %-Wl,%-%-mine ")
      elseif line:find "^g[c+][c+] .* %-o " then
        note("link", line, " %-Wl,%-%-mine ")
      end
    end
    mpi.remove(home)
    assert.is_true(seen.kernel >= 10 and seen.gcc > 200 and seen["g++"] >= 14)
    assert.is_true(seen.bench == 3 and seen.link >= 6)
  end)
end)

describe("the flags of one source", function()
  local files = compiled "all"

  it("are those that it asks for itself, wherever it lies", function()
    local asked = lines_of "grep -rxE --include='*.c' '// build: -.*' runtime"
    assert.is_true(#asked >= 15)
    for _, line in ipairs(asked) do
      local file, flags = line:match "^([^:]+):// build: (.*)$"
      assert.truthy(files[file]:find(" " .. flags .. " ", 1, true), files[file])
    end
  end)

  it("make vectors of every loop that is compiled for several processors", function()
    local count = 0
    for _, file in ipairs(lines_of [[grep -rlE --include='*.c' 'SIMD_(AVX2|FMA|AVX512|INLINE)|\bKERNEL\(' runtime]]) do
      assert.truthy(files[file]:find(" -O3 ", 1, true), file .. " has no line `// build: -O3`")
      count = count + 1
    end
    assert.is_true(count >= 10)
  end)

  it("are written in one way", function()
    assert.same({}, lines_of([[grep -rniE '^ *(/[/*]|\*) *build *:' runtime tests/standin | ]]
      .. [[grep -vE ':1:// build: ((MPI )?plug-in|-[-a-zA-Z0-9= ]+)$']]))
  end)
end)

describe("asserts", function()
  it("are off in what users run, and cost nothing there", function()
    for file, line in pairs((compiled "all")) do
      assert.truthy(line:find(" -DNDEBUG ", 1, true), file .. ": " .. line)
    end
  end)

  for _, target in ipairs { "specs", "all SANITIZE=thread" } do
    it("are on in make " .. target, function()
      for _, line in ipairs(commands(target)) do assert.is_nil(line:find("NDEBUG", 1, true), line) end
    end)
  end
end)

describe("make install", function()
  it("puts what was built, and what is to be read, under the prefix, where it works", function()
    if os.getenv "SHARDRT_SANITIZER" then
      pending "a sanitizer's build has no shared library"
      return
    end
    local build, folder = mpi.program():match "^(.*)/", mpi.folder()
    local function make(target)
      local command = "%s make %s BUILD=%s ASSERTS=1 CUDA_HOME=/nowhere DESTDIR=%s PREFIX=/opt"
      return mpi.shell(command:format(CLEAN, target, build, folder), 180)
    end
    -- What is there: another program's, too, beside which shardrt's is laid.
    local function all() return mpi.shell(("cd %s && find . | sort"):format(folder)).stdout end
    mpi.shell(("mkdir -p %s/opt/bin %s/opt/lib/shardrt && touch %s/opt/bin/other"):format(folder, folder, folder))
    local before, made = all(), make "install"
    assert.equal(0, made.status, made.output)
    for line in made.stdout:gmatch "[^\n]*install[^\n]*" do
      assert.truthy(line:find(("  install  %s/opt/"):format(folder), 1, true), line)
    end
    assert.truthy(made.stdout:find(("  install  %s/opt/bin/shardrt\n"):format(folder), 1, true), made.stdout)
    assert.truthy(made.stdout:find "/opt/share/doc/shardrt %(%d%d+ files%)\n", made.stdout)
    for _, name in ipairs {
      "include/shardrt.h", "lib/libshardrt.so", "lib/libshardrt.a", "lib/pkgconfig/shardrt.pc",
      "share/man/man1/shardrt.1", "share/shardrt/lua/shardrt/init.lua", "share/doc/shardrt/README.md",
      "share/doc/shardrt/docs/data.md", "share/doc/shardrt/recipes/layouts.lua", "share/doc/shardrt/runtime/shardrt.h",
    } do
      assert(io.open(folder .. "/opt/" .. name, "rb"), name .. " is not there"):close()
    end
    local runs = "cd %s/opt && bin/shardrt --devices 8 share/doc/shardrt/recipes/layouts.lua"
    local result = mpi.shell(runs:format(folder))
    assert.equal(0, result.status, result.output)
    local version = mpi.shell(folder .. "/opt/bin/shardrt --version").stdout:match "%d+%.%d+[.%d]*"
    assert.truthy(version)
    local pc = mpi.shell(("grep -h . %s/opt/lib/pkgconfig/shardrt.pc"):format(folder)).stdout
    assert.truthy(pc:find("prefix=/opt\n", 1, true) and pc:find("Version: " .. version .. "\n", 1, true), pc)
    -- Twice, and removed: what was there before is left, and nothing else.
    mpi.shell(("echo >%s/opt/lib/shardrt/mine"):format(folder))
    assert.equal(0, make "install".status)
    local removed = make "uninstall"
    assert.equal(0, removed.status, removed.output)
    assert.truthy(removed.stdout:find(("  remove   %s/opt/bin/shardrt\n"):format(folder), 1, true), removed.output)
    os.remove(folder .. "/opt/lib/shardrt/mine")
    assert.equal(before, all())
    local again = make "uninstall"
    assert.equal(2, again.status)
    local list = folder .. "/opt/share/shardrt/installed"
    assert.truthy(again.stderr:find("make uninstall: there is no " .. list, 1, true), again.output)
    mpi.remove(folder)
  end)

  it("lays a library where docs/c.md has programs look for it", function()
    if os.getenv "SHARDRT_SANITIZER" then return pending "a sanitizer's build has no shared library" end
    local build, folder = mpi.program():match "^(.*)/", mpi.folder()
    local words = mpi.shell("grep -A 2 'make install PREFIX=' docs/c.md").stdout:gsub("%$PWD", folder)
    words = words:gsub("make install", ("%s make install BUILD=%s ASSERTS=1 CUDA_HOME=/nowhere"):format(CLEAN, build))
      :gsub("%-o softmax", "-o " .. folder .. "/softmax")
    local made = mpi.shell(words, 180)
    assert.equal(0, made.status, made.output)
    local result = mpi.shell(("mpirun -n 2 %s/softmax examples/c/data.lua"):format(folder), 60)
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("0.5929", 1, true), result.output)
    mpi.remove(folder)
  end)
end)

describe("make help", function()
  it("prints what stands at the top of the Makefile, and builds nothing", function()
    local head = {}
    for line in io.lines "Makefile" do
      if line:sub(1, 1) ~= "#" then break end
      head[#head + 1] = line:gsub("^# ?", "")
    end
    assert.is_true(#head > 10)
    assert.same(head, lines_of(CLEAN .. " make -s help BUILD=/nowhere/at/all"))
  end)
end)

describe("make clean", function()
  it("leaves nothing of a build", function()
    local folder = mpi.folder()
    local command = "cd %s && mkdir -p build/job build-test other && cd - && %s make clean BUILD=%s/build && ls %s"
    local result = mpi.shell(command:format(folder, CLEAN, folder, folder))
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "\nother\n$" and not result.stdout:find "\nbuild", result.stdout)
    mpi.remove(folder)
  end)

  it("removes the folder that was built in, and those beside it that other targets build in", function()
    for _, build in ipairs { "/nowhere/else", "build" } do
      local command = lines_of("make -n clean BUILD=" .. build)[1]
      assert.equal("rm -rf " .. build, command:sub(1, #"rm -rf " + #build))
      for _, line in ipairs(lines_of "grep -ohE '[$][(]BUILD[)]-[a-z]+' Makefile make/*.mk tests/*/*.mk") do
        local name = line:match "%-%a+$"
        assert.truthy((command .. " "):find((" %s%s "):format(build, name), 1, true), command)
      end
      for name in ("test asan tsan fuzz lint"):gmatch "%a+" do -- asan's and tsan's are named by $@
        assert.truthy((command .. " "):find((" %s-%s "):format(build, name), 1, true), command)
      end
    end
  end)
end)
