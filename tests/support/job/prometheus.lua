-- Reads Prometheus's text format (https://prometheus.io/docs/instrumenting/exposition_formats), and holds it to its
-- rules, also those that node exporter's textfile collector has: no timestamps.

local prometheus = {}

local NAME, LABEL = "^[%a_:][%w_:]*", "^[%a_][%w_]*"

-- {a="b",…} at the beginning of a text, as a table; and what follows.
local function read_labels(text)
  local labels = {}
  if text:sub(1, 1) ~= "{" then return labels, text end
  text = text:sub(2)
  while text:sub(1, 1) ~= "}" do
    local name = assert(text:match(LABEL), text)
    text = assert(text:sub(#name + 1):match '^="(.*)$', text)
    local value = ""
    while text:sub(1, 1) ~= '"' do
      local escape = text:match "^\\(.)"
      if escape then
        value = value .. assert(({ ["\\"] = "\\", ['"'] = '"', n = "\n" })[escape], text)
        text = text:sub(3)
      else
        value, text = value .. text:sub(1, 1), text:sub(2)
      end
      assert(text ~= "", "a label without an end")
    end
    assert(labels[name] == nil, name .. " stands twice")
    labels[name], text = value, text:sub(2)
    if text:sub(1, 1) == "," then text = text:sub(2) else assert(text:sub(1, 1) == "}", text) end
  end
  return labels, text:sub(2)
end

--- The samples of a text: a list of {name=, labels=, value=}, and the types by name.
function prometheus.read(text)
  assert(text:sub(-1) == "\n", "the last line has no end")
  local samples, types, helps, seen, current = {}, {}, {}, {}, nil
  for line in text:gmatch "([^\n]*)\n" do
    local help, type_of, kind = line:match "^# HELP (%S+) .+$", line:match "^# TYPE (%S+) (%a+)$"
    if help then
      assert(not helps[help] and help:match(NAME) == help, line)
      helps[help], current = true, help
    elseif type_of then
      assert(type_of == current and not types[type_of], line) -- behind its HELP, before its samples, once
      assert(kind == "counter" or kind == "gauge", line)
      assert((kind == "counter") == (type_of:match "_total$" ~= nil), line)
      types[type_of] = kind
    else
      local name = assert(line:match(NAME), line)
      assert(name == current and types[name], line .. ": not with the others of its name")
      local labels, rest = read_labels(line:sub(#name + 1))
      local value = tonumber((assert(rest:match "^ (%S+)$", line)))
      assert(value and value >= 0, line)
      local key = name .. line:match "^[^ ]*{.*}"
      assert(not seen[key], key .. " stands twice")
      seen[key] = true
      samples[#samples + 1] = { name = name, labels = labels, value = value }
    end
  end
  return samples, types
end

--- The value of the one sample with a name and labels; nil: there is none.
function prometheus.value(samples, name, wanted)
  local found
  for _, sample in ipairs(samples) do
    local fits = sample.name == name
    for label, value in pairs(wanted or {}) do fits = fits and sample.labels[label] == value end
    if fits then
      assert(found == nil, name .. " has several values")
      found = sample.value
    end
  end
  return found
end

return prometheus
