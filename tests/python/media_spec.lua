-- Sounds and WebP images at random, decoded as soundfile and Pillow decode them. SHARDRT_TEST_SEED says which.

local ffi = require "ffi"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local seed = require "tests.support.seed"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform

ffi.cdef "unsigned long crc32(unsigned long, const void *, unsigned);"
local python, missing = library.media()

describe("sounds and WebP images beside soundfile and Pillow", function()
  if not python then
    pending(missing)
    return
  end
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  it("are decoded to the same bytes, seed " .. seed, function()
    local command = "%s -B tests/support/transform/media_random.py %d %s"
    local made = mpi.shell(command:format(python, seed, folder), 100)
    assert.equal(0, made.status, made.output)
    local count = 0
    for line in io.lines(folder .. "/list") do
      local kind, path, form, a, b, right = line:match "^(%S+) (%S+) (%S+) (%d+) (%d+) (%x+)$"
      local text = files.slurp(path)
      local host = ndarray.empty({ 1, #text }, "uint8")
      ffi.copy(host.data, text, #text)
      local step = kind == "sound" and T.decode_audio { dtype = form } or T.decode_image { channels = tonumber(form) }
      local x = shardrt.source.array { x = host }:map { x = { step } }:read(0, 1).x
      x = ndarray.is(x) and x:reshape { unpack(x.shape, 2) } or x[1]
      assert.same({ tonumber(a), tonumber(b), tonumber(kind == "image" and form or nil) }, x.shape, line)
      assert.equal(right, ("%08x"):format(tonumber(ffi.C.crc32(0, x.data, x.bytes))), line)
      count = count + 1
    end
    assert.equal(64, count)
  end)
end)
