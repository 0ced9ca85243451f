-- The place of a job's checkpoints in a bucket, as folder.lua has it on a disk. There are no folders there and nothing
-- gets another name: the object checkpoint.json, which comes last and goes first, makes a checkpoint complete. Nobody
-- is kept out, as a bucket has no locks.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local fail = require "shardrt.base.error"
local folder = require "shardrt.checkpoint.folder"
local manifest = require "shardrt.checkpoint.manifest"
local owned = require "shardrt.base.owned"
fail.own()

local bucket = {}

--- Process 0: begins to keep checkpoints below an address, and ends uploads that killed runs left open there.
---@param address string # "s3://bucket/run-7"
---@return string? # handle
---@return integer # an error's code, or 0
function bucket.open(address)
  C.shardrt_object_end_uploads(address .. "/step-")
  return address, 0
end

function bucket.close() end

-- The objects of checkpoints by these's names: lists of addresses; or nil and an error's code.
local function list_objects(address)
  local out, by_name = ffi.new "shardrt_listing *[1]", {}
  local code = C.shardrt_listing_new(address .. "/step-", 1, out)
  if code < 0 then return nil, code end
  local listing = owned(out, "shardrt_listing_free")
  for i = 0, tonumber(C.shardrt_listing_count(listing)) - 1 do
    local object = ffi.string(C.shardrt_listing_address(listing, i))
    local name = object:sub(#address + 2):match "^([^/]+)/[^/]+$"
    if name and folder.parse(name) then
      by_name[name] = by_name[name] or {}
      table.insert(by_name[name], object)
    end
  end
  return by_name, 0
end

local function is_manifest(object) return object:sub(-#manifest.MANIFEST - 1) == "/" .. manifest.MANIFEST end

-- Process 0: removes a checkpoint's objects, that which makes it complete first.
local function remove(objects)
  table.sort(objects, function(a, b) return is_manifest(a) and not is_manifest(b) end)
  for _, object in ipairs(objects) do
    local code = C.shardrt_object_remove(object)
    if code < 0 then
      collective.notice("checkpoint: %s; it takes up space, and nothing else", fail.message(code))
      return
    end
  end
end

-- Those that are complete, oldest first, and the names of others.
local function sort_out(by_name)
  local found, left = {}, {}
  for name, objects in pairs(by_name) do
    local complete = false
    for _, object in ipairs(objects) do complete = complete or is_manifest(object) end
    table.insert(complete and found or left, complete and folder.parse(name) or name)
  end
  folder.sort(found)
  return found, left
end

--- As folder.look.
---@param address string
---@return {step: integer, turn: integer}[]
---@return string[]
---@return integer # an error's code, or 0
function bucket.look(address)
  local by_name, code = list_objects(address)
  if not by_name then return {}, {}, code end
  local found, left = sort_out(by_name)
  return found, left, 0
end

--- Where a checkpoint is written.
---@param step integer
---@param turn integer
---@return string
function bucket.writing_name(step, turn) return folder.name(step, turn) end

--- Process 0: nothing has to be made.
---@return integer
function bucket.begin() return 0 end

--- Process 0: writes the manifest, with which the checkpoint is there.
---@param address string
---@param name string
---@param _ string # the same
---@param text string # of the manifest
---@return integer # an error's code, or 0
function bucket.complete(address, name, _, text)
  return C.shardrt_object_put(("%s/%s/%s"):format(address, name, manifest.MANIFEST), text, #text)
end

--- Process 0: removes what was written under a name.
---@param address string
---@param name string
function bucket.give_up(address, name)
  local by_name = list_objects(address)
  if by_name and by_name[name] then remove(by_name[name]) end
end

--- Process 0: removes what killed runs left behind.
---@param address string
function bucket.tidy(address)
  local by_name = list_objects(address)
  if not by_name then return end
  local _, left = sort_out(by_name)
  for _, name in ipairs(left) do remove(by_name[name]) end
end

--- As folder.keep.
---@param address string
---@param saved {step: integer, turn: integer}
---@param keep integer
function bucket.keep(address, saved, keep)
  local by_name = list_objects(address)
  if not by_name then return end
  for _, entry in ipairs(folder.superfluous(sort_out(by_name), saved, keep)) do
    remove(by_name[folder.name(entry.step, entry.turn)])
  end
end

return bucket
