-- Class folders of images: which samples there are, their order and labels, and what is refused.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local T = shardrt.transform

local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local function text_of(host) return ffi.string(host.data, host.bytes) end

-- Files whose contents are their paths.
local function make(...)
  for _, path in ipairs { ... } do
    os.execute(("mkdir -p '%s/%s'"):format(folder, path:match "^(.*)/[^/]*$"))
    files.write(folder, path, path)
  end
end

local function paths_of(source)
  local all, paths = source:read(0, #source), {}
  for i = 1, #source do paths[i] = text_of(all.image[i]) .. " " .. tonumber(all.label.data[i - 1]) end
  return paths
end

describe("source.folder", function()
  it("gives torchvision's samples in its order", function()
    make("b/2.jpg", "b/10.JPEG", "b/x-y/1.png", "b/x/1.png", "b/z.png", "a/only.Jpg", "c é/1.png", "b/3.webp",
      "b/notes.txt", "b/.hidden.jpg", ".git/1.jpg")
    files.write(folder, "README.jpg", "in no class")
    local source = shardrt.source.folder(folder)
    assert.same({ "a", "b", "c é" }, source.classes)
    assert.same({ "image", "label" }, source.names)
    -- sorted(os.walk(class)), then sorted names: a folder's own files first, "x" before "x-y"
    assert.same({ "a/only.Jpg 0", "b/10.JPEG 1", "b/2.jpg 1", "b/3.webp 1", "b/z.png 1", "b/x/1.png 1",
      "b/x-y/1.png 1", "c é/1.png 2" }, paths_of(source))
  end)

  it("follows links, and leaves pipes alone", function()
    make("a/1.jpg", "elsewhere/b/2.jpg")
    local data = folder .. "/data"
    os.execute(("mkdir %s && ln -s ../a %s/a && ln -s ../elsewhere/b %s/b && mkfifo %s/elsewhere/b/pipe.jpg"):format(
      data, data, data, folder))
    assert.same({ "a/1.jpg 0", "elsewhere/b/2.jpg 1" }, paths_of(shardrt.source.folder(data)))
  end)

  it("decodes into batches, and names the sample that is damaged", function()
    os.execute(("mkdir -p %s/jpeg %s/png && cp tests/files/images/jpeg/4*.jpg %s/jpeg/ && "
      .. "cp tests/files/images/png/basn2*.png %s/png/"):format(folder, folder, folder, folder))
    local function load()
      local seen = {}
      for batch in shardrt.loader {
        source = shardrt.source.folder(folder), batch_size = 2, epochs = 1, shuffle = true, remainder = "pad",
        transform = { image = { T.decode_image(), T.random_resized_crop { size = { 8, 8 } }, T.random_flip() } },
        sharding = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "x" }), shardrt.P "x"),
      } do
        assert.same({ 2, 8, 8, 3 }, batch.image.shape)
        for _, shard in ipairs(batch.label.addressable_shards) do
          local label = tonumber(shard.data.data[0])
          seen[label] = (seen[label] or 0) + 1
        end
      end
      return seen
    end
    assert.is_true(load()[0] >= 8)
    os.execute("truncate -s 300 " .. folder .. "/jpeg/444.jpg")
    assert.truthy(files.message(load):find(
      "the file [^\n]*/jpeg/444.jpg: sample %d+, field \"image\": transform%.decode_image: a damaged JPEG"))
  end)

  it("refuses folders that are none, and what would be left out", function()
    local function refused(pattern, path, o)
      local message = files.message(shardrt.source.folder, path or folder, o)
      assert.truthy(message:find(pattern), message .. "\nis not: " .. pattern)
    end
    refused "holds no folders; each class of images has one"
    refused("No such file or directory", folder .. "/none")
    make("a/1.jpg", "b/1.txt")
    refused "/b: holds no image %(%.jpg, %.jpeg, %.png, %.webp%), so this class has no sample"
    make("b/1.gif")
    refused "/b/1%.gif: is an image that is not decoded; JPEG, PNG and WebP are"
    os.remove(folder .. "/b/1.gif")
    make("b/1.jpg")
    refused("its fields are image and label", nil, { fields = { label = "int64" } })
    refused("2 folders; it takes one", { folder, folder })
    os.execute(("ln -s ../a %s/a/again"):format(folder))
    refused "folders within folders, more than 32 deep: a link to a folder above%?"
  end)

  it("says which file is gone or cut off while it is used", function()
    make("a/1.jpg", "a/2.jpg")
    local source = shardrt.source.folder(folder)
    os.remove(folder .. "/a/2.jpg")
    local message = files.message(source.read, source, 1, 1)
    assert.truthy(message:find "/a/2%.jpg: No such file or directory", message)
  end)

  it("is the same in all processes, whatever their order of names", function()
    make("b/1.jpg", "a/1.jpg", "a/2.jpg", "a/0.jpg")
    local result = mpi.run {
      processes = 2, devices = 1, source = ([[
        local shardrt = require "shardrt"
        local source = shardrt.source.folder "%s"
        local labels = {}
        for batch in shardrt.loader { source = source:map { image = false }, batch_size = 2, epochs = 1 } do
          local value = shardrt.process_allgather(batch.label)
          for i = 0, 1 do labels[#labels + 1] = tonumber(value.data[i]) end
        end
        shardrt.say("%%s", table.concat(labels, " "))
      ]]):format(folder),
    }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "0 0 0 1", result.output)
  end)

  it("gives everything back where memory runs out", function()
    make("a/1.jpg", "b/2.jpg", "b/c/3.jpg")
    assert.is_true(files.opens_or_lacks_memory("folder", folder) > 10)
  end)
end)
