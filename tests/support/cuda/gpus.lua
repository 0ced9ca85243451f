-- A recipe of specs: which GPUs a process's devices are.

package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local shardrt = require "shardrt"
local accelerator = require "tests.support.cuda.accelerator"

local names = {}
for d = 0, shardrt.local_device_count() - 1 do
  local info = ffi.new "struct accelerator_info"
  accelerator.check(accelerator.get().describe(d, info))
  names[d + 1] = ffi.string(info.name)
end
print(shardrt.process_index(), shardrt.device_count(), table.concat(names, ", "))
