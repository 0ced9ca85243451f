-- A folder of classes of images, as ImageNet is kept, over all devices: each image decoded (only the box that is
-- used of it), cropped at random, flipped, normalized, CHW. Without a folder it takes two small classes
-- that lie beside it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/imagenet_folder.lua [FOLDER]

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, T, say = shardrt.P, shardrt.transform, shardrt.say

local folder = arg[1] or "recipes/data/images"
local source = shardrt.source.folder(folder)
say("%d images of %d classes: %s", #source, #source.classes, table.concat(source.classes, ", "))

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = 2 * mesh.size, shuffle = true, seed = 1, epochs = 2, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
  transform = {
    image = {
      T.decode_image(), T.random_resized_crop { size = { 224, 224 } }, T.random_flip(),
      T.normalize { mean = { 0.485, 0.456, 0.406 }, std = { 0.229, 0.224, 0.225 } }, T.transpose { axes = { 2, 0, 1 } },
    },
  },
}

local images = np.zeros({}, "int32")
for batch in loader do
  if loader:stats().steps == 1 then say("the first batch: %s", tostring(batch.image)) end
  images = images + np.sum(batch.mask)
end
say("2 epochs: %d images", images)
