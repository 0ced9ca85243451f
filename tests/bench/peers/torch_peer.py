"""PyTorch's DataLoader with batched fetch (`__getitems__`, given a whole batch of row numbers); THREADS worker
processes, each with its own ring in shared memory, so that only a buffer's number is sent; none: in the loop itself."""
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, get_worker_info

import common


class Rows(Dataset):
    def __init__(self, work, workers):
        self.work, self.turn = work, 0
        self.rings = [[self.shared(work) for _ in range(common.RING)] for _ in range(max(workers, 1))]

    @staticmethod
    def shared(work):
        return [torch.from_numpy(x).clone().share_memory_().numpy() for x in work.buffers()]

    def __len__(self):
        return self.work.count

    def __getitems__(self, ids):
        worker, self.turn = get_worker_info(), (self.turn + 1) % common.RING
        at = (worker.id if worker else 0, self.turn)
        self.work.gather(np.array(ids), self.rings[at[0]][at[1]])
        return at


def batches(work, workers):
    rows = Rows(work, workers)
    loader = DataLoader(
        rows, batch_sampler=BatchSampler(RandomSampler(rows), work.batch, drop_last=True), collate_fn=lambda at: at,
        num_workers=workers, persistent_workers=workers > 0, prefetch_factor=2 if workers else None)
    arrays = len(work.expected([0]))
    while True:
        for worker, turn in loader:
            yield common.put(rows.rings[worker][turn][:arrays])


common.serve(batches)
