-- Sounds: decoded as Python's soundfile does (tests/files/audio, made by audio.py), whole and by the box, damaged, cut,
-- and refused.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local seed = require "tests.support.seed"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform

ffi.cdef "uint32_t crc32c(uint32_t before, const void *data, size_t bytes);"

local FOLDER = "tests/files/audio/"
local references = {}
for line in io.lines(FOLDER .. "reference.txt") do
  local name, frames, channels, rate, float32, int16 = line:match "^(%S+) (%d+) (%d+) (%d+) (%S+) (%S+)$"
  references[#references + 1] = {
    name = name, text = files.slurp(FOLDER .. name), frames = tonumber(frames), channels = tonumber(channels),
    rate = tonumber(rate), float32 = tonumber(float32, 16), int16 = tonumber(int16, 16),
  }
end
local function read(name)
  for _, r in ipairs(references) do if r.name == name then return r.text end end
end

local function bytes_of(text)
  local host = ndarray.empty({ #text }, "uint8")
  ffi.copy(host.data, text, #text)
  return host
end

local function sound_source(...)
  local hosts = {}
  for i, text in ipairs { ... } do hosts[i] = bytes_of(text) end
  return shardrt.source.ragged { x = hosts }
end

local function decode(text, ...)
  local x = sound_source(text):map { x = { ... } }:read(0, 1).x
  return ndarray.is(x) and x:reshape { unpack(x.shape, 2) } or x[1]
end

local function crc(host) return tonumber(ffi.C.crc32c(0, host.data, host.bytes)) end

-- The bytes of frames first … first + frames - 1 of the channels from `channel` on, of a decoded sound.
local function box_of(sound, first, frames, channel, channels)
  local size, rows = sound.bytes / sound.size, {}
  local at = ffi.cast("uint8_t *", sound.data)
  for i = first, first + frames - 1 do
    rows[#rows + 1] = ffi.string(at + (i * sound.shape[2] + channel) * size, channels * size)
  end
  return table.concat(rows)
end

describe("decode_audio", function()
  it("gives what soundfile reads, as float32 and int16", function()
    local compared = 0
    for _, r in ipairs(references) do
      for _, dtype in ipairs { "float32", "int16" } do
        local sound = decode(r.text, T.decode_audio { dtype = dtype, channels = r.channels, rate = r.rate })
        assert.same({ r.frames, r.channels }, sound.shape, r.name)
        assert.equal(dtype, sound.dtype)
        if r[dtype] then
          assert.equal(r[dtype], crc(sound), r.name .. " as " .. dtype)
          compared = compared + 1
        end
      end
      assert.equal("float32", decode(r.text, T.decode_audio()).dtype)
    end
    assert.is_true(compared >= 36)
  end)

  it("gives of Ogg and MP3 the tones that were written", function()
    for name, rate in pairs { ["vorbis.ogg"] = 8000, ["layer3.mp3"] = 16000 } do
      local sound, sum = decode(read(name), T.decode_audio()), 0
      for i = 0, sound.size - 1 do
        local c = i % sound.shape[2]
        local t = (i - c) / sound.shape[2] / rate
        local right = 0.55 * math.sin(2 * math.pi * (200 + 90 * c) * t * (1 + t)) + 0.3 * math.cos(37 * t + c)
        sum = sum + math.abs(sound.data[i] - right)
      end
      assert.is_true(sum / sound.size < 0.03, name .. ": " .. sum / sound.size)
    end
  end)

  it("gives a box of a sound the numbers that the whole has", function()
    math.randomseed(seed)
    for _, r in ipairs(references) do
      for _, dtype in ipairs { "float32", "int16" } do
        local step = T.decode_audio { dtype = dtype }
        local whole = decode(r.text, step)
        for _ = 1, r.frames > 0 and 12 or 0 do
          local first, channel = math.random(0, r.frames - 1), math.random(0, r.channels - 1)
          local frames, channels = math.random(1, r.frames - first), math.random(1, r.channels - channel)
          if math.random(2) == 1 then channel, channels = 0, r.channels end
          local box = decode(r.text, step, T.crop { start = { first, channel }, size = { frames, channels } })
          assert.is_true(ffi.string(box.data, box.bytes) == box_of(whole, first, frames, channel, channels),
            ("%s as %s, frames %d + %d, channels %d + %d (seed %d)"):format(r.name, dtype, first, frames, channel,
              channels, seed))
        end
      end
    end
  end)

  it("stands in batches, decoded by many threads, cropped at random and filled up", function()
    local texts = {}
    for i = 1, 64 do texts[i] = read(({ "pcm_16.flac", "one.wav", "layer3.mp3", "loud.wav" })[i % 4 + 1]) end
    local source = sound_source(unpack(texts))
    local function load(devices, chain)
      local rows = {}
      for batch in shardrt.loader {
        source = source, batch_size = 16, epochs = 1, seed = 3, shuffle = true, transform = { x = chain },
        sharding = shardrt.NamedSharding(shardrt.make_mesh({ devices }, { "x" }), shardrt.P "x"),
      } do
        for _, shard in ipairs(batch.x.addressable_shards) do
          rows[#rows + 1] = ffi.string(shard.data.data, shard.data.bytes)
        end
      end
      return table.concat(rows)
    end
    local padded = { T.decode_audio { dtype = "int16", channels = 1 }, T.pad { size = { 9000, 1 } } }
    local one = load(1, padded)
    assert.equal(64 * 9000 * 2, #one)
    assert.is_true(one == load(8, padded))
    for i = 1, #texts do texts[i] = read(i % 2 == 0 and "pcm_16.flac" or "layer3.mp3") end
    source = sound_source(unpack(texts))
    local cropped = { T.decode_audio { channels = 1, rate = 16000 }, T.random_crop { size = { 4000 } } }
    local o = { source = source, batch_size = 16, epochs = 1, seed = 5, transform = { x = cropped } }
    local batch = shardrt.loader(o)()
    assert.same({ 16, 4000, 1 }, batch.x.shape)
    assert.equal("float32", batch.x.dtype)
  end)

  it("refuses other channels and rates than were asked for, and names the sample", function()
    local function refused(pattern, text, o)
      local message = files.message(decode, text, T.decode_audio(o))
      assert.truthy(message:find(pattern, 1, true), message .. "\nis not: " .. pattern)
    end
    refused('sample 0, field "x": transform.decode_audio: a sound of 2 channels, not of 1', read "pcm_16.wav",
      { channels = 1 })
    refused("a sound of 8000 frames in a second, not of 16000; resample it before", read "pcm_16.wav",
      { rate = 16000 })
    refused("3 bytes, which are no sound", "abc")
    refused("no WAV, FLAC, Ogg or MP3: it begins with the bytes 46 4f 52 4d", "FORM\0\0\0\4AIFF")
    refused("a damaged FLAC, or one of a kind that libsndfile-", "fLaC" .. ("\0"):rep(60))
    refused('it is cut off: 300 bytes of samples are missing', read("pcm_16.wav"):sub(1, -301))
    for _, name in ipairs { "pcm_16.flac", "pcm_24.flac" } do
      local text = read(name)
      refused("a damaged FLAC", text:sub(1, math.floor(#text / 2)))
    end
    for _, o in ipairs { { dtype = "int32" }, { channels = 0 }, { rate = 1.5 }, { rates = 1 } } do
      assert.truthy(files.message(T.decode_audio, o):find("decode_audio", 1, true))
    end
    assert.truthy(files.message(T.decode_audio, { dtype = "int32" }):find "it makes float32 or int16, not int32")
  end)

  it("takes no memory for frames that only a header tells of", function()
    local text = read "pcm_16.flac"
    -- STREAMINFO ends its 20 bits of rate, 3 and 5 bits with 36 bits that count the frames.
    local most = text:sub(1, 21) .. string.char(bit.bor(text:byte(22), 15)) .. "\255\255\255\255" .. text:sub(27)
    local message = files.message(decode, most, T.decode_audio())
    assert.truthy(message:find("a sound of 68719476735 frames, 1 channels; at most 1073741824", 1, true), message)
    local none = text:sub(1, 21) .. string.char(bit.band(text:byte(22), 240)) .. "\0\0\0\0" .. text:sub(27)
    message = files.message(decode, none, T.decode_audio())
    assert.truthy(message:find("a FLAC that does not say how many frames it has, as one written to a pipe", 1, true),
      message)
    most = text:sub(1, 22) .. "\32\0\0\0" .. text:sub(27) -- 2^29 frames
    message = files.message(decode, most, T.decode_audio())
    assert.truthy(message:find("tells of 536870912 frames, which are not in 11517 bytes", 1, true), message)
    local more = text:sub(1, 22) .. "\0\16\0\0" .. text:sub(27) -- 2^20 frames
    message = files.message(decode, more, T.decode_audio())
    assert.truthy(message:find("a damaged FLAC", 1, true), message)
    assert.equal(10, decode(more, T.decode_audio(), T.crop { size = { 10 } }).shape[1])
  end)

  it("survives cuts at every length, and finds them where frames are missing", function()
    for name, step in pairs { ["one.wav"] = 1, ["six.wav"] = 13, ["rf64.wav"] = 13, ["pcm_s8.flac"] = 37 } do
      local text = read(name)
      local whole, refused, tried = crc(decode(text, T.decode_audio())), 0, 0
      for length = 1, #text - 1, step do
        local ok, sound = pcall(decode, text:sub(1, length), T.decode_audio())
        tried, refused = tried + 1, refused + (ok and 0 or 1)
        if ok and name ~= "rf64.wav" then assert.equal(whole, crc(sound), name .. ", cut to " .. length) end
      end
      assert.is_true(refused > tried * 0.1, name .. ": " .. refused)
    end
  end)

  it("survives single bits that are flipped; those of a FLAC's frames are found", function()
    for name, step in pairs { ["pcm_s8.flac"] = 17, ["ima_adpcm.wav"] = 7, ["vorbis.ogg"] = 97, ["layer3.mp3"] = 41 } do
      local text = read(name)
      local whole, found = crc(decode(text, T.decode_audio())), 0
      for at = 1, #text, step do
        local other = bit.bxor(text:byte(at), bit.lshift(1, at % 8))
        local ok, sound = pcall(decode, text:sub(1, at - 1) .. string.char(other) .. text:sub(at + 1), T.decode_audio())
        if not ok then found = found + 1 end
        if ok and name:find "flac" and at > 1000 then assert.equal(whole, crc(sound), name .. ", byte " .. at) end
      end
      assert.is_true(found > 0, name)
    end
  end)

  it("gives everything back where memory runs out", function()
    local source = sound_source(read "pcm_16.flac"):map { x = { T.decode_audio() } }
    local out, sizes = ffi.new "shardrt_buffer *[1]", ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM)
    local failures = no_memory.each(function()
      local code = C.shardrt_source_value(source, 0, 0, sizes, out)
      if code == 0 then C.shardrt_buffer_free(out[0]) end
      return code
    end)
    assert.is_true(failures > 1)
  end)
end)
