-- --report: one page about a job, for who would rather look than read. Process 0 writes it for all at the job's end;
-- where the job fails, a process that fails does, with what it knows.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local json = require "shardrt.base.json"
local report_page = require "shardrt.program.report_page"
local visualize = require "shardrt.layout.visualize"
local shape = require "shardrt.layout.shape"
local watch = require "shardrt.loader.watch"
fail.own()

ffi.cdef "int gethostname(char *name, size_t capacity);"

local report = {}

local MOST_PICTURES = 12 -- of layouts, on the page
local WHAT = "the end of the report"

local path -- of the page; nil: none is asked for, or it is written
local recipe, began

local function host_name()
  local name = ffi.new "char[256]"
  return ffi.C.gethostname(name, 255) == 0 and ffi.string(name) or "?"
end

--- Before the recipe. Every process must call it alike; a path that cannot be written is an error.
---@param wanted string
---@param recipe_path string
function report.start(wanted, recipe_path)
  local code = 0
  if current.info.process_index == 0 then code = C.shardrt_file_check(wanted) end
  fail.check(C.shardrt_check_outcome(current.job, "the start of the report", code))
  path, recipe, began = wanted, recipe_path, os.time()
end

-- What this process has to tell, in JSON.
local function own_text()
  local loaders = {}
  for i, line in ipairs(watch.lines) do
    loaders[i] = { where = report_page.clean(line.where), totals = line.totals }
  end
  return assert(json.encode({
    process = current.info.process_index, host = report_page.clean(host_name()), loaders = loaders,
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
    fields[i] = { name = field.name, text = ("%s %s, %s"):format(field.dtype, shape.text(field.shape),
      tostring(field.sharding)), svg = pictures[svg] and svg or nil }
  end
  return fields
end

-- The page's content, of what processes told.
local function model_of(told, ended, message)
  local by_where, info, pictures = {}, current.info, { count = 0 }
  local model = {
    title = recipe, began = began, seconds = watch.seconds(), version = ffi.string(C.shardrt_version()), ended = ended,
    message = message, process_count = info.process_count, devices = info.devices_per_process,
    platform = ffi.string(info.platform), loaders = {},
  }
  for i, line in ipairs(watch.lines) do
    local loader = {
      where = line.where, text = line.text, loaders = line.loaders, points = line.points,
      fields = fields_of(line, pictures), bad = line.bad, left_out = line.left_out, dropped = line.dropped,
      samples = line.samples, processes = {},
    }
    model.loaders[i], by_where[report_page.clean(line.where)] = loader, loader
  end
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
local function gather()
  local out = ffi.new "shardrt_buffer *[1]"
  fail.check(C.shardrt_gather_texts(current.job, WHAT, own_text(), out))
  local texts = ffi.string(C.shardrt_buffer_data(out[0]), C.shardrt_buffer_bytes(out[0]))
  C.shardrt_buffer_free(out[0])
  local told = {}
  for text in texts:gmatch "[^%z]+" do told[#told + 1] = assert(json.decode(text)) end
  return told
end

--- At the job's end, in all processes.
---@param ended string # "in order"
function report.finish(ended)
  if not path then return end
  watch.finish()
  local told, code, wanted = gather(), 0, path
  path = nil
  if current.info.process_index == 0 then
    local page = report_page.write(model_of(told, ended))
    code = C.shardrt_file_save(wanted, page, #page)
  end
  fail.check(C.shardrt_check_outcome(current.job, WHAT, code))
end

--- In a process that fails: nobody comes to write together any more. What goes wrong here is not worth a word beside
--- why the job fails.
---@param message string
function report.fail(message)
  if not path then return end
  local wanted = path
  path = nil
  pcall(function()
    watch.finish()
    local page = report_page.write(model_of({ assert(json.decode(own_text())) }, "by an error", message))
    C.shardrt_file_put(wanted, page, #page)
  end)
end

return report
