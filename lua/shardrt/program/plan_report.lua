-- `shardrt plan`: what every process of a job would read and hold, worked out without any of them running.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local owned = require "shardrt.base.owned"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
fail.own()

local SHOWN_PROCESSES, SHOWN_DEVICES = 16, 16 -- more than these are cut short to
local SHORT = 3                               -- the first so many, and the last
local SORTED_BOXES = 4096                     -- more than these are not put in order and joined: it would take long

local function with_commas(n)
  local digits = ("%.0f"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (digits:gsub("^,", ""))
end

local function count_text(n, one, many)
  return ("%s %s"):format(with_commas(n), n == 1 and one or many or one .. "s")
end

-- "[0:32, :, 8:16]": a box, with ":" where it is the whole dimension.
local function box_text(box, sizes)
  local words = {}
  for d = 1, box.ndim do
    local start, stop = tonumber(box.start[d - 1]), tonumber(box.stop[d - 1])
    words[d] = start == 0 and stop == sizes[d] and ":" or ("%.0f:%.0f"):format(start, stop)
  end
  return "[" .. table.concat(words, ", ") .. "]"
end

local function elements_of(box)
  local product = 1
  for d = 0, box.ndim - 1 do product = product * tonumber(box.stop[d] - box.start[d]) end
  return product
end

-- What `process` holds of one part: its shards, in mesh order, and how many distinct boxes they are.
local function shards_of(part, process)
  local job = current.info
  local devices = job.devices_per_process
  local shards = ffi.new("shardrt_shard[?]", devices)
  local out = ffi.new "int64_t[2]"
  fail.check(C.shardrt_sharding_shards(part.sharding.handle, #part.shape, shape.to_c(part.shape), process, devices,
    shards, devices, out, out + 1))
  return shards, tonumber(out[0]), tonumber(out[1])
end

-- The distinct boxes of a process's shards, ascending where they are not too many; if `saved`, of those that are
-- replica 0: these it writes.
local function distinct(shards, count, saved)
  local boxes, seen = {}, {}
  for i = 0, count - 1 do
    if not seen[shards[i].block] and (not saved or shards[i].replica_id == 0) then
      seen[shards[i].block] = true
      boxes[#boxes + 1] = shards[i].box
    end
  end
  if #boxes > SORTED_BOXES then return boxes end
  table.sort(boxes, function(a, b)
    for d = 0, a.ndim - 1 do
      if a.start[d] ~= b.start[d] then return a.start[d] < b.start[d] end
    end
    return false
  end)
  return boxes
end

-- The ranges of a box in all dimensions but one, as a key.
local function key_without(box, dim)
  local words = {}
  for d = 0, box.ndim - 1 do
    if d ~= dim then words[#words + 1] = ("%d:%d"):format(tonumber(box.start[d]), tonumber(box.stop[d])) end
  end
  return table.concat(words, ",")
end

-- Joins boxes, in ascending order, that touch along one dimension and are alike in all others; the last dimension
-- first. They are copies.
local function join_boxes(boxes)
  if #boxes > SORTED_BOXES then return boxes end
  for dim = boxes[1] and boxes[1].ndim - 1 or -1, 0, -1 do
    local joined, by_rest = {}, {}
    for _, box in ipairs(boxes) do
      local rest = key_without(box, dim)
      local last = by_rest[rest]
      if last and last.stop[dim] == box.start[dim] then
        last.stop[dim] = box.stop[dim]
      else
        last = ffi.new("shardrt_box", box)
        by_rest[rest] = last
        joined[#joined + 1] = last
      end
    end
    boxes = joined
  end
  return boxes
end

local function list_text(list, show, separator)
  local words, count = {}, #list
  for i = 1, count do
    if count <= SHOWN_DEVICES or i <= SHORT or i == count then
      words[#words + 1] = show(list[i])
    elseif i == SHORT + 1 then
      words[#words + 1] = ("… %s more …"):format(with_commas(count - SHORT - 1))
    end
  end
  return table.concat(words, separator or " and ")
end

-- What a loader reads for one part in a process, by its pipeline.
local function boxes_read(pipeline, part, shards, count)
  if pipeline == "global" then
    local whole = ffi.new("shardrt_box", { ndim = #part.shape })
    for d = 1, #part.shape do whole.stop[d - 1] = part.shape[d] end
    return { whole }
  end
  if pipeline == "per_process" then return distinct(shards, count) end
  local all = {}
  for i = 0, count - 1 do all[#all + 1] = shards[i].box end
  return all
end

-- Bytes that one row of a box costs.
local function row_bytes(part, box)
  local inner = ffi.new("shardrt_box", { ndim = box.ndim - 1 })
  for d = 1, box.ndim - 1 do inner.start[d - 1], inner.stop[d - 1] = box.start[d], box.stop[d] end
  return part.sample_bytes(inner)
end

-- Rows and bytes that these boxes cost in one whole step, and in an epoch (its last batch may be shorter). A row of
-- which one reader reads several pieces counts once.
local function cost(loader, part, boxes)
  local count = #loader.source
  local whole = math.floor(count / loader.batch_size)
  local rest = loader.remainder == "pad" and count % loader.batch_size or 0
  local step, epoch, counted = { rows = 0, bytes = 0 }, { rows = 0, bytes = 0 }, {}
  for _, box in ipairs(boxes) do
    local start, stop, bytes = tonumber(box.start[0]), tonumber(box.stop[0]), row_bytes(part, box)
    local in_step = stop - start
    local in_epoch = whole * in_step + math.max(0, math.min(stop, rest) - start)
    step.bytes, epoch.bytes = step.bytes + in_step * bytes, epoch.bytes + in_epoch * bytes
    if loader.pipeline == "per_device" or not counted[start] then
      counted[start] = true -- the rows are cut evenly: boxes that begin alike have the same rows
      step.rows, epoch.rows = step.rows + in_step, epoch.rows + in_epoch
    end
  end
  return step, epoch
end

local function cost_text(cost_of, span)
  return ("%s, %s in %s"):format(count_text(cost_of.rows, "row"), count_text(cost_of.bytes, "byte"), span)
end

local function print_devices(write, part, shards, count)
  for i = 0, count - 1 do
    if count <= SHOWN_DEVICES or i < SHORT or i == count - 1 then
      write("      device %d: %s%s", shards[i].device, box_text(shards[i].box, part.shape),
        shards[i].replica_id > 0 and (", replica %d"):format(tonumber(shards[i].replica_id)) or "")
    elseif i == SHORT then
      write("      … %s more devices …", with_commas(count - SHORT - 1))
    end
  end
end

-- "1,024 bytes from processes 1, 2, 3", of the moves of one kind.
local function moves_text(moves, kind, bytes, preposition)
  local processes, seen = {}, {}
  for _, move in ipairs(moves) do
    if move.kind == kind and not seen[move.process] then
      seen[move.process] = true
      processes[#processes + 1] = move.process
    end
  end
  if #processes == 0 then return "nothing" end
  table.sort(processes)
  return ("%s %s %s %s"):format(count_text(bytes, "byte"), preposition, #processes == 1 and "process" or "processes",
    list_text(processes, tostring, ", "))
end

local function print_moves(write, plan_of_moves, process, prefix)
  local moves = plan_of_moves:moves(process)
  write("    %sreceives %s; sends %s; keeps %s", prefix or "",
    moves_text(moves, "receive", plan_of_moves:bytes_received(process), "from"),
    moves_text(moves, "send", plan_of_moves:bytes_sent(process), "to"),
    count_text(plan_of_moves:bytes_copied(process), "byte"))
end

local function bytes_of(boxes, part)
  local elements = 0
  for _, box in ipairs(boxes) do elements = elements + elements_of(box) end
  return elements * dtype.named("plan", part.dtype).size
end

local function ranges_text(part, boxes)
  return list_text(boxes, function(box) return box_text(box, part.shape) end)
end

-- The layout in which an array is written to a file: its own, or rows.
local function written_part(part)
  local job, out = current.info, ffi.new "shardrt_sharding *[1]"
  fail.check(C.shardrt_safetensors_rows(part.sharding.handle, dtype.named("plan", part.dtype).code, #part.shape,
    shape.to_c(part.shape), job.process_count, job.devices_per_process, out))
  if out[0] == nil then return part, "" end
  local handle = owned(out, "shardrt_sharding_free")
  return { shape = part.shape, dtype = part.dtype, sharding = { handle = handle } }, ", laid out in rows first"
end

-- What a process writes of one part that is saved: its own boxes; of a host array, as process 0, all.
local function print_saved(write, part, process)
  if not part.sharding then
    local bytes = shape.elements(part.shape) * dtype.named("plan", part.dtype).size
    write("    %s: writes %s", part.name, process == 0 and "all of it: " .. count_text(bytes, "byte") or "nothing")
    return
  end
  local written, how = written_part(part)
  local shards, count = shards_of(written, process)
  local boxes = distinct(shards, count, true)
  if #boxes == 0 then return write("    %s: writes nothing%s", part.name, how) end
  write("    %s: writes %s: %s%s", part.name, ranges_text(part, join_boxes(boxes)),
    count_text(bytes_of(boxes, part), "byte"), how)
end

-- What a process reads of one part, and what then moves to and from it.
local function print_read(write, loader, part, name, process)
  local shards, count = shards_of({ shape = part.shape, sharding = part.load or part.sharding }, process)
  local reads = loader.way.reads
  local boxes = boxes_read(reads, part, shards, count)
  local step, epoch = cost(loader, part, boxes)
  local ranges = ranges_text(part, reads == "per_device" and boxes or join_boxes(boxes))
  if #boxes == 0 then
    write("    %sreads nothing", name)
  elseif part.is_computed then
    write("    %scomputed, not read: %s", name, ranges)
  elseif step.bytes == 0 and shape.elements(part.shape) > 0 then
    write("    %sreads %s: %s in a step; %s in an epoch, of which each has a length of its own", name, ranges,
      count_text(step.rows, "row"), count_text(epoch.rows, "row"))
  else
    write("    %sreads %s: %s; %s", name, ranges, cost_text(step, "a step"), cost_text(epoch, "an epoch"))
  end
  if part.moves then print_moves(write, part.moves, process, "  in a step: ") end
end

local function print_need(write, part, name, shards, count, blocks)
  local boxes = distinct(shards, count)
  local rows, counted = 0, {}
  for _, box in ipairs(boxes) do
    local start = tonumber(box.start[0])
    if not counted[start] then rows = rows + tonumber(box.stop[0]) - start end
    counted[start] = true
  end
  write("    %sneeds %s: %s%s, %s", name, ranges_text(part, join_boxes(boxes)),
    #part.shape > 0 and count_text(rows, "row") .. ", " or "",
    count_text(bytes_of(boxes, part), "byte"), count_text(blocks, "distinct part"))
end

local function print_process(write, entry, process)
  write("  process %d", process)
  if entry.moves then print_moves(write, entry.moves, process) end
  if entry.saved then
    for _, part in ipairs(entry.parts) do print_saved(write, part, process) end
    return
  end
  for _, part in ipairs(entry.parts) do
    local shards, count, blocks = shards_of(part, process)
    local name = part.name and part.name .. ": " or ""
    local read = entry.loader and part.sample_bytes
    if count == 0 and not (read and (entry.loader.way.reads == "global" or part.load)) then
      write("    %snothing: it owns no device of the mesh", name)
    elseif read then
      print_read(write, entry.loader, part, name, process)
    else
      print_need(write, part, name, shards, count, blocks)
    end
    print_devices(write, part, shards, count)
  end
end

local function print_layout(write, part)
  if not part.sharding then return write("  %s", plan.describe(part)) end
  local sizes = part.sharding:shard_shape(part.shape)
  local devices = tonumber(C.shardrt_mesh_size(C.shardrt_sharding_mesh(part.sharding.handle)))
  local parts = 1
  for d = 1, #sizes do parts = parts * (sizes[d] > 0 and part.shape[d] / sizes[d] or 1) end
  local replicas = devices / parts
  write("  %s", plan.describe(part))
  write("    %s, each with %s, %s; %s", count_text(devices, "device"), shape.text(sizes),
    count_text(shape.elements(sizes) * dtype.named("plan", part.dtype).size, "byte"),
    replicas == 1 and "no replicas" or ("%s of each part"):format(count_text(replicas, "replica", "replicas")))
  if part.load then write("    read as %s, then moved", tostring(part.load)) end
end

local function print_entry(write, entry, only, processes)
  write("")
  write("%s: %s%s", entry.where, entry.what,
    entry.times > 1 and (" (made %s times)"):format(with_commas(entry.times)) or "")
  if entry.note then write("  %s", entry.note) end
  for _, line in ipairs(entry.orders or {}) do write("  %s", line) end
  for _, part in ipairs(entry.parts) do print_layout(write, part) end
  if only then return print_process(write, entry, only) end
  local all = processes <= SHOWN_PROCESSES
  for process = 0, (all and processes or SHORT) - 1 do print_process(write, entry, process) end
  if not all then
    write("  … %s more processes (--process K shows process K) …", with_commas(processes - SHORT - 1))
    print_process(write, entry, processes - 1)
  end
end

--- Prints the plan of what the recipe made.
---@param only_process integer? # nil: all processes, or where there are many the first few and the last
return function(only_process)
  local job = current.info
  local function write(...) io.stdout:write(string.format(...), "\n") end
  write("a job of %s with %s each: %s", count_text(job.process_count, "process", "processes"),
    count_text(job.devices_per_process, "device"), count_text(job.process_count * job.devices_per_process, "device"))
  if #plan.entries == 0 then write("the recipe made no array and no loader") end
  for _, entry in ipairs(plan.entries) do print_entry(write, entry, only_process, job.process_count) end
end
