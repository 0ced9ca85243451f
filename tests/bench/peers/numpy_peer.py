"""numpy and jax.device_put: batches gathered by np.take into a ring of aligned buffers; THREADS threads do so ahead."""
import collections
import concurrent.futures
import itertools

import common


def batches(work, threads):
    ring = itertools.cycle([work.buffers() for _ in range(common.RING)])
    if threads == 0:
        for ids in common.orders(work):
            yield common.put(work.gather(ids, next(ring)))
    pool, ahead = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()
    for ids in common.orders(work):
        ahead.append(pool.submit(work.gather, ids, next(ring)))
        if len(ahead) > threads + 1:
            yield common.put(ahead.popleft().result())


common.serve(batches)
