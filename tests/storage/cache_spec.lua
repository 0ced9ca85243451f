-- The cache folder: what it removes, a site's in front of it, and one that several users share.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

pcall(ffi.cdef, "int setenv(const char *name, const char *value, int overwrite); int unsetenv(const char *name);")

local HOUR = 3600

describe("unpacked files in the cache", function()
  local folder, cache
  before_each(function()
    folder = files.folder()
    cache = folder .. "/cache"
  end)
  after_each(function()
    ffi.C.unsetenv "SHARDRT_UNPACKED_BYTES"
    ffi.C.unsetenv "SHARDRT_SITE_CACHE"
    files.remove(folder)
  end)

  -- Writes a gzipped file of 1,000 bytes and opens it; returns its path.
  local function open(name, letter)
    local plain = files.write(folder, name, files.idx(8, { 1000 }, letter:rep(1000)))
    os.execute("gzip -nf " .. plain)
    local source = shardrt.source.idx({ x = plain .. ".gz" }, { cache = cache })
    assert.equal(letter:byte(), source:read(999, 1).x:item())
    return plain .. ".gz"
  end

  local function kept()
    local names = {}
    for _, name in ipairs(files.list(cache)) do
      if name ~= "http" then names[#names + 1] = name:match "^(.-)%.gz%-%x+%-%x+$" or name end
    end
    return table.concat(names, " ")
  end

  local function age(pattern, hours)
    assert.equal(0, os.execute(("touch -d '%d seconds ago' %s/%s"):format(hours * HOUR, cache, pattern)))
  end

  it("go when their file was written anew, and nobody used them for an hour", function()
    open("a", "p")
    open("a", "q")
    assert.equal("a a", kept()) -- somebody may be about to map the first
    age("a.gz-*", 2)
    open("b", "r")
    assert.equal("a a b", kept()) -- those of another file are not looked at
    open("a", "s")
    assert.equal("a b", kept())
  end)

  it("go beyond the limit, the least recently used first, and others' files stay", function()
    ffi.C.setenv("SHARDRT_UNPACKED_BYTES", "3500", 1)
    for letter in ("abc"):gmatch "." do open(letter, letter) end
    files.write(cache, "notes", ("x"):rep(5000))
    age("notes", 9)
    age("a.gz-*", 2)
    age("b.gz-*", 3)
    open("d", "d")
    assert.equal("a c d notes", kept())
    shardrt.source.idx({ x = folder .. "/a.gz" }, { cache = cache }) -- is used again
    age("c.gz-*", 2)
    open("e", "e")
    assert.equal("a d e notes", kept())
    open("f", "f")
    assert.equal("a d e f notes", kept()) -- all within the hour: the limit waits
    ffi.C.setenv("SHARDRT_UNPACKED_BYTES", "much", 1)
    local message = files.message(function() open("g", "g") end)
    assert.truthy(message:find('SHARDRT_UNPACKED_BYTES is "much"', 1, true), message)
  end)

  it("may lie in a site's cache, which is only read", function()
    local path = open("a", "a")
    local site = folder .. "/site"
    assert.equal(0, os.execute(("mv %s %s && chmod -R a-w %s"):format(cache, site, site)))
    local function looks() return mpi.shell(("find %s -printf '%%P %%s %%T@ %%m\\n' | sort"):format(site)).stdout end
    local before = looks()
    ffi.C.setenv("SHARDRT_SITE_CACHE", site, 1)
    assert.equal(1000, #shardrt.source.idx({ x = path }, { cache = cache }))
    assert.same({}, files.list(cache))
    open("b", "b") -- which the site has not
    assert.equal("b", kept())
    assert.equal(before, looks())
    os.execute("chmod -R u+w " .. site)
  end)
end)

describe("a cache folder that a group may write", function()
  it("stays open to it, whatever the umask of who comes first", function()
    local folder = files.folder()
    local cache = folder .. "/cache"
    files.write(folder, "x", files.idx(8, { 4 }, "abcd"))
    local recipe = files.write(folder, "open.lua", [[
      local shardrt = require "shardrt"
      shardrt.source.idx({ x = arg[1] .. "/x.gz" }, { cache = arg[2] })
      pcall(shardrt.source.npy, { x = "http://127.0.0.1:9/x.npy" }, { cache = arg[2] })]])
    local command = "cd %s && gzip x && chmod 644 x.gz && mkdir -m 2775 %s && umask 077 && "
      .. "SHARDRT_HTTP_TIMEOUT=1 %s %s %s %s"
    local result = mpi.shell(command:format(folder, cache, mpi.program(), recipe, folder, cache))
    assert.equal(0, result.status, result.output)
    local modes = mpi.shell(("cd %s && find . -mindepth 1 -printf '%%y %%m\\n' | sort -u"):format(cache)).stdout
    assert.truthy(modes:find("f 644\n", 1, true), modes)
    for kind, mode in modes:gmatch "(%a) (%d+)\n" do
      assert.truthy(kind == "d" and mode == "2775" or kind == "f" and (mode == "644" or mode == "664"), modes)
    end
    files.remove(folder)
  end)
end)
