#!/usr/bin/env python3
"""Writes web.parquet and code.parquet, which recipes/fineweb_like.lua reads, with pyarrow 26.0.0: pieces of this
repository's documents and of its Lua files, with what FineWeb's files have beside the text.

Pages are small, and an index says where they are: so rows can be read in any order."""
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


def write(name, paths, rows, longest):
    rng, texts = random.Random(name), [path.read_text() for path in paths]
    columns = {"text": [], "id": [], "language_score": []}
    for i in range(rows):
        text = rng.choice(texts)
        first = rng.randrange(len(text))
        columns["text"].append(text[first:first + rng.randrange(20, longest)] + "<|end|>")
        columns["id"].append("%s-%d" % (name, i))
        columns["language_score"].append(rng.random())
    table = pa.table({"text": columns["text"], "id": columns["id"],
                      "language_score": pa.array(columns["language_score"], pa.float32())})
    pq.write_table(table, HERE / (name + ".parquet"), compression="zstd", row_group_size=rows // 2,
                   data_page_size=4096, write_batch_size=16, write_page_index=True, write_page_checksum=True)


write("web", sorted((ROOT / "docs").glob("*.md")), 300, 400)
write("code", sorted((ROOT / "lua").rglob("*.lua")), 160, 700)
