-- One line that says how a recipe's loop goes: step, samples/s, bytes/s, how much of the time it waited, time left.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local terminal = require "shardrt.base.terminal"
fail.own()

local progress = {}

-- Seconds.
local SILENT = 0.5 -- at first, so that a short loop leaves no line
local REDRAW = 0.1 -- on a terminal
local REPORT = 10  -- elsewhere, where each is a line of its own
local WINDOW = 5   -- speed is that of the last one or two of these

local ERASE = "\r\27[K" -- to the line's start, and all that follows away

-- Whether this process draws; on a terminal, and then whether the line stands there now.
local is_on, is_terminal, is_shown = false, false, false
-- Whether what the recipe prints is seen beside the line; and is at the beginning of a line of its own.
local is_beside, is_fresh = false, true
local silent, every = SILENT, REDRAW
local due = 0                                      -- when to look again, by the clock
local loops = setmetatable({}, { __mode = "k" })   -- what is known of each loader

-- ---- the line ----

--- A number with three digits and a letter for thousands: "12.3k".
---@param value number
---@return string
function progress.short(value)
  local letters, i = { "", "k", "M", "G", "T", "P" }, 1
  while value >= 999.5 and i < #letters do value, i = value / 1000, i + 1 end
  local digits = (i == 1 or value >= 99.95) and 0 or value >= 9.995 and 1 or 2
  return ("%." .. digits .. "f%s"):format(value, letters[i])
end

--- "0:07", "12:05", "3:00:00".
---@param seconds number
---@return string
function progress.time(seconds)
  seconds = math.floor(seconds + 0.5)
  local hours, minutes = math.floor(seconds / 3600), math.floor(seconds / 60) % 60
  if hours == 0 then return ("%d:%02d"):format(minutes, seconds % 60) end
  return ("%d:%02d:%02d"):format(hours, minutes, seconds % 60)
end

--- The parts of a line that fit, put together; the last ones go first. Not even the first is longer than the room.
---@param parts string[]
---@param room integer # characters
---@return string
function progress.fit(parts, room)
  local text = parts[1]
  for i = 2, #parts do
    local longer = text .. " | " .. parts[i]
    if #longer > room then break end
    text = longer
  end
  return text:sub(1, room)
end

-- Where the loader stands: steps done in all epochs, and as text, "step 7/60 of epoch 2/3".
local function place_of(loader)
  local at = ffi.new "int64_t[2]"
  C.shardrt_loader_tell(loader.handle, at, at + 1)
  local steps = loader.steps_per_epoch
  local done = tonumber(at[0]) * steps + math.ceil(tonumber(at[1]) / loader.batch_size)
  local epoch = math.floor((done - 1) / steps)
  local text = ("step %d/%d"):format(done - epoch * steps, steps)
  if loader.epochs == 1 then return done, text end
  return done, ("%s of epoch %d%s"):format(text, epoch + 1, loader.epochs and "/" .. loader.epochs or "")
end

local function mark_of(loader)
  local stats = loader:stats()
  return {
    time = C.shardrt_clock(), steps = stats.steps, samples = stats.samples, bytes = stats.bytes_read,
    wait = stats.stages.wait,
  }
end

-- The parts of the line, by what was done between two marks; the most important first.
local function parts_of(loader, from, to, has_ended)
  local done, place = place_of(loader)
  local seconds, steps = to.time - from.time, to.steps - from.steps
  local parts = { place }
  if seconds <= 0 or steps <= 0 then return parts end
  parts[2] = progress.short((to.samples - from.samples) / seconds) .. " samples/s"
  local left = loader.epochs and (loader.epochs * loader.steps_per_epoch - done) * seconds / steps
  if has_ended then
    parts[3] = progress.time(seconds) .. " in all"
  elseif left then
    parts[3] = progress.time(left) .. " left"
  end
  parts[#parts + 1] = ("waiting %.0f%%"):format(100 * math.min(1, (to.wait - from.wait) / seconds))
  parts[#parts + 1] = progress.short((to.bytes - from.bytes) / seconds) .. "B/s"
  return parts
end

-- Over what stands there, in one piece, and back to the line's start: whoever prints next, of whatever process, begins
-- there.
local function draw_line(parts)
  if is_terminal then
    io.stderr:write("\r" .. progress.fit(parts, terminal.width() - 1) .. "\27[K\r")
    is_shown = true
  else
    io.stderr:write(table.concat(parts, " | ") .. "\n")
  end
end

-- ---- when ----

--- Before something is printed on stdout: the line makes way, whichever process has it.
---@param ends_line boolean # whether a new line begins behind it
function progress.make_way(ends_line)
  if is_beside and is_fresh and (is_shown or not is_on) then io.stdout:write(ERASE) end
  is_shown = is_shown and not is_beside
  is_fresh = ends_line or not is_beside
end

--- After the last: what stands there stays.
function progress.finish()
  if is_shown then io.stderr:write "\n" end
  is_shown = false
end

--- A loader handed out a batch.
---@param loader shardrt.Loader
function progress.step(loader)
  if not is_on then return end
  local now = C.shardrt_clock()
  local loop = loops[loader]
  if loop and now < due then return end
  local mark = mark_of(loader)
  if not loop then
    loops[loader] = { first = mark, old = mark, new = mark }
    return
  end
  if now - loop.first.time < silent or not is_fresh then return end
  due = now + every
  draw_line(parts_of(loader, loop.old, mark))
  loop.drawn = true
  if now - loop.new.time >= WINDOW then loop.old, loop.new = loop.new, mark end
end

--- A loader has no more batches: its line says how the whole went.
---@param loader shardrt.Loader
function progress.ended(loader)
  local loop = is_on and loops[loader]
  if not loop then return end
  loops[loader] = nil
  if not loop.drawn and is_terminal then return end
  draw_line(parts_of(loader, loop.first, mark_of(loader), true))
  progress.finish()
end

-- What a recipe prints by `print` and `io.write` goes where the line is not.
local function wrap_printing()
  local say, write = print, io.write
  function print(...) -- luacheck: ignore 121
    progress.make_way(true)
    say(...)
  end
  function io.write(...) -- luacheck: ignore 122
    local last = select("#", ...) > 0 and tostring((select(-1, ...))) or ""
    if io.output() == io.stdout and last ~= "" then progress.make_way(last:sub(-1) == "\n") end
    return write(...)
  end
end

--- Before the recipe.
---@param wanted boolean? # --progress, --no-progress; nil: on a terminal
function progress.start(wanted)
  if wanted == false then return end
  is_terminal = terminal.is_stderr()
  if not is_terminal and not wanted then return end
  is_on = current.info.process_index == 0
  if not is_terminal then
    silent, every = 0, REPORT
    return
  end
  C.shardrt_job_line(current.job)
  is_beside = terminal.is_stdout()
  if is_beside then wrap_printing() end
  local exit = os.exit
  function os.exit(...) -- luacheck: ignore 122
    progress.finish()
    return exit(...)
  end
end

return progress
