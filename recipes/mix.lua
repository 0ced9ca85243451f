-- Three sources in given proportions, exact in every ten samples, and a stream that goes on from a state with
-- other batches. A source that is used up begins anew, in another order, while the others go on.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/mix.lua

local shardrt = require "shardrt"
local ndarray, say = shardrt.ndarray, shardrt.say

local function samples(first, count) -- each is known by its id
  local id = ndarray.empty({ count }, "int32")
  for i = 0, count - 1 do id.data[i] = first + i end
  return shardrt.source.array { id = id }
end

local mix = shardrt.mix {
  { samples(10000, 5000), 0.6 }, -- web
  { samples(20000, 700), 0.3 },  -- code
  { samples(30000, 90), 0.1 },   -- books
  part = "corpus",               -- a field that says which of them a sample is from: 0, 1 or 2
  samples = 2000,                -- of an epoch; left out, it would end when the books have all been given
}

local function loader(batch_size)
  return shardrt.loader {
    source = mix, batch_size = batch_size, shuffle = true, seed = 7, epochs = 1, remainder = "pad",
  }
end

-- The ids and corpora of what is left of a stream, in every process.
local function drain(stream, ids, corpora)
  for batch in stream do
    local id, corpus = shardrt.process_allgather(batch.id).data, shardrt.process_allgather(batch.corpus).data
    local mask = shardrt.process_allgather(batch.mask)
    for row = 0, mask.size - 1 do
      if mask.data[row] then ids[#ids + 1], corpora[#corpora + 1] = id[row], corpus[row] end
    end
  end
  return ids, corpora
end

local batch_size = 10 * shardrt.device_count()
local ids, corpora = drain(loader(batch_size), {}, {})
if shardrt.is_planning() then return end

local counts = { [0] = 0, 0, 0 }
for i, corpus in ipairs(corpora) do
  counts[corpus] = counts[corpus] + 1
  if i > 10 then counts[corpora[i - 10]] = counts[corpora[i - 10]] - 1 end
  assert(i < 10 or counts[0] == 6 and counts[1] == 3 and counts[2] == 1)
end
say("%d samples: of any ten that follow one another, 6 are web, 3 code and 1 books", #ids)

local times, books = {}, 0
for i, corpus in ipairs(corpora) do
  if corpus == 2 then
    local epoch = math.floor(books / 90) -- of the books' own
    assert((times[ids[i]] or 0) == epoch)
    times[ids[i]], books = epoch + 1, books + 1
  end
end
say("of 90 books %d were given: every book once before any came again", books)

local first, some = loader(batch_size), {}
for _ = 1, 3 do
  local batch = first()
  local id, mask = shardrt.process_allgather(batch.id).data, shardrt.process_allgather(batch.mask)
  for row = 0, mask.size - 1 do
    if mask.data[row] then some[#some + 1] = id[row] end
  end
end
local second = loader(2 * batch_size)
second:restore(first:state()) -- in a job of any other size, too
drain(second, some, {})
assert(#some == #ids)
for i, id in ipairs(ids) do assert(some[i] == id) end
say "after 3 steps with batches of twice the size: the same samples, in the same order"
