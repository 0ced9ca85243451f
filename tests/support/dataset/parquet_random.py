"""parquet_random.py SEED FILE: writes a table of random columns, codecs, encodings and page sizes by pyarrow, and to
FILE.json what pyarrow reads: of each column the bytes of each row, in hexadecimal, or false: a null. Every third seed is written
by DuckDB or Polars, where they are there."""
import decimal
import json
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED, PATH = int(sys.argv[1]), sys.argv[2]
rng, choose = np.random.default_rng(SEED), random.Random(SEED)
ROWS = choose.choice([1, 7, 100, 1000, 3000])
NULLS = choose.random() < 0.6
ENCODINGS = {
    "i32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"], "u8": ["DELTA_BINARY_PACKED"],
    "i64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"], "u64": ["DELTA_BINARY_PACKED"],
    "f16": ["BYTE_STREAM_SPLIT"], "f32": ["BYTE_STREAM_SPLIT", "PLAIN"], "f64": ["BYTE_STREAM_SPLIT", "PLAIN"],
    "bool": ["RLE", "PLAIN"], "text": ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"],
    "bytes": ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"], "time": ["DELTA_BINARY_PACKED"],
    "fixed": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "PLAIN"], "s.x": ["DELTA_BINARY_PACKED"],
    "list.list.element": ["DELTA_BINARY_PACKED", "PLAIN"], "floats.list.element": ["BYTE_STREAM_SPLIT", "PLAIN"]}


def some(values, share=0.15):
    return [None if NULLS and choose.random() < share else value for value in values]


def texts():
    words = ["", " żółw ", "x" * choose.choice([1, 300, 3000]), *("w%d" % i for i in range(choose.choice([3, 50, 5000])))]
    return [choose.choice(words) for _ in range(ROWS)]


def whole(low, high):
    return rng.integers(low, high, ROWS).tolist()


def columns():
    high = choose.choice([2, 100, 2**31 - 1])
    lists = [whole(0, 9)[:choose.choice([0, 0, 1, 2, 5, 30])] for _ in range(ROWS)]
    return {
        "i32": pa.array(some(whole(-high, high)), pa.int32()), "u8": pa.array(some(whole(0, 255)), pa.uint8()),
        "i64": pa.array(some(whole(-2**62, 2**62) if choose.random() < 0.5 else list(range(ROWS))), pa.int64()),
        "u64": pa.array(some([int(x) for x in rng.integers(0, 2**64 - 1, ROWS, dtype=np.uint64)]), pa.uint64()),
        "f16": pa.array(rng.normal(size=ROWS).astype(np.float16)), "f32": pa.array(rng.normal(size=ROWS), pa.float32()),
        "f64": pa.array(some(rng.normal(size=ROWS).tolist()), pa.float64()),
        "bool": pa.array(some((rng.random(ROWS) < 0.5).tolist()), pa.bool_()), "text": pa.array(some(texts(), 0.2)),
        "bytes": pa.array([text.encode() for text in texts()], pa.binary()),
        "fixed": pa.array([rng.bytes(5) for _ in range(ROWS)], pa.binary(5)),
        "time": pa.array(whole(0, 2**40), pa.timestamp(choose.choice(["ms", "us", "ns"]))),
        "price": pa.array([decimal.Decimal(v).scaleb(-3) for v in whole(-10**12, 10**12)],
                          pa.decimal128(choose.choice([15, 18, 30]), 3)),
        "s": pa.array(some([{"x": v, "y": "t%d" % v} for v in whole(0, 99)]),
                      pa.struct([("x", pa.int64()), ("y", pa.string())])),
        "list": pa.array(some([some(values, 0.02) for values in lists], 0.1), pa.list_(pa.int32())),
        "floats": pa.array([rng.normal(size=4).astype(np.float32) for _ in range(ROWS)], pa.list_(pa.float32())),
        "map": pa.array([[(i, float(i)) for i in range(choose.choice([0, 1, 3]))] for _ in range(ROWS)],
                        pa.map_(pa.int32(), pa.float64())),
    }


def write(table):
    options = dict(
        compression=choose.choice(["none", "snappy", "gzip", "brotli", "lz4", "zstd"]),
        data_page_version=choose.choice(["1.0", "2.0"]), row_group_size=choose.choice([ROWS, ROWS // 3 + 1, ROWS // 7 + 1]),
        data_page_size=choose.choice([100, 3000, 1 << 20]), max_rows_per_page=choose.choice([10, 1000, 20000]),
        write_page_index=choose.random() < 0.5, write_page_checksum=choose.random() < 0.5,
        write_statistics=choose.random() < 0.7, store_schema=choose.random() < 0.5,
        use_deprecated_int96_timestamps=choose.random() < 0.2)
    kind = choose.choice(["dictionary", "plain", "each"])
    if kind == "dictionary":
        options["dictionary_pagesize_limit"] = choose.choice([200, 1 << 20])
    else:
        options["use_dictionary"] = False
    if kind == "each":
        options["column_encoding"] = {name: choose.choice(known) for name, known in ENCODINGS.items()}
    if options["use_deprecated_int96_timestamps"] and kind == "each":
        options["column_encoding"].pop("time")
    other = choose.choice(["duckdb", "polars"]) if SEED % 3 == 0 else None
    try:
        if other == "duckdb":
            import duckdb
            duckdb.from_arrow(table).write_parquet(PATH, compression=choose.choice(["snappy", "zstd", "gzip", "lz4_raw"]))
        elif other == "polars":
            import polars
            polars.from_arrow(table).write_parquet(
                PATH, compression=choose.choice(["snappy", "zstd", "gzip", "lz4", "brotli"]),
                row_group_size=choose.choice([ROWS, ROWS // 3 + 1]), data_page_size=choose.choice([300, 1 << 20]))
    except ImportError:
        other = None
    if other is None:
        pq.write_table(table, PATH, **options)
    return other or str(options)


def main():
    made = columns()
    if SEED % 3 == 0:  # what all of them know
        made = {k: v for k, v in made.items() if k not in ("f16", "map", "fixed")}
    how = write(pa.table(made))
    back, found = pq.read_table(PATH), {}

    def put(name, dtype, values):
        found[name] = [v is not None and (np.array(v, dtype).tobytes() if dtype else v).hex() for v in values]

    for name, dtype in {"i32": "i4", "u8": "u1", "i64": "i8", "u64": "u8", "f16": "f2", "f32": "f4", "f64": "f8",
                        "bool": "u1"}.items():
        if name in made:
            put(name, dtype, back[name].to_pylist())
    put("text", None, [None if v is None else v.encode() for v in back["text"].to_pylist()])
    put("bytes", None, back["bytes"].to_pylist())
    put("time", "i8", back["time"].cast(pa.int64()).to_pylist())
    put("price", "f8", [float(v) for v in back["price"].to_pylist()])
    structures = back["s"].to_pylist()
    put("s.x", "i8", [None if v is None else v["x"] for v in structures])
    put("s.y", None, [None if v is None or v["y"] is None else v["y"].encode() for v in structures])
    put("list", "i4", [None if v is None or None in v else v for v in back["list"].to_pylist()])
    put("floats", "f4", back["floats"].to_pylist())
    if "map" in made:
        put("fixed", None, back["fixed"].to_pylist())
        pairs = back["map"].to_pylist()
        put("map.key", "i4", [[k for k, _ in v] for v in pairs])
        put("map.value", "f8", [[v for _, v in w] for w in pairs])
    with open(PATH + ".json", "w") as file:
        json.dump({"rows": ROWS, "columns": found, "how": how}, file)


main()
