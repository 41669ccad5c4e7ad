"""PyIceberg's own upsert: `python -m benchmarks.pyiceberg_upsert FOLDER ROWS CHANGES`, on a table that it makes first.

Its changes are in memory already: three quarters have random keys of the table, the rest new ones. It prints a JSON
line when the table is there.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.source import orders

KEY = "id"
_INSERT_PERCENT = 25
_BLOCK = 100_000
_SEED = 13


def inserts_of(changes: int) -> int:
    """How many of the changes are new rows."""
    return changes * _INSERT_PERCENT // 100


def changed_rows(rows: int, changes: int) -> pa.Table:
    """Rows with distinct keys and new values, to upsert into the orders from 1 to `rows`."""
    inserts = inserts_of(changes)
    updated = np.random.default_rng(_SEED).choice(rows, changes - inserts, replace=False) + 1
    keys = np.concatenate([updated, np.arange(rows + 1, rows + 1 + inserts)])
    return orders(rows + 1, changes).set_column(0, KEY, pa.array(keys))


def main() -> None:
    name, rows, changes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder = Path(name).absolute()
    catalog = SqlCatalog("benchmark", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("benchmark")
    table = catalog.create_table("benchmark.orders", orders(1, 1).schema)
    for first in range(1, rows + 1, _BLOCK):
        table.append(orders(first, min(_BLOCK, rows + 1 - first)))
    changed = changed_rows(rows, changes)
    print(json.dumps({"event": "ready", "at": time.time()}), flush=True)
    result = table.upsert(changed, [KEY])
    if result.rows_updated + result.rows_inserted != changes:
        raise SystemExit(f"error: it wrote {result}, not {changes:,} rows")


if __name__ == "__main__":
    main()
