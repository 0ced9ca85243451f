-- long: 60 s
-- The Python package beside JAX: global arrays, and jobs over jax.distributed, however they end.

local cases = require "tests.support.python.cases"
local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local HEAD = [=[
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
rank, size = int(os.environ.get("RANK", 0)), int(os.environ.pop("WORLD_SIZE", 1))
import jax
import numpy as np
import shardrt.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from shardrt.jax import global_array

def begin():
    jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", size, rank)
    return shardrt.jax.transport()
def addresses(array):
    return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
]=]

local python, missing = library.jax()

describe("the Python package with JAX", function()
  if not python then
    pending(missing)
    return
  end
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)
  local run, well = cases.runner(folder, python, HEAD, library.launch)

  it("has global arrays of every dtype without a copy, as long as they are there", function()
    local kinds = { "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32" }
    local loaders = {}
    for i, kind in ipairs(kinds) do
      loaders[i] = ("%s = loader { transform = { x = { shardrt.transform.cast '%s' } } }"):format(kind, kind)
    end
    well("{ " .. table.concat(loaders, ", ") .. " }", [=[
from shardrt import library
kept, whole = [], np.arange(48, dtype="float32").reshape(8, 6)
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
with shardrt.open(recipe, devices=4) as data:
    for name in data.names:
        x = next(iter(data[name]))["x"]
        value = global_array(x, sharding)
        assert value.shape == (8, 6) and value.dtype.name == name and value.sharding == sharding
        assert addresses(value) == [library.array_host_data(shard._handle, shard._i) for shard in x.shards], name
        kept.append((value, whole.astype(value.dtype)))
        assert (np.asarray(value) == kept[-1][1]).all(), name
    held = data.stats()
    del x
assert all((np.asarray(value) == other).all() for value, other in kept) and len(kept) == 10
assert float(jax.jit(lambda x: x.sum())(kept[data.names.index("float32")][0])) == whole.sum()
]=])
    well("loader { transform = { x = { shardrt.transform.cast 'float64' } } }", [=[
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
with shardrt.open(recipe, devices=4) as data:
    batch = next(iter(data))
    refused(TypeError, "cast it in the recipe", lambda: global_array(batch["x"], sharding))
    jax.config.update("jax_enable_x64", True)
    assert global_array(batch["x"], sharding).dtype == np.float64
    value = global_array(batch["label"], sharding)
    del batch, value
    gc.collect()
    assert data.stats()["held_bytes"] == 0
]=])
  end)

  it("checks that JAX cuts an array as shardrt did, and says which part differs", function()
    well([=[{
  rows = loader {}, whole = loader { sharding = shardrt.NamedSharding(mesh, P()) },
  both = loader { sharding = { label = rows,
    x = shardrt.NamedSharding(shardrt.make_mesh({ 2, 2 }, { "a", "b" }), P("a", "b")) } },
}]=], [=[
row = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
whole = NamedSharding(row.mesh, P())
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
both, turned = NamedSharding(mesh, P("a", "b")), NamedSharding(mesh, P("b", "a"))
right = {"rows": {row}, "whole": {whole}, "both": {both, turned}}
with shardrt.open(recipe, devices=4) as data:
    for name in data.names:
        x = next(iter(data[name]))["x"]
        for sharding in row, whole, both, turned:
            if sharding in right[name]:
                value = global_array(x, sharding)
                assert (np.asarray(value) == np.arange(48).reshape(8, 6)).all()
            else:
                problem = refused(ValueError, "[", lambda: global_array(x, sharding))
                assert "JAX's" in str(problem) and "by NamedSharding" in str(problem) and x.sharding in str(problem)
    x = next(iter(data["rows"]))["x"]
    refused(ValueError, "TFRT_CPU_0 is to hold [0:8, 0:6]" if "TFRT" in str(jax.devices()[0]) else
            "cpu:0 is to hold [0:8, 0:6]", lambda: global_array(x, whole))
    one = NamedSharding(Mesh(jax.devices()[:1], ("data",)), P("data"))
    refused(ValueError, "they hold [0:2, 0:6], [2:4, 0:6]", lambda: global_array(x, one))
]=])
  end)

  local TOGETHER = "DEVICES = 4\n" .. cases.TOGETHER .. [=[
def client():
    return jax._src.distributed.global_state.client
]=]

  it("compares processes over jax.distributed, joins again after a failure, and cleans up", function()
    well("loader { epochs = 1, batch_size = tonumber(arg[1] or 8) }", TOGETHER .. [=[
def same(problem):
    client().key_value_set(f"test/{problem.name}/{len(told)}/{rank}", str(problem))
    told.append([client().blocking_key_value_get(f"test/EMISMATCH/{len(told)}/{p}", 20000) for p in range(2)])
    assert told[-1][0] == told[-1][1], told[-1]
told = []
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
for _ in range(2):
    for step, batch in enumerate(work()):
        value = global_array(batch["x"], sharding)
        assert addresses(value) == [np.asarray(shard).ctypes.data for shard in batch["x"].shards]
        total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(sharding.mesh, P()))(value)
        assert float(total) == np.arange(step * 48, step * 48 + 48).sum()
    assert step == 11
    same(raised(shardrt.Error, args=["8", "16"][rank:rank + 1]))
    same(raised(shardrt.Error, "devices", devices=1 + rank))
    same(raised(shardrt.Error, "process 0", "process 1", "after 4 steps", stop=[None, 3][rank]))
left = [key for key, _ in client().key_value_dir_get_bytes("shardrt/")]
assert len([key for key in left if "/job " in key]) <= 3 and len(left) <= 7, left # a last word, too
]=], { processes = 2 })
  end)

  it("tells of a process that is not there, or stuck", function()
    local result = run("loader { epochs = 1 }", TOGETHER .. [=[
what = sys.argv[1]
def mark(word):
    open(f"{recipe}.{what}.{word}", "w").close()
def wait_for(word):
    for _ in range(1000):
        if os.path.exists(f"{recipe}.{what}.{word}"):
            return
        time.sleep(0.03)
    raise AssertionError(f"the other process is not {word}")
if rank == 1: # ends first: JAX ends whoever loses the first process
    batches = work() if what == "stuck" else iter([0])
    next(batches)
    wait_for("told")
    mark("gone")
    os._exit(0)
if what == "missing":
    problem = raised(TimeoutError, "process 1 of 2 did not come to shardrt.open within 1.5 seconds", timeout=1.5)
    assert problem.name == "ETIMEOUT"
else:
    raised(TimeoutError, "process 0: waiting", "process 1: last seen at", "r.lua", timeout=1.5)
print("told", flush=True)
mark("told")
wait_for("gone")
time.sleep(0.5)
os._exit(0)
]=], { processes = 2, args = "missing" })
    expect.contains(expect.well(result).stdout, "told") -- both ended well
    result = library.launch(("%s %s/script.py stuck"):format(python, folder), 2, 60)
    expect.contains(expect.well(result).stdout, "told")
  end)

  it("refuses to be alone among several processes, and names what works", function()
    well("loader {}", [=[
refused(shardrt.Error, "jax.distributed.initialize", shardrt.jax.transport)
begin()
refused(shardrt.Error, "transport=shardrt.jax.transport()", lambda: shardrt.open(recipe))
with shardrt.open(recipe, devices=4, transport="alone") as data:
    assert next(iter(data))["label"].shards[3].index == (slice(6, 8),)
]=], { processes = 2 })
  end)

  local ENDINGS = {
    ["shutdown after close"] = [=[
with shardrt.open(recipe, devices=4, transport=transport) as data:
    held = [global_array(batch["x"], sharding) for batch in data]
jax.distributed.shutdown()
]=],
    ["shutdown before close, which says so"] = [=[
data = shardrt.open(recipe, devices=4, transport=transport)
held = [global_array(batch["x"], sharding) for batch in data]
jax.distributed.shutdown()
refused(ConnectionError, "allgather", data.close)
]=],
    ["shutdown without close"] = [=[
data = shardrt.open(recipe, devices=4, transport=transport)
held = global_array(next(iter(data))["x"], sharding)
jax.distributed.shutdown()
]=],
    ["neither"] = [=[
data = shardrt.open(recipe, devices=4, transport=transport)
held = global_array(next(iter(data))["x"], sharding)
]=],
  }
  for name, body in pairs(ENDINGS) do
    it("ends by " .. name, function()
      local head = "transport = begin()\nsharding = NamedSharding(Mesh(jax.devices(), ('data',)), P('data'))\n"
      well("loader { epochs = 1 }", head .. body, { processes = 2, limit = 40 })
    end)
  end
end)
