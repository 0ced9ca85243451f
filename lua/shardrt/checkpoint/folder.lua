-- The folder of a job's checkpoints, which process 0 keeps: what stands in it, and what may go.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local fail = require "shardrt.base.error"
fail.own()

ffi.cdef "long getrandom(void *buffer, size_t bytes, unsigned flags);"

local folder = {}

local Numbers = ffi.typeof "int64_t[?]"

--- A checkpoint's name.
---@param step integer
---@param turn integer # 0; above: the step was saved again
---@return string
function folder.name(step, turn)
  return ("step-%010.0f"):format(step) .. (turn > 0 and (".%d"):format(turn) or "")
end

--- Its name while it is written, or half removed.
---@param step integer
---@param number integer|ffi.cdata* # by which no other is called
---@return string
function folder.temporary_name(step, number) return (".step-%010.0f.%s.tmp"):format(step, bit.tohex(number)) end

--- A number that no other process picks.
---@return ffi.cdata*
function folder.random_number()
  local number = Numbers(1)
  ffi.C.getrandom(number, 8, 0)
  return number[0]
end

--- Process 0: the checkpoints in the folder, oldest first; and the names of what was not completed, or half removed.
---@param handle ffi.cdata*
---@return {step: integer, turn: integer}[]
---@return string[]
---@return integer # an error's code, or 0
function folder.look(handle)
  local out, found, left = ffi.new "shardrt_buffer *[1]", {}, {}
  local code = C.shardrt_folder_names(handle, out)
  if code < 0 then return found, left, code end
  local names = ffi.string(C.shardrt_buffer_data(out[0]), C.shardrt_buffer_bytes(out[0]))
  C.shardrt_buffer_free(out[0])
  for name in names:gmatch "[^%z]+" do
    local step, turn = name:match "^step%-(%d+)%.?(%d*)$"
    if step then
      step, turn = tonumber(step), tonumber(turn) or 0
      if name == folder.name(step, turn) then found[#found + 1] = { step = step, turn = turn } end
    elseif name:match "^%.step%-%d+%.%x+%.tmp$" then
      left[#left + 1] = name
    end
  end
  table.sort(found, function(a, b) return a.step < b.step or a.step == b.step and a.turn < b.turn end)
  return found, left, 0
end

-- Process 0: the space is wanted back, but the job is well without.
local function remove(handle, name)
  local code = C.shardrt_folder_remove(handle, name)
  if code < 0 then collective.notice("checkpoint: %s; it takes up space, and nothing else", fail.message(code)) end
end

--- Process 0: removes what killed runs left behind.
---@param handle ffi.cdata*
function folder.tidy(handle)
  local _, left = folder.look(handle)
  for _, name in ipairs(left) do remove(handle, name) end
end

--- Process 0: removes all checkpoints but the one that was just saved, and the newest of those before it. Any of a
--- later step was found damaged, or the job would have gone on from it.
---@param handle ffi.cdata*
---@param saved {step: integer, turn: integer}
---@param keep integer # how many stay
function folder.keep(handle, saved, keep)
  local found, older = folder.look(handle), 0
  for i = #found, 1, -1 do
    local entry = found[i]
    local is_saved = entry.step == saved.step and entry.turn == saved.turn
    local later = entry.step > saved.step or entry.step == saved.step and entry.turn > saved.turn
    if not later and not is_saved then older = older + 1 end
    if later or older >= keep then
      -- It is never half there under its own name.
      local name = folder.temporary_name(entry.step, folder.random_number())
      local code = C.shardrt_folder_rename(handle, folder.name(entry.step, entry.turn), name)
      if code < 0 then collective.notice("checkpoint: %s", fail.message(code)) else remove(handle, name) end
    end
  end
end

return folder
