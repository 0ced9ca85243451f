-- Ctrl-C in what waits: where it were not heard, these programs would wait for what comes only after it. How soon it
-- is heard is counted, not measured: a call is made in slices, of which at most one begins after the signal.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local RECIPE = [[
local shardrt = require "shardrt"
local source = shardrt.source.array { x = shardrt.ndarray.arange(40, "float32") }
local what, path, text = arg[1], arg[2], 0
local function count() for i = 1, 1e6 do text = text + #tostring(i):gsub("1", "2") end end
while what == "counts" do count() end
while what == "catches" do pcall(count) end
if what == "filters" then
  source = shardrt.source.array { x = shardrt.ndarray.arange(1e6, "float32") }:filter { x = function()
    local until_then = os.clock() + 0.01
    while os.clock() < until_then do end
    return true
  end }
end
while what == "late" and shardrt.process_index() == 1 and not io.open(path) do os.execute "sleep 0.1" end
return shardrt.loader { source = source, batch_size = 4, epochs = 1 }
]]

local HEAD = [[
import os, signal, sys, threading, time
import shardrt
from shardrt import library

recipe, folder = sys.argv[1:]
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))

slices = 0

def counted(function):
    def call(*arguments):
        global slices
        slices += 1
        return function(*arguments)
    return call

for name in "join", "leave", "recipe_open", "recipe_next":
    setattr(library, name, counted(getattr(library, name)))
assert library.SLICE <= 0.2

def interrupted(call):
    begun = []

    def ctrl_c():
        begun.append(slices)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.4, ctrl_c).start()
    try:
        call()
    except KeyboardInterrupt:
        assert slices - begun[0] <= 1, "%d slices began after Ctrl-C" % (slices - begun[0])
        return
    raise AssertionError("no Ctrl-C")

def usable():
    with shardrt.open(recipe, devices=1) as data:
        assert len(list(data)) == 10

]]

describe("Ctrl-C in Python", function()
  local PYTHON = library.python()
  if not PYTHON then
    pending "no shared library is built with sanitizers"
    return
  end
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  local function well(body, processes)
    local recipe = files.write(folder, "recipe.lua", RECIPE)
    local script = files.write(folder, "script.py", HEAD .. body)
    expect.well(library.run(("%s %s %s %s"):format(PYTHON, script, recipe, folder), processes, 90))
  end

  it("is heard while a recipe computes, which then ends, and a job can be joined again", function()
    well [[
for what in ("counts", "catches", "filters"):
    interrupted(lambda: shardrt.open(recipe, [what]))
    usable()
first = shardrt.open(recipe)
interrupted(lambda: shardrt.open(recipe, ["counts"]))  # the others may wait in it: the job is over
try:
    next(iter(first))
    raise AssertionError("a batch of a job that was abandoned")
except shardrt.Error as problem:
    assert "in no job" in str(problem) or "was left" in str(problem), problem
first.close()
usable()
]]
  end)

  it("is heard in joining, in opening and in closing, where another process is late; both join again", function()
    well([[
def wait_for(name):
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.05)

def heard(name):
    open(os.path.join(folder, name), "w").close()

usable()  # MPI has begun: until it has, MPI itself waits
if rank == 0:
    interrupted(lambda: shardrt.open(recipe))
    heard("joining")
else:
    wait_for("joining")
usable()
data = shardrt.open(recipe, timeout=1000)
if rank == 0:
    interrupted(data.close)
    heard("closing")
else:
    wait_for("closing")
    try:
        data.close()
        raise AssertionError("closed without the other")
    except ConnectionError as problem:
        said = str(problem)
        assert "process 0 left the job (abandoned it)" in said and said.endswith("because of: KeyboardInterrupt"), said
usable()
late = ["late", os.path.join(folder, "opening")]
if rank == 0:
    interrupted(lambda: shardrt.open(recipe, late))
    heard("opening")
else:
    try:
        shardrt.open(recipe, late, timeout=1000)
        raise AssertionError("opened without the other")
    except ConnectionError as problem:
        said = str(problem)
        assert "process 0 left the job (abandoned it)" in said and said.endswith("because of: KeyboardInterrupt"), said
usable()
]], 2)
  end)
end)
