"""Replay: the rows that a changelog leaves, as a consumer of the changelog would have them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from lakeingest.commands.change_lines import OPS, TRUNCATE
from lakeingest.core.tables.change import COMMITTED_AT, GTID, OP, POSITION, RowKind

_ORIGIN = {OP, POSITION, COMMITTED_AT, GTID}


def replayed(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> pa.Table:
    """Apply the changes of `Pipeline.changelog`, from its beginning. Returns the rows that are left, in key order.

    `key`: the names of the key's columns. The rows have the columns of the last batch.
    """
    added = {OPS[RowKind.INSERT], OPS[RowKind.UPDATE_AFTER]}
    taken = {OPS[RowKind.DELETE], OPS[RowKind.UPDATE_BEFORE]}
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    fields = pa.schema([])
    for batch in batches:
        fields = pa.schema([field for field in batch.schema if field.name not in _ORIGIN])
        for row in batch.to_pylist():
            key_values = tuple(row[name] for name in key)
            if row[OP] in added:
                rows[key_values] = row
            elif row[OP] in taken:
                rows.pop(key_values, None)
            elif row[OP] == TRUNCATE:
                rows.clear()
    left = pa.Table.from_pylist([{name: row.get(name) for name in fields.names} for row in rows.values()], fields)
    # without rows, the table may lack the columns of the key
    return left.sort_by([(name, "ascending") for name in key]) if left.num_rows else left
