-- Images: decoded as Pillow decodes them (tests/files/images, made by images.py), whole and by the box, reduced,
-- damaged.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform

ffi.cdef "uint32_t crc32c(uint32_t before, const void *data, size_t bytes);"

local FOLDER = "tests/files/images/"
local references = {}
for line in io.lines(FOLDER .. "reference.txt") do
  local name, height, width, rgb, grey = line:match "^(%S+) (%d+) (%d+) (%x+) (%x+)$"
  references[#references + 1] = {
    name = name, height = tonumber(height), width = tonumber(width), rgb = tonumber(rgb, 16), grey = tonumber(grey, 16),
  }
end

-- A source of one sample: the bytes of a file, uint8 {n}.
local function bytes_source(text)
  local host = ndarray.empty({ 1, #text }, "uint8")
  ffi.copy(host.data, text, #text)
  return shardrt.source.array { image = host }
end

local function read(name) return files.slurp(FOLDER .. name) end

local function decode(text, ...)
  local image = bytes_source(text):map { image = { ... } }:read(0, 1).image
  return ndarray.is(image) and image or image[1]
end

local function crc(host) return tonumber(ffi.C.crc32c(0, host.data, host.bytes)) end

-- The bytes of a box of an image.
local function box_of(image, top, left, height, width)
  local rows, channels, columns = {}, image.shape[3], image.shape[2]
  for y = top, top + height - 1 do
    rows[#rows + 1] = ffi.string(ffi.cast("uint8_t *", image.data) + (y * columns + left) * channels, width * channels)
  end
  return table.concat(rows)
end

describe("decode_image", function()
  it("gives the same pixels of a progressive JPEG without its later scans, whatever box is asked for", function()
    local text = files.slurp "tests/fuzz/corpus/jpeg/failed-progressive-with-one-scan"
    local whole = decode(text, T.decode_image())
    for top = 0, 40, 3 do
      for left = 0, 140, 7 do
        local height, width = math.min(9, whole.shape[1] - top), math.min(20, whole.shape[2] - left)
        local box = decode(text, T.decode_image(), T.crop { start = { top, left }, size = { height, width } })
        local same = box_of(whole, top, left, height, width) == ffi.string(box.data, box.bytes)
        assert.is_true(same, top .. ", " .. left)
      end
    end
  end)

  it("gives Pillow's pixels of every kind of JPEG, of PngSuite, and of WebP", function()
    assert.is_true(#references > 70)
    for _, r in ipairs(references) do
      local rgb, grey = decode(read(r.name), T.decode_image()), decode(read(r.name), T.decode_image { channels = 1 })
      assert.same({ r.height, r.width, 3 }, rgb.shape, r.name)
      assert.same({ r.height, r.width, 1 }, grey.shape, r.name)
      assert.equal(r.rgb, crc(rgb), r.name)
      assert.equal(r.grey, crc(grey), r.name .. ", as grey")
    end
  end)

  it("gives a box of an image the pixels that the whole has", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    for _, r in ipairs(references) do
      local text = read(r.name)
      for channels = 1, 3, 2 do
        local whole = decode(text, T.decode_image { channels = channels })
        for n = 1, 100 do
          local top, left = math.random(0, r.height - 1), math.random(0, r.width - 1)
          local height, width = math.random(1, r.height - top), math.random(1, r.width - left)
          if math.random(3) == 1 then width = math.min(width, 5) end
          -- Of a frame that covers a part, as large as what is decoded around it.
          if n == 1 and r.name == "webp/moving-part.webp" then top, left, height, width = 16, 37, 21, 17 end
          local part = decode(text, T.decode_image { channels = channels },
            T.crop { start = { top, left }, size = { height, width } })
          assert.is_true(ffi.string(part.data, part.bytes) == box_of(whole, top, left, height, width),
            ("%s, %d channels, %d rows from %d, %d columns from %d (seed %d)"):format(r.name, channels, height, top,
              width, left, seed))
        end
      end
    end
  end)

  it("decodes for each device what it holds of an image, the same pixels", function()
    local text = read "jpeg/420.jpg"
    local whole = decode(text, T.decode_image())
    local height, width = whole.shape[1], whole.shape[2]
    local mesh = shardrt.make_mesh({ 2, 4 }, { "y", "x" })
    local loader = shardrt.loader {
      source = bytes_source(text):map {
        image = { T.decode_image(), T.crop { start = { 1, 5 }, size = { height - 1, width - 5 } } },
      },
      batch_size = 1, epochs = 1, sharding = shardrt.NamedSharding(mesh, shardrt.P(nil, "y", "x", nil)),
    }
    local count = 0
    for batch in loader do
      for _, shard in ipairs(batch.image.addressable_shards) do
        local y, x = shard.index[2], shard.index[3]
        assert.is_true(ffi.string(shard.data.data, shard.data.bytes)
          == box_of(whole, y[1] + 1, x[1] + 5, y[2] - y[1], x[2] - x[1]))
        count = count + 1
      end
    end
    assert.equal(8, count)
    assert.is_true(loader:stats().stages.decode > 0)
  end)

  it("refuses damage, and names the sample", function()
    for name, pattern in pairs {
      ["jpeg/420.jpg"] = "sample 0, field \"image\": transform%.decode_image: a damaged JPEG: ",
      ["jpeg/grey-progressive.jpg"] = "a damaged JPEG: ", ["jpeg/cmyk.jpg"] = "a damaged JPEG: ",
      ["png/rgb.png"] = "sample 0, field \"image\": transform%.decode_image: a damaged PNG: ",
      ["png/ibasn3p04.png"] = "a damaged PNG: ",
      ["webp/lossy.webp"] = "sample 0, field \"image\": transform%.decode_image: a damaged WebP: it is cut off",
      ["webp/lossless-alpha.webp"] = "a damaged WebP: ", ["webp/moving.webp"] = "a damaged WebP: ",
    } do
      local text = read(name)
      assert.truthy(files.message(decode, text:sub(1, math.floor(#text / 2)), T.decode_image()):find(pattern))
    end
    for text, pattern in pairs {
      ["abc"] = "3 bytes, which are no image",
      [("GIF89a"):rep(3)] = "no JPEG, PNG or WebP: it begins with the bytes 47 49 46",
      ["\255\216\255"] = "a damaged JPEG", ["RIFF\100\0\0\0WEBP"] = "a damaged WebP: it is cut off",
    } do
      assert.truthy(files.message(decode, text, T.decode_image()):find(pattern))
    end
  end)

  it("survives cuts at every length, and finds them where pixels are missing", function()
    for _, name in ipairs {
      "jpeg/small.jpg", "png/basn2c08.png", "png/ibasn0g01.png", "webp/small.webp", "webp/lossless.webp",
      "webp/moving-part.webp",
    } do
      local text, refused = read(name), 0
      local whole = decode(text, T.decode_image())
      for length = 1, #text - 1 do
        local ok, image = pcall(decode, text:sub(1, length), T.decode_image())
        if not ok then refused = refused + 1 end
        if ok then assert.equal(crc(whole), crc(image), name .. ", cut to " .. length) end
      end
      assert.is_true(refused > #text - 40, name .. ": " .. refused)
    end
  end)

  it("survives single bits that are flipped; those of a PNG's pixels are found", function()
    for _, name in ipairs { "jpeg/small.jpg", "jpeg/grey-progressive.jpg", "png/basn3p02.png", "png/basn6a08.png",
      "webp/small.webp", "webp/lossless-alpha.webp", "webp/moving-part.webp" } do
      local text = read(name)
      local whole = crc(decode(text, T.decode_image()))
      for at = 1, #text, (name:find "progressive" or #text > 1500) and 7 or 1 do
        local bit_ = 2 ^ (at % 8)
        local byte = text:byte(at)
        local other = math.floor(byte / bit_) % 2 == 1 and byte - bit_ or byte + bit_
        local ok, image = pcall(decode, text:sub(1, at - 1) .. string.char(other) .. text:sub(at + 1), T.decode_image())
        if ok and name:find "png" then assert.equal(whole, crc(image), name .. ", byte " .. at) end
      end
    end
  end)

  it("refuses images of more pixels than it decodes, and of more scans", function()
    local text = read "jpeg/grey.jpg" -- its frame header holds height and width
    local at = assert(text:find "\255\192\0\11\8")
    local message = files.message(decode, text:sub(1, at + 4) .. "\255\220\255\220" .. text:sub(at + 9),
      T.decode_image())
    assert.truthy(message:find("65500 x 65500 pixels; at most 268435456 are decoded", 1, true), message)
    local progressive = read "jpeg/grey-progressive.jpg"
    local scan = assert(progressive:find("\255\218", 1, true))
    local next_scan = assert(progressive:find("\255\196", scan, true) or progressive:find("\255\218", scan + 2, true))
    local bomb = progressive:sub(1, next_scan - 1) .. progressive:sub(scan, next_scan - 1):rep(600)
    assert.truthy(files.message(decode, bomb, T.decode_image()):find "a damaged JPEG")
  end)

  it("reduces only where a bilinear sum is of four elements or more, and stays close", function()
    local text = read "jpeg/420.jpg"
    local whole = decode(text, T.decode_image())
    local height, width = whole.shape[1], whole.shape[2]
    local raw = ffi.string(whole.data, whole.bytes)
    local host = ndarray.empty({ 1, height, width, 3 }, "uint8")
    ffi.copy(host.data, raw, #raw)
    local function both(step)
      local a = decode(text, T.decode_image(), step)
      local b = shardrt.source.array { image = host }:map { image = { step } }:read(0, 1).image
      local sum, most = 0, 0
      local x, y = ffi.cast("uint8_t *", a.data), ffi.cast("uint8_t *", b.data)
      for i = 0, a.size - 1 do
        local difference = math.abs(x[i] - y[i])
        sum, most = sum + difference, math.max(most, difference)
      end
      return sum / a.size, most
    end
    for _, size in ipairs { { height - 1, width - 1 }, { 22, 70 }, { 12, 30 }, { 11, 149 } } do
      assert.equal(0, (both(T.resize { height = size[1], width = size[2] })))
    end
    for _, size in ipairs { { 11, 37 }, { 10, 30 }, { 5, 18 }, { 3, 4 }, { 1, 1 } } do
      local mean, most = both(T.resize { height = size[1], width = size[2] })
      assert.is_true(mean < 3 and most < 12, ("%d x %d: mean %.2f, most %d"):format(size[1], size[2], mean, most))
    end
  end)

  it("reduces an image in grey as it does in colours", function()
    local text = read "jpeg/420.jpg"
    for _, size in ipairs { { 22, 70 }, { 11, 37 }, { 5, 18 }, { 1, 1 } } do
      local step = T.resize { height = size[1], width = size[2] }
      local colours, grey = decode(text, T.decode_image(), step), decode(text, T.decode_image { channels = 1 }, step)
      assert.equal(colours.size, 3 * grey.size)
      for i = 0, grey.size - 1 do
        local red, green, blue = colours.data[3 * i], colours.data[3 * i + 1], colours.data[3 * i + 2]
        local luma = (red * 19595 + green * 38470 + blue * 7471) / 65536
        assert.is_true(math.abs(grey.data[i] - luma) < 1.6, ("%d x %d, element %d"):format(size[1], size[2], i))
      end
    end
  end)

  it("gives a box of a reduced image the pixels that the whole has", function()
    local text = read "jpeg/420.jpg"
    for seed = 1, 20 do
      local chain = { T.decode_image(), T.random_resized_crop { size = { 5, 6 }, scale = { 0.5, 1 } } }
      local function load(spec)
        local parts = {}
        for batch in shardrt.loader {
          source = bytes_source(text):map { image = chain }, batch_size = 1, epochs = 1, seed = seed,
          sharding = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "x" }), spec),
        } do
          for i, shard in ipairs(batch.image.addressable_shards) do
            parts[i] = ffi.string(shard.data.data, shard.data.bytes)
          end
        end
        return parts
      end
      local all, halves = load(shardrt.P())[1], load(shardrt.P(nil, nil, "x"))
      local rows = {}
      for y = 0, 4 do rows[y + 1] = halves[1]:sub(y * 9 + 1, y * 9 + 9) .. halves[2]:sub(y * 9 + 1, y * 9 + 9) end
      assert.is_true(table.concat(rows) == all, "seed " .. seed)
    end
  end)

  it("gives everything back where memory runs out", function()
    for _, name in ipairs { "jpeg/420.jpg", "png/basn2c08.png" } do
      local source = bytes_source(read(name)):map { image = { T.decode_image { channels = 1 } } }
      local out, sizes = ffi.new "shardrt_buffer *[1]", ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM)
      local failures = no_memory.each(function()
        local code = C.shardrt_source_value(source, 0, 0, sizes, out)
        if code == 0 then C.shardrt_buffer_free(out[0]) end
        return code
      end)
      assert.is_true(failures > 1, name)
    end
  end)

  -- 64 samples that become small: each image is 6.75 MB, but only one is in memory at a time.
  it("holds one image at a time, however small what becomes of it", function()
    local result = mpi.run { source = [[
      local shardrt, ffi, bit = require "shardrt", require "ffi", require "bit"
      local T = shardrt.transform
      ffi.cdef "unsigned long crc32(unsigned long, const char *, unsigned);"
      ffi.cdef "int compress(char *, unsigned long *, const char *, unsigned long);"
      local function big_endian(n)
        return string.char(bit.band(bit.rshift(n, 24), 255), bit.band(bit.rshift(n, 16), 255),
          bit.band(bit.rshift(n, 8), 255), bit.band(n, 255))
      end
      local function part(name, body)
        local text = name .. body
        return big_endian(#body) .. text .. big_endian(tonumber(ffi.C.crc32(0, text, #text)))
      end
      local rows, room, used = ("\0"):rep(1500 * 4501), ffi.new "char[100000]", ffi.new("unsigned long[1]", 100000)
      assert(ffi.C.compress(room, used, rows, #rows) == 0)
      rows = nil
      local image = "\137PNG\r\n\26\n" .. part("IHDR", big_endian(1500) .. big_endian(1500) .. "\8\2\0\0\0")
        .. part("IDAT", ffi.string(room, used[0])) .. part("IEND", "")
      local host = shardrt.ndarray.empty({ 64, #image }, "uint8")
      for i = 0, 63 do ffi.copy(host.data + i * #image, image, #image) end
      local source = shardrt.source.array { image = host }
        :map { image = { T.decode_image {}, T.resize { height = 2, width = 2 } } }
      source:read(0, 64)
      for line in io.lines "/proc/self/status" do
        if line:match "^VmHWM" then print(line:match "%d+") end
      end]] }
    assert.equal(0, result.status, result.output)
    local limit = os.getenv "SHARDRT_SANITIZER" and 600e3 or 80e3
    assert.is_true(tonumber(result.stdout) < limit, result.stdout .. " kB")
  end)
end)
