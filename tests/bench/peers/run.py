"""run.py BUILD SHARDRT: shardrt and the peers on the same files, in turn, one table (`make bench PEERS=1`).

Each peer is a process that is started once for a workload, checks one epoch (common.py), and then runs rounds when it
is asked to; shardrt (load.lua) and the plain C gather are started for each. Medians of rounds, and of their ratios."""
import array
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import time
import typing

from install import PEERS, installed

ROUNDS, SECONDS, THREADS = int(os.environ.get("SHARDRT_BENCH_ROUNDS", 5)), 0.7, 2
START_LIMIT, ROUND_LIMIT = 240, 30  # seconds: all importing, FFCV writing its file, compiling, one epoch; one round
HERE = pathlib.Path(__file__).parent


class Workload(typing.NamedTuple):
    """What common.py and load.lua load: its title, how many times the best peer's rate is the aim, and for the C loop
    the file, its rows, and what gather.c does with each."""
    title: str
    aim: float
    file: str
    rows: int
    row_bytes: int
    batch: int
    what: str


WORKLOADS = {
    "small": Workload("3,072 bytes", 4, "3072.npy", 65536, 3072, 256, "copy"),
    "large": Workload("150,528 bytes", 1.3, "150528.npy", 4096, 150528, 256, "copy"),
    "tokens": Workload("1,025 tokens", 5, "tokens.npy", 32768, 2050, 64, "window"),
}
CONTENDERS = [("numpy", 0), ("numpy", THREADS), ("torch", 0), ("torch", THREADS), ("ffcv", THREADS), ("grain", 1),
              ("tfdata", THREADS), ("datarax", 0)]
TITLES = {
    ("numpy", 0): "numpy + device_put", ("numpy", THREADS): f"numpy + device_put, {THREADS} threads ahead",
    ("torch", 0): f"{PEERS['torch'][0]}, 0 workers", ("torch", THREADS): f"{PEERS['torch'][0]}, {THREADS} workers",
}


class Peer:
    """A peer's process; `why` says why there is none any more."""

    def __init__(self, build, peer, threads, workload):
        script = (f"{peer}_peer.py", workload, build / "peers/data", str(threads))
        self.start(build, TITLES.get((peer, threads), PEERS[peer][0]), peer, script, f"{peer}.{threads}.{workload}")

    def start(self, build, title, package, script, log):
        """script: the program, and its arguments; log: what the file of its messages is called."""
        self.title = title
        self.process, self.why, self.rates = None, None, []
        if not installed(build / "peers", package):
            self.why = "absent"
            return
        # Memory that numpy and others free is kept, not given back and faulted in again for each large batch.
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3",
                           CUDA_VISIBLE_DEVICES="", MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40),
                           MALLOC_TOP_PAD_=str(1 << 26))
        command = [build / "peers/bin/python", HERE / script[0], *script[1:]]
        self.log = open(build / f"peers/{log}.log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        env=environment, start_new_session=True)

    def ready(self):
        if self.process:
            self.answer(START_LIMIT)

    def answer(self, limit):
        """The next line of its output, or nothing, and the peer is ended."""
        line = b""
        if select.select([self.process.stdout], [], [], limit)[0]:
            line = self.process.stdout.readline().strip()
        else:
            self.why = f"cut after {limit} s"
        if not line:
            self.log.seek(0)
            self.why = self.why or "failed: " + (self.log.read().strip().splitlines() or ["no message"])[-1][:60]
            self.end()
        return line

    def round(self, _):
        if self.process:
            self.process.stdin.write(f"{SECONDS}\n".encode())
            self.process.stdin.flush()
            self.rates.append(float(self.answer(ROUND_LIMIT) or 0))

    def end(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Program:
    """shardrt or the C gather: a command that prints a rate (and then, shardrt, its number of buffers)."""

    def __init__(self, title, command, scale=1):
        self.title, self.command, self.scale, self.why, self.rates, self.buffers = title, command, scale, None, [], 0

    def ready(self):
        pass

    def round(self, buffers):
        result = subprocess.run([*map(str, self.command(buffers)), str(SECONDS)], capture_output=True, text=True,
                                timeout=ROUND_LIMIT)
        if result.returncode != 0:
            sys.exit(f"{self.title}: {result.stdout}{result.stderr}")
        rate, *rest = result.stdout.split()
        self.rates.append(float(rate) / self.scale)
        self.buffers = int(rest[0]) if rest else 0

    def end(self):
        pass


def gather(build, work):
    order = build / "peers/data" / f"{work.file}.order"
    ids = array.array("q", range(work.rows))
    random.Random(0).shuffle(ids)
    order.write_bytes(ids.tobytes())
    file = build / "peers/data" / work.file
    command = [build / "bench/gather", work.what, file, 128, work.row_bytes, order, work.batch]
    return lambda buffers: [*command, buffers, THREADS]


def measure(build, shardrt, workload):
    ours = Program(f"shardrt, {THREADS} threads", lambda _: [
        shardrt, "--devices", 8, HERE / "load.lua", workload, build / "peers/data", THREADS])
    work = WORKLOADS[workload]
    contenders = [ours, Program(f"plain C loop, {THREADS} threads", gather(build, work), work.row_bytes)]
    try:
        for peer, threads in CONTENDERS:
            contenders.append(Peer(build, peer, threads, workload))
        for contender in contenders:
            contender.ready()
        for _ in range(ROUNDS):
            for contender in contenders:
                contender.round(ours.buffers)
    finally:
        for contender in contenders:
            contender.end()
    return contenders


def ratios(ours, other):
    return statistics.median(a / b for a, b in zip(ours.rates, other.rates, strict=True) if b)


def column(contenders, aim):
    """By title: what stands in the two columns of a workload; and the last line's."""
    ours, cells = contenders[0], {}
    for contender in contenders:
        rate = statistics.median(contender.rates) if contender.rates and not contender.why else None
        ratio = f"{ratios(ours, contender):.2f}" if rate and contender is not ours else ""
        cells[contender.title] = (f"{rate:,.0f}" if rate else contender.why, ratio)
    measured = [x for x in contenders[2:] if x.rates and not x.why]
    if measured:
        best = max(measured, key=lambda x: statistics.median(x.rates))
        ratio = ratios(ours, best)
        cells["shardrt / the best of the peers"] = (f"aim >= {aim:g}", f"{'' if ratio >= aim else '! '}{ratio:.2f}")
    return cells


def main(build, shardrt):
    start, columns = time.monotonic(), {}
    subprocess.run([build / "peers/bin/python", "-B", HERE / "common.py", build / "peers/data"], check=True)
    for workload, work in WORKLOADS.items():
        columns[work.title] = column(measure(build, shardrt, workload), work.aim)
    print(f"samples/s over 8 devices in 1 process, shuffled, and shardrt / each; medians of {ROUNDS} rounds in turn")
    print(f"{'':36}" + "".join(f"{title:>17}  shardrt/" for title in columns))
    for title in next(iter(columns.values())):
        print(f"{title:36}" + "".join(f"{cells[title][0]:>17}{cells[title][1]:>10}" for cells in columns.values()))
    seconds = time.monotonic() - start
    print(f"({seconds:.0f} s; {os.cpu_count()} cores; a peer's batch stands until the next is asked for)")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
