-- What specs of the Python package share: a recipe, and scripts that check what they are given.

local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

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
import gc, json, os, sys, time
import shardrt

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

--- Two functions that run scripts by `python`, with `head` before each: run(returns, body, o), where `recipe` is the
--- path of a recipe that returns what `returns` says, o.processes times (nil: once, alone); and well(…), where the
--- script must end well and say nothing on stderr.
function cases.runner(folder, python, head)
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
    local command = ("%s %s %s"):format(python, script, o.args or "")
    if o.processes then return library.launch(command, o.processes, o.limit or 60) end
    return mpi.shell(command, o.limit or 60)
  end
  local function well(returns, body, o)
    local result = expect.well(run(returns, body, o))
    assert.equal("", (result.stderr:gsub("%[Gloo%][^\n]*\n", "")), result.output)
    return result
  end
  return run, well
end

return cases
