-- The rules by which operations choose layouts (lua/shardrt/ops/propagate.lua), beside the bytes that each choice
-- moves, counted device by device and element by element.

local propagate = require "shardrt.ops.propagate"

local seed = require "tests.support.seed"
math.randomseed(seed)

local CUTS = { {}, { "a" }, { "b" }, { "a", "b" }, { "b", "a" } } -- of one dimension

-- Layouts of two dimensions in which no axis is used twice.
local layouts = {}
for _, rows in ipairs(CUTS) do
  for _, columns in ipairs(CUTS) do
    local other = " " .. table.concat(columns, " ") .. " "
    local once = true
    for _, axis in ipairs(rows) do once = once and not other:find(" " .. axis .. " ", 1, true) end
    if once then layouts[#layouts + 1] = { rows, columns } end
  end
end

-- The range of a dimension that the device at these coordinates has.
local function range(axes, size, at, axis_size)
  local part, parts = 0, 1
  for _, axis in ipairs(axes) do part, parts = part * axis_size[axis] + at[axis], parts * axis_size[axis] end
  return part * size / parts, (part + 1) * size / parts
end

-- Elements that all devices together receive from one layout to another, which is of a larger array where `larger` are
-- its sizes: then the old one's elements stand there from `first` on in each dimension.
local function received(from, to, sizes, axis_size, larger, first)
  if not from then return 0 end
  local sum = 0
  for a = 0, axis_size.a - 1 do
    for b = 0, axis_size.b - 1 do
      local at, wanted, held = { a = a, b = b }, 1, 1
      for d, size in ipairs(sizes) do
        local low, high = range(to[d], larger and larger[d] or size, at, axis_size)
        local old_low, old_high = range(from[d], size, at, axis_size)
        local offset = first and first[d] or 0
        low, high = math.max(low - offset, 0), math.min(high - offset, size)
        wanted = wanted * math.max(0, high - low)
        held = held * math.max(0, math.min(high, old_high) - math.max(low, old_low))
      end
      sum = sum + wanted - held
    end
  end
  return sum
end

local function pick(list) return list[math.random(#list)] end

local function text(cuts)
  if not cuts then return "nobody's" end
  return "{" .. table.concat(cuts[1], " ") .. " | " .. table.concat(cuts[2], " ") .. "}"
end

describe("the layout of an elementwise result", function()
  it("moves no more than any operand's own would", function()
    for _ = 1, 3000 do
      local axis_size, sizes, operands = { a = pick { 2, 3, 4 }, b = pick { 2, 4 } }, { 48, 48 }, {}
      for i = 1, math.random(2, 3) do
        local layout = pick(layouts)
        operands[i] = { dim_axes = math.random() < 0.9 and layout or nil, sizes = sizes, bytes = pick { 1, 2, 4 } }
      end
      local function cost(cuts)
        local sum = 0
        for _, x in ipairs(operands) do sum = sum + x.bytes * received(x.dim_axes, cuts, sizes, axis_size) end
        return sum
      end
      local chosen = propagate.elementwise(sizes, operands, axis_size)
      local names = {}
      for i, x in ipairs(operands) do names[i] = text(x.dim_axes) .. " x " .. x.bytes end
      for _, x in ipairs(operands) do
        if x.dim_axes then
          assert.is_true(cost(chosen) <= cost(x.dim_axes), ("%s → %s moves %d, %s %d"):format(table.concat(names, ", "),
            text(chosen), cost(chosen), text(x.dim_axes), cost(x.dim_axes)))
        end
      end
    end
  end)
end)

describe("the layout of arrays one behind the other", function()
  it("makes equal parts, and moves no more than any operand's own would", function()
    for _ = 1, 2000 do
      local axis_size, along = { a = pick { 2, 3, 4 }, b = pick { 2, 4 } }, pick { 1, 2 }
      local sizes, operands, firsts = { 48, 48 }, {}, {}
      sizes[along] = 0
      for i = 1, math.random(2, 3) do
        local own = { 48, 48 }
        own[along], firsts[i] = pick { 24, 48, 96, 5 }, { 0, 0 }
        firsts[i][along] = sizes[along]
        sizes[along] = sizes[along] + own[along]
        local layout = math.random() < 0.9 and propagate.fitting(pick(layouts), own, axis_size) or nil
        operands[i] = { dim_axes = layout, sizes = own, bytes = pick { 1, 2, 4 } }
      end
      local function cost(cuts)
        local sum = 0
        for i, x in ipairs(operands) do
          local elements = received(x.dim_axes, cuts, x.sizes, axis_size, sizes, firsts[i])
          local average = propagate.placed(x.dim_axes, cuts, x.sizes, sizes, firsts[i], axis_size)
          assert.near(elements, average * axis_size.a * axis_size.b, 1e-6)
          sum = sum + x.bytes * elements
        end
        return sum
      end
      local chosen = propagate.concatenate(sizes, along, operands, axis_size)
      assert.same(chosen, propagate.fitting(chosen, sizes, axis_size))
      for _, x in ipairs(operands) do
        local other = x.dim_axes and propagate.fitting(x.dim_axes, sizes, axis_size)
        -- What somebody's own layout leaves whole, another operand may cut.
        if other and propagate.equal(other, x.dim_axes) then
          assert.is_true(cost(chosen) <= cost(other), ("%s: %d, %s: %d"):format(text(chosen), cost(chosen),
            text(other), cost(other)))
        end
      end
    end
  end)
end)

describe("layouts", function()
  it("are alike where they differ by axes of size 1 alone", function()
    local axis_size = { a = 1, b = 2 }
    assert.is_true(propagate.alike({ { "a", "b" }, {} }, { { "b" }, { "a" } }, axis_size))
    assert.is_false(propagate.alike({ { "a", "b" }, {} }, { {}, { "b" } }, axis_size))
    assert.is_false(propagate.alike({ { "a", "b" }, {} }, { { "b" }, {} }, { a = 2, b = 2 }))
  end)
end)

describe("the layout of a product", function()
  it("has parts to be summed along axes that cut, and none along an axis of size 1", function()
    for a, partial in pairs { {}, { "a" } } do
      local lhs = { dim_axes = { {}, { "a" } }, sizes = { 48, 48 }, bytes = 4 }
      local rhs = { dim_axes = { { "a" }, {} }, sizes = { 48, 48 }, bytes = 4 }
      local made = propagate.matmul(lhs, rhs, { 48, 48 }, 4, { a = a, b = 2 })
      assert.same(partial, made.partial)
      assert.same({ { "a" }, {} }, made.rhs)
    end
  end)

  -- What both ways to lie cost, by what is counted: the operands moved, and the parts of the sum added up.
  local function cost_of(made, lhs, rhs, axis_size)
    local sizes = lhs.sizes
    local sum = lhs.bytes * received(lhs.dim_axes, made.lhs, sizes, axis_size)
      + rhs.bytes * received(rhs.dim_axes, made.rhs, sizes, axis_size)
    local k = propagate.parts(made.partial, axis_size)
    local devices = axis_size.a * axis_size.b
    local each = 48 * 48 / propagate.parts(made.result[1], axis_size) / propagate.parts(made.result[2], axis_size)
    return sum + devices * 4 * 2 * each * (k - 1) / k
  end

  it("moves no more than where one operand's rows or columns give way", function()
    for _ = 1, 2000 do
      local axis_size = { a = pick { 2, 3, 4 }, b = pick { 2, 4 } }
      local lhs = { dim_axes = pick(layouts), sizes = { 48, 48 }, bytes = 4 }
      local rhs = { dim_axes = pick(layouts), sizes = { 48, 48 }, bytes = 4 }
      local made = propagate.matmul(lhs, rhs, { 48, 48 }, 4, axis_size)
      local function beginning_without(axes, others)
        local taken, kept = {}, {}
        for _, axis in ipairs(others) do taken[axis] = true end
        for i, axis in ipairs(axes) do
          if taken[axis] then break end
          kept[i] = axis
        end
        return kept
      end
      local cost = cost_of(made, lhs, rhs, axis_size)
      for _, way in ipairs { { lhs.dim_axes[1], beginning_without(rhs.dim_axes[2], lhs.dim_axes[1]) },
        { beginning_without(lhs.dim_axes[1], rhs.dim_axes[2]), rhs.dim_axes[2] } } do
        local other = { lhs = { way[1], {} }, rhs = { {}, way[2] }, result = way, partial = {} }
        if #made.partial == 0 then
          assert.is_true(cost <= cost_of(other, lhs, rhs, axis_size) + 1e-6, text(lhs.dim_axes) .. " "
            .. text(rhs.dim_axes) .. " → " .. text(made.result))
        end
      end
    end
  end)

  it("is the larger operand's where two ways move as much", function()
    local function rows_of(m, n)
      return propagate.matmul({ sizes = { m, 16 }, bytes = 4 }, { sizes = { 16, n }, bytes = 4 }, { m, n }, 4,
        { a = 2 }).result
    end
    assert.same({ {}, {} }, rows_of(4, 8))
    local function cut_alike(m, n) -- each would have the axis for itself, and give up as many elements
      return propagate.matmul({ dim_axes = { { "a" }, {} }, sizes = { m, 16 }, bytes = 16 / m },
        { dim_axes = { {}, { "a" } }, sizes = { 16, n }, bytes = 16 / n }, { m, n }, 4, { a = 2 }).result
    end
    assert.same({ {}, { "a" } }, cut_alike(8, 16))
    assert.same({ { "a" }, {} }, cut_alike(16, 8))
    assert.same({ { "a" }, {} }, cut_alike(8, 8))
  end)
end)
