-- library_data.lua FOLDER: the recipe of `make bench PARTS=library`: shuffled images with labels, their rows over all
-- devices.

local shardrt = require "shardrt"

return shardrt.loader {
  source = shardrt.source.npy { image = arg[1] .. "/image.npy", label = arg[1] .. "/label.npy" },
  batch_size = 256, shuffle = true, seed = 42,
  sharding = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "data" }), shardrt.P "data"),
}
