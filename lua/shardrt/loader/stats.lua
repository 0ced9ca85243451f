-- What a loader did so far: what C counted, on the way that it goes now and on those that it left.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
require("shardrt.base.error").own()

local stats = {}

---@class shardrt.LoaderStages # seconds: the first five of all workers together, `wait` and `move` of the recipe
---@field read number # from the storage or the page cache
---@field decode number
---@field transform number
---@field scatter number # copying rows that were read whole ("global") to where they belong
---@field check number # taking fingerprints of replicas, to compare them
---@field wait number # for a batch: of `seconds`, what the recipe waited for data
---@field move number # of batches between processes and shards, from when all processes had come to it
---@field upload number # copying to devices with memory of their own, by their clocks: of each batch, the longest
---@field upload_wait number # of that, when a device stood still for it: 1 - upload_wait / upload of copying was hidden

---@class shardrt.LoaderStats
---@field bytes_read integer # taken from the storage by this process, for the batches handed out
---@field bytes_from_network integer # downloaded from servers by this process, for its cache or past it
---@field blocks integer # that the source is stored in; where each sample stands alone, the samples
---@field blocks_decoded integer # by this process: each as often as it was decoded. Of formats that decode blocks
---@field bytes_ahead integer # read before workers needed them, because they were not in the page cache
---@field ahead string? # how: "io_uring" or "threads"; nil: nothing was missing yet; "none": neither can be had; "off"
---@field bytes_moved integer # received from other processes
---@field bytes_uploaded integer # to devices with memory of their own (GPUs), in batches that have arrived there
---@field samples integer # rows of the global batches handed out, without padding
---@field bad_records integer # samples of the source that were left out, because they cannot be read
---@field steps integer # batches handed out
---@field steps_checked integer # of these, the ones whose replicas were compared; 0 where no field has replicas
---@field bytes_fingerprinted integer # by this process, to compare them
---@field seconds number # from the call for the first batch to the last call's end
---@field stages shardrt.LoaderStages
---@field num_workers integer # that make batches now
---@field prefetch integer # batches made ahead now
---@field read_size integer # bytes that a worker reads at once, if they are more than a row
---@field why string # these three are so
---@field budget_bytes integer # that batches may take here, made ahead or let go and not yet collected
---@field slack_bytes integer # of these, what batches that were let go may take before they are collected
---@field buffers integer # how many batches these are
---@field batch_bytes integer # of this process's shards of one batch
---@field pinned_bytes integer # of the host's memory from which batches are uploaded, at most, but for a quarter that
---rounding adds to a block; 0 where devices are the host's

local STAGES = { "read", "decode", "transform", "scatter", "check", "wait", "move", "upload", "upload_wait" }

--- What C counted, of the way that a loader goes now.
---@param loader shardrt.loader.Inside
---@return ffi.cdata* # shardrt_loader_stats
function stats.of_way(loader)
  local counted = ffi.new "shardrt_loader_stats"
  C.shardrt_loader_stats_get(loader.handle, counted)
  return counted
end

--- What a loader did so far, in this process.
---@param loader shardrt.loader.Inside
---@return shardrt.LoaderStats
function stats.of(loader)
  local c, before = stats.of_way(loader), loader.before
  local function total(name) return tonumber(c[name]) + (before[name] or 0) end
  local stages = {}
  for _, name in ipairs(STAGES) do
    stages[name] = c[name .. "_seconds"] + (before.stages and before.stages[name] or 0)
  end
  return {
    bytes_read = total "bytes_read", bytes_moved = total "bytes_moved",
    bytes_uploaded = total "bytes_uploaded", samples = total "samples",
    steps = total "steps", steps_checked = total "steps_checked", bytes_fingerprinted = total "bytes_fingerprinted",
    bad_records = tonumber(C.shardrt_source_bad_count(loader.source)),
    bytes_from_network = total "bytes_from_network",
    blocks = tonumber(c.blocks), blocks_decoded = total "blocks_decoded",
    bytes_ahead = total "bytes_ahead", ahead = c.ahead ~= nil and ffi.string(c.ahead) or nil,
    seconds = total "seconds", num_workers = c.num_workers, prefetch = c.prefetch,
    read_size = tonumber(c.read_size), why = ffi.string(c.why), budget_bytes = tonumber(c.budget_bytes),
    slack_bytes = loader.slack,
    stages = stages,
    buffers = loader.batch_bytes == 0 and 0 or math.floor(tonumber(c.budget_bytes) / loader.batch_bytes),
    batch_bytes = loader.batch_bytes, pinned_bytes = tonumber(c.pinned_bytes),
  }
end

return stats
