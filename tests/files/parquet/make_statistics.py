#!/usr/bin/env python3
"""Writes pages.parquet, groups.parquet and unsorted.parquet of this folder, whose statistics rule rows out: pyarrow
26.0.0 with numpy 2.4.6, and Polars 2.1.0. What the rows hold is for who reads them to find out: a filter by a condition is
compared with one by a function."""
import decimal
import os

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 240
HERE = os.path.dirname(os.path.abspath(__file__))


def columns():
    rows = range(ROWS)
    f32 = np.array([i / 4 - 20 for i in rows], dtype=np.float32)
    f32[[5, 50, 51, 90, 91]] = np.nan
    f32[100:120] = np.where(np.arange(20) % 2 == 0, 0.0, -0.0)
    nan = np.where(np.arange(ROWS) // 10 % 3 == 1, np.nan, np.arange(ROWS) * 0.5)  # pages of nothing else
    word = lambda i: "%c%03d" % (97 + i // 10, i) + "é" * (i % 3)
    return {
        "n": pa.array(list(rows), pa.int32()),
        "i8": pa.array([i // 2 - 60 for i in rows], pa.int8()),
        "u16": pa.array([i * 270 for i in rows], pa.uint16()),
        "u32": pa.array([i * 17_000_000 for i in rows], pa.uint32()),
        "i64": pa.array([2**53 + i // 3 for i in rows], pa.int64()),
        "u64": pa.array([2**63 - 100 + i for i in rows], pa.uint64()),
        "down": pa.array([(ROWS - i) ** 3 - 1_000_000 for i in rows], pa.int64()),
        "f16": pa.array((np.arange(ROWS) - 100).astype(np.float16) / 2),
        "f32": pa.array(f32, from_pandas=False),
        "nan": pa.array(nan, from_pandas=False),
        "f64": pa.array([(-1) ** (i // 60) * i * 0.1 for i in rows]),
        "bool": pa.array([i // 40 % 2 == 1 for i in rows]),
        "text": pa.array([word(i) for i in rows]),
        "high": pa.array([bytes([255] * (i // 60) + [i]) for i in rows], pa.binary()),
        "fixed": pa.array([bytes([i // 8, 255 - i, 7]) for i in rows], pa.binary(3)),
        "price": pa.array([decimal.Decimal(i * 125 - 9000).scaleb(-3) for i in rows], pa.decimal128(15, 3)),
        "day": pa.array([i * 3 for i in rows], pa.date32()),
        "maybe": pa.array([None if i % 40 < 25 or i % 7 == 0 else i for i in rows], pa.int32()),
        "maybe_text": pa.array([None if 60 <= i < 100 or i % 50 == 0 else word(i) for i in rows]),
    }


def main():
    table = pa.table(columns())
    some = ["u16", "text", "high", "maybe_text", "f64"]
    few = dict(row_group_size=80, data_page_size=1, write_batch_size=10, store_schema=False, compression="none")
    pq.write_table(table, os.path.join(HERE, "pages.parquet"), write_page_index=True, write_page_checksum=True,
                   use_dictionary=some, **few)
    pq.write_table(table, os.path.join(HERE, "groups.parquet"), use_dictionary=False, write_page_checksum=True, **few)
    kept = table.select(["n", "f32", "text", "maybe"]).slice(0, 30)  # a seed for the fuzzer
    pq.write_table(kept, os.path.join(HERE, "small", "statistics.parquet"), write_page_index=True, use_dictionary=False,
                   **dict(few, row_group_size=20))
    order = np.random.default_rng(1).permutation(ROWS)
    mixed = pa.concat_tables([table.slice(0, 60), table.slice(60).take(pa.array(np.argsort(order[60:], kind="stable")))])
    polars.from_arrow(mixed).write_parquet(os.path.join(HERE, "unsorted.parquet"), compression="zstd", row_group_size=60)


main()
