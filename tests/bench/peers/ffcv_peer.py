"""FFCV: a .beton of the same rows beside the file, kept in the page cache, THREADS workers. Many epochs are one of
FFCV's, so that its buffers are made once."""
import itertools
import os

import numpy as np
from ffcv.fields import NDArrayField
from ffcv.fields.decoders import NDArrayDecoder
from ffcv.loader import Loader
from ffcv.traversal_order.base import TraversalOrder
from ffcv.writer import DatasetWriter

import common


class Rows:
    def __init__(self, work):
        self.work = work

    def __len__(self):
        return self.work.count

    def __getitem__(self, i):
        return (np.ascontiguousarray(self.work.rows[i]).view(np.uint8),)


class Epochs(TraversalOrder):
    def __init__(self, count):
        self.count = count

    def __call__(self, _loader):  # what Loader does with an order of one's own
        return self

    def sample_order(self, epoch):
        orders = [np.random.default_rng((epoch, i)).permutation(self.count) for i in range(100)]
        return np.concatenate(orders).astype(np.uint64)


def batches(work, threads):
    path = work.path + ".beton"
    if not os.path.exists(path):
        row = Rows(work)[0][0]
        writer = DatasetWriter(path + ".new", {"row": NDArrayField(row.dtype, row.shape)}, num_workers=1)
        writer.from_indexed_dataset(Rows(work))
        os.rename(path + ".new", path)
    loader = Loader(path, work.batch, num_workers=threads, os_cache=True, order=Epochs(work.count), drop_last=True,
                    pipelines={"row": [NDArrayDecoder()]})
    ring = itertools.cycle([work.buffers() for _ in range(common.RING)])
    while True:
        for (rows,) in loader:
            yield common.put(work.finish(rows.view(work.rows.dtype), next(ring)))


common.serve(batches)
