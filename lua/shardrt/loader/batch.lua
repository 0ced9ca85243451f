-- A batch as a recipe is given it: a table of arrays by the names of the fields.

local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

local batch = {}

-- Of all batches: a name that is no field's is an error. `mask` is reserved, and nil where batches are not filled up,
-- so that code for any loader may ask; pairs gives the names that there are.
local Batch = {
  __index = function(self, key)
    if key == "mask" or class.may_probe(key) then return nil end
    local fields = list.words(self)
    fail("the batch has no %s%s; its fields are %s", list.show(key), fail.suggestion(key, self), fields)
  end,
  __metatable = false, -- a plain table to whoever asks
}

--- A table of arrays as a batch.
---@param arrays table<string, shardrt.Array>
---@return table<string, shardrt.Array> # the same table
function batch.wrap(arrays) return setmetatable(arrays, Batch) end

--- What the recipe's own function makes of a batch.
---@param loader shardrt.loader.Inside
---@param given table<string, shardrt.Array> # the batch
---@return table<string, shardrt.Array>
function batch.transform(loader, given)
  local function refuse(format, ...)
    fail("loader: batch_transform, in step %d (from 0 on): " .. format, loader:stats().steps - 1, ...)
  end
  local ok, made = pcall(loader.batch_transform, given)
  if not ok then refuse("%s", type(made) == "string" and made or "an error that is a " .. type(made)) end
  if type(made) ~= "table" or class.is(made) or array.is(made) then
    refuse("it returned %s; it returns the batch, a table of arrays", array.is(made) and "an array" or list.show(made))
  end
  for name, value in pairs(made) do
    if type(name) ~= "string" or not array.is(value) then
      refuse("it returned a batch in which %s is %s; it holds arrays with their names", list.show(name),
        list.show(value))
    end
  end
  return getmetatable(made) == nil and batch.wrap(made) or made
end

return batch
