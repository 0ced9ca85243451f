"""datarax: its MemorySource over the mapped file, asked for whole batches. (Its Pipeline, in 0.1.4, makes a new order
of all rows for every shuffled batch.) The order is datarax's, but kept as one array: as the list in a variable that it
is, jax walks through all its numbers for each batch, at a tenth of the speed."""
import itertools

import flax.nnx
import numpy as np
from datarax.samplers.index_shuffle import index_shuffle
from datarax.sources.memory_source import MemorySource, MemorySourceConfig

import common


def orders(work):
    for epoch in itertools.count():
        order = np.array([index_shuffle(i, epoch, work.count) for i in range(work.count)])
        yield from itertools.repeat(order, work.count // work.batch)


def batches(work, _threads):
    order = orders(work)

    class Source(MemorySource):
        def _get_indices(self):
            return next(order)

    source = Source(MemorySourceConfig(shuffle=True), {"row": work.rows}, rngs=flax.nnx.Rngs(0))
    ring = itertools.cycle([work.buffers() for _ in range(common.RING)])
    while True:
        yield common.put(work.finish(source.get_batch(work.batch)["row"], next(ring)))


common.serve(batches)
