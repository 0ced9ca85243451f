-- Reads the tree's documents (Markdown) for specs: code blocks, links, headings, code within a line.
--
-- A comment right before a code block says how a spec treats it:
--   <!-- not run: REASON -->        its commands or its Lua are skipped, and the reason is told
--   <!-- before: LUA -->            Lua that is run in front of the block, and that readers do not need to see

local documents = {}

---@class documents.Block
---@field language string # "sh", "console", "lua", …
---@field text string
---@field line integer # of its first line of code
---@field skip string? # why it is not run
---@field before string? # Lua in front of it

---@class documents.Document
---@field path string
---@field folder string # "" or with a "/" at the end
---@field blocks documents.Block[]
---@field prose string # what is neither a code block nor a comment
---@field indented integer[] # lines of code blocks without a fence

local slurp = require("tests.support.files").slurp

--- A document's blocks and prose.
---@return documents.Document
function documents.read(path)
  local document = { path = path, folder = path:match "^(.*/)" or "", blocks = {}, indented = {} }
  local prose, block, comment, number, was_empty = {}, nil, nil, 0, true
  local skip, before
  for line in (slurp(path) .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    if block then
      if line:match "^```%s*$" then
        block.text = table.concat(block.lines, "\n") .. "\n"
        document.blocks[#document.blocks + 1], block = block, nil
      else
        block.lines[#block.lines + 1] = line
      end
    elseif comment or line:match "^<!%-%-" then
      comment = (comment and comment .. "\n" or "") .. line
      local text = comment:match "^<!%-%-%s*(.-)%s*%-%->%s*$"
      if text then
        comment, skip, before = nil, text:match "^not run: (.*)" or skip, text:match "^before:(.*)" or before
      end
    elseif line:match "^```" then
      block = { language = line:match "^```(%w*)", line = number + 1, lines = {}, skip = skip, before = before }
      skip, before = nil, nil
    else
      if line:match "^    %S" and was_empty then document.indented[#document.indented + 1] = number end
      if line:match "%S" then skip, before = nil, nil end
      prose[#prose + 1] = line
    end
    was_empty = not line:match "%S"
  end
  document.prose = table.concat(prose, "\n")
  return document
end

--- The targets of a document's links, but for those to the web.
function documents.links(document)
  local links = {}
  for target in document.prose:gsub("`[^`]*`", "code"):gmatch "%]%(([^)%s]+)%)" do
    if not target:match "^%a+://" then links[#links + 1] = target end
  end
  return links
end

--- What stands between backticks in a document's prose.
function documents.code(document)
  local list = {}
  for code in document.prose:gmatch "`([^`]+)`" do list[#list + 1] = (code:gsub("%s+", " ")) end
  return list
end

--- A document's sentences, tables and headings left out; what stands between backticks is one word.
function documents.sentences(document)
  local list = {}
  local prose = document.prose:gsub("`[^`]+`", "Code"):gsub("%]%([^)]*%)", "]"):gsub("%*%*", "")
  for paragraph in (prose:gsub("\n%s*%- ", "\n\n"):gsub("\n%d+%. ", "\n\n") .. "\n\n"):gmatch "(.-)\n\n+" do
    if not paragraph:match "^%s*[|#]" then
      paragraph = paragraph:gsub("%s+", " "):gsub("([.!?]%)?) (shardrt )", "%1\n%2")
      paragraph = paragraph:gsub("([.!?]%)?) ([%u([])", "%1\n%2")
      for sentence in paragraph:gmatch "[^\n]+" do list[#list + 1] = sentence end
    end
  end
  return list
end

--- The anchors of a document's headings, as GitHub makes them: a set.
function documents.anchors(document)
  local anchors = {}
  for title in ("\n" .. document.prose):gmatch "\n#+ ([^\n]+)" do
    anchors[title:lower():gsub("[^%w%-_ ]", ""):gsub(" ", "-")] = true
  end
  return anchors
end

--- The commands of a block: {text =, output = (a Lua pattern that what it prints holds; nil: any)}. In "console" those
--- behind "$ ", each followed by what it prints; in "sh" all lines. In what is printed, "…" stands for anything, a line
--- of it for any lines, and times and rates may be others.
function documents.commands(block)
  local commands = {}
  if block.language == "sh" then
    for line in block.text:gsub("\\\n%s*", ""):gmatch "[^\n]+" do
      line = line:gsub("%s+#.*", ""):gsub("^#.*", "")
      if line ~= "" then commands[#commands + 1] = { text = line } end
    end
    return commands
  end
  for line in block.text:gmatch "([^\n]*)\n" do
    local command = line:match "^%$ (.*)"
    if command then
      commands[#commands + 1] = { text = (command:gsub("%s+#.*", "")), output = "" }
    else
      local last = assert(commands[#commands], "output without a command")
      local pattern = line:gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0"):gsub("…", ".-")
      pattern = pattern:gsub("%d[%d,]*( %a+/s)", "[%%d,.]+%1"):gsub("%d[%d%%.]*( m?s%f[%A])", "[%%d.]+%1")
        :gsub("%d[%d%%.]*( seconds)", "[%%d.]+%1")
      last.output = last.output .. (line == "…" and ".-" or pattern .. "\n")
    end
  end
  return commands
end

return documents
