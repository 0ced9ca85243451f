-- JAX's reference answers: tests/golden/README.md describes each file. SHARDRT_GOLDEN names another folder of such
-- files, for example one that tests/golden/make.py made.

local cjson = require "cjson"

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

return golden
