#!/usr/bin/env python3
"""Writes the Parquet files of this folder: pyarrow 26.0.0, DuckDB 2.0.0 and Polars 2.1.0 with numpy 2.4.6.

Row i of every file is what tests/dataset/parquet_spec.lua works out again by itself."""
import datetime
import decimal
import os

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 120
HERE = os.path.dirname(os.path.abspath(__file__))


def text(i):
    return "row %d %s" % (i, "é" * (i % 11))


def columns():
    rows = range(ROWS)
    return {
        "i8": pa.array([i - 60 for i in rows], pa.int8()),
        "u16": pa.array([i * 500 for i in rows], pa.uint16()),
        "i32": pa.array([i * 7919 % 1000 - 500 for i in rows], pa.int32()),
        "u32": pa.array([i * 35000000 for i in rows], pa.uint32()),
        "i64": pa.array([i * 2**33 - 5 for i in rows], pa.int64()),
        "few": pa.array([i // 9 % 3 * 1000 for i in rows], pa.int64()),
        "f16": pa.array(np.arange(ROWS, dtype=np.float16) / 4),
        "f32": pa.array(np.arange(ROWS, dtype=np.float32) / 8),
        "f64": pa.array(np.arange(ROWS, dtype=np.float64) / 64),
        "bool": pa.array([i % 3 == 0 for i in rows]),
        "text": pa.array([text(i) for i in rows]),
        "class": pa.array([["cat", "dog", "", "żółw"][i // 7 % 4] for i in rows]),
        "fixed": pa.array([bytes([i, 1, 2, i % 7]) for i in rows], pa.binary(4)),
        "time": pa.array([10**12 + i for i in rows], pa.timestamp("us")),
        "day": pa.array([datetime.date(1970, 1, 1) + datetime.timedelta(i) for i in rows]),
        "price": pa.array([decimal.Decimal(i * 125 - 1000).scaleb(-3) for i in rows], pa.decimal128(15, 3)),
        "maybe": pa.array([None if i % 5 == 0 else i for i in rows], pa.int32()),
        "maybe_text": pa.array([None if i % 7 == 0 else text(i) for i in rows]),
        "image": pa.array([{"bytes": text(i).encode(), "width": i} for i in rows],
                          pa.struct([("bytes", pa.binary()), ("width", pa.int32())])),
        "list": pa.array([list(range(i, i + i % 4)) for i in rows], pa.list_(pa.int32())),
        "maybe_list": pa.array([None if i % 6 == 0 else [None if i % 10 == 1 else i] * (i % 3) for i in rows],
                               pa.list_(pa.int16())),
        "triple": pa.array([[i / 2, i / 4, i / 8] for i in rows], pa.list_(pa.float32())),
    }


DELTA = {"i8": "DELTA_BINARY_PACKED", "u16": "DELTA_BINARY_PACKED", "i32": "DELTA_BINARY_PACKED",
         "u32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "few": "DELTA_BINARY_PACKED", "bool": "RLE",
         "text": "DELTA_BYTE_ARRAY", "class": "DELTA_LENGTH_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY",
         "maybe": "DELTA_BINARY_PACKED", "maybe_text": "DELTA_BYTE_ARRAY", "image.bytes": "DELTA_LENGTH_BYTE_ARRAY",
         "list.list.element": "DELTA_BINARY_PACKED"}
SPLIT = {"i32": "BYTE_STREAM_SPLIT", "i64": "BYTE_STREAM_SPLIT", "f16": "BYTE_STREAM_SPLIT", "f32": "BYTE_STREAM_SPLIT",
         "f64": "BYTE_STREAM_SPLIT", "fixed": "BYTE_STREAM_SPLIT", "triple.list.element": "BYTE_STREAM_SPLIT"}


def write(name, **options):
    pq.write_table(pa.table(columns()), os.path.join(HERE, name + ".parquet"), row_group_size=50, data_page_size=200,
                   write_batch_size=10, write_statistics=False, store_schema=False, **options)


def small(name, rows, **options):
    """A seed for the fuzzer: a few rows of some columns."""
    kept = {k: v[:rows] for k, v in columns().items() if k in ("u16", "f32", "bool", "maybe_text", "price", "maybe_list")}
    folder = os.path.join(HERE, "small")
    os.makedirs(folder, exist_ok=True)
    pq.write_table(pa.table(kept), os.path.join(folder, name + ".parquet"), write_statistics=False, store_schema=False,
                   **options)


def main():
    small("plain", 5, compression="none", use_dictionary=False)
    small("dictionary", 20, compression="snappy", write_page_index=True, write_page_checksum=True)
    small("pages", 20, compression="none", use_dictionary=False, data_page_size=20, write_batch_size=2,
          data_page_version="2.0", column_encoding={"u16": "DELTA_BINARY_PACKED", "f32": "BYTE_STREAM_SPLIT",
                                                    "bool": "RLE", "maybe_text": "DELTA_BYTE_ARRAY"})
    write("plain", compression="none", use_dictionary=False, write_page_checksum=True)
    write("dictionary", compression="snappy", write_page_index=True)
    write("fallback", compression="brotli", dictionary_pagesize_limit=60, data_page_version="2.0")
    write("delta", compression="zstd", use_dictionary=False, column_encoding=DELTA, data_page_version="2.0",
          write_page_index=True)
    write("split", compression="gzip", use_dictionary=False, column_encoding=SPLIT, write_page_checksum=True)
    write("lz4", compression="lz4", use_dictionary=False, data_page_version="2.0")
    table = pa.table({k: v for k, v in columns().items() if k in ("time", "i64")})
    pq.write_table(table, os.path.join(HERE, "int96.parquet"), use_deprecated_int96_timestamps=True, compression="none")
    simple = {k: v for k, v in columns().items() if k in ("i32", "i64", "f32", "f64", "bool", "text", "class", "maybe",
                                                          "maybe_text", "list", "price", "image")}
    table = pa.table(simple)
    duckdb.from_arrow(table).write_parquet(os.path.join(HERE, "duckdb.parquet"), compression="zstd")
    polars.from_arrow(table).write_parquet(os.path.join(HERE, "polars.parquet"), compression="snappy",
                                           row_group_size=64, data_page_size=300)
    nested = pa.array([[["a"], ["b", "c"]]] * 3, pa.list_(pa.list_(pa.string())))
    words = pa.array([["a", "b"]] * 3, pa.list_(pa.string()))
    wide = pa.array([decimal.Decimal(2**53 + 2 + i) for i in range(3)], pa.decimal128(38, 0))
    pq.write_table(pa.table({"nested": nested, "words": words, "wide": wide, "x": pa.array([1, 2, 3])}),
                   os.path.join(HERE, "refused.parquet"), compression="none", store_schema=False)


main()
