-- Checkpoints: where loaders stand and what arrays hold, saved together, so that a job which is killed loses nothing.
--
-- A folder holds the checkpoints of one job, each a folder "step-0000000100" (".1" and so on, where a step is saved
-- again) with checkpoint.json and, where there are arrays, arrays.safetensors. It is written under a temporary name,
-- brought to the disk and renamed: under that name it is complete. checkpoint.json has a checksum of itself and
-- checksums of the other file, so that what is cut or damaged later is found and not used.
--
-- Process 0 keeps the folder and decides; the others look at the same files and check that they see what it sees.
--
-- The folder may be an address in a bucket ("s3://bucket/run-7", gs://, az://): bucket.lua has what differs there.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local bucket = require "shardrt.checkpoint.bucket"
local class = require "shardrt.base.class"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local folder = require "shardrt.checkpoint.folder"
local json = require "shardrt.base.json"
local list = require "shardrt.base.list"
local loader = require "shardrt.loader.loader"
local manifest = require "shardrt.checkpoint.manifest"
local path_of = require "shardrt.base.path"
local plan = require "shardrt.layout.plan"
local safetensors = require "shardrt.array.safetensors"
local stop = require "shardrt.checkpoint.stop"
local tree = require "shardrt.array.tree"
local unplaced = require "shardrt.array.unplaced"
fail.own()

---@class shardrt.checkpoint.words
local words = {}
local checkpoint = { words = words }

---@class shardrt.CheckpointOptions
---@field dir string # the folder of its checkpoints, made where it is not there; or "s3://bucket/key" (gs://, az://)
---@field every integer? # steps from one checkpoint to the next; nil: only save() saves
---@field keep integer? # how many stay, the newest ones; nil: all
---@field loader shardrt.Loader|table<string, shardrt.Loader>|nil # one, or several by name
---@field arrays table? # a table of arrays (tables in it, too): saved as it is then, and filled from a checkpoint
---@field metadata table? # plain data, the same in every process: numbers, texts, booleans, tables; as `arrays`,
---but names that the checkpoint has not stay as they are

local KEYWORDS = { dir = true, every = true, keep = true, loader = true, arrays = true, metadata = true }
local PATIENCE = 10 -- seconds, for the last process of a job that was killed to let the folder go
local DEEPEST = 100 -- tables within tables

local is_first = collective.is_first
local function planning() return current.info.planning ~= 0 end

-- ---- what is saved ----

local function leaves_of(self, caller)
  return tree.leaves(caller .. ": arrays", self.arrays,
    "global arrays, host arrays, and tables of these (numbers and texts belong into metadata)")
end

-- Numbers that JSON has not, by the texts that stand for them; other texts that begin alike get one more mark.
local MARK = "shardrt:"
local SPECIAL = { [MARK .. "inf"] = math.huge, [MARK .. "-inf"] = -math.huge, [MARK .. "nan"] = 0 / 0 }

-- Plain data with those texts in place of those numbers. What is not plain stays for json to refuse.
local function to_json(value, depth)
  if value ~= value then return MARK .. "nan" end
  if value == math.huge or value == -math.huge then return MARK .. (value > 0 and "inf" or "-inf") end
  if type(value) == "string" and value:sub(1, #MARK) == MARK then return MARK .. value end
  if type(value) ~= "table" or not list.is_plain(value) or depth > DEEPEST then return value end
  local made = {}
  for key, entry in pairs(value) do made[key] = to_json(entry, depth + 1) end
  return made
end

local function from_json(value)
  if type(value) == "string" and value:sub(1, #MARK) == MARK then return SPECIAL[value] or value:sub(#MARK + 1) end
  if type(value) ~= "table" then return value end
  local made = {}
  for key, entry in pairs(value) do made[key] = from_json(entry) end
  return made
end

-- What all processes must save alike, except the arrays' data.
local function content_of(self, caller, leaves)
  local content = { step = self.steps, loaders = {}, arrays = {} }
  for name, one in pairs(self.loaders) do content.loaders[name] = one:state() end
  for name, leaf in pairs(leaves) do
    content.arrays[name] = { dtype = leaf.value.dtype, shape = leaf.value.shape }
  end
  content.metadata = to_json(self.metadata, 1)
  local text, problem = json.encode(content.metadata, "metadata")
  if not text then fail("%s: %s", caller, problem) end
  return content
end

-- Writes the files under a name of their own, and has the checkpoint be there.
local function write_files(self, caller, leaves, content, written, name)
  local path = ("%s/%s"):format(self.dir, written)
  if next(leaves) then
    local values, file = {}, ("%s/%s"):format(path, manifest.ARRAYS)
    for leaf_name, leaf in pairs(leaves) do values[leaf_name] = leaf.value end
    if self.place == bucket then
      content.file = manifest.describe_object(caller, path, safetensors.save_with_checksums(file, values))
    else
      safetensors.words.save(file, values)
      content.file = manifest.describe_arrays(caller, path)
    end
  end
  local code = 0
  if is_first() then
    local text = manifest.text(manifest.encode(caller, content))
    code = self.place.complete(self.folder, written, name, text, self.dir)
    if code >= 0 then C.shardrt_launcher_tell(self.steps, true) end -- before anybody goes on, and may die
  end
  fail.check(C.shardrt_check_outcome(current.job, caller, code))
end

-- Every process must call it alike.
local function save(self)
  local caller = ("checkpoint %s, step %.0f"):format(self.dir, self.steps)
  if self.closed then fail("%s: it is closed", caller) end
  C.shardrt_job_at(current.job, fail.where() or "?")
  local leaves = leaves_of(self, caller)
  local content = content_of(self, caller, leaves)
  local text = manifest.encode(caller, content)
  local subject = caller .. ": the states of loaders, the metadata or the arrays' names"
  fail.check(C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(text, #text)))
  local code, turn, number = 0, 0, 0
  if is_first() then
    local found, _, problem = self.place.look(self.folder)
    for _, entry in ipairs(found) do
      if entry.step == self.steps then turn = entry.turn + 1 end
    end
    number = folder.random_number()
    code = problem
    if code >= 0 then code = self.place.begin(self.folder, self.place.writing_name(self.steps, turn, number)) end
  end
  fail.check(C.shardrt_check_outcome(current.job, caller, code))
  turn, number = collective.from_first(caller .. ": its name", turn, number)
  turn = tonumber(turn)
  local written = self.place.writing_name(self.steps, turn, number)
  local ok, problem = pcall(write_files, self, caller, leaves, content, written, folder.name(self.steps, turn))
  if not ok then
    if is_first() then self.place.give_up(self.folder, written) end
    error(problem, 0)
  end
  if not is_first() then return end
  self.place.tidy(self.folder)
  if self.keep then self.place.keep(self.folder, { step = self.steps, turn = turn }, self.keep) end
end

-- ---- what is restored ----

-- The newest complete checkpoint's name and content; nil where there is none. Every process must call it.
local function find_folder(self, caller)
  local found, code, refused, _ = {}, 0, 0, nil
  if is_first() then found, _, code = self.place.look(self.folder) end
  fail.check(C.shardrt_check_outcome(current.job, caller, code))
  while true do
    local entry = found[#found - refused] or { step = -1, turn = 0 }
    local step, turn = collective.from_first(caller .. ": which one", entry.step, entry.turn)
    if step < 0 then
      if refused > 0 then
        fail("%s: none of its checkpoints is complete (the first lines say why); the job does not begin anew where one "
          .. "was saved: give it another folder, or empty this one", caller)
      end
      return
    end
    local name = folder.name(tonumber(step), tonumber(turn))
    local content, problem = manifest.read(caller, ("%s/%s"):format(self.dir, name))
    if content then return name, content end
    collective.notice("%s: %s is not used: %s", caller, name, problem)
    refused = refused + 1
  end
end

local function names_text(set) return next(set) and list.words(set) or "none" end

-- An error unless two tables have the same names.
local function match(caller, kind, saved, given)
  for name in pairs(saved) do
    if given[name] == nil then
      fail("%s: it has the %s %s, which this recipe has not%s; the recipe has %s", caller, kind, list.quote(name),
        fail.suggestion(name, given), names_text(given))
    end
  end
  for name in pairs(given) do
    if saved[name] == nil then
      fail("%s: it has no %s %s, which this recipe has%s; the checkpoint has %s", caller, kind, list.quote(name),
        fail.suggestion(name, saved), names_text(saved))
    end
  end
end

local function restore_arrays(self, caller, name, saved, leaves)
  if not next(leaves) then return end
  local wanted = {}
  for leaf_name, leaf in pairs(leaves) do
    local function text(x) return x.dtype .. " " .. list.show(x.shape) end
    if text(saved[leaf_name]) ~= text(leaf.value) then
      fail("%s: %s is %s there, and %s in this recipe", caller, list.quote(leaf_name), text(saved[leaf_name]),
        text(leaf.value))
    end
    wanted[leaf_name] = array.is(leaf.value) and leaf.value.committed and leaf.value.sharding or false
  end
  local values = safetensors.words.load(("%s/%s/%s"):format(self.dir, name, manifest.ARRAYS), wanted)
  for leaf_name, leaf in pairs(leaves) do
    local value = values[leaf_name]
    -- What nobody had placed nobody has placed now.
    if array.is(leaf.value) and not array.is(value) then value = unplaced.of_host(caller, value) end
    leaf.tree[leaf.key] = value
  end
end

-- Goes to where the newest complete checkpoint was taken.
local function restore(self, caller, leaves)
  local name, content = find_folder(self, caller)
  if not name then return end
  caller = ("checkpoint %s/%s"):format(self.dir, name)
  match(caller, "loader", content.loaders, self.loaders)
  match(caller, "array", content.arrays, leaves)
  for loader_name, one in pairs(self.loaders) do one:restore(content.loaders[loader_name]) end
  restore_arrays(self, caller, name, content.arrays, leaves)
  for key, value in pairs(content.metadata) do self.metadata[key] = from_json(value) end
  self.steps, self.restored = content.step, content.step
  if is_first() then C.shardrt_launcher_tell(self.steps, false) end
end

-- ---- the word, and what it makes ----

---@class shardrt.Checkpoint
---@field dir string
---@field every integer?
---@field keep integer?
---@field steps integer # that the job took, in this run and those before
---@field restored integer? # the step that this run went on from; nil: it began anew
local methods = {}
local Checkpoint = class.define("a checkpoint", "checkpoint", {
  dir = true, every = true, keep = true, steps = true, restored = true,
}, methods)

-- Saves, and returns whether the job ends now. In a bucket that may have taken long, and been done anew for a signal
-- (object_save.h): it is asked again then, so that the job ends here and not a checkpoint later.
local function save_or_end(inside, ends)
  save(inside)
  if ends or not inside.watch or inside.place ~= bucket then return ends end
  return stop.is_here(inside.watch, "checkpoint " .. inside.dir, true)
end

-- Saves where it is due, or where the job ends; and ends it there, unless the recipe asks whether to end, or another
-- checkpoint must save, too. Whether it saved.
local function save_here(inside, is_due)
  local ends = inside.watch ~= nil and stop.is_here(inside.watch, "checkpoint " .. inside.dir, is_due)
  if is_due or ends then ends = save_or_end(inside, ends) end
  if not ends then return is_due end
  local is_last = stop.saved(inside.watch)
  collective.notice("%s: the job was stopped by %s at step %.0f, which is saved in %s; the same command goes on from "
    .. "there", fail.where() or "?", stop.name(), inside.steps, inside.dir)
  if is_last and not inside.asks then stop.finish() end
  return true
end

--- Tells that a step was taken: after every `every`-th, the loaders' states and the arrays as they are then are saved.
--- Every process must call it alike.
---
--- Where SIGTERM or SIGUSR1 asked the job to end, it saves at a step that all processes agree on, within a second or a
--- step, and ends the job with status 85; it returns only where the recipe has called stopping().
---@return boolean # whether it saved
function methods:step()
  local inside = class.inside(self)
  inside.steps = inside.steps + 1
  if planning() then return false end
  return save_here(inside, inside.every ~= nil and inside.steps % inside.every == 0)
end

--- Saves now. When it returns, the checkpoint is complete and on the disk. Every process must call it alike. Where the
--- job was asked to end, it does so here, as by step().
function methods:save()
  if not planning() then save_here(class.inside(self), true) end
end

--- Whether the job is to end: the last step() has saved, and the recipe is to come to its end by itself, as it asks.
--- The job then ends with status 85. The same in every process; a recipe asks before the first step, or ever after.
---@return boolean
function methods:stopping()
  local inside = class.inside(self)
  inside.asks = true
  return inside.watch ~= nil and inside.watch.has_saved
end

--- Lets the folder go, for another checkpoint; the end of the recipe does so, too.
function methods:close()
  local inside = class.inside(self)
  inside.closed = true
  if inside.folder then inside.place.close(inside.folder) end
  inside.folder = nil
  if inside.watch then stop.close(inside.watch) end
end

function Checkpoint:__tostring()
  local inside = class.inside(self)
  return ("checkpoint in %s, %s, %.0f step%s taken"):format(inside.dir,
    inside.every and ("every %.0f steps"):format(inside.every) or "saved when asked", inside.steps,
    inside.steps == 1 and "" or "s")
end

local function check_count(o, name)
  if o[name] ~= nil and not list.is_whole(o[name], 1) then
    fail("checkpoint: %s = %s; it is a whole number from 1 on", name, list.show(o[name]))
  end
  return o[name]
end

local function plain_table(o, name, values)
  local value = o[name]
  if value == nil then return {} end
  if type(value) ~= "table" or class.is(value) or getmetatable(value) then
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
  if type(o) ~= "table" or class.is(o) then
    fail("checkpoint: it takes keywords, as in checkpoint{dir = …}, not %s", list.show(o))
  end
  fail.keywords("checkpoint", o, KEYWORDS)
  if type(o.dir) ~= "string" or o.dir == "" or o.dir:find("\0", 1, true) then
    fail("checkpoint: dir = %s; it is the path of a folder", list.show(o.dir))
  end
  path_of.refuse_scheme("checkpoint", o.dir)
  path_of.refuse_unwritable("checkpoint", o.dir)
  local in_bucket = path_of.is_bucket(o.dir)
  if in_bucket and not o.dir:find "://[^/]" then
    fail("checkpoint: dir = %s; a bucket's name stands behind %s", list.show(o.dir), o.dir:match "^%a%w*://")
  end
  return {
    dir = in_bucket and o.dir:gsub("/+$", "") or o.dir, place = in_bucket and bucket or folder,
    every = check_count(o, "every"), keep = check_count(o, "keep"), loaders = check_loaders(o),
    arrays = plain_table(o, "arrays", "arrays"), metadata = plain_table(o, "metadata", "plain data"), steps = 0,
  }
end

local function open_folder(self, caller)
  local code = 0
  if is_first() then
    local patience = math.min(PATIENCE, current.info.timeout / 2) -- the others wait for this process
    self.folder, code = self.place.open(self.dir, patience)
  end
  fail.check(C.shardrt_check_outcome(current.job, caller, code))
  if is_first() then self.place.tidy(self.folder) end
end

--- Checkpoints in a folder. Where it holds any, the newest complete one is restored at once: loaders go to where they
--- stood, and in `arrays` and `metadata` the saved values take the place of those given, whose shapes, dtypes and
--- shardings hold: the job may have other processes and devices than the one that saved. One that is damaged is not
--- used, which is said, but the one before it; where none is complete, or does not fit the recipe, it is an error.
--- Every process must call it alike, and see the same file system, or the same bucket. (A bucket has no locks: nothing
--- keeps a second job out there.)
---@param o shardrt.CheckpointOptions
---@return shardrt.Checkpoint
function words.checkpoint(o)
  local self = check_options(o)
  local caller = "checkpoint " .. self.dir
  local leaves = leaves_of(self, caller)
  local content = content_of(self, caller, leaves)
  if planning() then
    local names, values = {}, {}
    for name, leaf in pairs(leaves) do names[#names + 1], values[name] = name, leaf.value end
    table.sort(names)
    if #names > 0 then plan.note_save(caller, names, values) end
    return class.new(Checkpoint, self)
  end
  C.shardrt_job_at(current.job, fail.where() or "?")
  content.every, content.keep = self.every, self.keep
  local text = manifest.encode(caller, content)
  fail.check(C.shardrt_check_same(current.job, caller .. ": its options", C.shardrt_fingerprint(text, #text)))
  open_folder(self, caller)
  local ok, problem = pcall(restore, self, caller, leaves)
  if not ok then
    methods.close(class.new(Checkpoint, self))
    error(problem, 0)
  end
  self.watch = stop.watch()
  return class.new(Checkpoint, self)
end

return checkpoint
