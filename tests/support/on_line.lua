-- How recipes of specs begin that lay arrays out on a line of all devices: Lua text, with what they share. on(…) is the
-- sharding of P(…) there.

return [[
package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local moves = require "tests.support.moves"
local shardrt = require "shardrt"
local P = shardrt.P
local me, count = shardrt.process_index(), shardrt.process_count()
local line = shardrt.make_mesh({shardrt.device_count()}, {"x"})
local function on(...) return shardrt.NamedSharding(line, P(...)) end
ffi.cdef "int getpid(void);"
]]
