-- long: 45 s
-- The Python package, as programs use it: scripts that check what they are given, and how they end.

local cases = require "tests.support.python.cases"
local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local HEAD = [[
import errno, pickle
from shardrt import errors
import numpy as np
]]

local PYTHON = library.python()

describe("the Python package", function()
  if not PYTHON then
    pending "no shared library is built with sanitizers"
    return
  end
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  local run, well, write = cases.runner(folder, PYTHON, HEAD, library.run)

  it("hands out global arrays, and their shards without a copy, read-only", function()
    well("loader { batch_size = 16, epochs = 1 }", [[
with shardrt.open(recipe, devices=4) as data:
    assert len(data) == 6 and data and data.names == ()
    batch = next(iter(data))
    assert list(batch) == ["label", "x"] and len(batch) == 2 and "y" not in batch
    for name in ("y", "x\0y", "\udcff", 0):
        refused(KeyError, "the batch has label, x", lambda: batch[name])
        assert name not in batch
    x = batch["x"]
    assert x.shape == (16, 6) and x.ndim == 2 and np.dtype(str(x.dtype)) == np.float32 and x.dtype.itemsize == 4
    assert x.sharding == 'NamedSharding(Mesh("data": 4), P("data"))', x.sharding
    whole = np.arange(96 * 6, dtype="float32").reshape(96, 6)[:16]
    assert len(x.shards) == 4
    for i, shard in enumerate(x.shards):
        assert shard.index == (slice(4 * i, 4 * i + 4), slice(0, 6)) and shard.shape == (4, 6)
        assert shard.device == i and shard.replica_id == 0 and shard.__dlpack_device__() == (1, 0)
        array = np.asarray(shard)
        assert (array == whole[shard.index]).all() and array.dtype == np.float32
        address = array.ctypes.data
        assert address == np.asarray(shard).ctypes.data == np.from_dlpack(shard).ctypes.data == \
            np.asarray(shard.__array__()).ctypes.data and address % 64 == 0
        for one in (array, np.from_dlpack(shard), shard.__array__()):
            assert (one == array).all() and not one.flags.writeable
        copy = shard.__array__(copy=True)
        assert copy.ctypes.data != address and copy.flags.writeable
        assert np.asarray(shard, dtype="float64").dtype == np.float64
    assert (np.asarray(x) == whole).all()
    refused(ValueError, "put together", lambda: x.__array__(copy=False))
    assert "Shard([0:4], dtype=int32, device=0)" in repr(batch["label"].shards)
    assert repr(batch) == "Batch(label: int32[16], x: float32[16, 6])"
    assert "shape=(16, 6), dtype=float32" in repr(x) and repr(data) == f"Recipe({recipe!r})"
assert repr(data) == f"Recipe({recipe!r}, closed)"
]])
  end)

  it("says which shards are replicas, of one memory, and knows a whole one", function()
    local own = "{ x = shardrt.NamedSharding(mesh, P()), label = shardrt.NamedSharding(mesh, P \"data\") }"
    well("loader { sharding = " .. own .. " }", [[
with shardrt.open(recipe, devices=2) as data:
    x = next(iter(data))["x"]
    one, two = (np.asarray(shard) for shard in x.shards)
    assert [shard.replica_id for shard in x.shards] == [0, 1]
    assert one.ctypes.data == two.ctypes.data == np.asarray(x).ctypes.data
]])
  end)

  it("has dtypes that numpy has by name, and bfloat16 in DLPack", function()
    local cast = "{ shardrt.transform.cast '%s' }"
    well(("loader { transform = { x = %s, label = %s } }"):format(cast:format "bfloat16", cast:format "bool"), [[
import ctypes
from shardrt import dlpack
with shardrt.open(recipe, devices=1) as data:
    batch = next(iter(data))
    assert np.asarray(batch["label"]).dtype == bool and str(batch["label"].dtype) == "bool"
    kind, other = batch["label"].dtype, batch["x"].dtype
    for same in "bool", "|b1", bool, np.bool_, np.dtype("bool"), kind:
        assert kind == same and same == kind, same
    for one in "int8", np.int8, int, np.dtype("int8"), str, None, 1, other:
        assert kind != one and one != kind, one
    assert other == "bfloat16" and other != np.dtype("int16") and {"bool": 1, "bfloat16": 2}[other] == 2
    assert np.empty(1, kind).dtype == bool and (repr(kind), repr(other)) == (
        "shardrt.DType('bool')", "shardrt.DType('bfloat16')")
    x = batch["x"]
    assert str(x.dtype) == "bfloat16" and x.dtype.itemsize == 2 and x.dtype.typestr is None
    shard = x.shards[0]
    assert not hasattr(shard, "__array_interface__")
    refused(TypeError, "ml_dtypes", lambda: np.asarray(shard))
    capsule = shard.__dlpack__(max_version=(1, 0))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    managed = dlpack._Versioned.from_address(get(capsule, b"dltensor_versioned"))
    assert managed.major == 1 and managed.flags == 1
    assert (managed.tensor.code, managed.tensor.bits, managed.tensor.lanes) == (4, 16, 1)
]])
  end)

  it("makes DLPack's capsules, of both kinds, which free what nobody took", function()
    well("loader {}", [[
with shardrt.open(recipe, devices=2) as data:
    batch = next(iter(data))
    shard = batch["x"].shards[1]
    assert '"dltensor_versioned"' in repr(shard.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False))
    assert '"dltensor"' in repr(shard.__dlpack__()) and '"dltensor"' in repr(shard.__dlpack__(max_version=(0, 8)))
    refused(BufferError, "without a copy", lambda: shard.__dlpack__(copy=True))
    refused(BufferError, "not on (2, 0)", lambda: shard.__dlpack__(dl_device=(2, 0)))
    refused(shardrt.Error, "None in Python", lambda: shard.__dlpack__(stream=1))
    held = lambda: data.stats()["held_bytes"]
    full = held()
    capsules = [shard.__dlpack__(), shard.__dlpack__(max_version=(1, 0))]
    arrays = [np.from_dlpack(shard)]
    del batch, shard
    assert 0 < held() < full
    del capsules
    assert held() > 0 and (arrays[0][0] == np.arange(24, 30)).all()
    del arrays
    assert held() == 0
]])
  end)

  it("frees a capsule that its consumer refuses by an exception", function()
    well("loader { transform = { x = { shardrt.transform.cast 'bfloat16' } } }", [[
class Refused(Exception):
    pass
def refuse(capsule): # as C code does: the capsule goes while the exception is on its way
    raise Refused
def hand_over(shard, **options):
    refuse(shard.__dlpack__(**options))
with shardrt.open(recipe, devices=2) as data:
    batch = next(iter(data))
    shard = batch["x"].shards[0]
    for _ in range(3):
        problem = refused((RuntimeError, BufferError, TypeError), "", lambda: np.from_dlpack(shard)) # has no bfloat16
        assert not isinstance(problem, SystemError) and problem.__cause__ is None, problem
        for options in ({}, {"max_version": (1, 0)}):
            try:
                hand_over(shard, **options)
            except Refused:
                pass
    del batch, shard, problem
    gc.collect()
    assert data.stats()["held_bytes"] == 0, data.stats()
]])
  end)

  it("keeps the memory of arrays as long as they are there, also after the job, for any thread", function()
    well("loader { shuffle = true, seed = 3, epochs = 4 }", [[
kept, copies = [], []
with shardrt.open(recipe, devices=2) as data:
    for batch in data:
        for shard in batch["x"].shards:
            kept.append(np.from_dlpack(shard) if len(kept) % 4 == 0 else np.asarray(shard))
            copies.append(kept[-1].copy())
    assert len(kept) == 96 and data.stats()["held_bytes"] >= 96 * 96
del data, batch, shard
gc.collect()
def compare():
    assert all((one == other).all() for one, other in zip(kept, copies))
    kept.clear()
thread = threading.Thread(target=compare)
thread.start()
thread.join()
assert not kept
]])
  end)

  it("gives memory back to the loader on whatever thread", function()
    well("loader { epochs = 20 }", [[
import queue
batches = queue.Queue(4)
def use():
    while (batch := batches.get()) is not None:
        assert np.asarray(batch["x"]).shape == (8, 6)
thread = threading.Thread(target=use)
thread.start()
with shardrt.open(recipe, devices=1) as data:
    for batch in data:
        batches.put(batch)
    batches.put(None)
    thread.join()
    del batch
    assert data.stats()["held_bytes"] == 0, data.stats()
]])
  end)

  it("says of each batch how it lies, where a recipe's own function changes that", function()
    well([[loader { batch_size = 8, epochs = 50, batch_transform = (function()
  local step = 0
  return function(batch)
    step = step + 1
    local rows = 1 + step % 7
    return { x = shardrt.device_put(ndarray.full({ rows, 2 }, step, step % 2 == 0 and "int32" or "float64"),
      shardrt.NamedSharding(mesh, P(nil, "data"))) }
  end
end)() }]], [[
from shardrt import array
with shardrt.open(recipe, devices=2) as data:
    for step, batch in enumerate(data, 1):
        x, shape = batch["x"], (1 + step % 7, 2)
        assert x.shape == shape and str(x.dtype) == ("int32" if step % 2 == 0 else "float64"), x
        assert [shard.index for shard in x.shards] == [(slice(0, shape[0]), slice(i, i + 1)) for i in range(2)]
        assert (np.asarray(x) == step).all()
    assert step == 600 and len(array._layouts) <= 256
]])
  end)

  it("has ten thousand batches in flat memory", function()
    well("loader {}", cases.FLAT .. [[
total = 0.0
def use(batch):
    global total
    for array in batch.values():
        for shard in array.shards:
            total += float(np.asarray(shard)[0].sum()) + np.from_dlpack(shard).size
            shard.__dlpack__(max_version=(1, 0)), shard.__dlpack__()
with shardrt.open(recipe, devices=2) as data:
    check_flat(data, use)
    assert total > 0
]], { limit = 120 })
  end)

  it("picks loaders by name, and lists the names", function()
    well("{ train = loader {}, test = loader { epochs = 1, batch_size = 48 } }", [[
with shardrt.open(recipe, devices=1) as data:
    assert data.names == ("test", "train") and "loaders 'test', 'train'" in repr(data)
    assert repr(data["train"]) == f"Loader('train' of {recipe!r})"
    assert len(data["train"]) == 12 and len(list(data["test"])) == 2
    refused(TypeError, 'data["test"]', lambda: len(data))
    refused(TypeError, 'data["test"]', lambda: iter(data))
    missing = refused(KeyError, 'no loader "valid"; the recipe returned "test", "train"', lambda: data["valid"])
    assert isinstance(missing, shardrt.Error) and missing.name == "EINVAL"
    stats, state = data.stats(), data.state_dict()
    assert stats["test"]["steps"] == 2 and stats["train"]["steps"] == 0 and set(state) == {"test", "train"}
refused(TypeError, "", lambda: shardrt.open(recipe, args=[48])) # and no job is left behind
train = shardrt.open(recipe, devices=2)["train"]
gc.collect()
assert next(iter(train))["label"].shape == (8,)
]])
  end)

  it("refuses a loop over what is used up, but not over a state that stands there", function()
    well("loader { epochs = 2 }", [[
with shardrt.open(recipe, devices=1) as data:
    start = data.state_dict()
    batches = iter(data)
    assert len(list(batches)) == 24 and list(batches) == [] # as of any iterator
    for _ in range(2):
        refused(ValueError, "has given all batches of its epochs", lambda: next(iter(data)))
    end = data.state_dict()
    for state, count in (end, 0), (end, 0), (start, 24):
        data.load_state_dict(state)
        assert len(list(data)) == count
    refused(ValueError, "has given all", lambda: list(data))
]])
  end)

  it("goes on from a state that went through JSON, in a job of another size", function()
    local body = "loader { shuffle = true, seed = 5, epochs = 3 }"
    well(body, ([[
with shardrt.open(recipe, devices=4) as data:
    batches = iter(data)
    for _ in range(17):
        next(batches)
    state = data.state_dict()
    rest = [np.asarray(batch["label"]).tolist() for batch in batches]
    assert len(rest) == 19
    data.load_state_dict(json.loads(json.dumps(state)))
    assert [np.asarray(batch["label"]).tolist() for batch in data] == rest
    refused(shardrt.Error, "", lambda: data.load_state_dict({"epoch": 1}))
with open("%s/state", "w") as file:
    json.dump([state, rest], file)
]]):format(folder))
    well(body, ([[
with open("%s/state") as file:
    state, rest = json.load(file)
with shardrt.open(recipe, devices=1, timeout=20) as data:
    data.load_state_dict(state)
    for batch, labels in zip(data, rest, strict=True):
        for shard in batch["label"].shards:
            rows, = shard.index
            assert np.asarray(shard).tolist() == labels[rows]
]]):format(folder), { processes = 2 })
  end)

  it("raises errors with code, name, file and line", function()
    write("wrong.lua", "local x = 1\nerror 'no luck'\n")
    write("number.lua", "return 7")
    well("loader { epochs = 1, batch_size = tonumber(arg[1]) }", ([[
folder = "%s/"
problem = refused(shardrt.Error, folder + "wrong.lua:2: no luck", lambda: shardrt.open(folder + "wrong.lua"))
assert (problem.code, problem.name) == (-2, "EINVAL")
again = pickle.loads(pickle.dumps(problem))
assert (type(again), str(again), again.code) == (type(problem), str(problem), -2)
refused(shardrt.Error, "it returned 7", lambda: shardrt.open(folder + "number.lua"))
missing = refused(FileNotFoundError, "none.lua: No such file", lambda: shardrt.open(folder + "none.lua"))
assert isinstance(missing, shardrt.Error) and missing.name == "EIO" and missing.errno == errno.ENOENT
assert pickle.loads(pickle.dumps(missing)).code == missing.code
refused(IsADirectoryError, "Is a directory", lambda: shardrt.open(folder))
refused(ValueError, "r.lua:14: loader: batch_size = 7.5", lambda: shardrt.open(recipe, ["7.5"]))
refused(shardrt.Error, "platform", lambda: shardrt.open(recipe, ["8"], platform="abacus"))
refused(shardrt.Error, '"auto" or "alone"', lambda: shardrt.open(recipe, ["8"], transport="pigeon"))
with shardrt.open(recipe, args=["48"], devices=1) as data:
    assert len(data) == 2
    with shardrt.open(recipe, ["24"]) as other:
        assert len(other) == 4 and len(list(other)) == 4
    refused(shardrt.Error, "devices=1", lambda: shardrt.open(recipe, ["48"], devices=2))
    assert len(list(data)) == 2
    def elsewhere():
        refused(shardrt.Error, "another thread", lambda: next(iter(data)))
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
for call in (data.stats, data.state_dict, lambda: len(data), lambda: next(iter(data))):
    refused(shardrt.Error, "the recipe was closed", call)
data.close()
with shardrt.open(recipe, ["48"], devices=2, transport="alone", platform="host") as data: # a job after the other
    assert len(next(iter(data))["x"].shards) == 2
]]):format(folder))
    well([[shardrt.loader { source = shardrt.source.npy { x = "/none.npy" }, batch_size = 1 }]], [[
problem = refused(FileNotFoundError, "/none.npy: No such file", lambda: shardrt.open(recipe))
assert isinstance(problem, shardrt.Error) and problem.name == "EIO"
# What Python has the same errors as, for each code, and for what befalls files.
kinds = [None, MemoryError, ValueError, OverflowError, OSError, ValueError, RuntimeError, TimeoutError,
    ConnectionError, RuntimeError, RuntimeError]
for code, kind in enumerate(kinds[1:], 1):
    problem = errors.error_of(-code, "file: told")
    assert isinstance(problem, kind) and problem.code == -code and str(problem) == "file: told", problem
for words, kind in ("Permission denied", PermissionError), ("the server answers 404", FileNotFoundError):
    assert isinstance(errors.error_of(-4, f"file: {words}"), kind)
    assert not isinstance(errors.error_of(-5, f"file: {words}"), OSError)
]])
  end)

  it("says where it looks for the library", function()
    local elsewhere = PYTHON:gsub("SHARDRT_LIBRARY=%S+", "SHARDRT_LIBRARY=/none/lib.so")
    local result = library.run(elsewhere .. " -c 'import shardrt'")
    assert.equal(1, result.status)
    expect.contains(result.stderr, "ImportError", "/none/lib.so", "SHARDRT_LIBRARY=")
  end)

  it("finds the library's files again when the program has left the folder that it was found from", function()
    local there = ("env -C %s -u SHARDRT_CUDA_PLUGIN PYTHONPATH=$PWD/python SHARDRT_LIBRARY=./libshardrt.so.0 "
      .. "/usr/bin/python3 -B"):format(library.folder())
    well("loader { transform = { x = { shardrt.transform.scale { factor = 2 } } } }", [[
os.chdir("/")
with shardrt.open(recipe, devices=2) as data:
    assert np.asarray(next(iter(data))["x"].shards[0])[0][1] == 2
try:
    shardrt.open(recipe, platform="cuda")
except shardrt.Error as problem:
    places = str(problem)
    assert places.count(sys.argv[1]) == 3 or "shardrt-cuda.so" not in places, places
]], { python = there, args = "$PWD" })
  end)

  it("raises an error in a process that was forked", function()
    for _, processes in ipairs { false, 2 } do
      well("loader {}", [[
with shardrt.open(recipe, devices=1) as data:
    batch = next(iter(data))
    child = os.fork()
    if child == 0:
        words = "num_workers=0: shardrt has its own threads"
        for call in (lambda: next(iter(data)), data.stats, data.state_dict, lambda: shardrt.open(recipe)):
            refused(shardrt.Error, words, call)
        assert np.asarray(batch["label"].shards[0]).size
        del batch
        sys.stdout.flush()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    next(iter(data))
child = os.fork()
if child == 0:
    refused(shardrt.Error, "num_workers=0", lambda: shardrt.open(recipe))
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
]], { processes = processes or nil })
    end
  end)

  -- However a program ends, it does so at once, with its own status, and prints nothing but its own traceback.
  local ENDINGS = {
    { "without close", [[
data = shardrt.open(recipe, devices=2)
batches = iter(data)
held = next(batches)["x"].shards[0]
]] },
    { "with arrays and capsules in globals", [[
with shardrt.open(recipe, devices=2) as data:
    shard = next(iter(data))["x"].shards[0]
    kept = [np.asarray(shard), np.from_dlpack(shard), shard.__dlpack__(), shard.__dlpack__(max_version=(1, 0))]
]] },
    { "in a circle", [[
data = shardrt.open(recipe, devices=2)
circle = [data, next(iter(data))]
circle.append(circle)
del data
]] },
    { "by an exception in with", [[
with shardrt.open(recipe, devices=2) as data:
    for batch in data:
        raise LookupError("mine")
]], 1, "LookupError: mine" },
    { "by an exception without with", [[
for batch in shardrt.open(recipe, devices=2):
    raise LookupError("mine")
]], 1, "LookupError: mine" },
    { "by sys.exit in the loop", [[
with shardrt.open(recipe, devices=2) as data:
    for batch in data:
        sys.exit(5)
]], 5 },
    { "by sys.exit without with", [[
for batch in shardrt.open(recipe, devices=2):
    sys.exit(5)
]], 5 },
    { "by os._exit", [[
data = shardrt.open(recipe, devices=2)
batch = next(iter(data))
os._exit(6)
]], 6 },
    { "while a thread holds a batch", [[
data = shardrt.open(recipe, devices=2)
def hold(batch):
    while True:
        np.asarray(batch["x"].shards[0]).sum()
threading.Thread(target=hold, args=(next(iter(data)),), daemon=True).start()
]] },
    { "after a thread that opened it", [[
def work():
    global data
    data = shardrt.open(recipe, devices=2)
    next(iter(data))
thread = threading.Thread(target=work)
thread.start()
thread.join()
]] },
    { "with a recipe that another thread forgot", [[
kept = [shardrt.open(recipe, devices=2), shardrt.open(recipe)]
batches = iter(kept[0])
next(batches)
def forget():
    global batches
    del batches
    kept.clear()
    gc.collect()
thread = threading.Thread(target=forget)
thread.start()
thread.join()
with shardrt.open(recipe, devices=1) as data: # the job of those is left
    assert len(next(iter(data))["x"].shards) == 1
]] },
    { "after an exception in one recipe while a call of another rests", [[
kept = shardrt.open(recipe, devices=2)
try:
    with shardrt.open(recipe):
        kept._opened.resting = "" # as Ctrl-C leaves it
        shardrt.recipe._resting = kept._opened.itself
        raise LookupError
except LookupError:
    pass
with shardrt.open(recipe, devices=1) as data:
    next(iter(data))
    refused(shardrt.Error, "was left", lambda: next(iter(kept)))
]] },
    { "where another thread would close", [[
data = shardrt.open(recipe, devices=2)
def close():
    refused(shardrt.Error, "another thread opened the recipe", data.close)
    try:
        with data:
            raise LookupError
    except LookupError:
        pass
thread = threading.Thread(target=close)
thread.start()
thread.join()
refused(shardrt.Error, "closed", lambda: next(iter(data)))
data.close()
with shardrt.open(recipe, devices=1) as data:
    next(iter(data))
]] },
    { "with batches in a module that came before the package's", [[
import types
early = types.ModuleType("early")
sys.modules = {"early": early, **sys.modules}
sys.modules["early"] = early
data = early.data = shardrt.open(recipe, devices=2)
early.batches = iter(data)
early.batch = next(early.batches)
early.arrays = [early.batch["x"].shards[0].__dlpack__(), np.asarray(early.batch["x"].shards[1])]
early.circle = [early]
sys.circle = early.circle
del data
]] },
    { "by sys.exit in a forked process", [[
with shardrt.open(recipe, devices=2) as data:
    batch = next(iter(data))
    child = os.fork()
    if child == 0:
        sys.exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
]] },
  }
  for _, ending in ipairs(ENDINGS) do
    local name, body, status, says = unpack(ending, 1, 4)
    it("ends " .. name, function()
      local result = run("loader {}", body, { limit = 20 })
      assert.equal(status or 0, result.status, result.output)
      if says then
        expect.contains(result.stderr, says)
        assert.is_nil(result.stderr:find "Exception ignored")
      else
        assert.equal("", result.stderr)
      end
    end)
  end

  it("ends in several processes, by an exception in one of them, too", function()
    local body = [[
with shardrt.open(recipe, devices=1, timeout=30) as data:
    for step, batch in enumerate(data):
        if step == 20 and os.environ["OMPI_COMM_WORLD_RANK"] in sys.argv:
            raise LookupError("mine")
]]
    assert.equal("", expect.well(run("loader { epochs = 2 }", body, { processes = 2 })).stderr)
    for _, who in ipairs { "1", "0 1" } do
      local result = run("loader { epochs = 2 }", body, { processes = 2, args = who, limit = 20 })
      assert.equal(1, result.status, result.output)
      expect.contains(result.stderr, "LookupError: mine")
    end
  end)

  it("tells of a process that does not come, as a TimeoutError", function()
    local result = run("loader { epochs = 1 }", [[
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
try:
    with shardrt.open(recipe, devices=1, timeout=1.5) as data:
        for batch in data:
            if rank == 1:
                time.sleep(4)
                os._exit(0)
except TimeoutError as problem:
    assert isinstance(problem, shardrt.Error) and problem.name == "ETIMEOUT", problem
    assert "process 1" in str(problem) and "in need of a longer timeout)" in str(problem), problem
    assert "; by now it may be in its program, after shardrt_open of " in str(problem), problem
    print("missing")
sys.stdout.flush()
os._exit(0)
]], { processes = 2 })
    expect.contains(result.stdout, "missing")
  end)

  it("tells the others at once of an exception in one process, and opens the recipe again", function()
    local result = expect.well(run("loader { epochs = 1 }", [[
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
try:
    with shardrt.open(recipe, devices=1, timeout=1000) as data:
        for step, batch in enumerate(data):
            if step == 3 and rank == 1:
                raise LookupError("mine\nand more")
except (LookupError, shardrt.Error) as problem:
    said = str(problem)
    if rank == 0:
        assert problem.name == "ECOMM" and isinstance(problem, ConnectionError), said
        assert "process 1 left the job (abandoned it), in the program, after shardrt_next of " in said, said
        assert said.endswith("r.lua, because of: LookupError: mine"), said
else:
    raise AssertionError
with shardrt.open(recipe, devices=1, timeout=20) as data:
    assert len(list(data)) == 12
print("told")
]], { processes = 2 }))
    expect.contains(result.stdout, "told\ntold\n")
  end)

  -- A signal's exception at every place of the package's code that Python hears signals at: as Ctrl-C would come there.
  it("loses no batch by Ctrl-C, wherever it comes, and knows its state", function()
    for _, changed in ipairs { "", ", batch_transform = function(b) return { label = b.label, x = b.x } end" } do
      well("{ a = loader { shuffle = true, seed = 2, epochs = 3" .. changed .. " }, b = loader { epochs = 1 } }", [=[
def labels(batch):
    return np.asarray(batch["label"]).tolist()
import linecache
with shardrt.open(recipe, devices=2) as data:
    wanted = [labels(batch) for batch in data["a"]]
assert len(wanted) == 36
class Interrupt(Exception):
    pass
countdown = 0
def trace(frame, event, argument):
    global countdown
    code = frame.f_code
    if "/shardrt/" not in code.co_filename or code.co_name == "__del__": # whose exceptions Python ignores
        return None
    if code.co_name == "__next__" and (event == "return" or "return batch" in linecache.getline(code.co_filename,
                                                                                                frame.f_lineno)):
        return trace # between a store and a return Python hears no signal
    countdown -= 1
    if countdown == 0:
        raise Interrupt
    return trace
with shardrt.open(recipe, devices=2) as data:
    start = data.state_dict()
    place, ended = 1, False
    while not ended: # once more for each place in one step
        data.load_state_dict(start)
        batches, got = iter(data["a"]), []
        got.append(labels(next(batches)))
        countdown = place
        sys.settrace(trace)
        try:
            batch = next(batches)
            sys.settrace(None)
            ended = countdown > 0
            got.append(labels(batch))
        except Interrupt:
            sys.settrace(None)
            state = json.loads(json.dumps(data["a"].state_dict()))
            assert data.state_dict()["a"] == state
            if place % 3 == 0:
                assert len(list(data["b"])) == 12
                data["b"].load_state_dict(start["b"])
        rest = got + [labels(batch) for batch in batches]
        assert rest == wanted, (place, len(rest))
        if len(got) == 1:
            data["a"].load_state_dict(state)
            assert [labels(batch) for batch in data["a"]] == wanted[1:], place
        place += 1
    assert place > 10, place
    del batch, rest
    gc.collect()
    assert data.stats()["a"]["held_bytes"] == 0, data.stats()
]=])
    end
  end)

  it("saves where it stands, and goes on, after Ctrl-C while a batch is made", function()
    for _, changed in ipairs { "", ", batch_transform = function(b) return { label = b.label, x = b.x } end" } do
      local slow = [[
loader { batch_size = 96, epochs = 3, num_workers = 1, prefetch = 1, transform = { x = { shardrt.transform.lua(
  function(sample)
    local until_then = os.clock() + 0.015
    while os.clock() < until_then do end
    sample.out[0] = sample.data[0]
  end) } }]] .. changed .. " }"
      well("{ slow = " .. slow .. ", other = loader { epochs = 1 } }", [[
import signal
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
with shardrt.open(recipe, devices=8) as data:
    slow = data["slow"]
    start = slow.state_dict()
    batches = iter(slow)
    for call in (slow.stats, slow.state_dict, data.state_dict, lambda: next(iter(data["other"])), None):
        threading.Timer(0.3, interrupt).start()
        try:
            next(batches)
            raise AssertionError("no Ctrl-C")
        except KeyboardInterrupt:
            pass
        assert slow.state_dict() == start
        if call is not None:
            call()
        assert slow.state_dict() == start
        batch = next(batches)
        assert np.asarray(batch["label"]).tolist() == list(range(96))
        assert slow.state_dict() != start
        slow.load_state_dict(start)
    threading.Timer(0.3, interrupt).start()
    try:
        next(batches)
        raise AssertionError("no Ctrl-C")
    except KeyboardInterrupt:
        pass
    slow.load_state_dict(start)
    assert len(list(batches)) == 3
    slow.load_state_dict(start)
    threading.Timer(0.3, interrupt).start()
    try:
        next(batches)
        raise AssertionError("no Ctrl-C")
    except KeyboardInterrupt:
        data.close()
]], { limit = 120 })
    end
  end)

  it("hears Ctrl-C within a second, while another process is waited for", function()
    local result = run("loader { pipeline = 'reshard' }", [[
import signal
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
try:
    with shardrt.open(recipe, devices=2, timeout=20) as data:
        for step, batch in enumerate(data):
            if step == 3 and rank == 1:
                time.sleep(6)
                break
            if step == 3:
                threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
                started = time.monotonic()
        os._exit(0)
except KeyboardInterrupt:
    print("heard after", "%.1f" % (time.monotonic() - started), flush=True)
    time.sleep(7)
    os._exit(0)
]], { processes = 2 })
    local seconds = tonumber(result.stdout:match "heard after ([%d.]+)")
    assert.is_true(seconds ~= nil and seconds >= 0.9 and seconds < 2, result.output)
  end)
end)
