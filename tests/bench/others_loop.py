"""library_loop.py with another loader in shardrt's place, over the same files: KIND WORKERS FOLDER WHAT SECONDS.

`torch`: DataLoader with batched fetch (`__getitems__`) and a sampler of whole batches of row numbers. Worker processes
each have a ring of batches in shared memory, so that only a batch's place in it is sent; without workers the loop
gathers itself.

`grain`: its own shuffle over the row numbers, a batch gathered at once in batch_fn, read ahead by threads (its worker
processes, by mp_prefetch, bring about as much: what it does for each row number takes the most).

Both gather by np.take from mapped files into memory that is used again: a batch stands until some later one is asked
for."""

import sys
import time
from itertools import count, cycle

import numpy as np

BATCH, BYTES, ROWS = 256, 3072, 65536

kind, workers, folder, what, seconds = sys.argv[1:]
workers = int(workers)
RING = 2 * workers + 4  # batches: the one in use, the one before it, and those that are made ahead
image, label = (np.asarray(np.load(f"{folder}/{name}.npy", mmap_mode="r")) for name in ("image", "label"))


def gather(ids, out):
    """Into out[0] and out[1]; clip: with `raise`, numpy copies by a detour."""
    np.take(image, ids, axis=0, out=out[0], mode="clip")
    np.take(label, ids, axis=0, out=out[1], mode="clip")
    return out


def batches_of_torch():
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

    torch.set_num_threads(1)

    def shared(*shape):
        return torch.empty(*shape, dtype=torch.uint8).share_memory_()

    class Rows(Dataset):
        def __init__(self):
            self.turn = 0
            self.rings = [[(shared(BATCH, BYTES), shared(BATCH)) for _ in range(RING)] for _ in range(max(workers, 1))]

        def __len__(self):
            return ROWS

        def __getitems__(self, ids):
            worker, self.turn = get_worker_info(), (self.turn + 1) % RING
            at = (worker.id if worker else 0, self.turn)
            gather(ids, [part.numpy() for part in self.rings[at[0]][at[1]]])
            return at

    class Batches(Sampler):
        def __iter__(self):
            yield from np.random.permutation(ROWS).reshape(-1, BATCH)

        def __len__(self):
            return ROWS // BATCH

    rows = Rows()
    loader = DataLoader(
        rows, batch_sampler=Batches(), collate_fn=lambda at: at, num_workers=workers, persistent_workers=workers > 0,
        prefetch_factor=2 if workers else None)  # fmt: skip
    while True:
        for worker, turn in loader:
            yield rows.rings[worker][turn]


def batches_of_grain():
    import grain

    ring = cycle([(np.empty((BATCH, BYTES), np.uint8), np.empty(BATCH, np.uint8)) for _ in range(RING)])
    return iter(
        grain.MapDataset.range(ROWS)
        .shuffle(seed=0)
        .batch(BATCH, batch_fn=lambda ids: gather(np.array(ids), next(ring)))
        .repeat()
        .to_iter_dataset(grain.ReadOptions(num_threads=workers, prefetch_buffer_size=workers + 1))
    )


stream = batches_of_torch() if kind == "torch" else batches_of_grain()
steps, start = ROWS // BATCH, 0.0
own, seen = None, np.zeros(ROWS, np.uint8)
for step, batch in zip(count(1), stream):
    if step <= steps:
        numbers = np.asarray(batch[0][:, :4]).copy().view("<u4")[:, 0]
        assert (np.asarray(batch[1]) == numbers % 251).all()
        seen[numbers] += 1
    elif what == "copy":
        own = own or [part.clone() if kind == "torch" else part.copy() for part in batch]
        for to, part in zip(own, batch):
            to.copy_(part) if kind == "torch" else np.copyto(to, part)
    if step % steps == 0 and step > steps:
        now = time.perf_counter()
        start = start or now
        if now - start >= float(seconds):
            assert (seen == 1).all(), "each row once"
            print(f"{(step - 2 * steps) * BATCH / (now - start):.0f}", flush=True)
            break
