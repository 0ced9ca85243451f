"""Grain: its own shuffle over the row numbers, a batch gathered at once in batch_fn (four times the rate of a source of
rows that are then stacked), into a ring of aligned buffers, read ahead by THREADS."""
import itertools

import grain
import numpy as np

import common


def batches(work, threads):
    ring = itertools.cycle([work.buffers() for _ in range(common.RING)])
    dataset = (
        grain.MapDataset.range(work.count)
        .shuffle(seed=0)
        .batch(work.batch, batch_fn=lambda ids: work.gather(np.array(ids), next(ring)))
        .repeat()
        .to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1))
    )
    for arrays in dataset:
        yield common.put(arrays)


common.serve(batches)
