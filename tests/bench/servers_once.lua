-- A loader over tars of large members on a server, while a step computes: its bytes a second from when it is made to
-- its last batch. Arguments: how many files, their address with %d, the members' bytes, the rows of a batch, the
-- cache's limit, the seconds that a step computes.

local shardrt = require "shardrt"

local files, address, member, rows, limit, seconds = tonumber(arg[1]), arg[2], tonumber(arg[3]), tonumber(arg[4]),
  tonumber(arg[5]), tonumber(arg[6])
local list = {}
for i = 1, files do list[i] = address:format(i) end
local begun = shardrt.clock()
local source = shardrt.source.tar(list, { fields = { bin = { "uint8", { member } } }, cache_bytes = limit })
local opened = shardrt.clock()
local loader = shardrt.loader {
  source = source, batch_size = rows, epochs = 1, shuffle = "blocks", window = 8, seed = 1,
}
local count, sum, took = 0, 0, 0
for batch in loader do
  took = shardrt.clock() - opened
  count = count + batch.bin.shape[1]
  local stop = shardrt.clock() + seconds
  while shardrt.clock() < stop do sum = (sum * 31 + count) % 1048573 end
end
assert(count > 0 and sum >= 0)
io.write(("%.0f bytes/s, opened in %.3f s, %.0f from the network\n"):format(count * member / took, opened - begun,
  loader:stats().bytes_from_network))
