-- The page of a report: XHTML with pictures in SVG, in one text, without scripts and without anything to fetch.

local progress = require "shardrt.loader.progress"
require("shardrt.base.error").own()

local report_page = {}

---@class shardrt.report.process
---@field process integer
---@field host string
---@field totals table<string, number> # as watch.lua counts

---@class shardrt.report.field
---@field name string
---@field text string
---@field svg string? # its layout

---@class shardrt.report.loader
---@field where string
---@field text string
---@field loaders integer
---@field points shardrt.watch.points
---@field processes shardrt.report.process[]
---@field fields shardrt.report.field[]? # nil: nothing is known of them; so, too, the next four
---@field samples integer?
---@field bad shardrt.watch.bad?
---@field left_out integer?
---@field dropped integer?

---@class shardrt.report.model
---@field title string
---@field began integer? # seconds since 1970
---@field seconds number
---@field version string
---@field ended string # "in order", "by an error"
---@field message string?
---@field process_count integer
---@field devices integer
---@field platform string?
---@field note string? # what else there is to say
---@field loaders shardrt.report.loader[]

local MOST_PROCESSES = 64 -- that have a row each
local MOST_LOADERS = 16   -- that are drawn
local MOST_COLUMNS = 80   -- of a curve
local WIDTH, LEFT, HEIGHT, ROW = 900, 70, 180, 16

-- What the recipe's thread does, and what workers do: totals, names, colours that those who see few tell apart.
local OWN = { { "wait_seconds", "waiting for batches", "#d55e00" }, { "move_seconds", "moving batches", "#cc79a7" },
  { "rest", "the recipe itself", "#bbbbbb" } }
local WORK = {
  { "read_seconds", "reading", "#0072b2" }, { "decode_seconds", "decoding", "#e69f00" },
  { "transform_seconds", "transforming", "#009e73" }, { "scatter_seconds", "copying to places", "#56b4e9" },
  { "check_seconds", "comparing replicas", "#999999" },
}
local BYTES = { { "bytes_read", "read" }, { "bytes_moved", "received" }, { "bytes_uploaded", "uploaded" } }

-- ---- texts ----

-- The length of the UTF-8 character at `at` that XML allows; nil: there is none.
local function character(text, at)
  local first, second = text:byte(at, at + 1)
  if first < 0x80 then return (first >= 32 and first ~= 127 or first == 9 or first == 10) and 1 or nil end
  local length = first >= 0xC2 and first < 0xE0 and 2 or first >= 0xE0 and first < 0xF0 and 3
    or first >= 0xF0 and first < 0xF5 and 4
  if not length or not text:find("^" .. ("[\128-\191]"):rep(length - 1), at + 1) then return nil end
  local wrong = first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F
    or first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F
    or first == 0xEF and second == 0xBF and text:byte(at + 2) >= 0xBE
  return not wrong and length or nil
end

--- A text as UTF-8 that XML allows: what is none becomes question marks.
---@param text string
---@return string
function report_page.clean(text)
  if not text:find "[^\t\n -~]" then return text end
  local parts, at = {}, 1
  while at <= #text do
    local length = character(text, at)
    parts[#parts + 1] = length and text:sub(at, at + length - 1) or "?"
    at = at + (length or 1)
  end
  return table.concat(parts)
end

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

local function escape(text) return (report_page.clean(text):gsub("[&<>\"']", ENTITIES)) end

local function whole(value) return ("%.0f"):format(value) end

local function bytes_text(value) return progress.short(value) .. "B" end

local function seconds_text(value)
  return value >= 100 and progress.time(value) or ("%.3g s"):format(value)
end

local function percent(part, all) return all > 0 and ("%.0f%%"):format(100 * math.min(1, part / all)) or "0%" end

-- ---- what is drawn ----

local function svg(height, title, parts)
  return ('<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %d %d" font-size="12">'):format(WIDTH,
    height) .. ("<title>%s</title>\n"):format(escape(title)) .. table.concat(parts, "\n") .. "\n</svg>"
end

-- What was done between two of the points, at most MOST_COLUMNS times.
local function intervals(points)
  local made, n = {}, #points.time
  local each = math.max(1, math.ceil(n / MOST_COLUMNS))
  local from
  for i = 1, n + each - 1, each do
    local to = math.min(i, n)
    if from and to > from then
      local seconds = points.time[to] - points.time[from]
      if seconds > 0 then
        made[#made + 1] = {
          from = points.steps[from], to = points.steps[to],
          speed = (points.samples[to] - points.samples[from]) / seconds,
          wait = math.min(1, (points.wait[to] - points.wait[from]) / seconds),
        }
      end
    end
    from = to
  end
  return made
end

-- Samples/s as a line of steps, over the share of waiting as an area.
local function curve(points)
  local made = intervals(points)
  if #made == 0 then return nil end
  local top, first, last = 0, made[1].from, made[#made].to
  for _, one in ipairs(made) do top = math.max(top, one.speed) end
  local function x_of(step) return LEFT + (step - first) / math.max(1, last - first) * (WIDTH - LEFT - 60) end
  local function y_of(part) return 10 + (1 - part) * (HEIGHT - 40) end
  local speed, wait = {}, { ("%.1f,%.1f"):format(x_of(first), y_of(0)) }
  for _, one in ipairs(made) do
    for _, step in ipairs { one.from, one.to } do
      speed[#speed + 1] = ("%.1f,%.1f"):format(x_of(step), y_of(top > 0 and one.speed / top or 0))
      wait[#wait + 1] = ("%.1f,%.1f"):format(x_of(step), y_of(one.wait))
    end
  end
  wait[#wait + 1] = ("%.1f,%.1f"):format(x_of(last), y_of(0))
  local function text(x, y, anchor, colour, shown)
    return ('<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>'):format(x, y, anchor, colour, shown)
  end
  return svg(HEIGHT, "Samples a second, and the share of waiting, over the steps", {
    ('<polygon points="%s" fill="#d55e00" fill-opacity="0.25"/>'):format(table.concat(wait, " ")),
    ('<polyline points="%s" fill="none" stroke="#0072b2" stroke-width="2"/>'):format(table.concat(speed, " ")),
    ('<path d="M%d 10V%dH%d" fill="none" stroke="#888"/>'):format(LEFT, HEIGHT - 30, WIDTH - 60),
    text(LEFT - 6, 16, "end", "#0072b2", escape(progress.short(top) .. "/s")),
    text(LEFT - 6, HEIGHT - 28, "end", "#0072b2", "0"),
    text(WIDTH - 54, 16, "start", "#d55e00", "100%"),
    text(WIDTH - 54, HEIGHT - 28, "start", "#d55e00", "0%"),
    text(LEFT, HEIGHT - 10, "start", "#555", "after step " .. whole(first)),
    text(WIDTH - 60, HEIGHT - 10, "end", "#555", "step " .. whole(last)),
    text(WIDTH / 2, HEIGHT - 10, "middle", "#0072b2", 'samples/s <tspan fill="#d55e00">and waiting</tspan>'),
  })
end

-- A bar for each process, made of what takes its time.
local function bars(processes, kinds, title)
  local most, parts = 0, {}
  for _, one in ipairs(processes) do
    local sum = 0
    for _, kind in ipairs(kinds) do sum = sum + one.totals[kind[1]] end
    most = math.max(most, sum)
  end
  if most == 0 then return nil end
  for row, one in ipairs(processes) do
    local x, y = LEFT, (row - 1) * ROW
    parts[#parts + 1] = ('<text x="%d" y="%d" text-anchor="end">process %d</text>'):format(LEFT - 6, y + 12,
      one.process)
    for _, kind in ipairs(kinds) do
      local value = one.totals[kind[1]]
      local width = value / most * (WIDTH - LEFT - 10)
      if width >= 0.05 then
        local told = ("process %d, %s: %s"):format(one.process, kind[2], seconds_text(value))
        parts[#parts + 1] = ('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>')
          :format(x, y + 1, width, ROW - 3, kind[3], escape(told))
        x = x + width
      end
    end
  end
  local legend = {}
  for i, kind in ipairs(kinds) do
    legend[i] = ('<span class="key"><i style="background:%s"></i>%s</span>'):format(kind[3], escape(kind[2]))
  end
  return ("<h4>%s</h4>\n<p>%s (the longest bar: %s)</p>\n"):format(escape(title), table.concat(legend, " "),
    seconds_text(most)) .. svg(#processes * ROW + 4, title, parts)
end

-- ---- a loader ----

-- Those that have a row, in their order: where there are too many, those that waited most.
local function shown_of(processes)
  local shown = { unpack(processes) }
  table.sort(shown, function(a, b)
    if a.totals.wait_seconds ~= b.totals.wait_seconds then return a.totals.wait_seconds > b.totals.wait_seconds end
    return a.process < b.process
  end)
  for i = MOST_PROCESSES + 1, #shown do shown[i] = nil end
  table.sort(shown, function(a, b) return a.process < b.process end)
  for _, one in ipairs(shown) do
    local totals = one.totals
    totals.rest = math.max(0, totals.seconds - totals.wait_seconds - totals.move_seconds)
  end
  return shown
end

local function cell(value, text) return ('<td data-value="%s">%s</td>'):format(value, escape(text)) end

-- With bars behind the bytes.
local function numbers_table(processes)
  local most, rows = {}, {}
  for _, kind in ipairs(BYTES) do
    most[kind[1]] = 0
    for _, one in ipairs(processes) do most[kind[1]] = math.max(most[kind[1]], one.totals[kind[1]]) end
  end
  local head = { "<th>process</th><th>host</th>" }
  for _, kind in ipairs(BYTES) do head[#head + 1] = ("<th>%s</th>"):format(kind[2]) end
  head[#head + 1] = "<th>samples</th><th>steps</th><th>seconds</th><th>waiting</th>"
  for i, one in ipairs(processes) do
    local totals = one.totals
    local cells = { ('<td class="name">%d</td><td class="name">%s</td>'):format(one.process, escape(one.host)) }
    for _, kind in ipairs(BYTES) do
      local value = totals[kind[1]]
      cells[#cells + 1] = ('<td data-value="%s" style="background-size:%.0f%% 100%%" class="bytes">%s</td>'):format(
        whole(value), most[kind[1]] > 0 and 100 * value / most[kind[1]] or 0, escape(bytes_text(value)))
    end
    cells[#cells + 1] = cell(whole(totals.samples), whole(totals.samples))
    cells[#cells + 1] = cell(whole(totals.steps), whole(totals.steps))
    cells[#cells + 1] = cell(("%.6f"):format(totals.seconds), seconds_text(totals.seconds))
    cells[#cells + 1] = cell(("%.6f"):format(totals.wait_seconds), percent(totals.wait_seconds, totals.seconds))
    rows[i] = ('<tr data-process="%d">%s</tr>'):format(one.process, table.concat(cells))
  end
  return ("<table>\n<thead><tr>%s</tr></thead>\n<tbody>\n%s\n</tbody>\n</table>"):format(table.concat(head),
    table.concat(rows, "\n"))
end

-- How far processes are from each other, where not all have a row.
local function spread(processes)
  local lines = {}
  local function add(name, key, text)
    local values = {}
    for i, one in ipairs(processes) do values[i] = one.totals[key] end
    table.sort(values)
    lines[#lines + 1] = ("<li>%s: least %s, middle %s, most %s</li>"):format(name, escape(text(values[1])),
      escape(text(values[math.ceil(#values / 2)])), escape(text(values[#values])))
  end
  for _, kind in ipairs(BYTES) do add("bytes " .. kind[2], kind[1], bytes_text) end
  add("waiting", "wait_seconds", seconds_text)
  return "<ul>" .. table.concat(lines) .. "</ul>"
end

local function skipped(loader)
  local lines = {}
  local function add(format, ...) lines[#lines + 1] = "<li>" .. format:format(...) .. "</li>" end
  if loader.left_out > 0 then add("The filter let %s samples not through.", whole(loader.left_out)) end
  if loader.dropped > 0 then
    add('%s rows of each epoch do not fill a batch, and are in none: <code>remainder = "drop"</code>.',
      whole(loader.dropped))
  end
  if loader.bad.count > 0 then
    add('<span class="bad" data-value="%s">%s samples cannot be read:</span>', whole(loader.bad.count),
      whole(loader.bad.count))
    for _, record in ipairs(loader.bad.records) do
      add("sample %s: %s", whole(record.record), escape(record.reason))
    end
    local more = loader.bad.count - #loader.bad.records
    if more > 0 then add("and %s more", whole(more)) end
  end
  if #lines == 0 then return "<p>Nothing.</p>" end
  return "<ul>\n" .. table.concat(lines, "\n") .. "\n</ul>"
end

-- Fields of one picture stand together.
local function layouts(fields)
  local parts, by_picture = {}, {}
  for _, field in ipairs(fields) do
    local heading = ("<code>%s</code>: %s"):format(escape(field.name), escape(field.text))
    local known = field.svg and by_picture[field.svg]
    if known then
      parts[known].heading = parts[known].heading .. "<br/>" .. heading
    else
      parts[#parts + 1] = { heading = heading, svg = field.svg or "" }
      if field.svg then by_picture[field.svg] = #parts end
    end
  end
  for i, part in ipairs(parts) do
    parts[i] = ('<figure><figcaption>%s</figcaption><div class="wide">%s</div></figure>'):format(part.heading,
      report_page.clean(part.svg))
  end
  return table.concat(parts, "\n")
end

local function sums(processes)
  local all = { most_wait = 0, seconds = 0 }
  for _, kind in ipairs(BYTES) do all[kind[1]] = 0 end
  for _, one in ipairs(processes) do
    for _, kind in ipairs(BYTES) do all[kind[1]] = all[kind[1]] + one.totals[kind[1]] end
    if one.totals.wait_seconds >= all.most_wait then
      all.most_wait, all.seconds = one.totals.wait_seconds, one.totals.seconds
    end
  end
  return all
end

local function tile(name, text) return ("<div><b>%s</b>%s</div>"):format(escape(text), escape(name)) end

local function loader_part(loader, add)
  local many = loader.loaders > 1 and (" (and %d more that the line made)"):format(loader.loaders - 1) or ""
  add('<section class="loader">\n<h2>%s</h2>\n<p>%s%s</p>', escape(loader.where), escape(loader.text), many)
  local first = loader.processes[1]
  local totals = first and first.totals
  if totals and totals.steps > 0 then
    local all = sums(loader.processes)
    add('<div class="tiles">%s%s%s%s%s</div>', tile("samples", whole(totals.samples)),
      tile("batches", whole(totals.steps)), tile("samples/s", progress.short(totals.samples / totals.seconds)),
      tile("waiting, where most", percent(all.most_wait, all.seconds)), tile("read in all", bytes_text(all.bytes_read)))
    local drawn = curve(loader.points)
    if drawn then add("<h3>Over the steps</h3>\n%s", drawn) end
    local shown = shown_of(loader.processes)
    add "<h3>Where the time goes</h3>"
    if #shown < #loader.processes then
      add("<p>%d of %d processes have a row here: those that waited most.</p>\n%s", #shown, #loader.processes,
        spread(loader.processes))
    end
    add("%s", bars(shown, OWN, "The recipe's thread, from the first batch to the last") or "")
    add("%s", bars(shown, WORK, "All workers of a process together, for the batches handed out") or "")
    add("<h3>By process</h3>\n%s", numbers_table(shown))
  else
    add "<p>It gave no batch.</p>"
  end
  if loader.fields then add("<h3>Which device holds what</h3>\n%s", layouts(loader.fields)) end
  if loader.bad then add("<h3>What was skipped, and why</h3>\n%s", skipped(loader)) end
  add "</section>"
end

-- ---- the page ----

local STYLE = [[
:root { color-scheme: light }
body { font: 15px/1.4 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { margin-bottom: 0 } section { border-top: 1px solid #ccc; margin-top: 2em }
svg { max-width: 100%; display: block } .wide { overflow-x: auto } .wide svg { max-width: none }
table { border-collapse: collapse; width: 100% } th, td { padding: 2px 8px; text-align: right }
tr:nth-child(even) { background-color: #f6f6f6 } .name { text-align: left }
.bytes { background: linear-gradient(#cfe3f2, #cfe3f2) no-repeat }
.tiles { display: flex; flex-wrap: wrap; gap: 1em } .tiles div { background: #f2f2f2; padding: .5em 1em }
.tiles b { display: block; font-size: 1.5em }
.key i { display: inline-block; width: .8em; height: .8em; margin: 0 .3em }
.failed { color: #b00020 } pre { white-space: pre-wrap }
figure { margin: 1em 0 } footer { color: #666; margin-top: 3em }
]]

--- The page of a job.
---@param model shardrt.report.model
---@return string
function report_page.write(model)
  local parts = {}
  local function add(format, ...)
    parts[#parts + 1] = select("#", ...) > 0 and format:format(...) or format
  end
  local title = escape(model.title)
  add('<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en">\n<head>\n<meta charset="utf-8"/>')
  add('<meta name="viewport" content="width=device-width, initial-scale=1"/>\n<title>%s - shardrt</title>', title)
  add("<style>\n%s</style>\n</head>\n<body>\n<h1>%s</h1>", STYLE, title)
  add('<p id="job">%d process%s with %d device%s each%s; %s%s. The job ended <b%s>%s</b>.</p>', model.process_count,
    model.process_count == 1 and "" or "es", model.devices, model.devices == 1 and "" or "s",
    model.platform and " (" .. escape(model.platform) .. ")" or "",
    model.began and os.date("!began %Y-%m-%d %H:%M:%S UTC, ", model.began) or "", seconds_text(model.seconds),
    model.message and ' class="failed"' or "", escape(model.ended))
  if model.message then add('<pre class="failed" id="message">%s</pre>', escape(model.message)) end
  if model.message and model.process_count > 1 then
    local first = model.loaders[1] and model.loaders[1].processes[1]
    add("<p>This is what %s knew: the others' numbers are lost.</p>",
      first and ("process %d"):format(first.process) or "the process that failed")
  end
  if model.note then add("<p>%s</p>", escape(model.note)) end
  if #model.loaders == 0 then add "<p>No loader was made.</p>" end
  for i, loader in ipairs(model.loaders) do
    if i <= MOST_LOADERS then loader_part(loader, add) end
  end
  if #model.loaders > MOST_LOADERS then add("<p>And %d more loaders.</p>", #model.loaders - MOST_LOADERS) end
  add("<footer>Written by shardrt %s. Bytes are those that each process took from its storage, received from others "
    .. "and copied to GPUs.</footer>\n</body>\n</html>\n", escape(model.version))
  return table.concat(parts, "\n")
end

return report_page
