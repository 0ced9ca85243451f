"""arrow_random.py SEED FILE: writes a table of random columns, record batches and codecs as an Arrow file or stream by
pyarrow, and to FILE.json what pyarrow reads: of each column the bytes of each row, in hexadecimal, or false: a null."""
import datetime
import decimal
import json
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

SEED, PATH = int(sys.argv[1]), sys.argv[2]
rng, choose = np.random.default_rng(SEED), random.Random(SEED)
ROWS = choose.choice([0, 1, 7, 100, 1000, 3000])
NULLS = choose.random() < 0.6
WHOLE = {"int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4",
         "uint64": "u8"}


def some(values, share=0.15):
    return [None if NULLS and choose.random() < share else value for value in values]


def texts(n=None):
    words = ["", " żółw ", "x" * choose.choice([1, 12, 13, 300]), *("w%d" % i for i in range(choose.choice([3, 50, 5000])))]
    return [choose.choice(words) for _ in range(ROWS if n is None else n)]


def whole(low, high, n=None):
    return rng.integers(low, high, ROWS if n is None else n).tolist()


def lists(make, share=0.1):
    sizes = [choose.choice([0, 0, 1, 2, 5, 30]) for _ in range(ROWS)]
    return some([some(make(n), 0.02) for n in sizes], share)


def columns():
    made, numpy = {}, {}

    def add(name, array, dtype=None):
        made[name] = array
        numpy[name] = dtype

    for name, dtype in WHOLE.items():
        info = np.iinfo(dtype)
        values = [int(v) for v in rng.integers(info.min, info.max, ROWS, dtype=dtype, endpoint=True)]
        add(name, pa.array(some(values), name), dtype)
    add("f16", pa.array(some(list(rng.normal(size=ROWS).astype(np.float16))), pa.float16()), "f2")
    add("f32", pa.array(rng.normal(size=ROWS), pa.float32()), "f4")
    add("f64", pa.array(some(rng.normal(size=ROWS).tolist()), pa.float64()), "f8")
    add("bool", pa.array(some((rng.random(ROWS) < 0.5).tolist()), pa.bool_()), "u1")
    for name, kind in {"text": pa.string(), "large": pa.large_string(), "view": pa.string_view()}.items():
        add(name, pa.array(some(texts(), 0.2), kind))
    for name, kind in {"bytes": pa.binary(), "large_bytes": pa.large_binary(), "view_bytes": pa.binary_view()}.items():
        add(name, pa.array([text.encode() for text in texts()], kind))
    add("fixed", pa.array(some([rng.bytes(5) for _ in range(ROWS)]), pa.binary(5)))
    add("time", pa.array(whole(0, 2**40), pa.timestamp(choose.choice(["s", "ms", "us", "ns"]))).cast(
        pa.timestamp("ms"), safe=False), "i8")
    add("day", pa.array([datetime.date(1970, 1, 1) + datetime.timedelta(v) for v in whole(0, 20000)], pa.date32()), "i4")
    add("clock", pa.array(whole(0, 86400), pa.int32()).cast(pa.time32("s")), "i4")
    add("span", pa.array(whole(-10**9, 10**9), pa.int64()).cast(pa.duration("us")), "i8")
    for name, kind in {"d32": pa.decimal32(9, 2), "d64": pa.decimal64(15, 3), "d128": pa.decimal128(30, 5),
                       "d256": pa.decimal256(50, 4)}.items():
        add(name, pa.array(some([decimal.Decimal(v).scaleb(-kind.scale) for v in whole(-10**8, 10**8)]), kind), "f8")
    add("null", pa.nulls(ROWS), "i4")
    add("s", pa.array(some([{"x": v, "y": "t%d" % v, "z": {"w": v / 2}} for v in whole(0, 99)]), pa.struct(
        [("x", pa.int64()), ("y", pa.string()), ("z", pa.struct([("w", pa.float32())]))])))
    add("list", pa.array(lists(lambda n: whole(-99, 99, n)), pa.list_(pa.int32())), "i4")
    add("large_list", pa.array(lists(lambda n: rng.normal(size=n).tolist()), pa.large_list(pa.float64())), "f8")
    add("bools", pa.array(lists(lambda n: (rng.random(n) < 0.5).tolist()), pa.list_(pa.bool_())), "u1")
    add("list_view", pa.array(lists(lambda n: whole(0, 200, n)), pa.list_view(pa.uint8())), "u1")
    add("triple", pa.array(some([rng.normal(size=3).astype(np.float32).tolist() for _ in range(ROWS)]),
                           pa.list_(pa.float32(), 3)), "f4")
    add("box", pa.array([rng.integers(0, 9, (2, 3)).tolist() for _ in range(ROWS)], pa.list_(pa.list_(pa.int16(), 3), 2)),
        "i2")
    add("pairs", pa.array([rng.integers(0, 9, (choose.choice([0, 1, 4]), 2)).tolist() for _ in range(ROWS)],
                          pa.list_(pa.list_(pa.int16(), 2))), "i2")
    add("points", pa.array([[{"x": v, "y": str(v)} for v in whole(0, 9, choose.choice([0, 1, 3]))] for _ in range(ROWS)],
                           pa.list_(pa.struct([("x", pa.int16()), ("y", pa.string())]))))
    add("map", pa.array([[(i, float(i)) for i in range(choose.choice([0, 1, 3]))] for _ in range(ROWS)],
                        pa.map_(pa.int32(), pa.float64())))
    return made, numpy


def dictionaries(schema):
    """Columns that are dictionary-encoded, batch by batch: the same one, longer ones, or others."""
    index = choose.choice([pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64()])
    known = [["a", "", "żółw"], ["longer than twelve bytes", "b"], list("uvwxyz")]
    numbers = [[5, -6], [7], [8, 9, 10]]
    if NULLS:
        known[0].append(None)
        numbers[0].append(None)
    how = choose.choice(["same", "delta", "replaced"] if schema == "stream" else ["same", "delta"])
    return index, known, numbers, how


def cut(table, kind):
    """Record batches of random sizes, some of them empty; of dictionaries, a column of texts and one of numbers."""
    index, known, numbers, how = dictionaries(kind)
    batches, at, part = [], 0, 0
    while at < table.num_rows or choose.random() < 0.3:
        n = min(choose.choice([0, 1, 5, 64, 1000]), table.num_rows - at)
        piece = table.slice(at, n).combine_chunks().to_batches()
        part = min(part + (how != "same"), 2)
        arrays = list(piece[0].columns) if piece else [pa.array([], f.type) for f in table.schema]
        for values, type_ in ((known, pa.string()), (numbers, pa.int16())):
            words = sum(values[:part + 1], []) if how == "delta" else values[part]
            places = [None if NULLS and choose.random() < 0.1 else choose.randrange(len(words)) for _ in range(n)]
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(places, index), pa.array(words, type_)))
        names = table.schema.names + ["class", "code"]
        batches.append(pa.RecordBatch.from_arrays(arrays, names))
        at += n
    return batches, how


def main():
    made, dtypes = columns()
    kind = choose.choice(["file", "stream"])
    table = pa.table(made)
    skip = choose.choice([0, ROWS // 3])  # of arrays that are slices
    table = table.slice(skip)
    batches, how = cut(table, kind)
    codec = choose.choice([None, "lz4", "zstd"])
    options = ipc.IpcWriteOptions(
        compression=codec, emit_dictionary_deltas=how == "delta", unify_dictionaries=False,
        metadata_version=ipc.MetadataVersion.V5 if codec or choose.random() < 0.5 else ipc.MetadataVersion.V4)
    schema = batches[0].schema if batches else table.schema
    with (ipc.new_file if kind == "file" else ipc.new_stream)(PATH, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    back = ipc.open_file(PATH).read_all() if kind == "file" else ipc.open_stream(PATH).read_all()
    found = {}

    def put(name, dtype, values):
        found[name] = [v is not None and not (isinstance(v, list) and None in v) and
                       (np.array(v, dtype).tobytes() if dtype else v.encode() if isinstance(v, str) else v).hex()
                       for v in values]

    for name, dtype in dtypes.items():
        column = back[name]
        if name in ("time", "span"):
            column = column.cast(pa.int64())
        if name in ("day", "clock"):
            column = column.cast(pa.int32())
        if name not in ("s", "points", "map"):
            put(name, dtype, column.to_pylist())
        if name[0] == "d" and name[1:].isdigit():
            put(name, dtype, [None if v is None else float(v) for v in column.to_pylist()])
    structures = back["s"].to_pylist()
    put("s.x", "i8", [None if v is None else v["x"] for v in structures])
    put("s.y", None, [None if v is None else v["y"] for v in structures])
    put("s.z.w", "f4", [None if v is None else v["z"]["w"] for v in structures])
    put("points.x", "i2", [[p["x"] for p in v] for v in back["points"].to_pylist()])
    put("map.key", "i4", [[k for k, _ in v] for v in back["map"].to_pylist()])
    put("map.value", "f8", [[v for _, v in w] for w in back["map"].to_pylist()])
    if "class" in back.schema.names:
        put("class", None, back["class"].to_pylist())
        put("code", "i2", back["code"].to_pylist())
    with open(PATH + ".json", "w") as file:
        json.dump({"rows": back.num_rows, "columns": found, "how": "%s of %d batches, %s, %s dictionaries" % (
            kind, len(batches), codec, how)}, file)


main()
