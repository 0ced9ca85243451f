#!/usr/bin/env python3
"""Writes expected.lua of this folder: what pyarrow 26.0.0 reads in the files beside it."""
import glob
import os
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
REFUSED = {"int96_from_spark", "old_list_structure", "nation.dict-malformed", "rle-dict-uncompressed-corrupt-checksum"}


def is_text(kind):
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
                                       pa.types.is_fixed_size_binary))


def dtype_of(kind):
    if pa.types.is_list(kind):
        return None if is_text(kind.value_type) else dtype_of(kind.value_type)
    if pa.types.is_decimal(kind):
        return "float64"
    if pa.types.is_null(kind):
        return "int32"
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return "int64"
    if is_text(kind):
        return "uint8"
    return "bool" if pa.types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype()).name


def plain(array):
    """The rows as bytes, None where one is null or has a null."""
    kind = array.type
    if pa.types.is_list(kind):
        rows = [None if not row.is_valid else plain(row.values) for row in array]
        return [None if row is None or None in row else b"".join(row) for row in rows]
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        array, kind = array.cast(pa.int64()), pa.int64()
    if pa.types.is_null(kind):
        return array.to_pylist()
    if is_text(kind):
        return [None if v is None else v.encode() if isinstance(v, str) else v for v in array.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if v is None else struct.pack("<d", float(v)) for v in array.to_pylist()]
    if pa.types.is_boolean(kind):
        return [None if v is None else bytes([v]) for v in array.to_pylist()]
    valid, dtype = array.is_valid().to_pylist(), np.dtype(dtype_of(kind))
    data = np.frombuffer(array.buffers()[1], dtype)[array.offset:array.offset + len(array)] if len(array) else []
    return [value.tobytes() if there else None for value, there in zip(data, valid)]


def columns(name, array):
    if pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten()):
            yield from columns(name + "." + field.name, child)
    elif dtype_of(array.type) is not None:
        yield name, array


def main():
    out = ["-- Written by expected.py: what pyarrow reads in the files of this folder.",
           "-- luacheck: ignore 631 (long lines)", "return {"]
    for path in sorted(glob.glob(os.path.join(HERE, "*.parquet"))):
        name = os.path.basename(path)[:-len(".parquet")]
        if name in REFUSED:
            continue
        table = pq.read_table(path)
        out.append('  ["%s"] = {' % name)
        for field in table.schema:
            array = table.column(field.name).combine_chunks()
            array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
            for column, values in columns(field.name, array):
                rows = ["-" if row is None else row.hex() or "0" for row in plain(values)]
                lines = [" ".join(rows[i:i + 12]) for i in range(0, len(rows), 12)]
                out.append('    ["%s"] = { "%s", [[' % (column, dtype_of(values.type)))
                out.extend(lines)
                out.append("]] },")
        out.append("  },")
    out.append("}")
    with open(os.path.join(HERE, "expected.lua"), "w") as file:
        file.write("\n".join(out) + "\n")


main()
