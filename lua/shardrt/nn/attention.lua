-- Attention: jax.nn.dot_product_attention.

local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local einsum = require "shardrt.ops.einsum"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local reduce = require "shardrt.ops.reduce"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.AttentionOptions
---@field bias shardrt.Operand? # added to the logits {B, N, T, S}
---@field mask shardrt.Operand? # bool {B, N, T, S}: false where nothing is to be seen
---@field scale number? # of the logits; 1 / sqrt(H)
---@field is_causal boolean? # whether each T sees only S up to its own place; false

---@class shardrt.attention.words
local words = {}
local attention = { words = words }

local f, input = expression.f, expression.input
local OPTIONS = { bias = true, mask = true, scale = true, is_causal = true }
local UNSEEN = -0.7 * 3.4028234663852886e38 -- as JAX has it: finite, so that a row of nothing is no NaN

local function options_of(caller, given)
  local o = given == nil and {} or given
  if type(o) ~= "table" or not list.is_plain(o) then
    fail("%s: the options are a table, as in {is_causal = true}", caller)
  end
  fail.keywords(caller, o, OPTIONS)
  if o.scale ~= nil and type(o.scale) ~= "number" then
    fail("%s: scale = %s; it is a number", caller, list.show(o.scale))
  end
  if o.is_causal ~= nil and type(o.is_causal) ~= "boolean" then
    fail("%s: is_causal = %s; it is true or false", caller, list.show(o.is_causal))
  end
  return o
end

local function check_heads(caller, q, k, v)
  local a, b = q.shape, k.shape
  if #a ~= 4 or #b ~= 4 or not shape.equal(b, v.shape) or a[1] ~= b[1] or a[4] ~= b[4] then
    fail("%s: a query of shape %s, a key of %s and a value of %s; they are {B, T, N, H}, {B, S, K, H} and the same",
      caller, shape.text(a), shape.text(b), shape.text(v.shape))
  end
  if b[3] == 0 or a[3] % b[3] ~= 0 then
    fail("%s: %d heads of the query by %d of the key; they are as many, or a multiple", caller, a[3], b[3])
  end
  for _, x in ipairs { q, k, v } do
    if not promote.is_float(x.dtype) or x.dtype ~= k.dtype then
      fail("%s: %s, %s and %s; they are of one dtype of floats", caller, q.dtype, k.dtype, v.dtype)
    end
  end
end

-- Each head of the key for as many of the query, one behind the other.
local function for_heads(x, heads)
  local sizes = x.shape
  if sizes[3] == heads then return x end
  local apart = { sizes[1], sizes[2], sizes[3], 1, sizes[4] }
  local wide = { sizes[1], sizes[2], sizes[3], heads / sizes[3], sizes[4] }
  local repeated = elementwise.words.broadcast_to(reshape.words.reshape(x, apart), wide)
  return reshape.words.reshape(repeated, { sizes[1], sizes[2], heads, sizes[4] })
end

--- softmax(query key^T scale) value, for each head by itself: heads that are cut stay so, and so do batches.
---@param query shardrt.Operand # {B, T, N, H}: batch, places, heads, width of a head
---@param key shardrt.Operand # {B, S, K, H}; N is a multiple of K
---@param value shardrt.Operand # {B, S, K, H}
---@param options shardrt.AttentionOptions?
---@return shardrt.Array # {B, T, N, H}
function words.attention(query, key, value, options)
  local caller = "np.attention"
  local q, k = dispatch.array(caller, query, "the query"), dispatch.array(caller, key, "the key")
  local v, o = dispatch.array(caller, value, "the value"), options_of(caller, options)
  check_heads(caller, q, k, v)
  local own, wide = q.dtype, promote.computed(q.dtype)
  local heads, width = q.shape[3], q.shape[4]
  k, v = for_heads(k, heads), for_heads(v, heads)
  local logits = einsum.words.einsum("btnh,bsnh->bnts", elementwise.words.astype(q, wide),
    elementwise.words.astype(k, wide))
  local arrays, node = { logits }, input(1) * (o.scale or 1 / math.sqrt(width))
  local sizes = logits.shape
  for _, name in ipairs { "bias", "mask" } do
    if o[name] ~= nil then
      local x = dispatch.array(caller, o[name], "the " .. name)
      if name == "mask" and x.dtype ~= "bool" then fail("%s: the mask is %s; it is bool", caller, x.dtype) end
      if not shape.equal(elementwise.broadcast(caller, { x.shape, sizes }), sizes) then
        fail("%s: a %s of shape %s and logits of %s, to which it broadcasts", caller, name, shape.text(x.shape),
          shape.text(sizes))
      end
      arrays[#arrays + 1] = x
      local part = input(#arrays)
      node = name == "bias" and node + part or f.SELECT(part, node, UNSEEN)
    end
  end
  if o.is_causal then
    local n = #arrays
    arrays[n + 1] = reshape.words.reshape(creation.words.arange(sizes[3]), { sizes[3], 1 })
    arrays[n + 2] = creation.words.arange(sizes[4])
    node = f.SELECT(f.GE(input(n + 1), input(n + 2)), node, UNSEEN)
  end
  logits = elementwise.run(caller, arrays, node, wide, wide)
  local seen = reduce.words.softmax(logits, -1)
  return einsum.words.einsum("bnts,bsnh->btnh", elementwise.words.astype(seen, own), v)
end

return attention
