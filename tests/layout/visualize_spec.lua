-- Pictures of layouts: the right devices in the right cells, no wider than a terminal, coloured only there.

local cjson = require "cjson"
local golden = require "tests.support.golden"
local layout = require "tests.support.layout"
local mpi = require "tests.support.mpi"

local WIDTH = 80

local function width_of(text) return select(2, text:gsub("[^\128-\191]", "")) end

-- The texts of a picture's cells, row by row, and that it is a rectangle.
local function cells_of(lines)
  local rows = {}
  for _, line in ipairs(lines) do
    assert.equal(width_of(lines[1]), width_of(line))
    if line:match "^│" then
      local row, j = rows[#rows], 0
      for cell in line:gsub("│", "\1"):gmatch "\1([^\1]+)" do
        j = j + 1
        local text = cell:match "^%s*(.-)%s*$"
        if text ~= "" then row[j] = (row[j] and row[j] .. " " or "") .. text end
      end
    else
      rows[#rows + 1] = {}
    end
  end
  rows[#rows] = nil -- the last rule begins no row
  return rows
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines
end

-- "devices 0-3,6" and "CPU 0,1,2,3,6" as "0 1 2 3 6".
local function ids_of(label)
  local ids = {}
  for piece in label:gsub("^%a+%s*", ""):gmatch "[^,%s]+" do
    local first, last = piece:match "^(%d+)%-(%d+)$"
    for id = first or assert(tonumber(piece), label), last or tonumber(piece) do ids[#ids + 1] = id end
  end
  return table.concat(ids, " ")
end

-- What each cell must hold, from the index of every device: rows by the first offset of dimension 0, …
local function oracle(s, shape)
  local by_cell = {}
  local sorted = {}
  for id, index in pairs(s:devices_indices_map(shape)) do sorted[#sorted + 1] = { id = id, index = index } end
  table.sort(sorted, function(a, b) return a.id < b.id end)
  local starts = { {}, {} }
  for _, device in ipairs(sorted) do
    local r = #shape == 2 and device.index[1][1] or 0
    local c = #shape > 0 and device.index[#shape][1] or 0
    starts[1][r], starts[2][c] = true, true
    local key = r .. "," .. c
    by_cell[key] = (by_cell[key] and by_cell[key] .. " " or "") .. device.id
  end
  local function ordered(set)
    local list = {}
    for start in pairs(set) do list[#list + 1] = start end
    table.sort(list)
    return list
  end
  local rows = {}
  for i, r in ipairs(ordered(starts[1])) do
    rows[i] = {}
    for j, c in ipairs(ordered(starts[2])) do rows[i][j] = by_cell[r .. "," .. c] end
  end
  return rows
end

local function labels_as_ids(rows)
  local ids = {}
  for i, row in ipairs(rows) do
    ids[i] = {}
    for j, label in pairs(row) do ids[i][j] = ids_of(label) end
  end
  return ids
end

describe("golden/visualize.json", function()
  local cases = golden.cases "visualize.json"
  local words = layout.words(0, 1, 16)

  it("is drawn with every label, in JAX's places", function()
    local compared = 0
    for _, case in ipairs(cases) do
      local s = case.mesh == cjson.null and words.SingleDeviceSharding(0) or layout.sharding(words, case)
      local lines = lines_of(words.visualize.text(case.shape, s))
      for _, line in ipairs(lines) do assert.is_true(width_of(line) <= WIDTH, case.name) end
      local ids = labels_as_ids(cells_of(lines))
      assert.same(oracle(s, case.shape), ids, case.name)
      -- Where JAX shows its labels whole.
      local theirs = cells_of(case.lines)
      local whole = true
      for i, row in ipairs(ids) do
        for j in ipairs(row) do whole = whole and theirs[i][j] ~= nil and not theirs[i][j]:find "CPU %d* %d" end
      end
      if whole then
        compared = compared + 1
        local expected = labels_as_ids(theirs)
        assert.same(expected, ids, case.name)
      end
    end
    assert.is_true(#cases >= 20 and compared >= #cases - 3, compared .. " of " .. #cases)
  end)
end)

describe("a picture", function()
  local words = layout.words(0, 2 ^ 12, 2)
  local P, text = words.P, words.visualize.text
  local function sharding(shape, names, spec) return words.NamedSharding(words.make_mesh(shape, names), spec) end

  it("of empty arrays and of numbers without dimensions is one cell", function()
    local s = sharding({ 4, 2 }, { "a", "b" }, P())
    assert.same({ { "devices 0-7" } }, cells_of(lines_of(text({}, s))))
    local cut = sharding({ 4, 2 }, { "a", "b" }, P("a", "b"))
    assert.same({ { "devices 0,2,4,6", "devices 1,3,5,7" } }, cells_of(lines_of(text({ 0, 2 }, cut))))
  end)

  it("of more dimensions draws those that are cut, and says which", function()
    local function first_and_cells(spec, shape)
      local lines = lines_of(text(shape or { 8, 3, 3, 8 }, sharding({ 2, 2, 2 }, { "a", "b", "c" }, spec)))
      return table.remove(lines, 1), cells_of(lines)
    end
    local note, cells = first_and_cells(P("a", nil, nil, "b"))
    assert.equal("dimension 0 downward, dimension 3 to the right; no other is cut", note)
    assert.same({ { "devices 0,1", "devices 2,3" }, { "devices 4,5", "devices 6,7" } }, cells)
    note, cells = first_and_cells(P "c")
    assert.equal("dimension 0 downward; no other is cut", note)
    assert.same({ { "devices 0,2,4,6" }, { "devices 1,3,5,7" } }, cells)
    note, cells = first_and_cells(P(nil, nil, nil, "a"))
    assert.equal("dimension 3 to the right; no other is cut", note)
    assert.same({ { "devices 0-3", "devices 4-7" } }, cells)
    note, cells = first_and_cells(P())
    assert.equal("no dimension is cut", note)
    assert.same({ { "devices 0-7" } }, cells)
    note, cells = first_and_cells(P("a", "b", "c"), { 2, 4, 6 })
    assert.equal("3 dimensions are cut; each row is a block", note)
    assert.equal(8, #cells)
    assert.same({ "[0:1, 2:4, 3:6]  device 3" }, cells[4])
  end)

  it("leaves out the middle of what is too large, never a label", function()
    local s = sharding({ 64, 128 }, { "a", "b" }, P("a", "b"))
    local lines = lines_of(text({ 128, 128 }, s))
    assert.equal("64 x 128 blocks, not all are drawn", table.remove(lines, 1))
    local cells = cells_of(lines)
    assert.is_true(width_of(lines[1]) <= WIDTH and #lines < 60)
    assert.equal("0", cells[1][1])
    assert.equal("…", cells[1][#cells[1] - 1])
    assert.equal("127", cells[1][#cells[1]])
    assert.equal("…", cells[#cells - 1][1])
    assert.equal("8191", cells[#cells][#cells[1]])
  end)

  it("shortens long lists of devices", function()
    assert.same({ { "devices 0-8191" } }, cells_of(lines_of(text({ 8 }, sharding({ 8192 }, { "a" }, P())))))
    local cells = cells_of(lines_of(text({ 8 }, sharding({ 4096, 2 }, { "a", "b" }, P "b"))))
    assert.same({ { "devices 0,2,4,…,8190", "devices 1,3,5,…,8191" } }, cells)
    local ids = { 0, 2, 4, 7, 9, 11, 40, 50 }
    local uneven = words.NamedSharding(words.Mesh({ 8 }, { "a" }, ids), P())
    assert.same({ { "devices 0,2,4,…,50 (8)" } }, cells_of(lines_of(text({ 8 }, uneven))))
  end)

  it("is coloured where that is asked for, and the same otherwise", function()
    local s = sharding({ 4, 2 }, { "a", "b" }, P("a", "b"))
    local plain, coloured = text({ 8, 8 }, s), text({ 8, 8 }, s, true)
    assert.is_nil(plain:find("\27", 1, true))
    assert.equal(plain, (coloured:gsub("\27%[[%d;]*m", "")))
    local backgrounds = {}
    for number in coloured:gmatch "\27%[48;5;(%d+)m" do backgrounds[number] = true end
    local count = 0
    for _ in pairs(backgrounds) do count = count + 1 end
    assert.equal(8, count)
  end)

  it("as SVG has the same cells", function()
    local s = words.NamedSharding(words.make_mesh({ 4, 2 }, { "<a>", "b&" }), P("<a>", "b&"))
    local svg = words.visualize.svg({ 8, 8 }, s)
    local labels = {}
    for label in svg:gmatch ">([^<>]*)</text>" do labels[#labels + 1] = label end
    local wanted = {}
    for i = 1, 8 do wanted[i] = "device " .. i - 1 end
    assert.same(wanted, labels)
    assert.equal(8, select(2, svg:gsub("<rect ", "")))
    assert.truthy(svg:find('"&lt;a&gt;": 4, "b&amp;": 2', 1, true))
    local depth = 0
    for closing, name, empty in svg:gmatch "<(/?)(%a+)[^>]-(/?)>" do
      if closing == "/" then depth = depth - 1 elseif empty == "" then depth = depth + 1 end
      assert.is_true(depth >= 0, name)
    end
    assert.equal(0, depth)
  end)
end)

describe("visualize_sharding", function()
  local source = [[
    local shardrt = require "shardrt"
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "x" }), shardrt.P "x")
    shardrt.visualize_sharding({ 8 }, s, arg[1])
    shardrt.visualize_array_sharding { shape = { 8 }, sharding = s }
  ]]

  it("prints once for the job, plainly into a pipe, and writes the picture's file", function()
    local folder = mpi.folder()
    local file = folder .. "/picture.svg"
    local result = mpi.run { source = source, processes = 2, devices = 2, args = { file } }
    assert.equal(0, result.status, result.output)
    local drawn = "│ device 0 │ device 1 │ device 2 │ device 3 │"
    assert.equal(2, select(2, result.stdout:gsub(drawn, "")), result.output)
    assert.is_nil(result.stdout:find("\27", 1, true))
    local handle = assert(io.open(file))
    local svg = handle:read "*a"
    handle:close()
    assert.truthy(svg:match "^<svg .*</svg>\n$")
    assert.is_nil(io.open(file .. ".part"))
    mpi.remove(folder)
  end)

  it("is coloured on a terminal that has colours, unless the user wants none", function()
    if mpi.shell("script -qec true /dev/null").status ~= 0 then return pending "no pseudo-terminal can be made here" end
    local folder = mpi.folder()
    local handle = assert(io.open(folder .. "/recipe.lua", "w"))
    handle:write(source)
    handle:close()
    for settings, coloured in pairs {
      ["TERM=xterm NO_COLOR="] = true, ["TERM=dumb NO_COLOR="] = false, ["TERM=xterm NO_COLOR=1"] = false,
    } do
      local result = mpi.shell(("env %s script -qec '%s --devices 4 %s/recipe.lua' /dev/null"):format(settings,
        mpi.program(), folder))
      assert.equal(0, result.status, result.output)
      assert.equal(coloured, result.stdout:find("\27[48;5;", 1, true) ~= nil, settings .. result.output)
    end
    mpi.remove(folder)
  end)

  it("leaves nothing where the file cannot be written", function()
    local folder = mpi.folder()
    os.execute("mkdir " .. folder .. "/picture.svg") -- in the way of the last step
    for _, file in ipairs { folder .. "/picture.svg", folder .. "/nowhere/picture.svg" } do
      local result = mpi.run { source = source, processes = 2, devices = 2, args = { file } }
      assert.not_equal(0, result.status)
      assert.truthy(result.stderr:find("recipe.lua:3: visualize_sharding: cannot write", 1, true), result.output)
      assert.is_nil(io.open(file .. ".part"))
    end
    mpi.remove(folder)
  end)

  it("refuses what is no sharding, no array, no file name and no shape", function()
    local words = layout.words(0, 1, 8)
    local s = words.SingleDeviceSharding(0)
    local function expect(text, call)
      local ok, message = pcall(call)
      assert.is_false(ok)
      assert.truthy(message:find(text, 1, true) and message:match "visualize_spec%.lua:%d+: ", message)
    end
    expect("8 is no sharding", function() words.visualize_sharding({ 8 }, 8) end)
    expect("a .svg file, not 8", function() words.visualize_sharding({ 8 }, s, 8) end)
    expect("visualize_sharding: ", function() words.visualize_sharding("8", s) end)
    expect("no array that lies on devices", function() words.visualize_array_sharding { 8 } end)
    expect("no array that lies on devices", function() words.visualize_array_sharding(8) end)
  end)
end)
