-- tokenize_once.lua FOLDER NAME: the tokens of the texts that tokenize_peer.py left, compared with those that it left,
-- by one thread; prints MB/s of the processor's time, and how many texts have other tokens.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local T = shardrt.transform

local folder, name = arg[1], arg[2]
local function ragged(part)
  return shardrt.source.ragged({ [part] = { data = ("%s/%s.npy"):format(folder, part),
    offsets = ("%s/%s-offsets.npy"):format(folder, part) } }, { verify = false })
end

local o = { file = ("%s/%s.json"):format(folder, name) }
if name:find "_base$" then
  o = { file = ("%s/%s.tiktoken"):format(folder, name), pattern = name, special_tokens = { ["<|end|>"] = 50000 } }
end
local texts, expected = ragged "text", ragged(name)
local made = texts:map { text = { T.tokenize(o) } }
local sizes, out = ffi.new "int64_t[8]", ffi.new "shardrt_buffer *[1]"

-- A sample's bytes, and how many elements it has.
local function take(source, i)
  assert(C.shardrt_source_value(source, 0, i, sizes, out) == 0, ffi.string(C.shardrt_error_message()))
  return out[0], tonumber(sizes[0])
end

local seconds, bytes, wrong = 0, 0, 0
for i = 0, #texts - 1 do
  local before = os.clock()
  local got, count = take(made, i)
  seconds = seconds + os.clock() - before
  local right, many = take(expected, i)
  if count ~= many or C.shardrt_fingerprint(C.shardrt_buffer_data(got), 4 * count)
      ~= C.shardrt_fingerprint(C.shardrt_buffer_data(right), 4 * many) then
    wrong = wrong + 1
  end
  C.shardrt_buffer_free(got)
  C.shardrt_buffer_free(right)
  local text, length = take(texts, i)
  bytes = bytes + length
  C.shardrt_buffer_free(text)
end
print(("%.3f MB/s, %d of %d texts differ"):format(bytes / seconds / 1e6, wrong, #texts))
