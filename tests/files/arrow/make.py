#!/usr/bin/env python3
"""Writes the Arrow files of this folder: pyarrow 26.0.1 and datasets 5.2.0 with numpy 2.4.6.

Row i of every file is what tests/dataset/arrow_spec.lua works out again by itself."""
import datetime
import decimal
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

ROWS = 120
HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = ["cat", "dog", "", "żółw"]


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
        "f16": pa.array(np.arange(ROWS, dtype=np.float16) / 4),
        "f32": pa.array(np.arange(ROWS, dtype=np.float32) / 8),
        "f64": pa.array(np.arange(ROWS, dtype=np.float64) / 64),
        "bool": pa.array([i % 3 == 0 for i in rows]),
        "text": pa.array([text(i) for i in rows]),
        "large": pa.array([text(i) for i in rows], pa.large_string()),
        "view": pa.array([text(i) for i in rows], pa.string_view()),
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
        "list_view": pa.array([list(range(i, i + i % 4)) for i in rows], pa.list_view(pa.int32())),
        "triple": pa.array([[i / 2, i / 4, i / 8] for i in rows], pa.list_(pa.float32(), 3)),
    }


def batches(table, sizes, how):
    """Cut at these rows, each with a dictionary of its own ("replaced"), one that grows ("delta"), or the same."""
    made, at = [], 0
    for n, size in enumerate(sizes):
        piece = table.slice(at, size).combine_chunks()
        words = CLASSES if how == "same" else CLASSES[n % 2:] + CLASSES[:n % 2]
        if how == "delta":
            words = CLASSES[:2] if n == 0 else CLASSES
        places = [words.index(CLASSES[i // 7 % (2 if how == "delta" and n == 0 else 4)]) for i in range(at, at + size)]
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in piece.columns]
        arrays.append(pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array(words)))
        made.append(pa.RecordBatch.from_arrays(arrays, names=table.schema.names + ["class"]))
        at += size
    return made


def write(name, made, new=ipc.new_file, **options):
    how = ipc.IpcWriteOptions(**options)
    with new(os.path.join(HERE, name), made[0].schema, options=how) as writer:
        for batch in made:
            writer.write_batch(batch)


def refused():
    table = pa.table({
        "x": pa.array([1, 2, 3]), "nested": pa.array([[[1]], [], [[2, 3]]], pa.list_(pa.list_(pa.int64()))),
        "words": pa.array([["a"], [], ["b", "c"]]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8])),
        "union": pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]),
        "wide": pa.array([decimal.Decimal(2**53 * 10 + 1)] * 3, pa.decimal128(38, 0)),
        "y": pa.array([4, 5, 6])})
    write("refused.arrow", table.to_batches())


def saved():
    """Folders by datasets: two splits, one of two files."""
    import datasets
    datasets.disable_progress_bars()
    rows = range(50)
    train = datasets.Dataset.from_dict({"x": [i * 3 for i in rows], "text": [text(i) for i in rows],
                                        "embedding": [[i, i + 0.5] for i in rows]},
                                       features=datasets.Features({
                                           "x": datasets.Value("int64"), "text": datasets.Value("string"),
                                           "embedding": datasets.List(datasets.Value("float32"), length=2)}))
    shutil.rmtree(os.path.join(HERE, "saved"), ignore_errors=True)
    both = datasets.DatasetDict({"train": train, "test": train.select(range(9, -1, -1))})  # with indices, before
    both.save_to_disk(os.path.join(HERE, "saved"), num_shards={"train": 2, "test": 1})


def main():
    table = pa.table(columns())
    write("plain.arrow", batches(table, [50, 0, 1, 69], "same"))
    write("lz4.arrow", batches(table, [64, 56], "same"), compression="lz4")
    write("zstd.arrows", batches(table, [40, 40, 40], "same"), ipc.new_stream, compression="zstd")
    write("old.arrows", batches(table, [33, 87], "replaced"), ipc.new_stream, metadata_version=ipc.MetadataVersion.V4)
    write("delta.arrow", batches(table, [14, 106], "delta"), emit_dictionary_deltas=True, compression="lz4")
    write("delta.arrows", batches(table, [14, 50, 56], "delta"), ipc.new_stream, emit_dictionary_deltas=True)
    refused()
    small = pa.table({"x": pa.array([1, None, 3], pa.int16()), "t": ["a", "bc", ""], "l": [[1.5], [], [2, 3]],
                      "s": [{"v": 1}, None, {"v": 2}]})
    os.makedirs(os.path.join(HERE, "small"), exist_ok=True)
    for codec in [None, "zstd"]:
        made = batches(small, [2, 1], "same")
        write("small/%s.arrow" % (codec or "plain"), made, compression=codec)
        write("small/%s.arrows" % (codec or "plain"), made, ipc.new_stream, compression=codec)
    saved()


main()
