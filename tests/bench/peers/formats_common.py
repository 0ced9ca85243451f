"""What the peers of formats share: the files, each written by the format's own software, the check of an epoch, the
clock (`make bench PEERS=1`).

A peer is a generator without end, `batches(work, threads)`, of numpy arrays: uint8, {256, 3072} from files of records,
{32, 224, 224, 3} from images; int32 {256, 768} from Arrow; int64 {64, 1024}, inputs and targets, of Megatron's windows,
and int32 {256, 1024} of its documents. In each epoch every record comes once, in an order of its own, or where the
workload's name ends so, in that of the files. `serve(peers)` is a peer's
program: PEER WORKLOAD FOLDER THREADS; it checks one epoch, says `ready`, and then answers each line `SECONDS` on stdin
with samples/s and how many samples it took."""
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np

FILES, COUNT, WIDTH = 2, 32768, 3072  # files, their records in all, the bytes of each
IMAGES, SIZE = 512, 224


IN_ORDER = "_in_order"


def format_of(workload):
    return workload.removesuffix(IN_ORDER)


class Records:
    """Of `tfrecord`, `array_record`, `tar`, `mds`: a record begins and ends with its number in four bytes."""
    batch, count, dtype = 256, COUNT, np.dtype("u1")

    def __init__(self, workload, folder):
        self.in_order = workload.endswith(IN_ORDER)
        self.folder = pathlib.Path(folder) / "formats" / format_of(workload)
        self.paths = [str(self.folder / f"{i}.{format_of(workload)}") for i in range(FILES)]

    def check(self, stream):
        seen = np.zeros(COUNT, int)
        last, shuffled = -1, False
        for batch in itertools.islice(stream, COUNT // self.batch):
            shape = (self.batch, WIDTH // self.dtype.itemsize)
            assert batch.dtype == self.dtype and batch.shape == shape, (batch.dtype, batch.shape)
            batch = np.ascontiguousarray(batch).view(np.uint8)
            ids = np.ascontiguousarray(batch[:, :4]).view("<u4")[:, 0]
            for i in ids[::64]:
                assert np.array_equal(batch[np.flatnonzero(ids == i)[0]], record(int(i))), "not the file's record"
            assert np.array_equal(batch[:, :4], batch[:, -4:]), "not whole records"
            shuffled = shuffled or (np.diff(ids.astype(int)) < 0).any() or ids[0] < last
            last = ids[-1]
            seen[ids] += 1
        assert shuffled != self.in_order, "not in the order asked for"
        assert (seen == 1).all(), "not every record once"


class Arrow(Records):
    """`arrow`: such records as int32, {768}, in a folder that datasets saved."""
    dtype = np.dtype("i4")


class Megatron:
    """`megatron`: GPTDataset's windows in its order; in the files' order, documents filled up with 0. Each token of the
    file is its number, so that it can be seen which come."""
    tokens, width = 1 << 24, 1024

    def __init__(self, workload, folder):
        self.in_order = workload.endswith(IN_ORDER)
        self.folder = pathlib.Path(folder) / "formats" / format_of(workload)
        lengths = np.random.default_rng(0).integers(64, self.width + 1, self.tokens // 64)
        stops = np.cumsum(lengths)
        self.stops = stops[stops <= self.tokens]
        self.lengths = lengths[:len(self.stops)]
        self.batch = 256 if self.in_order else 64
        self.count = len(self.stops) if self.in_order else (int(self.stops[-1]) - 1) // self.width

    @property
    def prefix(self):
        return str(self.folder / "x")

    def check_documents(self, stream):
        for first in range(0, self.count // self.batch * self.batch, self.batch):
            batch, place = next(stream), np.arange(self.width)
            assert batch.dtype == np.int32 and batch.shape == (self.batch, self.width), (batch.dtype, batch.shape)
            for row, length, stop in zip(batch, self.lengths[first:], self.stops[first:]):
                assert np.array_equal(row, np.where(place < length, stop - length + place, 0)), "not the document"

    def check(self, stream):
        if self.in_order:
            return self.check_documents(stream)
        seen, shuffled = np.zeros(self.tokens, np.uint8), False
        for batch in itertools.islice(stream, self.count // self.batch):
            for part in batch:
                assert part.dtype == np.int64 and part.shape == (self.batch, self.width), (part.dtype, part.shape)
            assert np.array_equal(batch[0][:, 1:], batch[1][:, :-1]), "not the tokens that follow"
            assert (np.diff(batch[0]) == 1).mean() > 0.99, "not whole documents"
            shuffled = shuffled or (np.diff(batch[0][:, 0]) < 0).any()
            np.add.at(seen, batch[0].ravel(), 1)
        assert shuffled and seen.max() == 1, "not every token once"


class Images:
    """Of `jpeg`: 500 x 375, quality 90, in a folder of one class; random resized crops, bilinear."""
    batch, count, in_order = 32, IMAGES, False

    def __init__(self, _, folder):
        self.folder = pathlib.Path(folder) / "formats" / "jpeg"
        self.paths = [str(self.folder / "class" / f"{i}.jpg") for i in range(IMAGES)]

    def check(self, stream):
        means = []
        for batch in itertools.islice(stream, self.count // self.batch):
            shape = (self.batch, SIZE, SIZE, 3)
            assert batch.dtype == np.uint8 and batch.shape == shape, (batch.dtype, batch.shape)
            means.extend(batch.mean(axis=(1, 2, 3)))
        assert 64 < np.mean(means) < 192 and np.std(means) > 1, "not these images"


WORKLOADS = {"tfrecord": Records, "array_record": Records, "tar": Records, "mds": Records, "jpeg": Images,
             "arrow": Arrow, "arrow_in_order": Arrow, "megatron": Megatron, "megatron_in_order": Megatron}


def record(number):
    row = np.random.default_rng(number).integers(0, 256, WIDTH, np.uint8)
    row[:4] = row[-4:] = np.array([number], "<u4").view(np.uint8)
    return row


def rows(records):
    """Bytes of a batch of records, as its array."""
    return np.frombuffer(b"".join(records), np.uint8).reshape(-1, WIDTH)


def orders(work, seed=0):
    """Without end: the numbers of each batch of each epoch."""
    random = np.random.default_rng(seed)
    while True:
        numbers = np.arange(work.count) if work.in_order else random.permutation(work.count)
        yield from numbers[:work.count // work.batch * work.batch].reshape(-1, work.batch)


# ---- the files ----------------------------------------------------------------------------------------------------


def write_tfrecord(work):
    import tensorflow as tf
    for path, numbers in numbered(work):
        with tf.io.TFRecordWriter(path) as out:
            for i in numbers:
                feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[record(i).tobytes()]))
                example = tf.train.Example(features=tf.train.Features(feature={"record": feature}))
                out.write(example.SerializeToString())


def write_array_record(work):
    from array_record.python.array_record_module import ArrayRecordWriter
    for path, numbers in numbered(work):
        out = ArrayRecordWriter(path, "group_size:1,uncompressed")
        for i in numbers:
            out.write(record(i).tobytes())
        out.close()


def write_tar(work):
    import webdataset
    for path, numbers in numbered(work):
        with webdataset.TarWriter(path) as out:
            for i in numbers:
                out.write({"__key__": f"{i:06d}", "bin": record(i).tobytes()})


def write_mds(work):
    from streaming import MDSWriter
    size = (WIDTH + 8) * COUNT // FILES + 4096
    with MDSWriter(out=str(work.folder), columns={"record": "bytes"}, size_limit=size) as out:
        for i in range(COUNT):
            out.write({"record": record(i).tobytes()})


def write_arrow(work):
    import pyarrow as pa
    from datasets import Dataset
    values = pa.array(np.concatenate([record(i).view("<i4") for i in range(COUNT)]))
    table = pa.table({"input_ids": pa.FixedSizeListArray.from_arrays(values, WIDTH // 4)})
    Dataset(table).save_to_disk(work.folder, num_shards=FILES)


def write_megatron(work):
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    work.folder.mkdir(parents=True)
    builder = IndexedDatasetBuilder(f"{work.prefix}.bin", np.int32)
    for length, stop in zip(work.lengths, work.stops):
        builder.add_document(torch_range(stop - length, stop), [int(length)])
    builder.finalize(f"{work.prefix}.idx")


def torch_range(first, stop):
    import torch
    return torch.arange(int(first), int(stop), dtype=torch.int32)


def numbered(work):
    for i, path in enumerate(work.paths):
        yield path, range(i * COUNT // FILES, (i + 1) * COUNT // FILES)


def make(workload, folder, jpeg):
    """The files, where they are not there yet."""
    work = WORKLOADS[workload](workload, folder)
    if work.folder.exists():
        return
    goal, work.folder = work.folder, work.folder.with_suffix(".new")
    shutil.rmtree(work.folder, ignore_errors=True)
    if workload == "jpeg":
        (work.folder / "class").mkdir(parents=True)
        subprocess.run([jpeg, "make", work.folder / "class", str(IMAGES)], check=True)
    else:
        if workload in ("tfrecord", "array_record", "tar"):
            work.paths = [str(work.folder / pathlib.Path(path).name) for path in work.paths]
            work.folder.mkdir(parents=True)
        globals()[f"write_{format_of(workload)}"](work)
    work.folder.rename(goal)


# ---- a peer's program ---------------------------------------------------------------------------------------------


def rate(work, stream, seconds):
    """Samples/s, and how many were taken in all."""
    ahead = 4  # batches, made while others had their turn
    for _ in range(ahead):
        next(stream)
    samples, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        batch = next(stream)  # noqa: F841: held until the next is there, as a training step does
        samples += work.batch
    return samples / passed, samples + ahead * work.batch


def serve(peers):
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not for the one who asks
    peer, workload, folder, threads = sys.argv[1:]
    work = WORKLOADS[workload](workload, folder)
    stream = iter(peers[peer](work, int(threads)))
    work.check(stream)
    print("ready", file=replies)
    for line in sys.stdin:
        print(*rate(work, stream, float(line)), file=replies)
    os._exit(0)  # threads and worker processes end with this one


if __name__ == "__main__":
    make(*sys.argv[1:])
