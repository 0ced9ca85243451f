-- --report: one page about a job, for who would rather look than read. Process 0 writes it for all at the job's end;
-- where the job fails, a process that fails does, with what it knows. It is made of plain data, which recipes of a
-- program tell from states of their own.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local json = require "shardrt.base.json"
local report_page = require "shardrt.program.report_page"
local visualize = require "shardrt.layout.visualize"
local shape = require "shardrt.layout.shape"
local watch = require "shardrt.loader.watch"
fail.own()

local report = {}

local MOST_PICTURES = 12 -- of layouts, on the page
local WHAT = "the end of the report"

local is_asked = false -- for, and the page is not written yet
local path -- of the page; nil: this process does not know
local began, clock

--- Before the recipe. Every process must call it; a path that cannot be written is an error in all.
---@param wanted string? # process 0 has it
function report.start(wanted)
  local code = 0
  if current.info.process_index == 0 then code = C.shardrt_file_check(wanted) end
  fail.check(C.shardrt_check_outcome(current.job, "the start of the report", code))
  is_asked, path, began, clock = true, wanted, os.time(), C.shardrt_clock()
end

-- What this process has to tell, in JSON.
local function own_text(lines)
  local loaders = {}
  for i, line in ipairs(lines) do loaders[i] = { where = line.where, totals = line.totals } end
  return assert(json.encode({
    process = current.info.process_index, host = report_page.clean(collective.host_name()), loaders = loaders,
  }, "the report"))
end

-- Each picture once.
local function fields_of(line, pictures)
  local fields = {}
  for i, field in ipairs(line.fields) do
    local svg = visualize.svg(field.shape, field.sharding)
    if not pictures[svg] and pictures.count < MOST_PICTURES then
      pictures[svg], pictures.count = true, pictures.count + 1
    end
    fields[i] = { name = report_page.clean(field.name), text = ("%s %s, %s"):format(field.dtype,
      shape.text(field.shape), tostring(field.sharding)), svg = pictures[svg] and svg or nil }
  end
  return fields
end

local function bad_of(line)
  local records = {}
  for i, one in ipairs(line.bad.records) do
    records[i] = { record = one.record, reason = report_page.clean(one.reason) }
  end
  return { count = line.bad.count, records = records }
end

---@class shardrt.report.line: shardrt.report.loader, shardrt.metrics.line # of one process

--- What is watched here, as plain data that JSON can say.
---@param for_page boolean # else what metrics need
---@return shardrt.report.line[]
function report.lines(for_page)
  if for_page then watch.finish() end
  local lines, pictures = {}, { count = 0 }
  for i, line in ipairs(watch.lines) do
    local one = {
      where = report_page.clean(line.where), totals = line.totals, step = line.step, num_workers = line.num_workers,
      prefetch = line.prefetch, bad = { count = line.bad.count },
    }
    if for_page then
      one.text, one.loaders, one.points = report_page.clean(line.text), line.loaders, line.points
      one.fields, one.bad, one.left_out = fields_of(line, pictures), bad_of(line), line.left_out
      one.dropped, one.samples = line.dropped, line.samples
    end
    lines[i] = one
  end
  return lines
end

-- The page's content, of what processes told.
local function model_of(told, page, lines)
  local by_where, info = {}, current.info
  local model = {
    title = page.title, began = began, seconds = C.shardrt_clock() - clock, version = ffi.string(C.shardrt_version()),
    ended = page.ended, message = page.message, note = page.note, process_count = info.process_count,
    devices = info.devices_per_process, platform = ffi.string(info.platform), loaders = lines,
  }
  for _, line in ipairs(lines) do by_where[line.where], line.processes = line, {} end
  for _, process in ipairs(told) do
    for _, one in ipairs(process.loaders) do
      local loader = by_where[one.where]
      if loader then
        table.insert(loader.processes, { process = process.process, host = process.host, totals = one.totals })
      end
    end
  end
  return model
end

-- In process 0: what all told.
local function gather(lines)
  local told = collective.gather_texts(WHAT, own_text(lines))
  for i, text in ipairs(told) do told[i] = assert(json.decode(text)) end
  return told
end

---@class shardrt.report.words # of a page
---@field title string
---@field ended string? # "in order"
---@field message string? # with which the job ends; so, too, the next one
---@field note string? # what else there is to say

--- At the job's end, in all processes.
---@param page shardrt.report.words
---@param lines shardrt.report.line[] # of this process, which become the page's
function report.finish(page, lines)
  if not is_asked then return end
  local told, code = gather(lines), 0
  if current.info.process_index == 0 then
    local text = report_page.write(model_of(told, page, lines))
    code = C.shardrt_file_save(path, text, #text)
  end
  is_asked = false
  fail.check(C.shardrt_check_outcome(current.job, WHAT, code))
end

--- In a process that fails: nobody comes to write together any more. What goes wrong here is not worth a word beside
--- why the job fails.
---@param page shardrt.report.words
---@param lines shardrt.report.line[]
function report.fail(page, lines)
  if not is_asked then return end
  is_asked = false
  if not path then return end
  pcall(function()
    page.ended = "by an error"
    local text = report_page.write(model_of({ assert(json.decode(own_text(lines))) }, page, lines))
    C.shardrt_file_put(path, text, #text)
  end)
end

return report
