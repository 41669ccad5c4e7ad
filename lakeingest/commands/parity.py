"""Parity: the same rows are read from the binlog and by SELECT, and compared column by column.

Different code decodes the binlog's bytes and the bytes of a SELECT. Both must give the same values. The compared rows
are those that were changed lately: they are taken from the binlog, then read again by their keys. A row is left out if
it was changed once more in between. It is also left out if its transaction may be invisible to other sessions: a
transaction is in the binlog before other sessions see it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeingest.core.binlog.position import FIRST_EPOCH, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, SchemaChanged, UnsupportedEvent
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import start_of_newest
from lakeingest.mysql.hash_key import keyed
from lakeingest.mysql.keyed_rows import rows_of

ROWS = 1_000  # so many rows of each table are compared at most
# So many of the latest change rows of each table are kept. Many of these changes may be of the same row, so the
# number is greater than ROWS.
CHANGE_ROWS = 20 * ROWS
VALUE_CHARACTERS = 60  # in messages, a longer value is cut
BYTES = 64 << 20  # the most bytes that are read of the binlog's end; but the newest file is always read whole

_AFTER_DDL = (
    "the newest file of the binlog has DDL of these tables; ask again once the source has begun another file, as by"
    " FLUSH BINARY LOGS, and rows were written"
)

Row = dict[str, Any]
# By table and key: the row after its last change; None if the row is deleted, or if the change is not visible yet
LastChanges = dict[TableId, dict[tuple[Any, ...], Row | None]]


@dataclass(frozen=True, slots=True)
class ColumnParity:
    """How many values of a column were compared, how many of these differ, and the first difference as a text."""

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
    """Two conditions: the binlog and SELECT give the same values; every column had a value that could be compared.

    The first condition is a problem if values differ; the second is only a warning. If nothing can be compared, the
    result is one warning with the reason.
    """
    try:
        with source.named_errors():
            try:
                columns = column_parities(source, schemas)
            except (SchemaChanged, UnsupportedEvent):  # by DDL in an older file, which the newest one may not have
                columns = column_parities(source, schemas, most_bytes=0)
    except LakeIngestError as error:
        # the error's own message says to copy the tables again, which only a run that meets DDL needs
        is_ddl = isinstance(error, SchemaChanged) or (isinstance(error, UnsupportedEvent) and bool(error.alterations))
        reason = _AFTER_DDL if is_ddl else error
        return (Checked("parity", f"snapshot and binlog cannot be compared: {reason}", fatal=False),)
    differing = "; ".join(str(column) for column in columns if column.differing)
    not_compared = ", ".join(f"{column.table}.{column.column}" for column in columns if not column.compared)
    fix = "name it in a report to the lakeingest project, and leave the table out with tables.exclude"
    missed = f"no value of {not_compared} was written lately: insert or update rows and ask again"
    return (
        Checked("parity", f"{differing}; {fix}" if differing else None),
        Checked("parity of all columns", missed if not_compared else None, fatal=False),
    )


def column_parities(
    source: BinlogSource, schemas: Mapping[TableId, TableSchema], most_bytes: int = BYTES
) -> list[ColumnParity]:
    """The parity of each column of each table. A value that is NULL on both sides does not count as compared.

    The newest binlog file is read, and older files as long as all files together have at most `most_bytes`.
    """
    # Step 1: read the latest changes from the binlog, up to `stop`.
    state, stop = source.state(), source.written()
    recent = Segment(state.uuid, FIRST_EPOCH, start_of_newest(source.connection, most_bytes), stop, GtidSet())
    changed = _last_changes(source, recent, schemas, state.executed)
    in_binlog = {table: {key: row for key, row in rows.items() if row is not None} for table, rows in changed.items()}
    # Step 2: read the same rows from the tables; of each table, those that were changed last.
    in_table = {
        table: rows_of(
            source.connection, keyed(schema, source.settings), list(in_binlog[table].values())[-ROWS:]
        ).to_pylist()
        for table, schema in schemas.items()
    }
    # Step 3: read the changes after `stop`. Step 2 may have read rows with these changes: such rows are left out.
    changed_later = _last_changes(source, Segment(state.uuid, FIRST_EPOCH, stop, source.written(), GtidSet()), schemas)
    columns: list[ColumnParity] = []
    for table, schema in schemas.items():
        pairs = []
        for row in in_table[table]:
            key = tuple(row[name] for name in schema.key)
            if key in in_binlog[table] and key not in changed_later[table]:
                pairs.append((row, in_binlog[table][key]))
        columns += [column_parity(schema, number, pairs) for number in range(len(schema.columns))]
    return columns


def column_parity(schema: TableSchema, number: int, rows: Sequence[tuple[Row, Row]]) -> ColumnParity:
    """The parity of the column with this number. `rows`: pairs of a row of a SELECT, and the same row in the binlog."""
    column, name = schema.columns[number], schema.columns[number].name
    compared = [(selected, logged) for selected, logged in rows if (selected[name], logged[name]) != (None, None)]
    # compared as text, because 1.50 and 1.5 are different values here, and so are -0.0 and 0.0
    differing = [(selected, logged) for selected, logged in compared if repr(selected[name]) != repr(logged[name])]
    example = ""
    if differing:
        selected, logged = differing[0]
        key = ", ".join(f"{part}={selected[part]!r}" for part in schema.key)
        example = f"of {key} the snapshot reads {_shortened(selected[name])}, the binlog {_shortened(logged[name])}"
    return ColumnParity(schema.table, name, str(column.source_type), len(compared), len(differing), example)


def _last_changes(
    source: BinlogSource, segment: Segment, schemas: Mapping[TableId, TableSchema], executed: GtidSet | None = None
) -> LastChanges:
    """By table and key: the row after the key's last change in a segment; None if the row is deleted or not visible.

    Of each table, only about the latest CHANGE_ROWS change rows count. With `executed`, a change is visible only if its
    transaction is in this set; without `executed`, each change is visible.
    """

    def exists(row: Row) -> bool:
        """Whether the row exists after this change, and other sessions see it."""
        is_visible = executed is None or GtidSet.parse(row[change.GTID]) <= executed
        return is_visible and not RowKind(row[change.KIND]).is_delete

    batches: dict[TableId, deque[pa.RecordBatch]] = {table: deque() for table in schemas}
    for table, batch in source.changes(segment, schemas):
        if table is not None:  # the rows of None are those of transactions
            latest = batches[table]
            latest.append(batch)
            # drop the oldest batch while the others have enough rows
            while sum(part.num_rows for part in latest) - latest[0].num_rows >= CHANGE_ROWS:
                latest.popleft()
    last_changes: LastChanges = {}
    for table, latest in batches.items():
        rows_after = last_changes[table] = {}
        latest_rows = (row for batch in latest for row in batch.to_pylist())
        for row in latest_rows:
            key = tuple(row[name] for name in schemas[table].key)
            rows_after.pop(key, None)  # so that the keys are in the order of their last changes
            rows_after[key] = row if exists(row) else None
    return last_changes


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
