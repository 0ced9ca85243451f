-- Batches of Fashion-MNIST for a program: each device its own rows.
--
--   shardrt plan examples/c/data.lua      shows what each process would read

local shardrt = require "shardrt"

local folder = arg[1] or "/usr/share/datasets/fashion-mnist"
local source = shardrt.source.idx {
  image = folder .. "/train-images-idx3-ubyte.gz", label = folder .. "/train-labels-idx1-ubyte.gz",
}
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })

return shardrt.loader {
  source = source, batch_size = 256, sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
  shuffle = true, seed = 1, epochs = 1,
  transform = { image = { shardrt.transform.cast "float32", shardrt.transform.scale { factor = 1 / 255 } } },
}
