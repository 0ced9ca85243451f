-- Checkpoints: where loaders stand and what arrays hold, saved together, so that a job which is killed loses nothing.
--
-- A folder holds the checkpoints of one job, each a folder "step-0000000100" (".1" and so on, where a step is saved
-- again) with checkpoint.json and, where there are arrays, arrays.safetensors. It is written under a temporary name,
-- brought to the disk and renamed: under that name it is complete. checkpoint.json has a checksum of itself and
-- fingerprints of the other file, so that what is cut or damaged later is found and not used.
--
-- Process 0 keeps the folder and decides; the others look at the same files and check that they see what it sees.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.C"
local array = require "shardrt.array"
local fail = require "shardrt.fail"
local json = require "shardrt.json"
local list = require "shardrt.list"
local loader = require "shardrt.loader"
local ndarray = require "shardrt.ndarray"
local object = require "shardrt.object"
local plan = require "shardrt.plan"
local safetensors = require "shardrt.safetensors"
fail.own()

local checkpoint = { words = {} }

---@class shardrt.CheckpointOptions
---@field dir string # the folder of this job's checkpoints, made where it is not there
---@field every integer? # steps from one checkpoint to the next; nil: only save() saves
---@field keep integer? # how many stay, the newest ones; nil: all
---@field loader shardrt.Loader|table<string, shardrt.Loader>|nil # one, or several by name
---@field arrays table? # a table of arrays (tables in it, too): saved as it is then, and filled from a checkpoint
---@field metadata table? # plain data, the same in every process: numbers, texts, booleans, tables; as `arrays`

---@class shardrt.Checkpoint
---@field dir string
---@field every integer?
---@field keep integer?
---@field steps integer # that the job took, in this run and those before
---@field restored integer? # the step that this run went on from; nil: it began anew

local KEYWORDS = { dir = true, every = true, keep = true, loader = true, arrays = true, metadata = true }
local VERSION = 1
local PATIENCE = 10          -- seconds, for the last process of a job that was killed to let the folder go
local PIECE = 64 * 2 ^ 20    -- bytes that have a fingerprint
local DEEPEST = 100          -- tables within tables
local MANIFEST, ARRAYS = "checkpoint.json", "arrays.safetensors"
local HEAD = '{"shardrt_checkpoint":%d,"xxh3":"%s","content":'

local Hashes, Numbers = ffi.typeof "uint64_t[?]", ffi.typeof "int64_t[?]"

ffi.cdef "long getrandom(void *buffer, size_t bytes, unsigned flags);"

local function is_first() return C.shardrt_job_get().process_index == 0 end
local function planning() return C.shardrt_job_get().planning ~= 0 end

-- What the user should know although the job goes on; said once.
local function notice(format, ...)
  if is_first() then io.stderr:write("shardrt: ", format:format(...), "\n") end
end

-- ---- what processes do together ----

-- The numbers of all processes, `count` from each.
local function gather(what, kind, mine, count)
  local all = kind(C.shardrt_job_get().process_count * count)
  fail.check(C.shardrt_allgather(what, mine, count * 8, all))
  return all
end

-- Process 0's two whole numbers, in every process.
local function from_first(what, a, b)
  local all = gather(what, Numbers, Numbers(2, a, b), 2)
  return all[0], all[1]
end

-- The fingerprints of a file's pieces, each taken by one process; or nil and the reason why it cannot be read.
local function fingerprints(what, path, bytes)
  local job = C.shardrt_job_get()
  local count, me, n = math.ceil(bytes / PIECE), job.process_index, job.process_count
  local share, code = math.ceil(count / n), 0
  local mine = Hashes(math.max(1, share))
  for i = 0, share - 1 do
    local from = (me + i * n) * PIECE
    if from < bytes and code >= 0 then
      code = C.shardrt_file_fingerprint(path, from, math.min(PIECE, bytes - from), mine + i)
    end
  end
  code = C.shardrt_check_outcome(what, code)
  if code == C.SHARDRT_EIO or code == C.SHARDRT_EFORMAT then return nil, fail.message(code) end
  fail.check(code)
  local all, pieces = gather(what, Hashes, mine, share), {}
  for i = 0, count - 1 do pieces[i + 1] = bit.tohex(all[i % n * share + math.floor(i / n)]) end
  return pieces
end

-- ---- names ----

local function name_of(step, turn)
  return ("step-%010.0f"):format(step) .. (turn > 0 and (".%d"):format(turn) or "")
end

local function temporary_name(step, number) return (".step-%010.0f.%s.tmp"):format(step, bit.tohex(number)) end

local function random_number()
  local number = Numbers(1)
  ffi.C.getrandom(number, 8, 0)
  return number[0]
end

-- Process 0: the checkpoints in the folder, oldest first; and the names of what was not completed, or half removed. The
-- third is an error's code, or 0.
local function look(self)
  local out, found, left = ffi.new "shardrt_buffer *[1]", {}, {}
  local code = C.shardrt_folder_names(self.folder, out)
  if code < 0 then return found, left, code end
  local names = ffi.gc(out[0], C.shardrt_buffer_free)
  local at = ffi.cast("const char *", C.shardrt_buffer_data(names))
  while at[0] ~= 0 do
    local name = ffi.string(at)
    local step, turn = name:match "^step%-(%d+)%.?(%d*)$"
    if step then
      step, turn = tonumber(step), tonumber(turn) or 0
      if name == name_of(step, turn) then found[#found + 1] = { step = step, turn = turn } end
    elseif name:match "^%.step%-%d+%.%x+%.tmp$" then
      left[#left + 1] = name
    end
    at = at + #name + 1
  end
  table.sort(found, function(a, b) return a.step < b.step or a.step == b.step and a.turn < b.turn end)
  return found, left, 0
end

-- Process 0: the space is wanted back, but the job is well without.
local function remove(self, name)
  local code = C.shardrt_folder_remove(self.folder, name)
  if code < 0 then notice("checkpoint: %s; it takes up space, and nothing else", fail.message(code)) end
end

-- Process 0: what killed runs left behind, and of the checkpoints all but those that are kept: the one that was just
-- saved, and those before it. Any of a later step was found damaged, or the job would have gone on from it.
local function clean(self, saved)
  local found, left = look(self)
  for _, name in ipairs(left) do remove(self, name) end
  if not saved or not self.keep then return end
  local older = 0
  for i = #found, 1, -1 do
    local entry = found[i]
    local is_saved = entry.step == saved.step and entry.turn == saved.turn
    local later = entry.step > saved.step or entry.step == saved.step and entry.turn > saved.turn
    if not later and not is_saved then older = older + 1 end
    if later or older >= self.keep then
      local name = temporary_name(entry.step, random_number()) -- never half there under its own name
      local code = C.shardrt_folder_rename(self.folder, name_of(entry.step, entry.turn), name)
      if code < 0 then notice("checkpoint: %s", fail.message(code)) else remove(self, name) end
    end
  end
end

-- ---- what is saved ----

-- The arrays of a tree by the names that they have in the file, "layers.1.weight", each with its place in the tree.
local function flatten(what, tree, path, made, depth)
  if depth > DEEPEST then fail("%s: arrays: tables within tables, more than %d deep", what, DEEPEST) end
  for key, value in pairs(tree) do
    if type(key) ~= "string" and not list.is_whole(key, -2 ^ 53) then
      fail("%s: arrays: a name in it is %s; it is a text or a whole number", what, list.show(key))
    end
    local name = path .. (type(key) == "number" and ("%.0f"):format(key) or key)
    if array.is(value) or ndarray.is(value) then
      if made[name] then fail("%s: arrays: two of them would be called %s", what, list.quote(name)) end
      made[name] = { value = value, tree = tree, key = key }
    elseif type(value) == "table" and not object.is(value) and not getmetatable(value) then
      flatten(what, value, name .. ".", made, depth + 1)
    else
      fail("%s: arrays.%s is %s; it holds global arrays, host arrays, and tables of these (numbers and texts belong "
        .. "into metadata)", what, name, list.show(value))
    end
  end
  return made
end

local function leaves_of(self, what) return flatten(what, self.arrays, "", {}, 1) end

-- What all processes must save alike, except the arrays' data.
local function describe(self, what, leaves)
  local content = { version = VERSION, step = self.steps, loaders = {}, arrays = {} }
  for name, one in pairs(self.loaders) do content.loaders[name] = one:state() end
  for name, leaf in pairs(leaves) do
    content.arrays[name] = { dtype = leaf.value.dtype, shape = leaf.value.shape }
  end
  local text, problem = json.encode(self.metadata, "metadata")
  if not text then fail("%s: %s", what, problem) end
  content.metadata = self.metadata
  return content
end

local function encode(what, content)
  local text, problem = json.encode(content, "the checkpoint")
  if not text then fail("%s: %s", what, problem) end
  return text
end

-- checkpoint.json: one object in one line, of whose last part the second one is a checksum.
local function manifest(content_text)
  local sum = bit.tohex(C.shardrt_fingerprint(content_text, #content_text))
  return HEAD:format(VERSION, sum) .. content_text .. "}\n"
end

local function size_of(path)
  local file = io.open(path, "rb")
  local bytes = file and file:seek "end" or 0
  if file then file:close() end
  return bytes
end

-- Writes the temporary folder, and gives it its name.
local function write(self, what, leaves, content, temporary, name)
  local path = ("%s/%s/"):format(self.dir, temporary)
  if next(leaves) then
    local values = {}
    for leaf_name, leaf in pairs(leaves) do values[leaf_name] = leaf.value end
    safetensors.words.save(path .. ARRAYS, values)
    local bytes = tonumber((from_first(what .. ": the size of the file", size_of(path .. ARRAYS), 0)))
    local pieces, problem = fingerprints(what, path .. ARRAYS, bytes)
    if not pieces then fail("%s: what was written cannot be read back: %s", what, problem) end
    content.file = { bytes = bytes, piece = PIECE, pieces = pieces }
  end
  local code = 0
  if is_first() then
    local text = manifest(encode(what, content))
    code = C.shardrt_file_save(path .. MANIFEST, text, #text)
    if code >= 0 then code = C.shardrt_folder_rename(self.folder, temporary, name) end
    if code >= 0 then C.shardrt_launcher_tell(self.steps, true) end -- before anybody goes on, and may die
  end
  fail.check(C.shardrt_check_outcome(what, code))
end

-- Every process must call it alike.
local function save(self)
  local what = ("checkpoint %s, step %.0f"):format(self.dir, self.steps)
  if self.closed then fail("%s: it is closed", what) end
  C.shardrt_job_at(fail.where() or "?")
  local leaves = leaves_of(self, what)
  local content = describe(self, what, leaves)
  local text = encode(what, content)
  local subject = what .. ": the states of loaders, the metadata or the arrays' names"
  fail.check(C.shardrt_check_same(subject, C.shardrt_fingerprint(text, #text)))
  local code, turn, number = 0, 0, 0
  if is_first() then
    local found, _, problem = look(self)
    for _, entry in ipairs(found) do
      if entry.step == self.steps then turn = entry.turn + 1 end
    end
    number = random_number()
    code = problem < 0 and problem or C.shardrt_folder_make(self.folder, temporary_name(self.steps, number))
  end
  fail.check(C.shardrt_check_outcome(what, code))
  turn, number = from_first(what .. ": its name", turn, number)
  turn = tonumber(turn)
  local temporary = temporary_name(self.steps, number)
  local ok, problem = pcall(write, self, what, leaves, content, temporary, name_of(self.steps, turn))
  if not ok then
    if is_first() then C.shardrt_folder_remove(self.folder, temporary) end
    error(problem, 0)
  end
  if is_first() then clean(self, { step = self.steps, turn = turn }) end
end

-- ---- what is restored ----

local function is_content(content)
  return type(content) == "table" and list.is_whole(content.step, 0) and type(content.loaders) == "table"
    and type(content.arrays) == "table" and type(content.metadata) == "table"
    and (content.file == nil or type(content.file) == "table" and list.is_whole(content.file.bytes, 1)
      and content.file.piece == PIECE and list.length(content.file.pieces) == math.ceil(content.file.bytes / PIECE))
end

-- What a checkpoint.json holds, and its text; or nil and what is wrong with it.
local function read(path)
  local file, problem = io.open(path, "rb")
  if not file then return nil, problem end
  local text = file:read "*a"
  file:close()
  if not text then return nil, path .. ": cannot be read" end
  local version, sum = text:match('^{"shardrt_checkpoint":(%d+),"xxh3":"(%x+)","content":')
  if not version then return nil, path .. ": it does not begin as a checkpoint does" end
  if tonumber(version) ~= VERSION then return { version = tonumber(version) }, text end
  local content_text = text:sub(#HEAD:format(VERSION, sum) + 1, -3)
  if text:sub(-2) ~= "}\n" or bit.tohex(C.shardrt_fingerprint(content_text, #content_text)) ~= sum then
    return nil, path .. ": it is cut off or damaged: its checksum is of another text"
  end
  local content, malformed = json.decode(content_text)
  if not is_content(content) then
    return nil, ("%s: %s"):format(path, malformed or "it is not what a checkpoint holds")
  end
  return content, text
end

-- A checkpoint's content, the same in every process; or nil and what is wrong with it. Every process must call it.
local function read_together(self, what, name)
  local content, text = read(("%s/%s/%s"):format(self.dir, name, MANIFEST))
  local mine = content and C.shardrt_fingerprint(text, #text) or 0
  local all = gather(what .. ": " .. MANIFEST, Hashes, Hashes(1, mine), 1)
  if all[0] == 0 then return nil, not content and text or "process 0 cannot read it" end
  for process = 1, C.shardrt_job_get().process_count - 1 do
    if all[process] ~= all[0] then
      fail("%s: process %d does not see the %s/%s that process 0 sees; all must see the same file system", what,
        process, name, MANIFEST)
    end
  end
  if content.version ~= VERSION then
    fail("%s: %s was written by another version of shardrt: its version is %.0f, this one's %d", what, name,
      content.version, VERSION)
  end
  if not content.file then return content end
  local path = ("%s/%s/%s"):format(self.dir, name, ARRAYS)
  local bytes = tonumber((from_first(what .. ": the size of the file", size_of(path), 0)))
  if bytes ~= content.file.bytes then
    return nil, ("%s: it has %.0f bytes; %.0f were saved"):format(path, bytes, content.file.bytes)
  end
  local pieces, problem = fingerprints(what, path, bytes)
  if not pieces then return nil, problem end
  for i, piece in ipairs(pieces) do
    if piece ~= content.file.pieces[i] then
      return nil, ("%s: its bytes from %.0f on are not those that were saved"):format(path, (i - 1) * PIECE)
    end
  end
  return content
end

-- The newest complete checkpoint's name and content; nil where there is none. Every process must call it.
local function find(self, what)
  local found, code, refused, _ = {}, 0, 0, nil
  if is_first() then found, _, code = look(self) end
  fail.check(C.shardrt_check_outcome(what, code))
  while true do
    local entry = found[#found - refused]
    local step, turn = from_first(what .. ": which one", entry and entry.step or -1, entry and entry.turn or refused)
    if step < 0 then
      if turn > 0 then
        fail("%s: none of its checkpoints is complete (the first lines say why); the job does not begin anew where one "
          .. "was saved: give it another folder, or empty this one", what)
      end
      return
    end
    local name = name_of(tonumber(step), tonumber(turn))
    local content, problem = read_together(self, what, name)
    if content then return name, content end
    notice("%s: %s is not used: %s", what, name, problem)
    refused = refused + 1
  end
end

local function names_text(set) return next(set) and list.words(set) or "none" end

-- An error unless two tables have the same names.
local function match(what, kind, saved, given)
  for name in pairs(saved) do
    if given[name] == nil then
      fail("%s: it has the %s %s, which this recipe has not%s; the recipe has %s", what, kind, list.quote(name),
        fail.suggestion(name, given), names_text(given))
    end
  end
  for name in pairs(given) do
    if saved[name] == nil then
      fail("%s: it has no %s %s, which this recipe has%s; the checkpoint has %s", what, kind, list.quote(name),
        fail.suggestion(name, saved), names_text(saved))
    end
  end
end

local function restore_arrays(self, what, name, saved, leaves)
  if not next(leaves) then return end
  local wanted = {}
  for leaf_name, leaf in pairs(leaves) do
    local function text(x) return x.dtype .. " " .. list.show(x.shape) end
    if text(saved[leaf_name]) ~= text(leaf.value) then
      fail("%s: %s is %s there, and %s in this recipe", what, list.quote(leaf_name), text(saved[leaf_name]),
        text(leaf.value))
    end
    wanted[leaf_name] = array.is(leaf.value) and leaf.value.sharding or false
  end
  local values = safetensors.words.load(("%s/%s/%s"):format(self.dir, name, ARRAYS), wanted)
  for leaf_name, leaf in pairs(leaves) do leaf.tree[leaf.key] = values[leaf_name] end
end

-- Goes to where the newest complete checkpoint was taken.
local function restore(self, what, leaves)
  local name, content = find(self, what)
  if not name then return end
  what = ("checkpoint %s/%s"):format(self.dir, name)
  match(what, "loader", content.loaders, self.loaders)
  match(what, "array", content.arrays, leaves)
  for loader_name, one in pairs(self.loaders) do one:restore(content.loaders[loader_name]) end
  restore_arrays(self, what, name, content.arrays, leaves)
  for key in pairs(self.metadata) do self.metadata[key] = nil end
  for key, value in pairs(content.metadata) do self.metadata[key] = value end
  self.steps, self.restored = content.step, content.step
  if is_first() then C.shardrt_launcher_tell(self.steps, false) end
end

-- ---- the word, and what it makes ----

local methods = {}
local class = object.class("a checkpoint", "checkpoint", {
  dir = true, every = true, keep = true, steps = true, restored = true,
}, methods)

--- Tells that a step was taken: after every `every`-th, the loaders' states and the arrays as they are then are saved.
--- Every process must call it alike.
---@return boolean # whether it saved
function methods:step()
  local inside = object.inside(self)
  inside.steps = inside.steps + 1
  if not inside.every or inside.steps % inside.every ~= 0 or planning() then return false end
  save(inside)
  return true
end

--- Saves now. When it returns, the checkpoint is complete and on the disk. Every process must call it alike.
function methods:save()
  if not planning() then save(object.inside(self)) end
end

--- Lets the folder go, for another checkpoint; the end of the recipe does so, too.
function methods:close()
  local inside = object.inside(self)
  inside.closed = true
  if inside.folder then C.shardrt_folder_free(ffi.gc(inside.folder, nil)) end
  inside.folder = nil
end

function class:__tostring()
  local inside = object.inside(self)
  return ("checkpoint in %s, %s, %.0f step%s taken"):format(inside.dir,
    inside.every and ("every %.0f steps"):format(inside.every) or "saved when asked", inside.steps,
    inside.steps == 1 and "" or "s")
end

local function count(o, name)
  if o[name] ~= nil and not list.is_whole(o[name], 1) then
    fail("checkpoint: %s = %s; it is a whole number from 1 on", name, list.show(o[name]))
  end
  return o[name]
end

local function plain_table(o, name, values)
  local value = o[name]
  if value == nil then return {} end
  if type(value) ~= "table" or object.is(value) or getmetatable(value) then
    fail("checkpoint: %s is a table of %s, not %s", name, values, list.show(value))
  end
  return value
end

local function check_loaders(o)
  if loader.is(o.loader) then return { loader = o.loader } end
  local loaders = plain_table(o, "loader", "loaders by name, or one loader")
  for name, one in pairs(loaders) do
    if type(name) ~= "string" or not loader.is(one) then
      fail("checkpoint: loader is a loader or a table of them by name; %s is %s in it", list.show(name), list.show(one))
    end
  end
  return loaders
end

local function check_options(o)
  if type(o) ~= "table" or object.is(o) then
    fail("checkpoint: it takes keywords, as in checkpoint{dir = …}, not %s", list.show(o))
  end
  fail.keywords("checkpoint", o, KEYWORDS)
  if type(o.dir) ~= "string" or o.dir == "" or o.dir:find("\0", 1, true) then
    fail("checkpoint: dir = %s; it is the path of a folder", list.show(o.dir))
  end
  return {
    dir = o.dir, every = count(o, "every"), keep = count(o, "keep"), loaders = check_loaders(o),
    arrays = plain_table(o, "arrays", "arrays"), metadata = plain_table(o, "metadata", "plain data"), steps = 0,
  }
end

local function open(self, what)
  local out, code = ffi.new "shardrt_folder *[1]", 0
  if is_first() then code = C.shardrt_folder_open(self.dir, PATIENCE, out) end
  if code >= 0 and is_first() then self.folder = ffi.gc(out[0], C.shardrt_folder_free) end
  fail.check(C.shardrt_check_outcome(what, code))
  if is_first() then clean(self) end
end

--- Checkpoints in a folder. Where it holds any, the newest complete one is restored at once: loaders go to where they
--- stood, and in `arrays` and `metadata` the saved values take the place of those given, whose shapes, dtypes and
--- shardings hold: the job may have other processes and devices than the one that saved. One that is damaged is not
--- used, which is said, but the one before it; where none is complete, or does not fit the recipe, it is an error.
--- Every process must call it alike, and see the same file system.
---@param o shardrt.CheckpointOptions
---@return shardrt.Checkpoint
function checkpoint.words.checkpoint(o)
  local self = check_options(o)
  local what = "checkpoint " .. self.dir
  local leaves = leaves_of(self, what)
  local content = describe(self, what, leaves)
  if planning() then
    local names, values = {}, {}
    for name, leaf in pairs(leaves) do names[#names + 1], values[name] = name, leaf.value end
    table.sort(names)
    if #names > 0 then plan.save(what, names, values) end
    return object.new(class, self)
  end
  C.shardrt_job_at(fail.where() or "?")
  content.every, content.keep = self.every, self.keep
  local text = encode(what, content)
  fail.check(C.shardrt_check_same(what .. ": its options", C.shardrt_fingerprint(text, #text)))
  open(self, what)
  local ok, problem = pcall(restore, self, what, leaves)
  if not ok then
    methods.close(object.new(class, self))
    error(problem, 0)
  end
  return object.new(class, self)
end

return checkpoint
