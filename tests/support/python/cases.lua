-- What specs of the Python package share: a recipe, and scripts that check what they are given.

local expect = require "tests.support.expect"
local library = require "tests.support.library"

local assert = require "luassert"

local cases = {}

local RECIPE = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local count = shardrt.device_count()
local mesh = shardrt.make_mesh({ count }, { "data" })
local rows = shardrt.NamedSharding(mesh, P "data")
local source = shardrt.source.array {
  x = ndarray.arange(96 * 6, "float32"):reshape { 96, 6 }, label = ndarray.arange(96, "int32"),
}
local function loader(o)
  o.source, o.batch_size = source, o.batch_size or 8
  o.sharding = o.sharding or rows
  return shardrt.loader(o)
end
]]

local HEAD = [[
import gc, json, os, sys, threading, time, warnings
import shardrt

# Of Python 3.12 and later; it is what these cases are about.
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")

def refused(kind, piece, call):
    try:
        call()
    except kind as problem:
        assert piece in str(problem), str(problem)
        return problem
    raise AssertionError(f"no {kind.__name__}: {piece}")

]]

--- Of a script in several processes, which has `begin` and DEVICES: the batches of a loader over their own transport,
--- and what a loop over these is to raise.
cases.TOGETHER = [[
transport = begin()
def work(recipe=recipe, stop=None, **more):
    with shardrt.open(recipe, transport=transport, **{"devices": DEVICES, "timeout": 20, **more}) as data:
        for step, batch in enumerate(data):
            if step == stop:
                break
            yield batch
def raised(kind, *pieces, **more):
    try:
        for _ in work(**more):
            pass
    except kind as problem:
        for piece in pieces:
            assert piece in str(problem), (piece, str(problem))
        return problem
    raise AssertionError(f"no {kind.__name__}")
]]

--- Of a script that goes through batches: by how many bytes the process grows over ten thousand of them, and how many
--- it may. Who keeps a reference for each of a tenth as many exceeds that.
cases.FLAT = [[
MOST = 1 << 20
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def grown(batches, use, first, last):
    for count, batch in enumerate(batches):
        use(batch)
        if count == first:
            before = resident()
        if count == last:
            return resident() - before
def check_flat(batches, use):
    assert (flat := grown(batches, use, 2000, 12000)) < MOST, flat
    kept = []
    assert (held := grown(batches, kept.append, 0, 1000)) > MOST, held
]]

--- Two functions that run scripts by `python`, with `head` before each: run(returns, body, o), where `recipe` is the
--- path of a recipe that returns what `returns` says, o.processes times by `launch` (nil: once, alone); and well(…),
--- where the script must end well and say nothing on stderr. A third one writes a file into the folder.
---@param launch fun(command: string, processes: integer, limit: number) # library.run, by mpirun, or library.launch
function cases.runner(folder, python, head, launch)
  local function write(name, ...)
    local file = assert(io.open(folder .. "/" .. name, "w"))
    file:write(...)
    file:close()
    return folder .. "/" .. name
  end
  local function run(returns, body, o)
    o = o or {}
    write("r.lua", RECIPE, "return ", returns, "\n")
    local script = write("script.py", HEAD, ("recipe = %q\n"):format(folder .. "/r.lua"), head, body)
    local command = ("%s %s %s"):format(o.python or python, script, o.args or "")
    return (o.processes and launch or library.run)(command, o.processes, o.limit or 60)
  end
  local function well(returns, body, o)
    local result = expect.well(run(returns, body, o))
    assert.equal("", (result.stderr:gsub("%[Gloo%][^\n]*\n", "")), result.output)
    return result
  end
  return run, well, write
end

return cases
