-- The Makefile: whose flags a compiler is given, and where asserts are on.

local mpi = require "tests.support.mpi"

-- What this run has from a make above it, and must not hand on.
local CLEAN = "env -u MAKEFLAGS -u CFLAGS -u CPPFLAGS -u LDFLAGS -u ASSERTS -u SANITIZE -u OPTIMIZE -u CUDA_KERNELS"

-- The commands that make would run from nothing, as lines; `before` stands before make, as variables of the environment
-- do.
local function commands(words, before)
  local folder = mpi.folder()
  local result = mpi.shell(("%s %s make -n %s V=1 CUDA_HOME=/nowhere BUILD=%s/build"):format(CLEAN, before or "", words,
    folder), 120)
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

local function lines_of(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
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
    assert.same({}, lines_of([[grep -rniE '^ *(/[/*]|\*) *build *:' runtime | ]]
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

describe("make clean", function()
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
