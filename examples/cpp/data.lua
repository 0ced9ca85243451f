-- Batches of Fashion-MNIST for a program: those to train with, and those to test with.
--
--   shardrt plan examples/cpp/data.lua      shows what each process would read

local shardrt = require "shardrt"

local folder = arg[1] or "/usr/share/datasets/fashion-mnist"
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })

local function loader(part, options)
  options.source = shardrt.source.idx {
    image = ("%s/%s-images-idx3-ubyte.gz"):format(folder, part),
    label = ("%s/%s-labels-idx1-ubyte.gz"):format(folder, part),
  }
  options.sharding = shardrt.NamedSharding(mesh, shardrt.P "data")
  options.transform = { image = { shardrt.transform.cast "float32", shardrt.transform.scale { factor = 1 / 255 } } }
  return shardrt.loader(options)
end

return {
  train = loader("train", { batch_size = 256, shuffle = true, seed = 1, epochs = 1 }),
  test = loader("t10k", { batch_size = 400 }), -- without an end: 25 batches are an epoch
}
