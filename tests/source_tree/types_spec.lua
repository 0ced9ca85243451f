-- What editors are told (LuaCATS) is what is there: types that are declared, parameters by their names, results by
-- their number, and each word of a recipe once.

local shardrt = require "shardrt"
local lines_of = require "tests.support.source_tree.lines_of"

-- An annotation without what it says in words: behind "#", which stands in no type.
local function type_of(text) return (text:gsub("%s#.*$", "")) end

-- How many values an expression list has, at least: by the commas that stand in no brackets and no text.
local function count_values(text)
  local depth, count, at = 0, 1, 1
  while at <= #text do
    local mark = text:sub(at, at)
    if mark == '"' or mark == "'" then
      repeat
        at = text:find("[\\" .. mark .. "]", at + 1)
        local is_escape = text:sub(at, at) == "\\"
        if is_escape then at = at + 1 end
      until not is_escape
    elseif text:sub(at, at + 1) == "--" then
      break
    elseif mark:find "[({%[]" then
      depth = depth + 1
    elseif mark:find "[)}%]]" then
      depth = depth - 1
    elseif mark == "," and depth == 0 then
      count = count + 1
    end
    at = at + 1
  end
  return count
end

-- Everything that the files declare: classes with their parents and fields, aliases, which types are spoken of and
-- where, and the functions of tables.
local classes, aliases, spoken_of, functions, homeless = {}, {}, {}, {}, {}

local function speak_of(text, where, generics)
  for name in type_of(text):gsub("%b\"\"", ""):gmatch "[%a_][%w_.]*" do
    if name:match "^shardrt" and not (generics and generics[name]) then
      spoken_of[#spoken_of + 1] = { name = name, where = where }
    end
  end
end

local function add_field(class, name, where)
  class.fields[name] = class.fields[name] or {}
  table.insert(class.fields[name], where)
end

local function read(path)
  local lines, bound, block, class = {}, {}, {}, nil
  for line in io.lines(path) do lines[#lines + 1] = line end
  local module = lines[#lines]:match "^return ([%w_]+)$"
  for number, line in ipairs(lines) do
    local where = path .. ":" .. number
    local tag, text = line:match "^%s*%-%-%-%s?@([%w_]+)%s*(.*)$"
    local inline = line:match "%-%-%-@type (.*)$"
    if tag == "class" then
      local name, parents = type_of(text):match "^([%w_.]+):?%s*(.*)$"
      class = classes[name] or { fields = {}, parents = {} } -- one may be declared in parts
      classes[name] = class
      for parent in parents:gmatch "[%w_.]+" do class.parents[#class.parents + 1] = parent end
      speak_of(parents, where)
    elseif tag == "field" then
      local name, rest = text:match "^%[?([%w_]+)%]?%??%s+(.*)$"
      assert(class and name, where .. ": " .. line)
      add_field(class, name, where)
      speak_of(rest, where)
    elseif tag == "alias" then
      local name, rest = text:match "^([%w_.]+)%s+(.*)$"
      aliases[name] = where
      speak_of(rest, where)
    elseif tag or inline then
      speak_of(inline or text, where)
    end
    if line:match "^%-%-%-" then
      block[#block + 1] = line
    else
      local variable = line:match "^local ([%w_]+) ="
      if variable and class then bound[variable] = class end
      local owner, mark, name, parameters = line:match "^function ([%w_]+)([.:])([%w_]+)(%b())"
      if mark == ":" and not bound[owner] and not name:match "^__" then homeless[#homeless + 1] = where end
      if owner and (owner == module or bound[owner]) then
        if bound[owner] then add_field(bound[owner], name, where) end
        local made = {
          name = owner .. mark .. name, parameters = {}, block = block, where = where, returns = {},
        }
        for parameter in parameters:gmatch "[%w_]+" do made.parameters[#made.parameters + 1] = parameter end
        local rest = line:sub(#("function " .. made.name .. parameters) + 1)
        if rest:match "%send$" then
          made.returns[1] = rest:match "^%s*return (.+) end$"
        else
          for i = number + 1, #lines do
            if lines[i] == "end" then break end
            -- At the function's own level, or of a branch that is one line: those of functions within are deeper.
            local expression = lines[i]:match "^  return (.+)$" or lines[i]:match "^  if .* then return (.+) end$"
            made.returns[#made.returns + 1] = expression
          end
        end
        functions[#functions + 1] = made
      end
      block = {}
      if not line:match "^%s*%-%-" then class = nil end
    end
  end
end

for _, path in ipairs(lines_of "find lua/shardrt -name '*.lua' | sort") do read(path) end

-- The fields of a class and of those that it is made of: {name = {where, …}}.
local function fields_of(name)
  local class, made = assert(classes[name], name), {}
  for field, places in pairs(class.fields) do made[field] = { unpack(places) } end
  for _, parent in ipairs(class.parents) do
    for field, places in pairs(fields_of(parent)) do
      made[field] = made[field] or {}
      for _, place in ipairs(places) do table.insert(made[field], place) end
    end
  end
  return made
end

describe("annotations", function()
  it("are read", function()
    assert.is_true(#functions > 250, #functions)
    assert.is_true(#spoken_of > 500, #spoken_of)
    assert.is_truthy(classes["shardrt.Array"].fields.block_until_ready and aliases["shardrt.Value"])
    assert.equal(2, count_values [[("a, b"):rep(2, ", '"), { 1, 2 } -- three, four]])
  end)

  it("speak of types that are declared", function()
    for _, one in ipairs(spoken_of) do
      assert.is_truthy(classes[one.name] or aliases[one.name], one.where .. ": no type " .. one.name)
    end
  end)

  it("say whose methods all methods are", function() assert.same({}, homeless) end)

  it("name every parameter of a function of a module, a class or the words, in order", function()
    local missing = {}
    for _, one in ipairs(functions) do
      local told = {}
      for _, line in ipairs(one.block) do
        local name = line:match "^%-%-%-@param ([%w_]+)"
        if name then told[#told + 1] = name end
      end
      if not one.name:match "[.:]__" and table.concat(told, ", ") ~= table.concat(one.parameters, ", ") then
        missing[#missing + 1] = one.where .. " " .. one.name .. ": " .. table.concat(told, ", ")
      end
    end
    assert.equal("", table.concat(missing, "\n"))
  end)

  it("tell of every value that a function returns", function()
    local missing = {}
    for _, one in ipairs(functions) do
      local told, most = 0, 0
      for _, line in ipairs(one.block) do
        if line:match "^%-%-%-@return " then told = told + 1 end
      end
      for _, expression in ipairs(one.returns) do most = math.max(most, count_values(expression)) end
      if not one.name:match "[.:]__" and told < most then
        missing[#missing + 1] = one.where .. " " .. one.name .. ": " .. told .. " of " .. most
      end
    end
    assert.equal("", table.concat(missing, "\n"))
  end)
end)

describe("the words of a recipe", function()
  local TABLES = {
    shardrt = shardrt, ["shardrt.ndarray.words"] = shardrt.ndarray, ["shardrt.source.words"] = shardrt.source,
    ["shardrt.transform.words"] = shardrt.transform, ["shardrt.random"] = shardrt.random,
    ["shardrt.optimizer.words"] = shardrt.optimizer, ["shardrt.numpy"] = require "shardrt.numpy",
  }

  it("are declared, each once", function()
    for class, words in pairs(TABLES) do
      local declared, count = fields_of(class), 0
      for name in pairs(words) do
        count = count + 1
        local places = declared[name] or {}
        assert.equal(1, #places, ("%s.%s: %s"):format(class, name, table.concat(places, ", ")))
      end
      assert.is_true(count >= 3, class)
    end
  end)

  it("are there, if they are declared", function()
    for class, words in pairs(TABLES) do
      for name, places in pairs(fields_of(class)) do
        assert.is_truthy(rawget(words, name) ~= nil, places[1] .. ": " .. class .. " has no " .. name)
      end
    end
  end)

  it("take the options that are declared", function()
    local known = require("shardrt.loader.options").KEYWORDS
    local declared = fields_of "shardrt.LoaderOptions"
    for name in pairs(known) do assert.is_truthy(declared[name], name) end
    for name in pairs(declared) do assert.is_truthy(known[name], name) end
  end)
end)
