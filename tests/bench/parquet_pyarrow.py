"""Parquet by pyarrow, beside tests/bench/parquet_load.lua: `make FOLDER` writes a file of each column, as pyarrow does by
itself; `read FILE SECONDS` reads it over and over for about so long, in one thread, and prints rows for a second of the processor."""
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, TEXTS, BATCH = 4_000_000, 100_000, 65_536


def make(folder):
    rng = np.random.default_rng(1)
    words = np.array(["".join(chr(c) for c in rng.integers(97, 123, n)) for n in rng.integers(2, 11, 5000)])
    texts = [" ".join(words[rng.zipf(1.3, n) % len(words)]) for n in rng.integers(20, 160, TEXTS)]
    columns = {"int64": pa.array(rng.integers(0, 2**40, ROWS)), "text": pa.array(texts),
               "float32": pa.array(rng.normal(size=ROWS).astype(np.float32))}
    for name, column in columns.items():
        pq.write_table(pa.table({"x": column}), f"{folder}/{name}.parquet", write_page_index=True)


def read(path, seconds):
    pa.set_cpu_count(1)
    rows, start = 0, None
    while start is None or time.process_time() - start < seconds:
        if start is None and rows:
            start, rows = time.process_time(), 0
        for batch in pq.ParquetFile(path).iter_batches(BATCH, use_threads=False):
            rows += len(batch)
    print(rows / (time.process_time() - start))


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    read(sys.argv[2], float(sys.argv[3]))
