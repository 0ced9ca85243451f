-- Every word of words.txt beside JAX, on one device and on eight, of float32 and of bfloat16: ours and JAX's are two
-- processes that compute one word after the other in turn, in each round all of them. Times of a call and ratios of the
-- two in one round, medians; and ratios of the processor's time, which other work on the machine changes less. With
-- SHARDRT_BENCH_TABLE=docs/compute.md the table goes there, too. WORDS="slice one_hot" measures these alone.

local mpi = require "tests.support.mpi"

local COLUMNS = {
  { devices = 1, dtype = "float32" }, { devices = 1, dtype = "bfloat16" }, { devices = 8, dtype = "float32" },
  { devices = 8, dtype = "bfloat16" },
}
local AIM, WORST, LIMIT = 1.2, 10, 3600

local function slurp(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- The words: {name =, ours =, jax =}; only those that `chosen` names, where it names any.
local function words_of(path, chosen)
  local words, left = {}, {}
  for name in (chosen or ""):gmatch "%S+" do left[name] = true end
  local all = next(left) == nil
  for line in slurp(path):gmatch "[^\n]+" do
    local names, ours, jax = line:match "^([^#;]+); ([^;]+);? ?([^;]*)$"
    for name in (names or ""):gmatch "%S+" do
      local function call(text) return (text:gsub("%%", name)) end
      if all or left[name] then
        words[#words + 1] = { name = name:gsub("_", " "), ours = call(ours), jax = call(jax == "" and ours or jax) }
        left[name] = nil
      end
    end
  end
  if next(left) then error(("%s has no word %s"):format(path, next(left)), 0) end
  return words
end

-- A process that answers each line with one of its own. What it has to say besides lies in the folder.
local function started(folder, name, command)
  local answers, said = folder .. "/" .. name, folder .. "/" .. name .. ".txt"
  assert(os.execute("mkfifo " .. answers) == 0)
  local lines = assert(io.popen(("exec timeout -k 5 %d %s >%s 2>%s"):format(LIMIT, command, answers, said), "w"))
  local file = assert(io.open(answers))
  return {
    ask = function(word, text)
      lines:write(word.name, "\t", text, "\n")
      lines:flush()
      local answer = file:read "*l"
      local seconds, processor = (answer or ""):match "^(%S+) (%S+)$"
      if not seconds then error(("%s of %s: %s"):format(name, word.name, answer or slurp(said))) end
      return tonumber(seconds), tonumber(processor)
    end,
    finish = function()
      lines:close()
      file:close()
    end,
  }
end

local function measured(bench, words, column)
  local folder = mpi.folder()
  local ours = started(folder, "ours", ("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 %s --devices %d "
    .. "tests/bench/words_once.lua %s"):format(mpi.program(), column.devices, column.dtype))
  local jax = started(folder, "jax", ("%s tests/bench/words_jax.py %s %d"):format(bench.jax, column.dtype,
    column.devices))
  local found = {}
  for i in ipairs(words) do found[i] = { ours = {}, jax = {}, ratio = {}, processor = {} } end
  for round = 1, bench.rounds do
    for i, word in ipairs(words) do
      local of, a, a_processor = found[i], ours.ask(word, word.ours)
      local b, b_processor = jax.ask(word, word.jax)
      of.ours[round], of.jax[round], of.ratio[round], of.processor[round] = a, b, a / b, a_processor / b_processor
    end
  end
  ours.finish()
  jax.finish()
  mpi.remove(folder)
  for _, of in ipairs(found) do
    for name, list in pairs(of) do of[name] = bench.median(list) end
  end
  return found
end

-- The figures as a table of Markdown.
local function table_of(words, columns)
  local head, rule = { "| word " }, { "|---" }
  for _, column in ipairs(columns) do
    local where = column.devices == 1 and "1 device" or column.devices .. " devices"
    head[#head + 1] = ("| %s, %s "):format(where, column.dtype)
    rule[#rule + 1] = "|---"
  end
  local lines = { table.concat(head) .. "|", table.concat(rule) .. "|" }
  for i, word in ipairs(words) do
    local row = { ("| `%s` "):format(word.name) }
    for _, column in ipairs(columns) do
      local of = column.found[i]
      row[#row + 1] = ("| %.3g ms, **%.2f**, %.2f "):format(of.ours * 1e3, of.ratio, of.processor)
    end
    lines[#lines + 1] = table.concat(row) .. "|"
  end
  return table.concat(lines, "\n")
end

-- What was measured on what: the processor, and the day.
local function circumstances(bench)
  local model = slurp("/proc/cpuinfo"):match "model name%s*:%s*([^\n]+)" or "an unknown processor"
  return ("%s, %s cores, JAX %s, %s"):format(model, (bench.output "nproc"):match "%d+",
    bench.output(bench.jax .. " -c 'import jax; print(jax.__version__)'"):match "%S+", os.date "!%Y-%m-%d")
end

local BEGIN, END = "<!-- words: begin -->\n", "<!-- words: end -->"

local function write_table(path, text)
  local whole = slurp(path)
  local from, to = select(2, whole:find(BEGIN, 1, true)), whole:find(END, 1, true)
  assert(from and to, path .. " has no place for the table")
  local file = assert(io.open(path, "w"))
  file:write(whole:sub(1, from), text, "\n", whole:sub(to))
  file:close()
end

local function print_worst(bench, words, columns)
  local all = {}
  for _, column in ipairs(columns) do
    for i, word in ipairs(words) do
      local of = column.found[i]
      all[#all + 1] = { of = of, text = ("%s, %d x %s"):format(word.name, column.devices, column.dtype) }
    end
  end
  table.sort(all, function(a, b) return a.of.ratio > b.of.ratio end)
  for k = 1, math.min(WORST, #all) do
    bench.report(all[k].text .. ", time / JAX", all[k].of.ratio, "<= " .. AIM,
      ("%.3f and %.3f ms; of the processor's time %.2f"):format(all[k].of.ours * 1e3, all[k].of.jax * 1e3,
        all[k].of.processor))
  end
  local slower, busier = 0, 0
  for _, each in ipairs(all) do
    slower, busier = slower + (each.of.ratio > AIM and 1 or 0), busier + (each.of.processor > AIM and 1 or 0)
  end
  print(("%d of %d take more than %.1f of JAX's time, %d of the processor's"):format(slower, #all, AIM, busier))
end

return function(bench)
  if not bench.jax then return print "words beside JAX: left out, JAX_PYTHON names no Python that has JAX and optax" end
  local words = words_of("tests/bench/words.txt", os.getenv "WORDS")
  for _, column in ipairs(COLUMNS) do column.found = measured(bench, words, column) end
  local text = circumstances(bench) .. "; a call's time, that by JAX's, and the processor's time by JAX's:\n\n"
    .. table_of(words, COLUMNS)
  print(text)
  local path = os.getenv "SHARDRT_BENCH_TABLE"
  if path then write_table(path, text) end
  print_worst(bench, words, COLUMNS)
end
