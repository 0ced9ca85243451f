-- For mixing.py: writes the numbers of the samples of an epoch, int64, in the order that a loader gives them.
-- Arguments: a .npy file; batch size; shuffle (true or blocks); window.

local ffi = require "ffi"
local shardrt = require "shardrt"

local path, batch_size, shuffle, window = arg[1], tonumber(arg[2]), arg[3], tonumber(arg[4])
local loader = shardrt.loader {
  source = shardrt.source.npy { row = path }:enumerate("id"):map { row = false },
  batch_size = batch_size, epochs = 1, seed = 7, shuffle = shuffle == "blocks" and shuffle or shuffle == "true",
  window = window,
}
for batch in loader do
  local id = shardrt.device_get(batch.id)
  io.stdout:write(ffi.string(id.data, id.bytes))
end
