"""What the peers' scripts share: the workloads and their files, 8 host devices, the check of an epoch, the clock.

A peer is a generator without end, `batches(work, threads)`: each batch a tuple of global jax arrays, its rows over 8
devices; in each epoch every row once, in an order of its own. `serve(batches)` is its program: WORKLOAD FOLDER THREADS.
It checks one epoch against the file, says `ready`, and then answers each line `SECONDS` on stdin with samples/s.

A batch need only stand until the next is asked for, so a peer may hand out a ring of buffers: jax takes memory that
lies on 64 bytes as it is, with no copy. (shardrt's batches stand for as long as they are held.)"""
import itertools
import os
import sys
import time

import jax
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

RING = 6  # buffers: the batch in use, the one before it, and those being made ahead


def aligned(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)  # zeros: and written once below, so that every page is there
    memory[:] = 1
    start = -memory.ctypes.data % 64
    return memory[start:start + size].view(dtype).reshape(shape)


class Records:
    """`small`, `large`: uint8 {count, width}; a row begins and ends with its number in four bytes."""

    def __init__(self, folder, count, width, batch=256):
        self.count, self.width, self.batch, self.path = count, width, batch, f"{folder}/{width}.npy"
        if not os.path.exists(self.path):
            rows = np.lib.format.open_memmap(self.path + ".new", "w+", np.uint8, (count, width))
            for first in range(0, count, batch):
                part = np.random.default_rng(first).integers(0, 256, (batch, width), np.uint8)
                part[:, :4] = part[:, -4:] = np.arange(first, first + batch, dtype="<u4")[:, None].view(np.uint8)
                rows[first:first + batch] = part
            rows.flush()
            os.rename(self.path + ".new", self.path)
        self.rows = np.asarray(np.load(self.path, mmap_mode="r"))

    def buffers(self):
        return (aligned((self.batch, self.width), np.uint8),)

    def gather(self, ids, buffers):
        np.take(self.rows, ids, axis=0, out=buffers[0], mode="clip")  # clip: with `raise`, numpy copies by a detour
        return buffers

    def finish(self, rows, _buffers):
        """From gathered rows, as a peer's own way of reading has them, to the batch's arrays."""
        return (rows,)

    def ids(self, batch):
        return np.ascontiguousarray(batch[0][:, :4]).view("<u4")[:, 0]

    def expected(self, ids):
        return (self.rows[ids],)


class Tokens:
    """`tokens`: uint16 {count, 1025}, a row begins and ends with its number; a batch is int32 inputs (the first 1024 of
    each row) and targets (the last 1024)."""

    width = 1024

    def __init__(self, folder, count=32768, batch=64):
        self.count, self.batch, self.path = count, batch, f"{folder}/tokens.npy"
        if not os.path.exists(self.path):
            tokens = np.random.default_rng(0).integers(0, 50000, (count, self.width + 1), np.uint16)
            tokens[:, 0] = tokens[:, -1] = np.arange(count)
            np.save(self.path + ".new.npy", tokens)
            os.rename(self.path + ".new.npy", self.path)
        self.rows = np.asarray(np.load(self.path, mmap_mode="r"))

    def buffers(self):
        inputs, targets = (aligned((self.batch, self.width), np.int32) for _ in range(2))
        return inputs, targets, np.empty((self.batch, self.width + 1), np.uint16)

    def gather(self, ids, buffers):
        np.take(self.rows, ids, axis=0, out=buffers[2], mode="clip")
        return self.finish(buffers[2], buffers)

    def finish(self, rows, buffers):
        np.copyto(buffers[0], rows[:, :-1])
        np.copyto(buffers[1], rows[:, 1:])
        return buffers[:2]

    def ids(self, batch):
        return batch[0][:, 0]

    def expected(self, ids):
        return self.rows[ids, :-1].astype(np.int32), self.rows[ids, 1:].astype(np.int32)


WORKLOADS = {
    "small": lambda folder: Records(folder, 65536, 3072),
    "large": lambda folder: Records(folder, 4096, 150528),
    "tokens": Tokens,
}


def orders(work, seed=0):
    """Without end: the row numbers of each batch of each epoch."""
    random = np.random.default_rng(seed)
    while True:
        yield from random.permutation(work.count).reshape(-1, work.batch)


def sharding():
    return jax.sharding.NamedSharding(jax.make_mesh((8,), ("data",)), jax.sharding.PartitionSpec("data"))


def put(arrays):
    """Host arrays, as a batch over the 8 devices."""
    return jax.device_put(tuple(arrays), sharding_of_batches)


def check(work, stream):
    """One epoch: every row once, not in the file's order, each as the file has it."""
    seen = np.zeros(work.count, int)
    for batch in itertools.islice(stream, work.count // work.batch):
        for x in batch:
            assert isinstance(x, jax.Array) and x.sharding.is_equivalent_to(sharding_of_batches, x.ndim), x.sharding
        arrays = [np.asarray(x) for x in batch]
        ids = work.ids(arrays)
        assert (np.diff(ids.astype(int)) < 0).any(), "not shuffled"
        for array, expected in zip(arrays, work.expected(ids), strict=True):
            assert array.dtype == expected.dtype and np.array_equal(array, expected), "not the file's rows"
        seen[ids] += 1
    assert (seen == 1).all(), "not every row once"


def rate(work, stream, seconds):
    for _ in range(2 * RING):  # what was made ahead while others had their turn
        batch = jax.block_until_ready(next(stream))
    samples, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        batch = jax.block_until_ready(next(stream))  # noqa: F841: held until the next is there, as a training step does
        samples += work.batch
    return samples / passed


def make(folder):
    """The files, where they are not there yet."""
    os.makedirs(folder, exist_ok=True)
    for workload in WORKLOADS.values():
        workload(folder)


def serve(batches):
    global sharding_of_batches
    sharding_of_batches = sharding()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not for the one who asks
    work = WORKLOADS[sys.argv[1]](sys.argv[2])
    stream = batches(work, int(sys.argv[3]))
    check(work, stream)
    print("ready", file=replies)
    for line in sys.stdin:
        print(rate(work, stream, float(line)), file=replies)
    os._exit(0)  # threads and worker processes end with this one


if __name__ == "__main__":
    make(sys.argv[1])
