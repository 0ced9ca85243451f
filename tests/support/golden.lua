-- JAX's reference answers: tests/golden/README.md describes each file. SHARDRT_GOLDEN names another folder of such
-- files, for example one that tests/golden/make.py made.

local cjson = require "cjson"
local ffi = require "ffi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"

local golden = {}

golden.folder = os.getenv "SHARDRT_GOLDEN" or "tests/golden"
golden.own = golden.folder == "tests/golden" -- the files of the tree: their cases are known

--- The cases of one file, as a list (null is cjson.null).
---@param name string
---@return table[]
function golden.cases(name)
  local file = assert(io.open(golden.folder .. "/" .. name, "rb"))
  local text = file:read "*a"
  file:close()
  return cjson.decode(text).cases
end

--- The host array that {dtype, shape, its bytes in hex} stands for.
---@param given table
---@return shardrt.ndarray
function golden.array(given)
  local host, k = shardrt.ndarray.empty(given[2], given[1]), 0
  local bytes = ffi.cast("uint8_t *", host.data)
  for byte in given[3]:gmatch ".." do
    bytes[k] = tonumber(byte, 16)
    k = k + 1
  end
  return host
end

--- Of what gradients are taken: the sum of the elements, each times a number of its own.
---@param x shardrt.Array
---@return shardrt.Array # of one float32
function golden.weighted(x)
  local weights = shardrt.ndarray.empty({ x.size }, "float32")
  for k = 0, x.size - 1 do weights.data[k] = (k * 37 % 11 - 5) / 4 end
  return np.sum(np.astype(x, "float32") * weights:reshape(x.shape))
end

return golden
