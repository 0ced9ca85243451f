-- long: 20 s
-- A transport that a program in Python brings, here over files: without PyTorch, JAX and MPI.

local cases = require "tests.support.python.cases"
local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local HEAD = [=[
import contextlib, pathlib, signal
import numpy as np
from shardrt.transport import meet

rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
folder = pathlib.Path(recipe).parent / f"store {os.environ.get('MASTER_PORT')}"
folder.mkdir(exist_ok=True)

def write(path, value):
    path.with_name(f"{path.name}.{rank}").write_bytes(value)
    path.with_name(f"{path.name}.{rank}").rename(path)

class Files: # a store: who adds to a number is the only one that does
    def add(self, key, count):
        path = folder / key.replace("/", " ")
        now = (int(path.read_bytes()) if path.exists() else 0) + count
        if count:
            write(path, str(now).encode())
        return now
    def set(self, key, value):
        write(folder / key, value)
    def get(self, key):
        return (folder / key).read_bytes()

class ByFiles(shardrt.Transport):
    fails = None # in which function, and with what
    def join(self, timeout):
        self.number, self.job = 0, meet(Files(), rank, size, timeout)
        return rank, size
    def start(self, mine):
        self.number += 1
        write(folder / f"{self.job} {self.number} {rank}", mine)
        if self.fails and self.fails[0] == "start":
            raise self.fails[1]
    def test(self):
        if self.fails and self.fails[0] == "test":
            raise self.fails[1]
        paths = [folder / f"{self.job} {self.number} {p}" for p in range(size)]
        return b"".join(path.read_bytes() for path in paths) if all(path.exists() for path in paths) else None
    def leave(self):
        self.has_left = True
transport = ByFiles()
]=]

local python = library.python()

describe("a transport of a Python program's own", function()
  if not python then
    pending "no shared library is built with sanitizers"
    return
  end
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)
  local run, well = cases.runner(folder, python, HEAD, library.launch)

  it("brings process 0 what all have to say for a report", function()
    well("loader { epochs = 1, batch_size = 8 }", [=[
page = pathlib.Path(recipe).parent / f"page {os.environ.get('MASTER_PORT')}.html"
with shardrt.open(recipe, devices=2, timeout=20, transport=transport, report=page) as data:
    taken = sum(1 for _ in data)
if rank == 0: # who waits for the others until it is written
    text = page.read_text()
    assert [f'<tr data-process="{p}">' in text for p in range(size + 1)] == [True] * size + [False]
    assert text.count(f'data-value="{taken}"') == size and "ended <b>in order" in text
]=], { processes = 2 })
  end)

  it("joins processes, compares them, and is told when the job has ended", function()
    well("loader { epochs = 1, batch_size = tonumber(arg[1] or 8) }", [=[
before = sys.unraisablehook
for turn in range(3):
    rows = []
    with shardrt.open(recipe, devices=2, timeout=20, transport=transport) as data:
        for batch in data:
            rows += [int(x) for shard in batch["label"].shards for x in np.asarray(shard)]
    share = 8 // size
    assert rows == [x for x in range(96) if x % 8 // share == rank], rows
    assert transport.has_left and sys.unraisablehook is before
    transport.has_left = False
    if size > 1:
        args = ["8", "12"][rank % 2:rank % 2 + 1]
        problem = refused(shardrt.Error, "must be the same in every process",
                          lambda: shardrt.open(recipe, args, devices=2, timeout=20, transport=transport))
        assert problem.name == "EMISMATCH"
]=], { processes = 4 })
  end)

  it("may fail, which is told with what it raised", function()
    well("loader { epochs = 1 }", [=[
for where in "start", "test":
    transport.fails = where, LookupError("mine")
    problem = refused(ConnectionError, "LookupError: mine",
                      lambda: shardrt.open(recipe, devices=1, timeout=20, transport=transport))
    assert problem.name == "ECOMM" and isinstance(problem.__cause__, LookupError) and transport.has_left
    transport.fails = None
    data = shardrt.open(recipe, devices=1, timeout=20, transport=transport)
    assert len(list(data)) == 12
    transport.fails, transport.has_left = (where, LookupError("mine")), False
    refused(ConnectionError, "LookupError: mine", data.close)
    assert transport.has_left
    transport.fails = None
with shardrt.open(recipe, devices=1, transport="alone") as data:
    assert len(list(data)) == 12
]=], { processes = 2 })
  end)

  -- Longer than the spec waits: 1000 seconds.
  it("learns in the next gathering that a process left, or by what the transport tells, also a little late", function()
    local telling = [=[
class Telling(ByFiles):
    def tell(self, word):
        write(folder / f"left {self.job}", word.encode())
        return True
    def hear(self):
        path = folder / f"left {self.job}"
        return path.read_text() if path.exists() else None
transport = Telling()
]=]
    local late = telling .. [=[
class Late(Telling):
    def tell(self, word):
        (folder / f"gone {self.job}").touch()
        threading.Timer(0.8, write, (folder / f"left {self.job}", word.encode())).start()
        return True
    def test(self):
        if (folder / f"gone {self.job}").exists():
            raise OSError("its connection was closed")
        return super().test()
transport = Late()
]=]
    for _, tells in ipairs { "", telling, late } do
      well("loader { epochs = 1 }", tells .. [=[
try:
    with shardrt.open(recipe, devices=1, timeout=1000, transport=transport) as data:
        for step, batch in enumerate(data):
            if step == 3 and rank == 1:
                raise LookupError("mine\nand more")
except (LookupError, ConnectionError) as problem:
    said = str(problem)
    if rank != 1:
        assert problem.name == "ECOMM" and "process 1 left the job (abandoned it), " in said, said
        assert said.endswith("because of: LookupError: mine"), said
else:
    raise AssertionError
with shardrt.open(recipe, devices=1, timeout=20, transport=transport) as data:
    assert len(list(data)) == 12
]=], { processes = 4 })
    end
  end)

  it("says who did not come", function()
    well("loader { epochs = 1 }", [=[
if rank not in (1, 2):
    problem = refused(TimeoutError, "processes 1, 2 of 4 did not come to shardrt.open within 1 seconds",
                      lambda: shardrt.open(recipe, timeout=1, transport=transport))
    assert problem.name == "ETIMEOUT"
]=], { processes = 4 })
  end)

  -- Whenever it comes: also at the first step of a function that the library calls.
  it("hears each of many Ctrl-C", function()
    local result = expect.well(run("loader { epochs = 1 }", [=[
signal.signal(signal.SIGINT, signal.default_int_handler)
if rank == 1:
    transport.join(30)
    while not (folder / "heard").exists():
        time.sleep(0.1)
        if (folder / f"came 0").read_bytes() != str(transport.job).encode():
            with contextlib.suppress(TimeoutError): # the other may have come for the last time
                transport.join(5)
    sys.exit()
for turn in range(10):
    timer = threading.Timer(0.3 + 0.01 * turn, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        shardrt.open(recipe, timeout=20, transport=transport)
    except KeyboardInterrupt:
        assert time.monotonic() - started < 2
    else:
        raise AssertionError("not heard")
    timer.join()
(folder / "heard").touch()
print("heard")
]=], { processes = 2 }))
    expect.contains(result.stdout, "heard")
  end)
end)
