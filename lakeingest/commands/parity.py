"""Parity: the snapshot path and the binlog path read the same rows, which are compared column by column.

Both paths decode MySQL's bytes, with different code, and must come to the same value. Rows that were changed lately are
taken from the binlog, read again by their keys, and compared. A row is left out if it was changed again in between, or
if its transaction may not be visible yet: the binlog has a transaction before other sessions see it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeingest.core import change
from lakeingest.core.change import RowKind
from lakeingest.core.condition import Checked
from lakeingest.core.position import FIRST_EPOCH, GtidSet
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import start_of_newest
from lakeingest.mysql.keyed_rows import rows_of

ROWS = 1_000  # of each table
CHANGE_ROWS = 20 * ROWS  # the latest ones of a table; more than ROWS, because the same row may change often
VALUE_CHARACTERS = 60  # a longer value is cut
BYTES = 64 << 20  # of the binlog, unless its newest file has more

Row = dict[str, Any]
# By table and key: the row after the last change; None if it is deleted, or if the change is not visible yet
Changed = dict[TableId, dict[tuple[Any, ...], Row | None]]


@dataclass(frozen=True, slots=True)
class ColumnParity:
    """How many values of a column were compared, how many differ, and the first difference."""

    table: TableId
    column: str
    source_type: str
    compared: int
    differing: int = 0
    example: str = ""

    def __str__(self) -> str:
        column = f"{self.table}: column {self.column} ({self.source_type})"
        return f"{column} differs in {self.differing} of {self.compared} rows: {self.example}"


def parity(source: BinlogSource, schemas: Mapping[TableId, TableSchema]) -> tuple[Checked, ...]:
    """Whether the two paths agree; and a warning with the columns that no recent change has a value of."""
    try:
        with source.named_errors():
            columns = compared(source, schemas)
    except LakeIngestError as error:
        return (Checked("parity", f"snapshot and binlog cannot be compared: {error}", fatal=False),)
    differing = "; ".join(str(column) for column in columns if column.differing)
    idle = ", ".join(f"{column.table}.{column.column}" for column in columns if not column.compared)
    fix = "name it in a report to the lakeingest project, and leave the table out with tables.exclude"
    missed = f"no value of {idle} was written lately: insert or update rows and ask again"
    return (
        Checked("parity", f"{differing}; {fix}" if differing else None),
        Checked("parity of all columns", missed if idle else None, fatal=False),
    )


def compared(source: BinlogSource, schemas: Mapping[TableId, TableSchema]) -> list[ColumnParity]:
    """The parity of each column of each table. Pairs of two NULLs are not counted."""
    # Step 1: read the latest changes from the binlog, up to `stop`.
    state, stop = source.state(), source.written()
    recent = Segment(state.uuid, FIRST_EPOCH, start_of_newest(source.connection, BYTES), stop, GtidSet())
    changed = _changes(source, recent, schemas, state.executed)
    theirs = {table: {key: row for key, row in rows.items() if row is not None} for table, rows in changed.items()}
    # Step 2: read the same rows from the tables.
    ours = {
        table: rows_of(source.connection, schema, list(theirs[table].values())[-ROWS:]).to_pylist()
        for table, schema in schemas.items()
    }
    # Step 3: read the changes after `stop`, because step 2 may have seen them: their keys are left out.
    later = _changes(source, Segment(state.uuid, FIRST_EPOCH, stop, source.written(), GtidSet()), schemas)
    columns: list[ColumnParity] = []
    for table, schema in schemas.items():
        pairs = [
            (row, theirs[table][key])
            for row in ours[table]
            if (key := tuple(row[name] for name in schema.key)) in theirs[table] and key not in later[table]
        ]
        columns += [column_parity(schema, number, pairs) for number in range(len(schema.columns))]
    return columns


def column_parity(schema: TableSchema, number: int, rows: Sequence[tuple[Row, Row]]) -> ColumnParity:
    """The parity of a column. Each pair is a row as the snapshot reads it, and the same row from the binlog."""
    column, name = schema.columns[number], schema.columns[number].name
    values = [(ours, theirs) for ours, theirs in rows if (ours[name], theirs[name]) != (None, None)]
    # compared as text: 1.50 is not 1.5, and -0.0 is not 0.0
    differing = [(ours, theirs) for ours, theirs in values if repr(ours[name]) != repr(theirs[name])]
    example = ""
    if differing:
        ours, theirs = differing[0]
        key = ", ".join(f"{part}={ours[part]!r}" for part in schema.key)
        example = f"of {key} the snapshot reads {_cut(ours[name])}, the binlog {_cut(theirs[name])}"
    return ColumnParity(schema.table, name, str(column.source_type), len(values), len(differing), example)


def _changes(
    source: BinlogSource, segment: Segment, schemas: Mapping[TableId, TableSchema], executed: GtidSet | None = None
) -> Changed:
    """The last change of each key in a segment, among at least the latest CHANGE_ROWS change rows of each table.

    With `executed`, a change of another transaction counts as not visible yet.
    """

    def exists(row: Row) -> bool:
        """Whether the row exists after this change, and other sessions see it."""
        is_visible = executed is None or GtidSet.parse(row[change.GTID]) <= executed
        return is_visible and not RowKind(row[change.KIND]).is_delete

    batches: dict[TableId, deque[pa.RecordBatch]] = {table: deque() for table in schemas}
    for table, batch in source.changes(segment, schemas):
        if table is not None:
            latest = batches[table]
            latest.append(batch)
            while sum(part.num_rows for part in latest) - latest[0].num_rows >= CHANGE_ROWS:
                latest.popleft()
    return {
        table: {
            tuple(row[name] for name in schemas[table].key): row if exists(row) else None
            for batch in latest
            for row in batch.to_pylist()
        }
        for table, latest in batches.items()
    }


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
