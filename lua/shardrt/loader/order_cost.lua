-- What the orders of an epoch would cost, where the source is stored in blocks that are decoded or downloaded whole.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local pipeline = require "shardrt.loader.pipeline"
fail.own()

local order_cost = {}

order_cost.WINDOW = 32 -- blocks, where the recipe does not say how many

local MOST_PROCESSES = 16 -- of more than these the first stands for all

local function with_commas(n)
  local digits = ("%.0f"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (digits:gsub("^,", ""))
end

local function of_process(loader, process, shuffle, window)
  local cost = ffi.new "shardrt_order_cost"
  local options, borrowed = pipeline.options(loader, process, shuffle, window)
  local code = C.shardrt_loader_order_cost(options, cost)
  if code < 0 then fail("loader: %s", fail.message(code)) end
  borrowed[1] = nil
  return cost
end

---@class shardrt.order_cost
---@field blocks number # that an epoch comes to in all processes together: each as often as they do
---@field bytes number # that these take where they are stored
---@field decoded boolean # blocks are decoded
---@field downloaded boolean # they come from a server
---@field kept number # that a process keeps decoded

--- What an epoch would cost in one order.
---@param loader shardrt.loader.Inside
---@param shuffle boolean|"blocks"
---@param window integer? # of "blocks"
---@param asked integer # of so many processes, which stand for all
---@return shardrt.order_cost
function order_cost.of(loader, shuffle, window, asked)
  local processes = current.info.process_count
  local sum = { blocks = 0, bytes = 0 }
  for process = 0, asked - 1 do
    local cost = of_process(loader, process, shuffle, window)
    sum.blocks = sum.blocks + tonumber(cost.blocks) * processes / asked
    sum.bytes = sum.bytes + tonumber(cost.bytes) * processes / asked
    sum.decoded, sum.downloaded, sum.kept = cost.decoded ~= 0, cost.downloaded ~= 0, tonumber(cost.kept)
  end
  return sum
end

-- Whether the orders differ in what they cost: some samples share a block that is taken whole.
local function matters(loader)
  local blocks, count = tonumber(C.shardrt_source_blocks(loader.source)), #loader.source
  return C.shardrt_source_mix_weight(loader.source, 0) == 0 and blocks < count, blocks
end

--- For `shardrt plan`: a line for each order; none where it makes no difference.
---@param loader shardrt.loader.Inside
---@return string[]
function order_cost.lines(loader)
  local differs, blocks = matters(loader)
  if not differs then return {} end
  local window = loader.window or order_cost.WINDOW
  local processes = current.info.process_count
  local asked = processes <= MOST_PROCESSES and processes or 1
  local full = order_cost.of(loader, true, nil, asked)
  if not full.decoded and not full.downloaded then return {} end
  local plain, by_blocks = order_cost.of(loader, false, nil, asked), order_cost.of(loader, "blocks", window, asked)
  local taken = full.decoded and "decoded" or "downloaded"
  local function line(words, cost)
    return ("  %s: %s blocks %s, %s bytes"):format(words, with_commas(cost.blocks), taken, with_commas(cost.bytes))
  end
  return {
    ("the source is stored in %s blocks; of an epoch, all processes together:"):format(with_commas(blocks)),
    line("shuffle = false", plain), line(('shuffle = "blocks", window = %.0f'):format(window), by_blocks),
    line("shuffle = true, about", full),
  }
end

local told = {}

--- Says once what a full shuffle costs, or a window that is larger than what is kept.
---@param loader shardrt.loader.Inside
function order_cost.tell(loader)
  local where = fail.where() or "?"
  if not loader.shuffle or told[where] or not collective.is_first() then return end
  local differs, blocks = matters(loader)
  if not differs then return end
  local window = loader.window or order_cost.WINDOW
  local full = order_cost.of(loader, true, nil, 1)
  if not full.decoded then return end
  if loader.shuffle == true then
    local by_blocks = order_cost.of(loader, "blocks", window, 1)
    told[where] = true
    if full.blocks <= by_blocks.blocks then return end -- as where all blocks are kept, or there is one
    collective.notice('%s: shuffle = true over %s blocks that are decoded whole: an epoch decodes about %s of them in '
      .. 'all processes together; shuffle = "blocks" decodes about %s', where, with_commas(blocks),
      with_commas(full.blocks), with_commas(by_blocks.blocks))
  elseif full.kept < math.min(window, blocks) / current.info.process_count then
    told[where] = true
    collective.notice('%s: window = %s, and a process keeps about %s blocks decoded: a smaller window decodes fewer',
      where, with_commas(window), with_commas(full.kept))
  end
end

return order_cost
