-- long: 30 s
-- waits: for lines that come by the clock.
-- --progress: one line that is drawn again and again on a terminal, and makes way for whatever else is printed.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local progress = require "shardrt.loader.progress"

local ERASE = "\r\27[K"

-- 40 samples of 8 bytes by 4: 10 steps in an epoch.
local head = [[
  local shardrt = require "shardrt"
  local ffi = require "ffi"
  ffi.cdef "int usleep(unsigned microseconds);"
  local function new(o)
    o.source = shardrt.source.array { x = shardrt.ndarray.zeros({ 40 }, "float64") }
    o.batch_size = 4
    return shardrt.loader(o)
  end
]]
-- Two epochs, a batch every so many milliseconds.
local function paced(milliseconds)
  return head .. ("for _ in new { epochs = 2 } do ffi.C.usleep(%d) end"):format(milliseconds * 1000)
end
local loop, brief = paced(100), paced(50)

local has_terminal = mpi.shell("script -qec true /dev/null").status == 0

local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

-- Runs a recipe on a pseudo-terminal: o.source, o.options, o.before (in the shell), o.processes. What came out is in
-- stdout, a line's end being "\r\n".
local function on_terminal(o)
  local recipe = files.write(folder, "recipe.lua", o.source)
  local run = o.processes and "run -n " .. o.processes or ""
  return mpi.shell(("TERM=%s script -qec '%s %s %s %s %s' /dev/null"):format(o.term or "xterm", o.before or "",
    mpi.program(), run, o.options or "", recipe))
end

-- What a terminal shows in the end: its lines, and everything that ever stood in the progress line.
local function screen_of(output)
  local lines, row, column, drawn = { "" }, 1, 0, {}
  local at = 1
  while at <= #output do
    local erase = output:match("^\27%[K", at)
    local text = output:match("^[^%c]+", at)
    if text then
      local line = lines[row]
      lines[row] = line:sub(1, column) .. text .. line:sub(column + #text + 1)
      column = column + #text
      if text:match "^step %d" then drawn[#drawn + 1] = text end
      at = at + #text
    elseif erase then
      lines[row] = lines[row]:sub(1, column)
      at = at + #erase
    else
      local c = output:sub(at, at)
      assert(c == "\r" or c == "\n", "unexpected control character " .. c:byte())
      if c == "\n" then
        row = row + 1
        lines[row] = lines[row] or ""
      end
      column = 0 -- the pseudo-terminal sends "\r\n" for a line's end
      at = at + 1
    end
  end
  return lines, drawn
end

describe("the parts of the line", function()
  it("are short numbers", function()
    for value, expected in pairs {
      [0] = "0", [0.4] = "0", [7.6] = "8", [999] = "999", [999.6] = "1.00k", [1000] = "1.00k", [1234] = "1.23k",
      [9994] = "9.99k", [9996] = "10.0k", [12345] = "12.3k", [99960] = "100k", [123456] = "123k", [999499] = "999k",
      [999500] = "1.00M", [4.5e9] = "4.50G", [1e12] = "1.00T", [1e15] = "1.00P", [1e19] = "10000P",
    } do
      assert.equal(expected, progress.short(value))
    end
  end)

  it("are times", function()
    for seconds, expected in pairs {
      [0] = "0:00", [7.4] = "0:07", [59.6] = "1:00", [725] = "12:05", [3599.4] = "59:59", [3599.6] = "1:00:00",
      [86399] = "23:59:59", [360000] = "100:00:00",
    } do
      assert.equal(expected, progress.time(seconds))
    end
  end)

  it("are left out, the last first, where the terminal is narrow", function()
    local parts = { "step 1/2", "10 samples/s", "0:07 left" }
    local whole = "step 1/2 | 10 samples/s | 0:07 left"
    assert.equal(whole, progress.fit(parts, 200))
    for room = 0, #whole do
      local text = progress.fit(parts, room)
      assert.is_true(#text <= room)
      assert.equal(text, whole:sub(1, #text))
      assert.equal(room >= 35 and whole or room >= 23 and "step 1/2 | 10 samples/s" or ("step 1/2"):sub(1, room), text)
    end
  end)
end)

describe("a loop on a terminal", function()
  if not has_terminal then
    pending "no pseudo-terminal can be made here"
    return
  end

  for _, processes in ipairs { false, 2 } do
    it("has one line, drawn by process 0 of " .. (processes or 1) .. ", which tells how the whole went", function()
      local result = on_terminal { source = loop, processes = processes }
      assert.equal(0, result.status, result.output)
      local lines, drawn = screen_of(result.stdout)
      assert.equal(2, #lines, result.stdout)
      assert.equal("", lines[2])
      assert.truthy(lines[1]:match "^step 10/10 of epoch 2/2 | %d+ samples/s | 0:%d%d in all | waiting %d+%% | %d+B/s$",
        lines[1])
      assert.is_true(#drawn >= 5 and #drawn <= 22, #drawn)
      local before = 0
      for _, text in ipairs(drawn) do
        local step, epoch = text:match "^step (%d+)/10 of epoch (%d)/2"
        local now = 10 * epoch + step
        assert.is_true(now > before or text == drawn[#drawn] and now == before, text)
        before = now
      end
      assert.truthy(drawn[3]:find(" left | waiting ", 1, true), drawn[3])
    end)
  end

  it("draws it at most ten times a second", function()
    local result = on_terminal { source = head .. [[
      local start = shardrt.clock()
      for _ in new { epochs = 2000 } do ffi.C.usleep(10) if shardrt.clock() - start > 1.5 then break end end
      print("seconds " .. shardrt.clock() - start)]] }
    assert.equal(0, result.status, result.output)
    local _, drawn = screen_of(result.stdout)
    assert.is_true(#drawn >= 1 and #drawn <= 10 * tonumber(result.stdout:match "seconds ([%d.]+)") + 1, #drawn)
  end)

  it("has none where it is over at once, or where nobody wants it", function()
    for _, case in ipairs {
      { source = head .. "for _ in new { epochs = 3 } do end" }, { source = brief, options = "--no-progress" },
      { source = brief, term = "dumb" }, { source = brief, processes = 2, options = "--no-progress" },
      { source = brief, options = "2>" .. folder .. "/errors" },
    } do
      local result = on_terminal(case)
      assert.equal("", result.stdout)
      assert.equal(0, result.status, result.output)
    end
    assert.equal("", files.slurp(folder .. "/errors"))
  end)

  it("stays within the terminal's width", function()
    local result = on_terminal { source = brief, before = "stty cols 30;" }
    local lines, drawn = screen_of(result.stdout)
    assert.equal("step 10/10 of epoch 2/2", lines[1])
    for _, text in ipairs(drawn) do assert.is_true(#text < 30, text) end
    result = on_terminal { source = brief, before = "stty cols 50;", processes = 2 }
    lines = screen_of(result.stdout)
    assert.truthy(lines[1]:match "^step 10/10 of epoch 2/2 | %d+ samples/s$", lines[1])
  end)

  it("makes way for what the recipe prints, and does not draw into an unfinished line", function()
    for _, processes in ipairs { false, 2 } do
      local result = on_terminal { processes = processes, source = head .. [[
        local n = 0
        for _ in new { epochs = 1 } do
          n = n + 1
          ffi.C.usleep(150000)
          if shardrt.process_index() == shardrt.process_count() - 1 then
            if n == 6 then print "six" end
            if n == 7 then io.write("seven ", "and ") end
            if n == 9 then io.write("nine", "\n") end
          end
          if n == 10 then shardrt.say "ten" end
        end]] }
      assert.equal(0, result.status, result.output)
      local lines, drawn = screen_of(result.stdout)
      assert.same({ "six", "seven and nine" }, { lines[1], lines[2] }, result.stdout)
      -- mpirun passes on stdout and stderr apart: of the last line of each either comes first.
      local ten = (processes and lines[4] == "ten") and 4 or 3
      assert.equal("ten", lines[ten], result.stdout)
      assert.truthy(lines[7 - ten]:match "^step 10/10 | %d", lines[7 - ten])
      assert.same({ 5, "" }, { #lines, lines[5] })
      assert.is_true(#drawn >= 2)
    end
  end)

  it("leaves nothing of it in front of an error, of whichever process", function()
    for _, processes in ipairs { false, 2 } do
      local result = on_terminal { processes = processes, source = head .. [[
        local n = 0
        for _ in new { epochs = 1 } do
          n = n + 1
          ffi.C.usleep(150000)
          if n == 8 and shardrt.process_index() == shardrt.process_count() - 1 then error "this is wrong" end
        end]] }
      assert.not_equal(0, result.status)
      local found = false
      for _, line in ipairs((screen_of(result.stdout))) do
        if line:find("this is wrong", 1, true) then
          found = true
          assert.truthy(line:match "^shardrt: .*: this is wrong$", line)
        end
      end
      assert.is_true(found, result.stdout)
    end
  end)

  it("that is left ends its line, also by os.exit", function()
    for _, last in ipairs { "", "os.exit(0)" } do
      local result = on_terminal { source = head .. [[
        local n = 0
        for _ in new {} do
          n = n + 1
          ffi.C.usleep(150000)
          if n == 8 then break end
        end ]] .. last }
      assert.equal(0, result.status, result.output)
      local lines = screen_of(result.stdout)
      assert.truthy(lines[1]:match "^step 8/10 of epoch 1 | %d+ samples/s | waiting %d+%% | %d+B/s$", lines[1])
      assert.equal("\n", result.stdout:sub(-1))
    end
  end)

  it("of several loaders shows the one in use", function()
    local result = on_terminal { source = head .. [[
      local train, test = new { epochs = 1 }, new { epochs = 7 }
      for _ in train do
        ffi.C.usleep(100000)
        test()
      end]] }
    assert.equal(0, result.status, result.output)
    local _, drawn = screen_of(result.stdout)
    assert.truthy(drawn[#drawn]:match "^step 10/10 |", drawn[#drawn])
  end)

  it("that goes on from a state tells its place in the epochs", function()
    local result = on_terminal { source = head .. [[
      local a, b = new { epochs = 2 }, new { epochs = 2 }
      for _ = 1, 14 do a() end
      b:restore(a:state())
      for _ in b do ffi.C.usleep(150000) end]] }
    assert.equal(0, result.status, result.output)
    local _, drawn = screen_of(result.stdout)
    for _, text in ipairs(drawn) do assert.truthy(text:match "^step %d+/10 of epoch 2/2 ", text) end
  end)
end)

describe("a loop without a terminal", function()
  it("has no line", function()
    for _, processes in ipairs { false, 2 } do
      local result = mpi.run { source = brief, processes = processes or nil }
      assert.equal("", result.output)
    end
  end)

  it("has lines of their own with --progress, of process 0", function()
    for _, processes in ipairs { false, 2 } do
      local result = mpi.run { source = paced(10), processes = processes or nil, options = { "--progress" } }
      assert.equal(0, result.status, result.output)
      assert.equal("", result.stdout)
      local first, last = result.stderr:match "^(step 2/10 of epoch 1/2 [^\n]*)\n(step 10/10 of epoch 2/2 [^\n]*)\n$"
      assert.truthy(first, result.stderr)
      assert.truthy(first:find(" left | waiting ", 1, true), first)
      assert.truthy(last:find(" in all | waiting ", 1, true), last)
      assert.is_nil(result.stderr:find(ERASE:sub(2), 1, true))
    end
  end)
end)
