-- Pictures of layouts: which devices hold which part of an array, as text and as SVG.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local path_of = require "shardrt.base.path"
local shape_of = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local terminal = require "shardrt.base.terminal"
fail.own()

---@class shardrt.visualize.words
local words = {}
local visualize = { words = words }

local COLUMNS = 80 -- of text
local MOST_ROWS = 24 -- of blocks that are drawn; what lies between the first ones and the last is left out
local MOST_PIECES = 6 -- of a list of device ids
local LEAST_WIDTH, MOST_HEIGHT = 24, 12 -- of a picture of two dimensions, where its labels do not need other sizes
local CHARACTER_WIDTH, LINE_HEIGHT = 9, 18 -- of SVG, in pixels

-- Backgrounds, as numbers of the terminal's 256 colours and for SVG. They are a prime number, which hardly ever divides
-- the columns of a grid, so neighbours differ.
local COLOURS = {
  { 153, "#afd7ff" }, { 223, "#ffd7af" }, { 151, "#afd7af" }, { 217, "#ffafaf" },
  { 189, "#d7d7ff" }, { 229, "#ffffaf" }, { 159, "#afffff" }, { 218, "#ffafd7" },
  { 193, "#d7ffaf" }, { 187, "#d7d7af" }, { 252, "#d0d0d0" },
}

-- ---- what stands in a cell -----------------------------------------------------------------------------------------

-- "0-3,6,7": ids ascending, runs of three and more drawn together; a long list with its middle left out.
local function ids_text(ids)
  table.sort(ids)
  local pieces, i, step = {}, 1, ids[2] and ids[2] - ids[1]
  while i <= #ids do
    local last = i
    while ids[last + 1] == ids[last] + 1 do last = last + 1 end
    if last - i < 2 then last = i end
    pieces[#pieces + 1] = last > i and ("%d-%d"):format(ids[i], ids[last]) or tostring(ids[i])
    i = last + 1
  end
  if #pieces <= MOST_PIECES then return table.concat(pieces, ",") end
  local even = true -- then the ids left out can be told
  for j = 2, #ids do even = even and ids[j] - ids[j - 1] == step end
  return ("%s,%s,%s,…,%s%s"):format(pieces[1], pieces[2], pieces[3], pieces[#pieces],
    even and "" or (" (%d)"):format(#ids))
end

-- How many columns a text takes: every character here takes one.
local function width_of(text) return select(2, text:gsub("[^\128-\191]", "")) end

-- ---- the grid of cells ---------------------------------------------------------------------------------------------

-- Which of `count` rows or columns are drawn: their numbers from 0, false for those left out.
local function picked_of(count, most)
  local picked = {}
  if count <= most then
    for i = 1, count do picked[i] = i - 1 end
    return picked
  end
  for i = 1, most - 2 do picked[i] = i - 1 end
  picked[most - 1] = false
  picked[most] = count - 1
  return picked
end

-- Which dimensions (from 1) are drawn downward and to the right: at most two of them; where more are cut, every block
-- has a row of its own. `note` says so where it could be doubted.
local function orient(shape, parts)
  if #shape <= 2 then return { down = #shape == 2 and 1 or nil, across = #shape > 0 and #shape or nil } end
  local cut = {}
  for d = 1, #shape do
    if parts[d] > 1 then cut[#cut + 1] = d end
  end
  if #cut > 2 then
    return { blocks = true, note = ("%d dimensions are cut; each row is a block"):format(#cut) }
  elseif #cut == 2 then
    return { down = cut[1], across = cut[2],
      note = ("dimension %d downward, dimension %d to the right; no other is cut"):format(cut[1] - 1, cut[2] - 1) }
  elseif #cut == 0 then
    return { note = "no dimension is cut" }
  elseif cut[1] == #shape then
    return { across = cut[1], note = ("dimension %d to the right; no other is cut"):format(cut[1] - 1) }
  end
  return { down = cut[1], note = ("dimension %d downward; no other is cut"):format(cut[1] - 1) }
end

local function box_text(box)
  local ranges = {}
  for d = 1, box.ndim do ranges[d] = ("%d:%d"):format(tonumber(box.start[d - 1]), tonumber(box.stop[d - 1])) end
  return "[" .. table.concat(ranges, ", ") .. "]  "
end

-- Calls visit(row, column, shard) for every device of the mesh, in mesh order; rows and columns count from 0.
local function each_device(s, shape, parts, o, visit)
  local ndim, sizes = #shape, shape_of.to_c(shape)
  local shard, own = ffi.new "shardrt_shard", device.job().devices_per_process
  local function part(d)
    return d and parts[d] > 1 and tonumber(shard.box.start[d - 1]) / (shape[d] / parts[d]) or 0
  end
  for position = 0, tonumber(C.shardrt_mesh_size(C.shardrt_sharding_mesh(s.handle))) - 1 do
    fail.check(C.shardrt_sharding_shard(s.handle, ndim, sizes, position, own, shard))
    local row = part(o.down)
    for d = 1, o.blocks and ndim or 0 do row = row * parts[d] + part(d) end
    visit(row, part(o.across), shard)
  end
end

-- The labels of the cells that are drawn, labels[row][column] = {ids = "0,1", word = "devices "}; prefixes[row] stands
-- before it. And how wide the widest is, with the word and without.
local function label_cells(s, shape, parts, o, rows, columns)
  local ids, prefixes, is_shown = {}, {}, {}
  for _, row in ipairs(rows) do ids[row] = row and {} end
  for _, column in ipairs(columns) do is_shown[column] = column ~= false end
  each_device(s, shape, parts, o, function(row, column, shard)
    if not ids[row] or not is_shown[column] then return end
    local cell = ids[row][column] or {}
    ids[row][column] = cell
    cell[#cell + 1] = shard.device
    if #cell == 1 then prefixes[row] = o.blocks and box_text(shard.box) or "" end
  end)
  local labels, widest, widest_bare = {}, 1, 1
  for row, cells in pairs(ids) do
    labels[row] = {}
    for column, cell in pairs(cells or {}) do
      local word, text = #cell == 1 and "device " or "devices ", ids_text(cell)
      labels[row][column] = { ids = text, word = word }
      widest_bare = math.max(widest_bare, width_of(prefixes[row] .. text))
      widest = math.max(widest, width_of(prefixes[row] .. word .. text))
    end
  end
  return labels, prefixes, widest, widest_bare
end

-- The grid of blocks of an array, as rows of cells {text=, colour=}, and how wide the widest text is. A note stands
-- above it, where there is one.
local function draw_table(shape, s)
  local parts, blocks = {}, 1
  for d = 1, #shape do
    parts[d] = shape[d] == 0 and 1 or tonumber(C.shardrt_sharding_cuts(s.handle, d - 1))
    blocks = blocks * parts[d]
  end
  local o = orient(shape, parts)
  local row_count, column_count = o.blocks and blocks or parts[o.down] or 1, parts[o.across] or 1
  local rows, columns = picked_of(row_count, MOST_ROWS), picked_of(column_count, COLUMNS / 2)
  local labels, prefixes, width, width_bare = label_cells(s, shape, parts, o, rows, columns)
  -- The word "device" stands where there is room for it; where there is none without it, columns are left out.
  local function fits(wide) return #columns * (wide + 1) + 1 <= COLUMNS end
  local worded = fits(width)
  if not worded then width = width_bare end
  if not fits(width) then columns = picked_of(column_count, math.max(3, math.floor((COLUMNS - 1) / (width + 1)))) end
  local cells = {}
  for i, row in ipairs(rows) do
    cells[i] = {}
    for j, column in ipairs(columns) do
      local cell = row and column and labels[row][column]
      cells[i][j] = cell and { text = prefixes[row] .. (worded and cell.word or "") .. cell.ids,
        colour = COLOURS[(row * column_count + column) % #COLOURS + 1] } or { text = "…" }
    end
  end
  local note = o.note
  if #rows < row_count or #columns < column_count then
    note = (note and note .. "; " or "") .. ("%d x %d blocks, not all are drawn"):format(row_count, column_count)
  end
  local aspect = o.down and o.across and shape[o.down] > 0 and shape[o.across] / shape[o.down] or 1
  return { cells = cells, note = note, width = width, aspect = aspect, flat = #shape < 2 or o.blocks }
end

-- The inside of every cell, in characters and lines: room for the labels, and about the array's proportions, where a
-- character is a bit more than twice as high as wide.
local function cell_size(picture)
  local rows, columns = #picture.cells, #picture.cells[1]
  local widest = math.floor((COLUMNS - 1) / columns) - 1
  local width = math.max(picture.width, math.min(picture.width + 2, widest))
  if picture.flat then return width, 1 end
  local ratio = 2.2 * math.min(4, math.max(0.5, picture.aspect))
  local total_width = math.max(LEAST_WIDTH, columns * (width + 1) + 1, (2 * rows + 1) * ratio)
  width = math.max(width, math.min(widest, math.floor((total_width - 1) / columns) - 1))
  local total_height = math.min(MOST_HEIGHT, (columns * (width + 1) + 1) / ratio)
  return width, math.max(1, math.floor((total_height - 1) / rows) - 1)
end

-- ---- as text -------------------------------------------------------------------------------------------------------

local function rule(left, middle, right, columns, width)
  return left .. ("─"):rep(width) .. (middle .. ("─"):rep(width)):rep(columns - 1) .. right
end

local function centred(text, width)
  local left = math.floor((width - width_of(text)) / 2)
  return (" "):rep(left) .. text .. (" "):rep(width - width_of(text) - left)
end

-- One line of a row of cells; `labelled` is the one with their texts.
local function cells_line(cells, width, labelled, coloured)
  local parts = {}
  for j, cell in ipairs(cells) do
    parts[j] = centred(labelled and cell.text or "", width)
    if coloured and cell.colour then
      parts[j] = ("\27[48;5;%dm\27[38;5;16m%s\27[0m"):format(cell.colour[1], parts[j])
    end
  end
  return "│" .. table.concat(parts, "│") .. "│"
end

--- A layout as lines of text, at most 80 columns wide (but a label is never cut).
---@param shape integer[]
---@param s shardrt.Sharding
---@param coloured boolean?
---@return string
function visualize.text(shape, s, coloured)
  local picture = draw_table(shape, s)
  local width, height = cell_size(picture)
  local rows, columns = #picture.cells, #picture.cells[1]
  local lines = { picture.note }
  lines[#lines + 1] = rule("┌", "┬", "┐", columns, width)
  for i, cells in ipairs(picture.cells) do
    for line = 1, height do
      lines[#lines + 1] = cells_line(cells, width, line == math.floor((height + 1) / 2), coloured)
    end
    if i < rows then lines[#lines + 1] = rule("├", "┼", "┤", columns, width) end
  end
  lines[#lines + 1] = rule("└", "┴", "┘", columns, width)
  return table.concat(lines, "\n") .. "\n"
end

-- ---- as SVG --------------------------------------------------------------------------------------------------------

local function escape(text) return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" })) end

--- The same picture as SVG.
---@param shape integer[]
---@param s shardrt.Sharding
---@return string
function visualize.svg(shape, s)
  local picture = draw_table(shape, s)
  local columns, lines = cell_size(picture)
  local width, height = (columns + 1) * CHARACTER_WIDTH, (lines + 1) * LINE_HEIGHT
  local note = picture.note or ""
  local top = note ~= "" and LINE_HEIGHT or 0
  local parts = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="14">'):format(
      math.max(#picture.cells[1] * width, #note * CHARACTER_WIDTH) + 2, #picture.cells * height + top + 2),
    ("<title>%s of %s</title>"):format(escape(tostring(s)), shape_of.text(shape)),
    note ~= "" and ('<text x="1" y="%d">%s</text>'):format(LINE_HEIGHT - 4, escape(note)) or nil,
  }
  for i, cells in ipairs(picture.cells) do
    for j, cell in ipairs(cells) do
      local x, y = (j - 1) * width + 1, (i - 1) * height + top + 1
      parts[#parts + 1] = ('<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="black"/>'):format(x, y, width,
        height, cell.colour and cell.colour[2] or "white")
      parts[#parts + 1] = ('<text x="%.1f" y="%.1f" text-anchor="middle" dominant-baseline="central">%s</text>'):format(
        x + width / 2, y + height / 2, escape(cell.text))
    end
  end
  parts[#parts + 1] = "</svg>"
  return table.concat(parts, "\n") .. "\n"
end

-- Whole or not at all: under another name first.
local function write_whole(path, text)
  local temporary = path .. ".part"
  local file, problem = io.open(temporary, "wb")
  local done = file
  if file then
    done, problem = file:write(text)
    local closed, on_closing = file:close()
    if done and not closed then done, problem = nil, on_closing end
    if done then done, problem = os.rename(temporary, path) end
    if not done then os.remove(temporary) end
  end
  if not done then fail("visualize_sharding: cannot write %s: %s", list.quote(path), tostring(problem)) end
end

-- ---- the words -----------------------------------------------------------------------------------------------------

--- Prints which devices hold which part of an array, once for the job. One and two dimensions are drawn as they lie; of
--- more, those that are cut.
---@param shape integer[]
---@param s shardrt.Sharding
---@param svg_file string? # also writes the picture there, as SVG
function words.visualize_sharding(shape, s, svg_file)
  sharding.check("visualize_sharding", s)
  svg_file = svg_file ~= nil and path_of.check("visualize_sharding", svg_file, ".svg") or nil
  shape = shape_of.check("visualize_sharding", shape)
  s:shard_shape(shape)
  if device.job().process_index ~= 0 then return end
  io.stdout:write(visualize.text(shape, s, terminal.has_colours()))
  if svg_file then write_whole(svg_file, visualize.svg(shape, s)) end
end

--- The same for an array.
---@param x shardrt.Array
---@param svg_file string?
function words.visualize_array_sharding(x, svg_file)
  local shape, s
  if type(x) == "table" or type(x) == "userdata" then shape, s = x.shape, x.sharding end
  if not sharding.is(s) then
    fail("visualize_array_sharding: %s is no array that lies on devices; device_put makes one", list.show(x))
  end
  words.visualize_sharding(shape, s, svg_file)
end

return visualize
