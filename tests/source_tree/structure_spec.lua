-- The tree keeps to its own rules: rooms include only rooms above them, and the FFI sees what C sees.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local cdef = require "shardrt.cdef"
local lines_of = require "tests.support.source_tree.lines_of"
local slurp = require("tests.support.files").slurp

-- What a table of runtime/README.md lists in its first column, which has that heading: folders without their "/".
local function listed(heading)
  local names = {}
  local rows = slurp("runtime/README.md"):match("\n| " .. heading .. " | [^\n]+\n|[-|]+\n(.-)\n\n")
  for row in (rows .. "\n"):gmatch "| (.-) | [^\n]+\n" do
    for code in row:gmatch "`([^`]+)`" do names[#names + 1] = code:gsub("/$", "") end
  end
  return names
end

-- The rooms, in their order: a file includes files of its own room and of rooms before it. A file belongs to the room
-- with the longest prefix of its path.
local ROOMS = {
  "base", "system", "lua", "layout", "platform", "memory", "device",
  "comm/transport", "comm", "reshard/exchange", "reshard", "check",
  "storage/local", "codec", "tokenizer", "storage/write", "storage/exchange", "storage/service", "storage/upload",
  "storage/remote", "storage", "trace",
  "dataset", "dataset/order", "dataset/view", "dataset/array", "dataset/megatron", "dataset/chunked", "dataset/record",
  "dataset/mds", "dataset/column", "dataset/parquet/metadata", "dataset/parquet/encoding", "dataset/parquet",
  "dataset/arrow", "arrayfile",
  "transform", "transform/kind", "loader/plan", "loader",
  "compute", "compute/elementwise", "compute/reduce", "compute/rearrange", "compute/random", "compute/matmul",
  "compute/cuda", "library",
}
local PROGRAM = #ROOMS + 1 -- main.c and its own files, which stand in no folder
local MOST_FILES = 25 -- of a folder

local rank = {}
for i, room in ipairs(ROOMS) do rank[room] = i end

-- A file's place in that order: 0 is shardrt.h, which is for all, and made of parts that lie in the rooms.
local function place(path)
  if not path:find("/", 1, true) then return path == "shardrt.h" and 0 or PROGRAM end
  local room = path
  repeat room = room:match "^(.*)/" until not room or rank[room]
  return assert(rank[room], "a file outside the rooms: " .. path)
end

describe("the rooms", function()
  local files = lines_of "find runtime -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort"

  it("are where the sources are", function()
    assert.is_true(#files > 20)
  end)

  it("hold at most 25 files each, and are all in the list", function()
    local counts = {}
    for _, file in ipairs(lines_of "find runtime -type f") do
      local folder = file:match "^runtime/(.*)/" or "."
      counts[folder] = (counts[folder] or 0) + 1
    end
    for folder, count in pairs(counts) do
      assert.is_true(count <= MOST_FILES, folder .. " holds " .. count .. " files")
      assert.is_true(folder == "." or rank[folder] ~= nil, folder .. " is no room")
    end
    for _, room in ipairs(ROOMS) do assert.is_truthy(counts[room], room .. " has no files") end
  end)

  it("are those of the table in runtime/README.md, in its order, and then the program's own files", function()
    local names = {}
    for i, room in ipairs(ROOMS) do names[i] = room end
    for _, file in ipairs(lines_of "cd runtime && ls *.c") do names[#names + 1] = file end
    assert.same(names, listed "room")
  end)

  it("include only rooms above them", function()
    for _, file in ipairs(files) do
      local own = file:gsub("^runtime/", "")
      for line in io.lines(file) do
        local included = line:match '^%s*#%s*include%s*"([^"]+)"'
        if own == "shardrt.h" or own:match "_api%.h$" then -- the public header and its parts
          assert.is_truthy(not included or included:match "_api%.h$", own .. " includes " .. tostring(included))
        end
        if included and included ~= "standin/kernel.h" and own ~= "shardrt.h" then -- what tests put in place of nvcc
          assert.is_true(place(included) <= place(own), own .. " includes " .. included)
        end
      end
    end
  end)

  -- Who calls or names what lies below its room, which it has no header of.
  local NAMES_BELOW = {
    ["dataset/formats"] = "_format$", ["transform/transform"] = "_kind$", -- lists: formats.h, kinds.h
    ["dataset/audit"] = "^zarr_audit$", ["platform/plugin"] = "^shardrt_dtype_size$",
  }

  it("call only rooms above them, also what shardrt.h or a declaration of their own names", function()
    local folder = require("tests.support.mpi").program():gsub("[^/]*$", "")
    local defined, used, seen = {}, {}, {}
    for _, line in ipairs(lines_of(("find %s -name '*.o' | sort | xargs nm -A"):format(folder))) do
      local own, kind, name = line:match "([^:]*)%.o:%s*%x*%s(%a) ([^%s@]+)"
      own = own and own:sub(#folder + 1)
      if own and seen[own] == nil then
        local file = io.open("runtime/" .. own .. ".c")
        seen[own] = file ~= nil
        if file then file:close() end
      end
      if own and seen[own] and kind == "U" then used[#used + 1] = { own = own, name = name } end
      if own and seen[own] and kind:match "[TDBRV]" then defined[name] = own end
    end
    local calls, below = 0, {}
    for _, use in ipairs(used) do
      local other = defined[use.name]
      if other then calls = calls + 1 end
      if other and place(other .. ".c") > place(use.own .. ".c") then
        assert.truthy(use.name:find(NAMES_BELOW[use.own] or "%z"), use.own .. " calls " .. use.name .. " of " .. other)
        below[use.own] = true
      end
    end
    assert.is_true(calls > 1000)
    for name in pairs(NAMES_BELOW) do assert.is_true(below[name], name .. " names nothing below any more") end
  end)

  it("keep mpi.h, lua.h, cuda and nccl where they belong", function()
    for _, file in ipairs(files) do
      for line in io.lines(file) do
        local header = line:match "^%s*#%s*include%s*<([^>]+)>" or ""
        if header:match "^mpi" then assert.truthy(file:match "^runtime/comm/transport/mpi[%w_]*%.[ch]$", file) end
        if header:match "^lua" or header:match "^lauxlib" then
          assert.equal("runtime/lua/interpreter.h", file)
        end
        if header:match "^cuda" then assert.equal("runtime/device/cuda.h", file) end
        if header:match "^cublas" then assert.equal("runtime/compute/cuda/cublas.c", file) end
        if header:match "^nccl" then assert.equal("runtime/comm/transport/nccl.c", file) end
      end
    end
  end)

  it("keep what is CUDA's in the plug-in, which the program does not have", function()
    local plugin, count = {}, 0
    for path in lines_of("make -s plugin-sources")[1]:gmatch "%S+" do
      plugin[path], count = true, count + 1
    end
    assert.is_true(count >= 15)
    for _, file in ipairs(files) do
      local own = file:match "%.cuh?$" or plugin[file] or file == "runtime/device/cuda.h" or
        file == "runtime/device/gpu.h" or file == "runtime/device/launch.h"
      if file:match "%.cu$" then assert.is_true(plugin[file], file) end
      for line in io.lines(file) do
        local included = line:match '^%s*#%s*include%s*"([^"]+)"' or ""
        local is_cuda = included == "device/cuda.h" or included == "device/launch.h" or included:match "%.cuh$"
        assert.is_truthy(own or not is_cuda, file .. " includes " .. included)
        -- What the stand-in cannot run is not tested: launch.h.
        if own and file ~= "runtime/device/launch.h" then
          for _, word in ipairs { "<<<", "__shfl", "__ballot", "cooperative_groups" } do
            assert.is_nil(line:find(word, 1, true), file .. ": " .. line)
          end
        end
      end
    end
    local program = require("tests.support.mpi").program()
    local symbols = table.concat(lines_of(("nm -D --defined-only %s"):format(program)), "\n") .. "\n"
    assert.truthy(symbols:find " shardrt_job_open\n")
    for _, name in ipairs { "shardrt_accelerator", "cuda_check", "pinned_allocate", "nccl_links", "cudaMalloc" } do
      assert.is_nil(symbols:find((" %s\n"):format(name), 1, true), name .. " is in the program")
    end
    -- Else a library of the process that has a function of the same name, as libevent has, is called instead.
    local standin = program:gsub("[^/]*$", "standin/shardrt-cuda.so", 1)
    local shown = {}
    for _, line in ipairs(lines_of("nm -D --defined-only " .. standin)) do
      local name = line:match " [TBDR] ([%w_]+)$"
      if name and not name:match "^__" then shown[#shown + 1] = name end
    end
    assert.same({ "shardrt_accelerator" }, shown)
  end)

  -- The program, and what ends a job for it.
  local ENDS_THE_JOB = {
    main = true, command_line = true, run = true,
    ["library/sigbus"] = true, ["comm/job"] = true, ["comm/abort_job"] = true, ["comm/stop_request"] = true,
    ["comm/transport/mpi"] = true, ["comm/transport/openmpi"] = true, ["comm/transport/mpich"] = true,
    ["comm/transport/alone"] = true, ["comm/transport/launcher"] = true,
    ["system/signal_undo"] = true, ["lua/crash"] = true,
  }

  it("never print and never exit", function()
    for _, file in ipairs(files) do
      if not ENDS_THE_JOB[file:match "^runtime/(.*)%.c$" or ""] then
        for line in io.lines(file) do
          local code = line:find "^ %*" and "" or line:gsub("/%*.-%*/", "") -- a comment may show an example
          for _, call in ipairs {
            "[^%w_]_?exit%s*%(", "[^%w_n]printf%s*%(", "fprintf%s*%(%s*std", "STD%w+_FILENO", "[^%w_>]abort%s*%(",
          } do
            assert.is_nil(code:match(call), file .. ": " .. line)
          end
        end
      end
    end
  end)
end)

describe("random cases", function()
  -- Why a spec begins its own elsewhere.
  local FIXED = { ["tests/cuda/cuda_mesh_spec.lua"] = "a heuristic, held to how good it is in known cases" }

  it("begin at tests/support/seed.lua, so that what failed can be seen again", function()
    local count = 0
    for _, file in ipairs(lines_of "grep -rlE --include='*_spec.lua' 'math[.]random' tests | sort") do
      if file ~= "tests/source_tree/structure_spec.lua" then
        local text = slurp(file)
        assert.truthy(text:find("math.randomseed(", 1, true), file)
        assert.equal(not FIXED[file], text:find("tests.support.seed", 1, true) ~= nil, file)
        count = count + 1
      end
    end
    assert.is_true(count > 30)
    local seeds = lines_of "grep -rlE --include='*.lua' 'os[.]time' tests | sort"
    assert.same({ "tests/bench/tokenize.lua", "tests/run.lua", "tests/support/seed.lua" }, seeds)
  end)
end)

describe("structures of C", function()
  local DLPACK = "runtime/memory/dlpack.h" -- the names of its standard
  -- One handle in all files of its kind, each of which fills it with its own.
  local HANDLES = { comm_endpoint = "a transport's end" }

  local places = {} -- {name = {file, …}}
  for _, file in ipairs(lines_of "find runtime -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort") do
    if not file:find "_api%.h$" and file ~= DLPACK then
      for line in slurp(file):gsub("/%*.-%*/", ""):gmatch "[^\n]+" do
        assert.is_nil(line:match "^%s*typedef struct [%w_]*%s*{" or line:match "^%s*typedef enum", file .. ": " .. line)
        for kind, name in line:gmatch "%f[%w_](%l+) ([%a_][%w_]*) {" do
          if kind == "struct" or kind == "enum" or kind == "union" then
            places[name] = places[name] or {}
            table.insert(places[name], file)
          end
        end
      end
    end
  end

  it("have names of their own, written bare: struct name", function()
    local count = 0
    for name, files in pairs(places) do
      count = count + 1
      -- Two stand in one file where what is built decides.
      for i = 2, HANDLES[name] and 0 or #files do
        assert.equal(files[1], files[i], "struct " .. name .. " has two meanings")
      end
    end
    assert.is_true(count > 250, count)
    for name in pairs(HANDLES) do assert.is_true(#places[name] > 1, name) end
  end)
end)

describe("the Lua files", function()
  it("are known as shardrt's own, so that errors name the recipe's line", function()
    local files = lines_of "find lua/shardrt -name '*.lua' | sort"
    assert.is_true(#files > 60)
    for _, file in ipairs(files) do
      local opened = assert(io.open(file))
      local text = opened:read "*a"
      opened:close()
      if file ~= "lua/shardrt/base/ffi.lua" and file ~= "lua/shardrt/base/error.lua" then -- which stand before it
        local own = text:find("fail.own()", 1, true) or text:find('require("shardrt.base.error").own()', 1, true)
        assert.truthy(own, file)
      end
    end
  end)

  it("leave no loop to LuaJIT's own pairs: the first thing that a state runs replaces it", function()
    -- What C starts, in a recipe's state and in a worker's.
    for _, name in ipairs { "program/program", "program/library", "program/job_watch", "data/worker/worker" } do
      for line in io.lines("lua/shardrt/" .. name .. ".lua") do
        if not line:find "^%-%-" and line ~= "" then
          assert.equal('require("shardrt.base.sorted_pairs").install() -- before any other loop', line)
          break
        end
      end
    end
  end)
end)

describe("the tests", function()
  local BENCH = "tests/bench" -- a program for each thing that is measured
  local files = lines_of "find tests -type f | grep -E '\\.(lua|c|cc|h|py|sh)$' | sort"

  it("have at most 25 files in a folder", function()
    local counts = {}
    for _, file in ipairs(files) do
      local folder = file:match "^(.*)/"
      counts[folder] = (counts[folder] or 0) + 1
      assert.is_true(folder == BENCH or counts[folder] <= MOST_FILES, folder)
    end
    assert.is_true(counts["tests/support"] > 10)
  end)

  it("share what lies in tests/support; what one folder of them alone uses lies in a folder there", function()
    local users = {} -- of a file: {folder = true}; a support file's users are those of its folder
    for _, file in ipairs(files) do
      local folder = file:match "^tests/support/(.*)/" or file:match "^tests/([^/]*)/" or "."
      local text = slurp(file)
      local function note(name)
        users[name] = users[name] or {}
        users[name][folder] = true
      end
      for name in text:gmatch "tests%.support%.([%w_.]+)" do note((name:gsub("%.", "/"))) end
      for name in text:gmatch "tests/support/([%w_/]+)%.%l" do note(name) end
    end
    local count = 0
    for _, file in ipairs(files) do
      local name = file:match "^tests/support/(.*)%.lua$"
      local room = name and name:match "^(.*)/"
      if name then
        count = count + 1
        assert(users[name], name .. " is used by nobody")
        local list = {}
        for folder in pairs(users[name]) do list[#list + 1] = folder end
        table.sort(list)
        local said = name .. " is used by " .. table.concat(list, ", ")
        if room then assert(#list == 1 and list[1] == room, said) else assert(#list > 1 or list[1] == ".", said) end
      end
    end
    assert.is_true(count > 30)
  end)
end)

describe("the one declaration", function()
  it("resolves every function of the header", function()
    local count = 0
    for name in cdef:gmatch "([%w_]+)%s*%(" do
      if name:match "^shardrt_" then
        count = count + 1
        assert.is_true(pcall(function() return C[name] end), name .. " is declared and not defined")
      end
    end
    assert.is_true(count > 60)
  end)

  it("gives structures the same size and offsets on both sides", function()
    -- The C side: a program that prints what the compiler thinks of every structure that the header shows.
    local structures = {}
    for body, name in cdef:gmatch "typedef struct [%w_]+ (%b{}) ([%w_]+);" do
      local members = {}
      local plain = body:sub(2, -2):gsub("%(%*([%w_]+)%)%s*%b()", "%1") -- pointers to functions by their names alone
      for declaration in plain:gmatch "([^;]+);" do
        for part in (declaration:gsub("^%s*[%w_ ]-([%w_]+%s*[,%[]?)", "%1") .. ","):gmatch "([^,]+)," do
          local member = part:gsub("%b[]", ""):match "([%w_]+)%s*$"
          if member then members[#members + 1] = member end
        end
      end
      structures[#structures + 1] = { name = name, members = members }
    end
    assert.is_true(#structures >= 6)

    local folder = require("tests.support.mpi").folder()
    local file = assert(io.open(folder .. "/sizes.c", "w"))
    file:write '#include <stdio.h>\n#include "shardrt.h"\nint main(void) {\n'
    for _, s in ipairs(structures) do
      file:write(('printf("%s %%zu\\n", sizeof(%s));\n'):format(s.name, s.name))
      for _, member in ipairs(s.members) do
        file:write(('printf("%s.%s %%zu\\n", offsetof(%s, %s));\n'):format(s.name, member, s.name, member))
      end
    end
    file:write "return 0; }\n"
    file:close()
    assert.equal(0, os.execute(("gcc -std=c11 -Wall -Werror -Iruntime -o %s/sizes %s/sizes.c"):format(folder, folder)))
    local sizes = {}
    for _, line in ipairs(lines_of(folder .. "/sizes")) do
      local key, value = line:match "^(%S+) (%d+)$"
      sizes[key] = tonumber(value)
    end
    require("tests.support.mpi").remove(folder)

    for _, s in ipairs(structures) do
      assert.is_true(#s.members > 0, s.name)
      assert.equal(sizes[s.name], ffi.sizeof(s.name), s.name)
      for _, member in ipairs(s.members) do
        assert.equal(sizes[s.name .. "." .. member], ffi.offsetof(s.name, member), s.name .. "." .. member)
      end
    end
  end)

  it("is installed as one file that needs no other, for C and for C++", function()
    local support = require "tests.support.mpi"
    local folder = support.folder()
    local header = folder .. "/include/shardrt.h"
    assert.equal(0, os.execute(("make -s BUILD=%s %s"):format(folder, header)))
    for _, compiler in ipairs { "gcc -std=c11 -x c", "g++ -x c++" } do
      assert.equal(0, os.execute(("%s -Wall -Wextra -Werror -fsyntax-only %s"):format(compiler, header)), compiler)
    end
    local installed = table.concat(lines_of("gcc -E -P -DSHARDRT_CDEF " .. header), " ")
    support.remove(folder)
    assert.equal((cdef:gsub("%s+", "")), (installed:gsub("%s+", "")))
  end)

  it("lists each error once, with a name and a text", function()
    local count, names = 0, {}
    for name, code in cdef:gmatch "SHARDRT_(E[A-Z]+) = (%-%d+)" do
      assert.equal(name, ffi.string(C.shardrt_error_name(tonumber(code))))
      assert.not_equal("unknown error", ffi.string(C.shardrt_error_text(tonumber(code))))
      assert.is_nil(names[code])
      count, names[code] = count + 1, name
    end
    assert.is_true(count >= 11)
    assert.equal("EINVAL", ffi.string(C.shardrt_error_name(C.SHARDRT_EINVAL)))
    assert.equal("unknown", ffi.string(C.shardrt_error_name(-1000)))
  end)
end)

describe("the folders of Lua", function()
  -- Each requires only itself and those before it; the files that recipes require, and what gathers them, come last.
  local FOLDERS = {
    "base", "layout", "array", "data/worker", "data", "loader", "checkpoint", "record", "ops", "nn", "autodiff",
    "random", "numpy", "program", "init",
  }
  -- The only requires that close a circle: both modules lie in one folder, and one of them waits until it is called.
  local CIRCLES = {
    ["ops/elementwise > ops/reduce"] = "the gradient of an operand that was broadcast is a sum; sums are made of both",
  }
  -- Which files may compute the name of a module.
  local COMPUTED = {
    ["base/lazy"] = "its callers name them", init = "the last of all", numpy = "gathers words of ops/",
    ["data/worker/closure"] = "Lua's own libraries", ["data/worker/worker"] = "a module of the recipe's",
  }

  -- A line without its comment, and with its strings by number; and the strings.
  local function parts_of(line)
    local code, strings, at = "", {}, 1
    while true do
      local start = line:find("[\"'%-]", at)
      if not start then return code .. line:sub(at), strings end
      local mark = line:sub(start, start)
      code = code .. line:sub(at, start - 1)
      if mark == "-" then
        if line:sub(start, start + 1) == "--" then return code, strings end
        code, at = code .. mark, start + 1
      else
        local stop = start
        repeat
          stop = assert(line:find("[\\" .. mark .. "]", stop + 1), line)
          local is_escape = line:sub(stop, stop) == "\\"
          if is_escape then stop = stop + 1 end
        until not is_escape
        strings[#strings + 1] = line:sub(start + 1, stop - 1)
        code, at = code .. "<" .. #strings .. ">", stop + 1
      end
    end
  end

  -- What each module requires, at once or lazily: {name = {name = line}}, by paths under lua/shardrt.
  local graph, count = {}, 0
  for _, file in ipairs(lines_of "find lua/shardrt -name '*.lua' | sort") do
    local name, number = file:match "^lua/shardrt/(.*)%.lua$", 0
    graph[name], count = {}, count + 1
    for line in io.lines(file) do
      number = number + 1
      local code, strings = parts_of(line)
      for word, rest in code:gmatch "([%w_.]+)(%p*%s*%p*%s*<?%d*)" do
        if word == "require" or word == "lazy.module" then
          local module = strings[tonumber(rest:match "^[(,]?%s*<(%d+)$")]
          if not module or module:find "%.$" then -- none, or the beginning of one
            assert(COMPUTED[name], ("%s:%d: it computes the name of a module: %s"):format(file, number, line))
          elseif module:find "^shardrt" and module ~= "shardrt.cdef" then
            graph[name][module == "shardrt" and "init" or module:gsub("^shardrt%.", ""):gsub("%.", "/")] = number
          end
        end
      end
    end
  end

  local function position(name)
    for at, folder in ipairs(FOLDERS) do
      if name == folder or name:match "^(.*)/" == folder then return at end
    end
    error(name .. " lies in no folder of the list")
  end

  it("are those of the table in runtime/README.md, in its order", function()
    local names = listed "folder"
    for i, name in ipairs(names) do names[i] = name:gsub("%.lua$", "") end
    assert.same(FOLDERS, names)
  end)

  it("are read as they are written", function()
    assert.is_true(count > 70)
    assert.is_truthy(graph["loader/loader"]["loader/auto"] and graph["layout/mesh"]["base/class"])
    assert.is_truthy(graph["base/json"]["base/error"] and graph["program/program"]["program/index_files"])
    assert.is_nil(graph["array/array"].numpy) -- a message
    for name in pairs(COMPUTED) do assert.is_truthy(graph[name], name) end
  end)

  it("require only those before them, also lazily", function()
    for name, requires in pairs(graph) do
      for other, line in pairs(requires) do
        assert.is_truthy(graph[other], ("%s.lua:%d requires %s, which there is not"):format(name, line, other))
        assert.is_true(position(other) <= position(name), ("%s.lua:%d requires %s"):format(name, line, other))
      end
    end
  end)

  it("hold no circle of modules but those that are named here with their reasons", function()
    for edge in pairs(CIRCLES) do
      local from, to = edge:match "^(%S+) > (%S+)$"
      assert.is_truthy(graph[from][to], edge .. " is no longer there")
      assert.equal(position(from), position(to))
    end
    local done = {}
    local function visit(name, path)
      assert.is_not_equal("open", done[name], path .. " is a circle")
      if done[name] then return end
      done[name] = "open"
      for other in pairs(graph[name]) do
        if not CIRCLES[name .. " > " .. other] then visit(other, path .. " > " .. other) end
      end
      done[name] = "closed"
    end
    for name in pairs(graph) do visit(name, name) end
  end)

  it("have at most 25 files", function()
    local files = {}
    for name in pairs(graph) do
      local folder = name:match "^(.*)/" or ""
      files[folder] = (files[folder] or 0) + 1
      assert.is_true(files[folder] <= 25, folder)
    end
  end)
end)

describe("the trips in runtime/README.md", function()
  local trips = slurp("runtime/README.md"):match "\n## Trips\n(.-)\n## "

  -- {path =, name =, text =, line =} of what a line names; nil: it names no function.
  local function step_of(line)
    local path, name = line:match "`([%w_/]+%.%a+): ([%w_.:]+)`"
    if not path then return end
    local source = (path:match "%.lua$" and "lua/shardrt/" or "runtime/") .. path
    return { path = path, name = name, text = slurp(source), line = line }
  end

  -- Of a list, each entry with the one that it is indented under.
  local steps, open = {}, {}
  for line in trips:gmatch "[^\n]+" do
    local indent = line:match "^(%s*)%- "
    if indent then
      local depth = #indent / 2
      local step = assert(step_of(line), line)
      step.caller = depth > 0 and open[depth - 1] or nil
      assert(depth == 0 or step.caller, line)
      steps[#steps + 1], open[depth] = step, step
    end
  end

  -- A file without its comments and the heads of its functions: its calls are left.
  local function calls_in(step)
    if step.path:match "%.lua$" then
      return (step.text:gsub("%-%-[^\n]*", ""):gsub("function%s+[%w_.:]+%(", "(")) -- which begin no call
    end
    return (("\n" .. step.text:gsub("/%*.-%*/", "")):gsub("\n%w[^\n]*", "\n")) -- those stand at the line's beginning
  end

  -- The names of a function in tables of functions: {name = {member = true}}.
  local members = {}
  local function add_member(name, member)
    members[name] = members[name] or {}
    members[name][member] = true
  end
  for _, file in ipairs(lines_of "find runtime -name '*.[ch]'") do
    for member, name in slurp(file):gmatch "[%s{]%.([%w_]+) = ([%w_]+)[,}%s]" do add_member(name, member) end
  end
  for _, file in ipairs(lines_of "find lua/shardrt -name '*.lua'") do
    for left, right in slurp(file):gmatch "\n(array%.ops%.[^\n=]+) = ([%w][^\n]+)" do
      local values = right:gmatch "[%w_.]+"
      for member in left:gmatch "array%.ops%.([%w_]+)" do add_member(values(), member) end
    end
  end

  -- Whether the file of `caller` calls the function: by its name, through a table that has it, or by handing it to what
  -- calls it. C calls Lua, and a method is called, by the last part of its name.
  local function is_called(step, caller)
    caller.calls = caller.calls or calls_in(caller)
    local text = caller.calls
    local name, last = step.name:gsub("%p", "%%%0"), step.name:match "[%w_]+$"
    local from_lua, to_lua = caller.path:match "%.lua$", step.path:match "%.lua$"
    if to_lua and not from_lua then return text:find('"' .. last .. '"', 1, true) ~= nil end
    if from_lua and not to_lua then return text:find("C%." .. name .. "%f[^%w_]") ~= nil end
    if step.name:find ":" and text:find(":" .. last .. "%(") then return true end
    if text:find("%f[%w_]" .. name .. "%s*[({]") or text:find("[(,]%s*" .. name .. "%s*[,)]") then return true end
    for member in pairs(members[step.name] or {}) do
      if text:find("[.>]" .. member .. "%(") then return true end
    end
    return false
  end

  it("go through files and functions that are there", function()
    for _, step in ipairs(steps) do
      assert.truthy(step.text:find("%f[%w_]" .. step.name:gsub("%p", "%%%0") .. "%("), step.line)
    end
    assert.is_true(#steps >= 70)
  end)

  it("indent what the line above calls", function()
    local missing = {}
    local count = 0
    for _, step in ipairs(steps) do
      if step.caller then
        if not is_called(step, step.caller) then missing[#missing + 1] = step.caller.path .. " calls " .. step.line end
        count = count + 1
      end
    end
    assert.same({}, missing)
    assert.is_true(count >= 50)
  end)

  it("would not take any two functions for caller and called", function()
    local wrong, count = 0, 0
    for _, caller in ipairs(steps) do
      for _, step in ipairs(steps) do
        count = count + 1
        if is_called(step, caller) then wrong = wrong + 1 end
      end
    end
    assert.is_true(wrong < count / 10, ("%d of %d pairs"):format(wrong, count))
  end)
end)
