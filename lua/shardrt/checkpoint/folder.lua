-- The folder of a job's checkpoints, which process 0 keeps: what stands in it, and what may go.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local fail = require "shardrt.base.error"
local manifest = require "shardrt.checkpoint.manifest"
local owned = require "shardrt.base.owned"
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

--- What a checkpoint's name says; nil: it is none.
---@param name string
---@return {step: integer, turn: integer}?
function folder.parse(name)
  local step, turn = name:match "^step%-(%d+)%.?(%d*)$"
  if not step then return end
  local entry = { step = tonumber(step), turn = tonumber(turn) or 0 }
  return name == folder.name(entry.step, entry.turn) and entry or nil
end

--- The oldest first.
---@param found {step: integer, turn: integer}[]
function folder.sort(found)
  table.sort(found, function(a, b) return a.step < b.step or a.step == b.step and a.turn < b.turn end)
end

--- Its name while it is written, or half removed.
---@param step integer
---@param number integer|ffi.cdata* # by which no other is called
---@return string
function folder.temporary_name(step, number) return (".step-%010.0f.%s.tmp"):format(step, bit.tohex(number)) end

--- Where a checkpoint is written.
---@param step integer
---@param _ integer # the turn
---@param number integer|ffi.cdata*
---@return string
function folder.writing_name(step, _, number) return folder.temporary_name(step, number) end

--- Process 0: begins to keep checkpoints in a folder, alone.
---@param path string
---@param patience number # seconds
---@return ffi.cdata*? # handle
---@return integer # an error's code, or 0
function folder.open(path, patience)
  local out = ffi.new "shardrt_folder *[1]"
  local code = C.shardrt_folder_open(path, patience, out)
  return code >= 0 and owned(out, "shardrt_folder_free") or nil, code
end

--- Process 0: lets it go.
---@param handle ffi.cdata*
function folder.close(handle) C.shardrt_folder_free(ffi.gc(handle, nil)) end

--- Process 0: makes the temporary folder.
---@param handle ffi.cdata*
---@param name string
---@return integer # an error's code, or 0
function folder.begin(handle, name) return C.shardrt_folder_make(handle, name) end

--- Process 0: writes the manifest, and gives the folder its name, with which the checkpoint is there.
---@param handle ffi.cdata*
---@param temporary string
---@param name string
---@param text string # of the manifest
---@param dir string
---@return integer # an error's code, or 0
function folder.complete(handle, temporary, name, text, dir)
  local code = C.shardrt_file_save(("%s/%s/%s"):format(dir, temporary, manifest.MANIFEST), text, #text)
  return code < 0 and code or C.shardrt_folder_rename(handle, temporary, name)
end

--- Process 0: removes what was not completed.
---@param handle ffi.cdata*
---@param temporary string
function folder.give_up(handle, temporary) C.shardrt_folder_remove(handle, temporary) end

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
    local entry = folder.parse(name)
    if entry then
      found[#found + 1] = entry
    elseif name:match "^%.step%-%d+%.%x+%.tmp$" then
      left[#left + 1] = name
    end
  end
  folder.sort(found)
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

--- Of those that are there, oldest first, all but the one that was just saved, and the newest of those before it. Any
--- of a later step was found damaged, or the job would have gone on from it.
---@param found {step: integer, turn: integer}[]
---@param saved {step: integer, turn: integer}
---@param keep integer # how many stay
---@return {step: integer, turn: integer}[]
function folder.superfluous(found, saved, keep)
  local older, some = 0, {}
  for i = #found, 1, -1 do
    local entry = found[i]
    local is_saved = entry.step == saved.step and entry.turn == saved.turn
    local later = entry.step > saved.step or entry.step == saved.step and entry.turn > saved.turn
    if not later and not is_saved then older = older + 1 end
    if later or older >= keep then some[#some + 1] = entry end
  end
  return some
end

--- Process 0: removes these.
---@param handle ffi.cdata*
---@param saved {step: integer, turn: integer}
---@param keep integer # how many stay
function folder.keep(handle, saved, keep)
  for _, entry in ipairs(folder.superfluous((folder.look(handle)), saved, keep)) do
    -- It is never half there under its own name.
    local name = folder.temporary_name(entry.step, folder.random_number())
    local code = C.shardrt_folder_rename(handle, folder.name(entry.step, entry.turn), name)
    if code < 0 then collective.notice("checkpoint: %s", fail.message(code)) else remove(handle, name) end
  end
end

return folder
