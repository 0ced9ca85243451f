-- Datasets of Megatron-LM's: a prefix, or a blend of several.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local bad_records = require "shardrt.data.bad_records"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local file_patterns = require "shardrt.data.file_patterns"
local http_headers = require "shardrt.data.http_headers"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
fail.own()

---@class shardrt.source.words
---@field megatron fun(prefixes: string|(string|number)[], o: shardrt.source.MegatronOptions): shardrt.source

---@class shardrt.source.MegatronOptions
---@field view "documents"|"gpt" # a sample is a document, or a window of GPTDataset's, in its order
---@field window integer? # of gpt: tokens of a sample, one more than Megatron's sequence_length
---@field seed integer? # of gpt: Megatron's random_seed; 1234
---@field samples integer? # of gpt: at least so many, as Megatron's num_samples, of as many epochs as it takes; one
---@field split string? # as Megatron's: "969,30,1"; all of the dataset
---@field part "train"|"valid"|"test"|nil # which of the split; "train"
---@field cache string? # a folder for parts of files on servers
---@field cache_bytes integer? # at most so much of them is kept there; $SHARDRT_CACHE_BYTES, or 10 GiB
---@field headers table<string, string>? # of files read over HTTP: what requests say, too: {Authorization = "Bearer …"}
---@field verify boolean|"once"|nil # as in CacheOptions
---@field on_bad_record "error"|"skip"|nil # as in FilesOptions

local CALLER = "source.megatron"
local VIEWS = { documents = "SHARDRT_MEGATRON_DOCUMENTS", gpt = "SHARDRT_MEGATRON_GPT" }
local PARTS = { train = 1, valid = 2, test = 3 }
local KEYWORDS = {
  view = true, window = true, seed = true, samples = true, split = true, part = true, cache = true, cache_bytes = true,
  headers = true, verify = true, on_bad_record = true,
}
local ONLY_GPT = { "window", "seed", "samples" }
local MOST_SEED = 2 ^ 32 - 1 -- that numpy's RandomState takes

local handle_out = ffi.typeof "shardrt_source *[1]"

local function check_prefix(value)
  value = path_of.check(CALLER, value, "Megatron's")
  local ending = value:match "%.bin$" or value:match "%.idx$"
  if ending then fail("%s: %s: it takes what stands before %s", CALLER, list.quote(value), ending) end
  return value
end

-- The prefixes, and the weight of each, or nil: of "a", { "a", "b" } or { 30, "a", 70, "b" }, as of --data-path.
local function parse_blend(given)
  if type(given) ~= "table" then return { check_prefix(given) } end
  if class.is(given) or not list.length(given) or #given == 0 then
    fail('%s: it takes a prefix, or a list of them, as { "a", "b" } or with weights, { 30, "a", 70, "b" }, not %s',
      CALLER, list.show(given))
  end
  local prefixes, weights = {}, {}
  local weighted = #given % 2 == 0
  for i = 1, #given, 2 do weighted = weighted and tonumber(given[i]) ~= nil end
  for i, value in ipairs(given) do
    if weighted and i % 2 == 1 then
      weights[#weights + 1] = tonumber(value)
    else
      prefixes[#prefixes + 1] = check_prefix(value)
    end
  end
  return prefixes, weighted and weights or nil
end

-- Where in the dataset a part of a split begins and ends, as a share of it.
local function find_part(o)
  local part = o.part == nil and "train" or o.part
  if type(part) ~= "string" or not PARTS[part] then
    fail("%s: part = %s%s; there are %s", CALLER, list.show(part), fail.suggestion(part, PARTS), list.words(PARTS))
  end
  if o.split == nil then
    if o.part ~= nil then fail('%s: part = %s without a split, such as split = "969,30,1"', CALLER, list.show(part)) end
    return 0, 1
  end
  local shares, sum = {}, 0
  for number in (type(o.split) == "string" and o.split or ""):gmatch "[.%d]+" do
    shares[#shares + 1] = tonumber(number)
    if not tonumber(number) then shares[4] = 0 end
  end
  for i = 1, 3 do sum = sum + (shares[i] or 0) end
  if #shares < 1 or #shares > 3 or not (sum > 0 and sum < math.huge) then
    fail('%s: split = %s; it is up to three numbers, of train, valid and test: "969,30,1"', CALLER, list.show(o.split))
  end
  local from, to = 0, (shares[1] or 0) / sum
  for i = 2, PARTS[part] do
    from, to = to, to + (shares[i] or 0) / sum
  end
  if to <= from then fail('%s: split = "%s" leaves nothing for %s', CALLER, o.split, part) end
  return from, math.min(to, 1)
end

local function whole(o, name, lowest, most)
  local value = o[name]
  if not list.is_whole(value, lowest) or value > most then
    fail("%s: %s = %s; it is a whole number from %d to %.0f", CALLER, name, list.show(value), lowest, most)
  end
  return value
end

local function c_options(o)
  if type(o.view) ~= "string" or not VIEWS[o.view] then
    fail("%s: view = %s%s; there are %s", CALLER, list.show(o.view), fail.suggestion(o.view, VIEWS), list.words(VIEWS))
  end
  local c, cache, cache_bytes = ffi.new "shardrt_megatron_options", file_patterns.cache(CALLER, o)
  c.view = C[VIEWS[o.view]]
  c.from, c.to = find_part(o)
  if o.view == "gpt" then
    c.window = whole(o, "window", 2, 2 ^ 31 - 1)
    c.seed = o.seed == nil and 1234 or whole(o, "seed", 0, MOST_SEED)
    c.samples = o.samples == nil and 0 or whole(o, "samples", 1, 2 ^ 53)
  else
    for _, name in ipairs(ONLY_GPT) do
      if o[name] ~= nil then fail('%s: %s is for view = "gpt"; documents are whole', CALLER, name) end
    end
  end
  c.files.cache, c.files.cache_bytes = cache, cache_bytes -- `o` keeps the text
  c.files.headers_only = current.info.planning
  c.files.verify = bad_records.verify(CALLER, o.verify)
  return c
end

--- Datasets of Megatron-LM's, PREFIX.bin and PREFIX.idx: one field, `tokens`, of the files' dtype. With
--- `view = "documents"` a sample is a document, whole; with `view = "gpt"` it is what GPTDataset gives for the same
--- `seed`, `samples` and `split`, in the same order: `window` tokens, one more than its sequence_length. Several
--- prefixes are blended as Megatron blends them, by weights ({ 30, "a", 70, "b" }, which want `samples`) or by what
--- each has; documents come one prefix after the other.
---@param prefixes string|(string|number)[]
---@param o shardrt.source.MegatronOptions
---@return shardrt.source
return function(prefixes, o)
  local names, weights = parse_blend(prefixes)
  if type(o) ~= "table" or class.is(o) then
    fail('%s: it takes options, as in {view = "documents"}, not %s', CALLER, list.show(o))
  end
  fail.keywords(CALLER .. ", options", o, KEYWORDS)
  local skips = bad_records.skips(CALLER, o.on_bad_record)
  local files = {}
  for _, name in ipairs(names) do
    files[#files + 1] = name .. ".idx"
    files[#files + 1] = name .. ".bin"
  end
  http_headers.use(CALLER, o.headers, files)
  file_patterns.share_revisions(CALLER, names)
  local c, out = c_options(o), handle_out()
  local code = C.shardrt_source_megatron(#names, ffi.new("const char *[?]", #names, names),
    weights and ffi.new("double[?]", #names, weights), c, out)
  if code < 0 and fail.is_between_processes(code) then fail.check(code) end
  if code < 0 then fail("%s: %s%s", CALLER, fail.message(code), path_of.note(code, names[1])) end
  local made = owned(out, "shardrt_source_free")
  return skips and bad_records.leave_out(CALLER, made, made) or made
end
