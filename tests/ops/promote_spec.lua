-- Which dtype two dtypes give. The table is what JAX 0.10.2 printed by
--
--   for a in NAMES:
--     for b in NAMES:
--       with jax.enable_x64("64" in a + b): print(jnp.promote_types(a, b))
--
-- so that it is that of JAX without x64 where neither has 64 bits. (tests/golden/arithmetic.py asks arrays of them.)

local promote = require "shardrt.ops.promote"

local NAMES = {
  "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32",
  "float64",
}
local SHORT = { b1 = "bool", u1 = "uint8", u2 = "uint16", u4 = "uint32", u8 = "uint64", i1 = "int8", i2 = "int16",
  i4 = "int32", i8 = "int64", bf = "bfloat16", f2 = "float16", f4 = "float32", f8 = "float64" }
local TABLE = {
  "b1 u1 u2 u4 u8 i1 i2 i4 i8 bf f2 f4 f8", -- bool with each of the names
  "u1 u1 u2 u4 u8 i2 i2 i4 i8 bf f2 f4 f8",
  "u2 u2 u2 u4 u8 i4 i4 i4 i8 bf f2 f4 f8",
  "u4 u4 u4 u4 u8 i4 i4 i4 i8 bf f2 f4 f8",
  "u8 u8 u8 u8 u8 f8 f8 f8 f8 bf f2 f4 f8",
  "i1 i2 i4 i4 f8 i1 i2 i4 i8 bf f2 f4 f8",
  "i2 i2 i4 i4 f8 i2 i2 i4 i8 bf f2 f4 f8",
  "i4 i4 i4 i4 f8 i4 i4 i4 i8 bf f2 f4 f8",
  "i8 i8 i8 i8 f8 i8 i8 i8 i8 bf f2 f4 f8",
  "bf bf bf bf bf bf bf bf bf bf f4 f4 f8",
  "f2 f2 f2 f2 f2 f2 f2 f2 f2 f4 f2 f4 f8",
  "f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f8",
  "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8",
}

describe("two dtypes", function()
  it("give what JAX's table says", function()
    local looked = 0
    for i, row in ipairs(TABLE) do
      local j = 0
      for short in row:gmatch "%S+" do
        j = j + 1
        assert.equal(SHORT[short], promote.result({ NAMES[i], NAMES[j] }, {}), NAMES[i] .. " with " .. NAMES[j])
        looked = looked + 1
      end
    end
    assert.equal(169, looked)
  end)
end)

describe("a Lua value", function()
  it("asks for as little as its kind", function()
    for _, case in ipairs {
      { "int8", 3, "int8" }, { "uint8", 3, "uint8" }, { "int8", 0.5, "float32" }, { "bool", 3, "int32" },
      { "bool", 0.5, "float32" }, { "float16", 0.5, "float16" }, { "bfloat16", 3, "bfloat16" },
      { "int8", true, "int8" }, { "int64", 0 / 0, "float32" }, { "float64", math.huge, "float64" },
    } do
      assert.equal(case[3], promote.result({ case[1] }, { case[2] }))
    end
  end)
end)
