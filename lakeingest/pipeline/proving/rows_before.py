"""Rows of the source as of a published position, for keys that were changed after it: the binlog has them.

The first change of a key after the position says what its row was at the position: an update or a delete has the old
row, and before an insert there was none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.core.binlog.position import Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.change import KIND, RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import Retryable, SourceMoved, UnsupportedEvent
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.key_values import key_table
from lakeingest.rows import Part, change_schema, table_schema

_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """What the binlog after a position says about some keys.

    `has_changes`: the binlog has changes of the table, whatever their keys. `changed`: the keys that were changed after
    the position. `rows`: the rows of these changed keys as of the position; a key that had no row there has none here.
    """

    has_changes: bool
    changed: pa.Table
    rows: pa.Table


def rows_before(
    source: BinlogSource, position: Position, schema: TableSchema, keys: pa.Table, parents: Sequence[TableSchema]
) -> RowsBefore:
    """Read the binlog from the position to its present end, for these `keys` of a table.

    `parents`: the tables whose changes can change rows of this table outside the binlog.

    Raises:
        SourceMoved: one of the parents was changed.
        Retryable: the binlog has DDL of the table, which the next run follows.
        BinlogGone: the source no longer has the binlog after the position.
        SourceReplaced: the source is another server now.

    """
    watched = {watched_schema.table: watched_schema for watched_schema in (schema, *parents)}
    source.assert_there(position)
    has_changes, unchanged = False, keys
    first_changes = [change_schema(schema).empty_table()]
    for table, batch in _unless_ddl(schema, source.changes(Segment.after(position, source.written()), watched)):
        if table is None or not batch.num_rows:  # None: a batch of transactions, not of a table's rows
            continue
        if table != schema.table:
            raise SourceMoved(
                f"{table} was changed after {position.at}, where {schema.table} is published, and foreign keys may have"
                f" changed rows of {schema.table} with it, which the source does not log: run `lakeingest run`, and"
                " verify while nobody writes to it"
            )
        has_changes = True
        if unchanged.num_rows:
            found = _first_rows(pa.Table.from_batches([batch]), unchanged)
            first_changes.append(found)
            unchanged = unchanged.join(
                found.select(schema.key), keys=list(schema.key), join_type="left anti", use_threads=False
            )
    changes = pa.concat_tables(first_changes)
    # updates and deletes have the row as of the position; before an insert there was none
    takes_row_away = pa.array([RowKind(kind).is_delete for kind in changes[KIND].to_pylist()], pa.bool_())
    rows = changes.filter(takes_row_away).select(table_schema(schema).names)
    return RowsBefore(has_changes, changes.select(schema.key).cast(key_table(schema, ()).schema), rows)


def _unless_ddl(schema: TableSchema, parts: Iterator[Part]) -> Iterator[Part]:
    """Yield the parts. Raises Retryable for DDL among them."""
    try:
        yield from parts
    except UnsupportedEvent as error:
        if error.ddl is None:
            raise
        raise Retryable(
            f"{schema.table}: there is DDL after its published position; run `lakeingest run` first"
        ) from error


def _first_rows(changes: pa.Table, keys: pa.Table) -> pa.Table:
    """For each of the `keys` that has change rows, the first of them."""
    names = keys.column_names
    numbered = changes.select(names).append_column(_NUMBER, pa.array(range(changes.num_rows), pa.int64()))
    matching = numbered.join(keys, keys=names, join_type="left semi", use_threads=False)
    first = matching.group_by(names, use_threads=False).aggregate([(_NUMBER, "min")])
    return changes.take(first[f"{_NUMBER}_min"].sort())
