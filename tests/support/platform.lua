-- On what devices this process's spec runs.

local platform = { name = require("shardrt").devices()[1].platform }

--- Whether devices share the process's memory.
platform.host = platform.name == "host"

--- Whether they are GPUs that the stand-in plays: it computes one thread after the other.
platform.standin = not platform.host and os.getenv "SHARDRT_TEST_PLATFORM" == "standin"

--- The spec's `it` for what is the host's alone. On other devices such a test is pending, and says why.
function platform.host_only(it, pending, why)
  if platform.host then return it end
  return function(name) pending(("%s (host only: %s)"):format(name, why)) end
end

return platform
