-- JAX's reference answers: tests/golden/README.md says what stands in each file. SHARDRT_GOLDEN names another folder of
-- such files.

local cjson = require "cjson"

local golden = {}

golden.folder = os.getenv "SHARDRT_GOLDEN" or "tests/golden"

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
