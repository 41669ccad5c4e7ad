"""Parts of a changelog that are made by hand: a copy, changes and DDL of a small table, without a server and a lake."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Copied
from lakeingest.rows import change_schema, table_schema
from lakeingest.spool.followed import Altered, Followed

LOG = "a1"
TABLE = TableId("shop", "orders")
ID = Column("id", Kind.INT32, SourceType("int", "int"), nullable=False)
SCHEMA = TableSchema(TABLE, (ID, Column("v", Kind.STRING, SourceType("varchar(9)", "varchar"))), ("id",))
WIDER = TableSchema(TABLE, (*SCHEMA.columns, Column("n", Kind.INT64, SourceType("bigint", "bigint"))), ("id",))
COPIED_AT = Place(1, 1, 100)
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)

Row = tuple[RowKind, Any, Any]  # the kind, the key and the value of a change row
INSERT, BEFORE, AFTER, DELETE = RowKind


def copied(count: int, batches: int = 1, place: Place = COPIED_AT) -> list[Copied]:
    """A copy of so many rows, in equal parts."""
    rows = pa.RecordBatch.from_pylist([{"id": n, "v": f"v{n}"} for n in range(count)], table_schema(SCHEMA))
    size = count // batches
    parts = [rows.slice(n * size, size if n < batches - 1 else None) for n in range(batches)]
    return [Copied(part, SCHEMA, place, last=n == batches - 1) for n, part in enumerate(parts)]


def changed(transactions: Iterable[tuple[int, Sequence[Row]]], schema: TableSchema = SCHEMA) -> Changed:
    """The rows of transactions, each given by the byte of its place."""
    rows = []
    for pos, changes in transactions:
        for ordinal, (kind, key, value) in enumerate(changes):
            origin = {change.KIND: int(kind), change.EPOCH: 1, change.FILE: 1, change.POS: pos, change.ORDINAL: ordinal}
            committed = {change.COMMITTED_AT: BEGAN + timedelta(seconds=pos), change.GTID: f"u:{pos}"}
            rows.append({**origin, **committed, "id": key, "v": value})
    return Changed(pa.RecordBatch.from_pylist(rows, change_schema(schema)), schema)


def altered(pos: int) -> Altered:
    """DDL that adds a column with a default."""
    text = "ALTER TABLE orders ADD n BIGINT DEFAULT 5"
    followed = Followed(
        SCHEMA, WIDER, ("id", "v", None), {"n": pa.scalar(5, pa.int64())}, Place(1, 1, pos), BEGAN, f"u:{pos}"
    )
    return Altered(Alteration(statement="ALTER TABLE orders ADD n", text=text), followed)


def truncated(pos: int) -> Altered:
    """TRUNCATE, after the DDL that adds a column."""
    followed = Followed(WIDER, WIDER, tuple(WIDER.names), {}, Place(1, 1, pos), BEGAN, None)
    return Altered(Alteration(empties=True, statement="TRUNCATE orders", text="TRUNCATE orders"), followed)
