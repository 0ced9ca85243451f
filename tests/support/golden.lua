-- JAX's reference answers, from ../shared/golden (see its README).

local cjson = require "cjson"

local golden = {}

golden.folder = os.getenv "SHARDRT_GOLDEN" or "../shared/golden"

--- The cases of one file as a list (null is cjson.null), or nil where the file is absent.
function golden.cases(name)
  local file = io.open(golden.folder .. "/" .. name, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return cjson.decode(text).cases
end

return golden
