"""formats.py BUILD SHARDRT: shardrt and others that read a format on the same files, in turn (`make bench PEERS=1`; of
Arrow and Megatron `make bench PARTS=formats`, too).

One line for each of them, as tests/bench/run.lua has them: the median of the ratios of rounds, and the two rates; and,
since that depends on who else is at work on the machine, the processor's time for a sample, of all threads and worker
processes. The aim is of the best of them, and so of each."""
import os
import pathlib
import statistics
import subprocess
import sys
import time

from install import PEERS, installed
from run import HERE, ROUND_LIMIT, ROUNDS, SECONDS, THREADS, Peer, ratios

SMALL, IMAGE = ("{}, 3,072-byte records shuffled", 3), ("{} of 500x375 to random 224x224", 1.2)
ARROW = [("pyarrow_rows", "pyarrow", THREADS), ("datasets_rows", "datasets", 0), ("datasets_rows", "datasets", THREADS)]
# By workload: its title and aim, and of each peer its name in formats_peer.py, the package, threads or workers.
ROWS = "{}, rows of 768 int32"
WORKLOADS = {
    "tfrecord": (SMALL, "TFRecord", [("tfdata_records", "tfdata", THREADS), ("tfrecord", "tfrecord", 0)]),
    "array_record": (SMALL, "ArrayRecord", [
        ("array_record", "array_record", THREADS), ("grain_records", "grain", THREADS)]),
    "tar": (SMALL, "tar", [("webdataset", "webdataset", 0), ("webdataset", "webdataset", THREADS)]),
    "mds": (SMALL, "MDS", [("streaming", "streaming", 0), ("streaming", "streaming", THREADS)]),
    "arrow": ((ROWS, 3), "Arrow shuffled", ARROW),
    "arrow_in_order": ((ROWS, 1), "Arrow in order", ARROW),
    "megatron": (("{}, windows of 1,024 in GPTDataset's order", 5), "Megatron", [
        ("megatron_windows", "megatron", 0), ("megatron_windows", "megatron", THREADS)]),
    "megatron_in_order": (("{}, documents of up to 1,024 in order", 3), "Megatron", [
        ("megatron_documents", "megatron", 0), ("megatron_documents", "megatron", THREADS)]),
    "jpeg": (IMAGE, "JPEG", [
        ("torchvision_images", "torchvision", THREADS), ("pillow_images", "torchvision", THREADS),
        ("tfdata_images", "tfdata", THREADS), ("dali_images", "dali", THREADS), ("grain_images", "grain", THREADS),
        ("spdl_images", "spdl", THREADS)]),
}
TITLES = {"pillow_images": "torchvision with PIL", "grain_images": f"{PEERS['grain'][0]} with PIL"}
MAKERS = {"tfrecord": "tfdata", "array_record": "array_record", "tar": "webdataset", "mds": "streaming",
          "jpeg": "numpy", "arrow": "datasets", "megatron": "megatron"}


class Shardrt:
    def __init__(self, build, shardrt, workload):
        self.command = [shardrt, "--devices", "1", HERE / "formats.lua", workload, build / "peers/data", str(THREADS),
                        str(SECONDS)]
        self.rates, self.costs = [], []

    def round(self):
        result = subprocess.run(self.command, capture_output=True, text=True, timeout=ROUND_LIMIT)
        if result.returncode != 0:
            sys.exit(f"shardrt: {result.stdout}{result.stderr}")
        rate, cost = map(float, result.stdout.split())
        self.rates.append(rate)
        self.costs.append(cost)

    def end(self):
        pass


def spent(session):
    """The processor's seconds of all processes of a session."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Reader(Peer):
    def __init__(self, build, workload, peer, package, threads):
        title = f"{TITLES.get(peer, PEERS[package][0])}, {threads}"
        script = ("formats_peer.py", peer, workload, build / "peers/data", str(threads))
        self.start(build, title, package, script, f"{peer}.{threads}.{workload}")
        self.costs = []

    def round(self):
        if not self.process:
            return
        before = spent(self.process.pid)
        self.process.stdin.write(f"{SECONDS}\n".encode())
        self.process.stdin.flush()
        rate, samples = map(float, self.answer(ROUND_LIMIT).split() or (0, 0))
        self.rates.append(rate)
        if self.process:
            self.costs.append((spent(self.process.pid) - before) / samples)


def measure(build, shardrt, workload):
    ours = Shardrt(build, shardrt, workload)
    contenders = [ours]
    try:
        for peer, package, threads in WORKLOADS[workload][2]:
            contenders.append(Reader(build, workload, peer, package, threads))
            contenders[-1].ready()  # one after the other: an epoch's check under load is cut off
        for _ in range(ROUNDS):
            for contender in contenders:
                contender.round()
    finally:
        for contender in contenders:
            contender.end()
    return contenders


def report(workload, contenders):
    """Returns whether the aim is met of all that ran, and that there were any."""
    (title, aim), name, _ = WORKLOADS[workload]
    print(f"{title.format(name)}, shardrt /")
    met = any(contender.rates and not contender.why for contender in contenders[1:])
    for contender in contenders[1:]:
        if contender.why or not contender.rates:
            print(f"  {contender.title:56} {contender.why}")
            continue
        ratio = ratios(contenders[0], contender)
        met = met and ratio >= aim
        ours, theirs = (statistics.median(x.rates) for x in (contenders[0], contender))
        costs = (1e6 * statistics.median(x.costs) for x in (contenders[0], contender))
        print("  {:56} {:7.2f} {} {:11} {:,.0f} and {:,.0f} samples/s; {:.1f} and {:.1f} us of processor each".format(
            contender.title, ratio, " " if ratio >= aim else "!", f"aim >= {aim:g}", ours, theirs, *costs))
    sys.stdout.flush()
    return met


def main(build, shardrt, chosen):
    start, met = time.monotonic(), 0
    print(f"medians of {ROUNDS} rounds in turn, {THREADS} threads or worker processes, or none (0)")
    for workload in chosen:
        maker = MAKERS[workload.removesuffix("_in_order")]
        if not installed(build / "peers", maker):
            print(f"{workload}: {PEERS[maker][0]}, which writes its files, is absent")
            continue
        subprocess.run([build / "peers/bin/python", "-B", HERE / "formats_common.py", workload, build / "peers/data",
                        build / "bench/jpeg"], check=True, stderr=subprocess.DEVNULL)
        met += report(workload, measure(build, shardrt, workload))
    seconds = time.monotonic() - start
    print(f"({met} of {len(chosen)} aims met; {seconds:.0f} s; {os.cpu_count()} cores; load {os.getloadavg()[0]:.2f})")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or WORKLOADS)
