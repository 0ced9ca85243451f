"""How well orders mix, as docs/data.md has it in a table.

    python3 tests/bench/mixing.py build/shardrt

2**20 samples in 1,024 blocks of 1,024 rows, in batches of 256; each order is that of the program itself: of shardrt, of
PyTorch's buffer (torch.utils.data's Shuffler) and of WebDataset's `shuffle`, which read shards of one block each, in
random order (measured with torch 1.13 and webdataset 1.0.2). What is missing of torch, webdataset and numpy is left out, and said."""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

SAMPLES, BLOCK, BATCH, DEVICES = 2**20, 1024, 256, 8


def write_rows(path):
    """A .npy file of rows of 1 KiB, all zeros, which take no room on the disk."""
    np.lib.format.open_memmap(path, mode='w+', dtype=np.uint8, shape=(SAMPLES, 1024)).flush()


def of_shardrt(program, path, *words):
    out = subprocess.run([program, 'tests/bench/mixing.lua', path, str(BATCH), *words], check=True,
                         stdout=subprocess.PIPE)
    return np.frombuffer(out.stdout, np.int64)


def shards():
    """The samples of shards that were put in random order."""
    order = list(range(SAMPLES // BLOCK))
    random.Random(7).shuffle(order)
    for block in order:
        yield from range(block * BLOCK, (block + 1) * BLOCK)


def of_torch(buffer):
    from torch.utils.data.datapipes.iter import IterableWrapper, Shuffler
    pipe = Shuffler(IterableWrapper(shards(), deepcopy=False), buffer_size=buffer)
    return np.fromiter(pipe.set_seed(7), np.int64, SAMPLES)


def of_webdataset(buffer):
    from webdataset import filters
    return np.fromiter(filters.shuffle(buffer, rng=random.Random(7))(shards()), np.int64, SAMPLES)


def line(name, order):
    assert np.array_equal(np.sort(order), np.arange(SAMPLES)), name
    batches = order.reshape(-1, BATCH)
    place = np.empty(SAMPLES, np.int64)
    place[order] = np.arange(SAMPLES)
    blocks = np.mean([len(set(batch // BLOCK)) for batch in batches])
    own = np.mean([len(set(batch[:BATCH // DEVICES] // BLOCK)) for batch in batches])
    apart = np.median(np.abs(np.diff(place)) // BATCH)  # of samples that are neighbours in the files
    together = np.mean(place[:-1] // BATCH == place[1:] // BATCH)
    print('| %s | %.0f | %.1f | %s | %.2f %% |' % (name, blocks, own, format(int(apart), ','), 100 * together))


def main():
    program = sys.argv[1]
    print('| order | blocks in a batch of 256 | blocks in a device\'s 32 rows | '
          'batches between neighbours in the files, median | neighbours in one batch |')
    print('|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'rows.npy')
        write_rows(path)
        line('`shuffle = true`', of_shardrt(program, path, 'true'))
        for window in (256, 32, 8):
            line('`shuffle = "blocks", window = %d`' % window, of_shardrt(program, path, 'blocks', str(window)))
    for name, order in ('PyTorch\'s Shuffler', of_torch), ('WebDataset\'s shuffle', of_webdataset):
        for buffer in (10000, 1000):
            try:
                line('%s, a buffer of %s' % (name, format(buffer, ',')), order(buffer))
            except ImportError as problem:
                print('%s is left out: %s' % (name, problem), file=sys.stderr)
                break


main()
