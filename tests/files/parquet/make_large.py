#!/usr/bin/env python3
"""Writes large.parquet: pyarrow 26.0.0 with numpy 2.4.6. Few bytes that become 192 MiB: row i of each column is i // 131072,
and a page has 1 MiB of them."""
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PAGE, PAGES, COLUMNS = 131072, 48, "abcd"

rows = pa.array(np.arange(PAGE * PAGES, dtype=np.int64) // PAGE)
schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in COLUMNS])
pq.write_table(pa.table([rows] * len(COLUMNS), schema=schema),
               os.path.join(os.path.dirname(os.path.abspath(__file__)), "large.parquet"), row_group_size=PAGE * PAGES,
               max_rows_per_page=PAGE, write_batch_size=PAGE, write_page_index=True, store_schema=False)
