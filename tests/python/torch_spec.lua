-- long: 60 s
-- The Python package beside PyTorch: tensors, DataLoader, and jobs over torch.distributed, however they end.

local cases = require "tests.support.python.cases"
local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local HEAD = [=[
import pathlib, signal
import torch
from torch import distributed as dist
from torch.utils.data import DataLoader
import shardrt.torch
from shardrt.torch import Batches, tensor

rank = int(os.environ.get("RANK", 0))
def begin():
    dist.init_process_group("gloo")
    return shardrt.torch.transport()
]=]

local python, missing = library.torch()

describe("the Python package with PyTorch", function()
  if not python then
    pending(missing)
    return
  end
  local folder = mpi.folder()
  local fork, stop = library.forks(python, folder, "torch torch.distributed torch.utils.data")
  teardown(function()
    stop()
    mpi.remove(folder)
  end)
  local run, well = cases.runner(folder, fork, HEAD, library.launch)

  it("imports PyTorch only where it is asked for", function()
    well("loader {}", [=[
import subprocess
code = "import sys, shardrt; assert 'torch' not in sys.modules and 'jax' not in sys.modules"
subprocess.run([sys.executable, "-c", code], check=True)
]=])
  end)

  it("shows shards as tensors of every dtype without a copy, as long as they are there", function()
    local kinds = { "bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64" }
    local loaders = {}
    for i, kind in ipairs(kinds) do
      loaders[i] = ("%s = loader { transform = { x = { shardrt.transform.cast '%s' } } }"):format(kind, kind)
    end
    well("{ " .. table.concat(loaders, ", ") .. " }", [=[
from shardrt import library
kept = []
with shardrt.open(recipe, devices=2) as data:
    for name in data.names:
        for shard in next(iter(data[name]))["x"].shards:
            t = tensor(shard)
            assert t.dtype == getattr(torch, name) and tuple(t.shape) == shard.shape == (4, 6), (name, t.dtype)
            assert t.data_ptr() == library.array_host_data(shard._handle, shard._i) and t.data_ptr() % 64 == 0
            whole = torch.arange(8 * 6, dtype=torch.float32).view(8, 6).to(t.dtype)
            assert torch.equal(t, whole[shard.index]), name
            kept.append((t, whole[shard.index]))
            assert tensor(shard).clone().data_ptr() != t.data_ptr()
assert len(kept) == 20
del data, shard, t
gc.collect()
assert all(torch.equal(one, other) for one, other in kept)
]=])
    -- A dtype that an old PyTorch lacks is named.
    well("loader { transform = { x = { shardrt.transform.cast 'uint32' } } }", [=[
with shardrt.open(recipe, devices=1) as data:
    shard = next(iter(data))["x"].shards[0]
    if torch.__version__.startswith("1."):
        refused(TypeError, "cast it in the recipe", lambda: tensor(shard))
    else:
        assert tensor(shard).dtype == torch.uint32
]=])
  end)

  it("puts what a process has of an array together, where it is a box", function()
    well([=[{
  rows = loader {}, whole = loader { sharding = { x = shardrt.NamedSharding(mesh, P()), label = rows } },
  split = loader { sharding = { x = shardrt.NamedSharding(shardrt.make_mesh({ 2, 2 }, { "a", "b" }), P("a", "b")),
    label = rows } },
}]=], [=[
whole = torch.arange(8 * 6, dtype=torch.float32).view(8, 6)
with shardrt.open(recipe, devices=4) as data:
    for name in data.names:
        x = next(iter(data[name]))["x"]
        t = tensor(x)
        assert torch.equal(t, whole), name
        assert (t.data_ptr() == tensor(x.shards[0]).data_ptr()) == (name == "whole")
        if name == "split":
            every = x.shards
            for some, words in ((every[0], every[3]), "no box"), ((), "no device of this process"):
                # of what another process has the rest of
                part = type("Part", (), {"only_part": lambda self: None, "shards": some, "ndim": 2})()
                refused(ValueError, words, lambda: tensor(part))
]=])
  end)

  it("gives DataLoader the epochs of a loader, one an iteration, and goes on from a state", function()
    well("loader { shuffle = true, seed = 5, epochs = 3, batch_size = 20, remainder = 'pad' }", [=[
with shardrt.open(recipe, devices=1) as data:
    batches = DataLoader(Batches(data), batch_size=None)
    assert len(batches) == 5
    epochs = [[b["label"].tolist() for b in batches] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [5, 5, 5]
    assert [sorted(set(sum(epoch, []))) for epoch in epochs] == [list(range(96))] * 3
    refused(ValueError, "has given all batches of its epochs", lambda: list(batches))
    assert repr(Batches(data)) == f"Batches(Recipe({recipe!r}))"
    assert epochs[0] != epochs[1]
with shardrt.open(recipe, devices=2) as data:
    stream = Batches(data)
    loader = DataLoader(stream, batch_size=None)
    for step, b in enumerate(loader):
        assert set(b) == {"x", "label", "mask"} and b["mask"].dtype == torch.bool and b["label"].shape == (20,)
        if step == 2:
            break
    state = json.loads(json.dumps(stream.state_dict()))
    rest = [b["label"].tolist() for b in loader]
    assert rest == epochs[0][3:]
    stream.load_state_dict(state)
    assert [b["label"].tolist() for b in DataLoader(stream, batch_size=None)] == rest
    assert [b["label"].tolist() for b in loader] == epochs[1]
]=])
  end)

  it("keeps its place in torchdata's StatefulDataLoader, where that is installed", function()
    expect.well(run("loader { shuffle = true, seed = 5, epochs = 2 }", [=[
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    sys.exit()
with shardrt.open(recipe, devices=1) as data:
    loader = StatefulDataLoader(Batches(data), batch_size=None)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state_dict()
    rest = [b["label"].tolist() for b in batches]
    again = StatefulDataLoader(Batches(data), batch_size=None)
    again.load_state_dict(state)
    assert [b["label"].tolist() for b in again] == rest and len(rest) == 7
]=])) -- torchdata has warnings of its own
  end)

  it("refuses workers at once", function()
    well("loader {}", [=[
with shardrt.open(recipe, devices=1) as data:
    for method in "fork", "spawn":
        started = time.monotonic()
        loader = DataLoader(Batches(data), batch_size=None, num_workers=1, multiprocessing_context=method)
        refused(shardrt.Error, "num_workers=0: shardrt has its own threads", lambda: next(iter(loader)))
        assert time.monotonic() - started < 20
    next(iter(DataLoader(Batches(data), batch_size=None)))
]=])
  end)

  it("has ten thousand batches in flat memory", function()
    well("loader {}", cases.FLAT .. [=[
with shardrt.open(recipe, devices=1) as data:
    loader, total = DataLoader(Batches(data), batch_size=None), 0.0
    def use(batch):
        global total
        total += float(batch["x"][0, 0])
    batches = (batch for _ in iter(int, 1) for batch in loader) # one epoch after the other
    check_flat(batches, use)
    del batches
    gc.collect()
    assert data.stats()["held_bytes"] == 0 and total > 0
]=], { limit = 120 })
  end)

  -- Over torch.distributed: what all processes must do alike, and what comes of it where one does not.

  local TOGETHER = "DEVICES = 1\n" .. cases.TOGETHER

  it("compares processes over torch.distributed, and joins again after a failure", function()
    well("loader { epochs = 1, batch_size = tonumber(arg[1] or 8) }", TOGETHER .. [=[
with open(recipe) as file:
    text = file.read()
other = f"{recipe}.{rank}.lua"
with open(other, "w") as file:
    file.write(text.replace("arange(96 * 6", "arange(96 * 6") if rank == 0 else text.replace("96", "88"))
def same(problem):
    """Every process is told the same."""
    codes = [None, None]
    dist.all_gather_object(codes, (problem.name, str(problem).replace(other, "")))
    assert codes[0] == codes[1] and codes[0][0] == "EMISMATCH", codes
for _ in range(2):
    rows = [int(x) for batch in work() for x in tensor(batch["label"])]
    assert len(rows) == 48
    same(raised(shardrt.Error, args=["8", "12"][rank:rank + 1]))
    same(raised(shardrt.Error, "devices", devices=1 + rank))
    same(raised(shardrt.Error, recipe=other))
    same(raised(shardrt.Error, "process 0", "process 1", "after 4 steps", stop=[None, 3][rank]))
# Recipes that are open together share a job, whose transport is that of the group.
with shardrt.open(recipe, transport=transport, devices=1) as one, \
        shardrt.open(recipe, transport=shardrt.torch.transport(), devices=1) as two:
    for a, b in zip(one, two, strict=True):
        assert torch.equal(tensor(a["x"]), tensor(b["x"]))
]=], { processes = 2 })
  end)

  it("gathers in a group of some processes, whose ranks are that group's", function()
    well("loader { epochs = 1 }", [=[
dist.init_process_group("gloo")
group = dist.new_group([2, 0])
if rank == 1:
    refused(shardrt.Error, "not in the group", lambda: shardrt.torch.transport(group))
else:
    with shardrt.open(recipe, devices=1, transport=shardrt.torch.transport(group)) as data:
        batch = next(iter(data))
        rows, = batch["label"].shards[0].index
        assert rows == (slice(0, 4) if dist.get_rank(group) == 0 else slice(4, 8)), rows
        for _ in data:
            pass
dist.barrier()
]=], { processes = 3 })
  end)

  it("tells of a process that is not there, dies, or leaves by an exception", function()
    local result = run("loader { epochs = 1 }", TOGETHER .. [=[
what = sys.argv[1]
if what == "missing" and rank == 1:
    time.sleep(5)
elif what == "missing":
    problem = raised(TimeoutError, "process 1 of 2 did not come to shardrt.open within 1.5 seconds", timeout=1.5)
    assert problem.name == "ETIMEOUT"
    print("told")
elif what == "stuck" and rank == 1:
    for batch in work():
        time.sleep(6)
        os._exit(0)
elif what == "stuck":
    problem = raised(TimeoutError, "process 0: waiting", "process 1: last seen at", "r.lua", timeout=1.5)
    print("told")
elif what == "stopped" and rank == 0: # it holds the store
    for batch in work():
        pathlib.Path(recipe + ".pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
elif what == "stopped":
    started, silent = time.monotonic(), "the store of torch.distributed at 127.0.0.1:"
    raised(TimeoutError, "did not end within 1.5 seconds", silent, "has not answered for", "process 0", timeout=1.5)
    raised(TimeoutError, silent, timeout=0.5) # nor can it join again
    assert time.monotonic() - started < 8, time.monotonic() - started
    os.kill(int(pathlib.Path(recipe + ".pid").read_text()), signal.SIGCONT)
    print("told")
elif rank == 1:
    for batch in work():
        os._exit(0)
else:
    started = time.monotonic()
    problem = raised(ConnectionError, "gathering", "RuntimeError")
    assert isinstance(problem.__cause__, RuntimeError) and time.monotonic() - started < 10
    print("told")
sys.stdout.flush()
os._exit(0)
]=], { processes = 2, args = "missing" })
    expect.contains(expect.well(result).stdout, "told")
    for _, what in ipairs { "stuck", "stopped", "dies" } do
      result = mpi.shell("true") and library.launch(("%s %s/script.py %s"):format(fork, folder, what), 2, 60)
      expect.contains(expect.well(result).stdout, "told")
    end
  end)

  -- Longer than the spec waits: 1000 seconds.
  it("hears at once that a process left, also where it gave up a gathering, and joins again", function()
    well('(shardrt.process_index() == 0 and arg[1] and os.execute "sleep 3" and nil) or loader { epochs = 1 }',
      TOGETHER .. [=[
if rank == 1:
    try:
        with shardrt.open(recipe, transport=transport, devices=DEVICES, timeout=1000) as data:
            next(iter(data))
            raise LookupError("mine\nand more")
    except LookupError:
        pass
    raised(TimeoutError, "longer timeout)", args=["late"], timeout=1.5)
else:
    problem = raised(ConnectionError, "process 1 left the job (abandoned it)", timeout=1000)
    assert problem.name == "ECOMM" and str(problem).endswith("because of: LookupError: mine"), str(problem)
    raised(ConnectionError, "process 1 left the job (abandoned it), because of: shardrt.errors.Timeout: ",
           args=["late"], timeout=1000)
assert len(list(work())) == 12
]=], { processes = 2 })
  end)

  it("refuses to be alone among several processes, and names what works", function()
    well("loader {}", [=[
words = "transport=shardrt.torch.transport()"
refused(shardrt.Error, "init_process_group", shardrt.torch.transport)
problem = refused(shardrt.Error, words, lambda: shardrt.open(recipe))
assert "WORLD_SIZE is 2" in str(problem) and problem.name == "ECOMM"
begin()
del os.environ["WORLD_SIZE"]
refused(shardrt.Error, words, lambda: shardrt.open(recipe))
with shardrt.open(recipe, devices=1, transport="alone") as data:
    assert next(iter(data))["label"].shards[0].shape == (8,)
dist.barrier()
]=], { processes = 2 })
  end)

  it("is in step with DDP, whose gradients travel beside", function()
    well("loader { epochs = 2, shuffle = true, seed = 1 }", TOGETHER .. [=[
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in work():
    loss = (model(tensor(batch["x"])) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = [torch.empty(1, 6), torch.empty(1, 6)]
dist.all_gather(weights, model.module.weight.detach())
assert torch.equal(*weights)
dist.destroy_process_group()
]=], { processes = 2 })
  end)

  local ENDINGS = {
    ["destroy_process_group before close"] = [=[
data = shardrt.open(recipe, devices=1, transport=transport)
held = [tensor(batch["x"]) for batch in data]
dist.destroy_process_group()
data.close()
]=],
    ["destroy_process_group after close"] = [=[
with shardrt.open(recipe, devices=1, transport=transport) as data:
    held = [tensor(batch["x"]) for batch in data]
dist.destroy_process_group()
]=],
    ["destroy_process_group without close"] = [=[
data = shardrt.open(recipe, devices=1, transport=transport)
held = tensor(next(iter(data))["x"])
dist.destroy_process_group()
]=],
    ["neither"] = [=[
data = shardrt.open(recipe, devices=1, transport=transport)
held = tensor(next(iter(data))["x"])
]=],
    ["close in one of two threads' order"] = [=[
data = shardrt.open(recipe, devices=1, transport=transport)
batches = DataLoader(Batches(data), batch_size=None)
held = [batch for batch in batches]
circle = [data, batches, held]
circle.append(circle)
data.close()
del data, transport
]=],
  }
  for name, body in pairs(ENDINGS) do
    it("ends by " .. name, function()
      well("loader { epochs = 1 }", "transport = begin()\n" .. body, { processes = 2, limit = 40 })
    end)
  end

  it("hears Ctrl-C within a second, while another process is waited for", function()
    local result = run("loader { epochs = 1 }", TOGETHER .. [=[
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler) # which a shell takes from what it starts in the background
try:
    for step, batch in enumerate(work()):
        if rank == 1:
            time.sleep(6)
            os._exit(0)
        if step == 11:
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
            started = time.monotonic()
except KeyboardInterrupt:
    print("heard after", "%.1f" % (time.monotonic() - started), flush=True)
    os._exit(0)
]=], { processes = 2 })
    local seconds = tonumber(result.stdout:match "heard after ([%d.]+)")
    assert.is_true(seconds ~= nil and seconds >= 0.9 and seconds < 2, result.output)
  end)
end)
