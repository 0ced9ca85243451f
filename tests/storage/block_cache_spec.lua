-- Decoded blocks: what is kept of them, and the memory that they lie in.
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"
local SEED = require "tests.support.seed"

ffi.cdef [[
void *huge_room(size_t bytes);
void huge_room_free(void *room, size_t bytes);
size_t huge_room_size(size_t bytes);
int malloc_trim(size_t bytes);
]]

local KIB, MIB = 1024, 1024 ^ 2

-- What /proc/self says of memory, in MiB.
local MEMORY = [[
local function memory(file, key)
  local stream = assert(io.open("/proc/self/" .. file))
  local text = stream:read "*a"
  stream:close()
  return tonumber(text:match(key .. ":%s+(%d+)")) / 1024
end
]]
local memory = assert(loadstring(MEMORY .. "return memory"))()

describe("decoded blocks", function()
  it("in hand of a loader that rests are given back where others are decoded", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "a sanitizer keeps what was freed" return end
    local result = mpi.run { processes = 1, devices = 1, limit = 120, source = MEMORY .. [[
      local shardrt = require "shardrt"
      local path = "tests/files/parquet/large.parquet"
      local resting, reading = shardrt.source.parquet(path), shardrt.source.parquet(path)
      local before = memory("status", "VmRSS")
      local loader = shardrt.loader {
        source = resting, batch_size = 512, shuffle = "blocks", window = 64, num_workers = 1,
      }
      for _ = 1, 4 do loader() end
      local held = memory("status", "VmRSS") - before
      for name in pairs(reading.fields) do
        local half = shardrt.source.parquet(path, { fields = { name } })
        for first = 0, #half - 1, 65536 do
          local batch = half:read(first, 65536)
          assert(batch[name].data[0] == math.floor(first / 131072), "a wrong row")
        end
        collectgarbage()
      end
      local blocks = loader:stats().blocks_decoded
      print(("%d MiB, then %d MiB"):format(held, memory("status", "VmRSS") - before), blocks)
      for _ = 1, 2 do loader() end
    ]] }
    assert.equal(0, result.status, result.output)
    local held, all = result.stdout:match "(%d+) MiB, then (%d+) MiB"
    assert(tonumber(held) >= 192, result.output)
    assert(tonumber(all) <= 256 + 64, result.output)
  end)
end)

describe("rooms in huge pages", function()
  local is_sanitized = os.getenv "SHARDRT_SANITIZER" ~= nil

  -- A room of so many bytes, all of them `number` in the low bits.
  local function take(bytes, number)
    local room = ffi.cast("uint8_t *", C.huge_room(bytes))
    assert(room ~= nil)
    ffi.fill(room, bytes, number)
    return { room = room, bytes = bytes, number = number % 256, first = tonumber(ffi.cast("uintptr_t", room)) }
  end

  local function give(room)
    for _, at in ipairs { 0, math.floor(room.bytes / 2), room.bytes - 1 } do
      assert.equal(room.number, room.room[at])
    end
    C.huge_room_free(room.room, room.bytes)
  end

  it("are apart, aligned and keep what is written, whatever is taken and given back", function()
    local next_of, rooms, sum = math.random, {}, 0
    math.randomseed(SEED)
    local before = memory("status", "VmRSS")
    for number = 1, 3000 do
      if #rooms > 0 and (next_of(2) == 1 or sum > 64 * MIB) then
        local room = table.remove(rooms, next_of(#rooms))
        sum = sum - room.bytes
        give(room)
      end
      local largest = ({ 20 * KIB, 100 * KIB, 1100 * KIB, 5 * MIB })[next_of(4)]
      rooms[#rooms + 1] = take(next_of(largest), number)
      sum = sum + rooms[#rooms].bytes
      assert.equal(0, rooms[#rooms].first % 64)
      assert(C.huge_room_size(rooms[#rooms].bytes) >= rooms[#rooms].bytes)
    end
    table.sort(rooms, function(a, b) return a.first < b.first end)
    for i = 2, #rooms do assert(rooms[i - 1].first + rooms[i - 1].bytes <= rooms[i].first, "two share memory") end
    for _, room in ipairs(rooms) do give(room) end
    ffi.C.malloc_trim(0) -- what malloc kept of the larger rooms depends on their order
    if not is_sanitized then assert(memory("status", "VmRSS") - before < 48, "more than the four slabs that stay") end
  end)

  it("lie in huge pages where the system grants these, and go back to it", function()
    local stream = io.open "/sys/kernel/mm/transparent_hugepage/enabled"
    local enabled = stream and stream:read "*a" or "[never]"
    if stream then stream:close() end
    if is_sanitized or enabled:find("[never]", 1, true) then pending "here they are malloc's" return end
    local huge, size, rooms = memory("smaps_rollup", "AnonHugePages"), memory("status", "VmRSS"), {}
    for i = 1, 1024 do rooms[i] = take(100 * KIB, i) end -- 100 MiB, of which each takes 112 KiB
    assert(memory("status", "VmRSS") - size < 120)
    assert(memory("smaps_rollup", "AnonHugePages") - huge > 50)
    for _, room in ipairs(rooms) do give(room) end
    assert(memory("status", "VmRSS") - size < 40)
  end)

  it("are taken from empty slabs that stayed before the system is asked for others", function()
    if is_sanitized then pending "here they are malloc's" return end
    local rooms, bytes, mapped = {}, 4 * MIB, {} -- half a slab each
    for i = 1, 40 do rooms[i] = C.huge_room(bytes) end
    for i = 40, 17, -1 do C.huge_room_free(rooms[i], bytes) end -- the last slabs, which are empty first, stay
    for line in io.lines "/proc/self/maps" do
      local first, last = line:match "^(%x+)-(%x+) "
      mapped[#mapped + 1] = { tonumber(first, 16), tonumber(last, 16) }
    end
    local again, is_there = C.huge_room(bytes), false
    local at = tonumber(ffi.cast("uintptr_t", again))
    for _, range in ipairs(mapped) do is_there = is_there or range[1] <= at and at + bytes <= range[2] end
    assert(is_there, "a new slab")
    C.huge_room_free(again, bytes)
    for i = 1, 16 do C.huge_room_free(rooms[i], bytes) end
  end)
end)
