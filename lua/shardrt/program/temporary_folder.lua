-- A folder for what a job needs no longer than it runs, under one name in every process.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
fail.own()

ffi.cdef "char *mkdtemp(char *);"

---@class shardrt.temporary_folder.words
local words = {}
local temporary_folder = { words = words }

local PATH_BYTES = 1024 -- with the byte that ends it

local path ---@type string? # the folder, once the recipe has asked for it

-- A plan of another process is made without the first one.
local function makes_it() return collective.is_first() or current.info.planning ~= 0 end

--- The job's own folder under $TMPDIR (or /tmp), empty when it is first asked for, and removed with all that is in it
--- when the recipe ends. Every process must call it, and gets the same path; the first process makes the folder, so
--- processes on other hosts see it where $TMPDIR is a file system that they share.
---@return string # without a slash at its end
function words.temporary_folder()
  local mine, job = ffi.new("char[?]", PATH_BYTES), current.info
  if path then return path end
  if makes_it() then
    local wanted = (os.getenv "TMPDIR" or "/tmp") .. "/shardrt-XXXXXX"
    if #wanted < PATH_BYTES then
      ffi.copy(mine, wanted)
      if ffi.C.mkdtemp(mine) == nil then mine[0] = 0 end
    end
  end
  local all = mine
  if job.process_count > 1 and job.planning == 0 then
    all = ffi.new("char[?]", job.process_count * PATH_BYTES)
    C.shardrt_job_at(current.job, fail.where())
    fail.check(C.shardrt_allgather(current.job, "temporary_folder", mine, PATH_BYTES, all))
  end
  if all[0] == 0 then fail "temporary_folder: process 0 cannot make a folder in $TMPDIR, or in /tmp without it" end
  path = ffi.string(all)
  return path
end

--- Gives the folder up, if there is one: its path in the process that is to remove it once the job was left.
---@return string?
function temporary_folder.give_up()
  local mine = path and makes_it() and path or nil
  path = nil
  return mine
end

--- Removes the folder, if there is one: after a recipe that ended well, once all processes are through with it.
---@param is_well boolean # whether the recipe ended without an error: else nobody waits for others
function temporary_folder.remove(is_well)
  if not path then return end
  if is_well and current.info.planning == 0 then
    fail.check(C.shardrt_barrier(current.job, "temporary_folder: the recipe has ended"))
  end
  if makes_it() then os.execute(("rm -rf '%s'"):format(path:gsub("'", "'\\''"))) end
end

return temporary_folder
