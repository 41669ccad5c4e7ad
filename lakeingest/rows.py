"""Rows as Arrow tables, in the form that source, spool and lake share.

Each kind of column has one Arrow type, which can hold every value of this kind exactly.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema

BATCH_ROWS = 4_096
INSTANT = pa.timestamp("us", "UTC")

VECTOR = pa.list_(pa.field("element", pa.float32(), nullable=False))

_TYPES: dict[Kind, pa.DataType] = {
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMESTAMP: INSTANT,
    Kind.TIME: pa.string(),
    Kind.STRING: pa.string(),
    Kind.NUMERAL: pa.string(),
    Kind.JSON: pa.string(),
    Kind.UUID: pa.string(),
    Kind.ADDRESS: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.BINARY: pa.binary(),
    Kind.VECTOR: VECTOR,
    Kind.MOMENT: pa.string(),
    Kind.MICROS: pa.int64(),
}

_ORIGIN_FIELDS = [
    pa.field(change.KIND, pa.int8(), nullable=False),
    pa.field(change.EPOCH, pa.int32(), nullable=False),
    pa.field(change.FILE, pa.int64(), nullable=False),
    pa.field(change.POS, pa.int64(), nullable=False),
    pa.field(change.ORDINAL, pa.int64(), nullable=False),
    pa.field(change.COMMITTED_AT, INSTANT, nullable=False),
    pa.field(change.GTID, pa.string()),
]

TRANSACTIONS = pa.schema(
    [
        pa.field("uuid", pa.string()),  # null where the source has no GTIDs
        pa.field("tag", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("file", pa.int64(), nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("committed_at", INSTANT, nullable=False),
    ]
)
FEW_ROWS = 10_000  # so many rows are sorted in less time than Arrow takes to begin a join or to group
THREADS_ROWS = 100_000  # of fewer rows, threads of Arrow take longer than the work that they share


Part = tuple[TableId | None, pa.RecordBatch]  # a table with change rows of it, or None with rows of TRANSACTIONS


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type that can hold every value of the column exactly."""
    if column.kind is Kind.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    return _TYPES[column.kind]


def table_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's rows."""
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in schema.columns])


def lake_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of the rows of a table's copy: the table's columns, then its metadata columns."""
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in schema.lake_columns])


def constants(schema: TableSchema, values: Mapping[str, object]) -> dict[str, pa.Scalar]:
    """Arrow scalars of `values`, by the names of their columns. Each scalar has the Arrow type of its column."""
    return {name: pa.scalar(value, arrow_type(schema.column(name))) for name, value in values.items()}


def source_names(schema: TableSchema) -> tuple[str, ...]:
    """The names of the columns of the copy from which `source_rows` makes rows of the table."""
    return (*schema.names, change.DELETED) if schema.keeps_deleted else schema.names


def source_rows(rows: pa.Table, schema: TableSchema, *, nullable: bool = False) -> pa.Table:
    """Rows of the copy as rows of the source's table: without metadata columns and rows that are marked as deleted.

    `nullable`: each column may have NULL, because another tool may have written the rows.
    """
    if schema.keeps_deleted:
        rows = rows.filter(pc.invert(rows[change.DELETED]))
    return rows.select(list(schema.names)).cast(optional(table_schema(schema)) if nullable else table_schema(schema))


def optional(fields: pa.Schema) -> pa.Schema:
    """The columns `fields`, but each of them may have NULL."""
    return pa.schema([field.with_nullable(True) for field in fields])


def change_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's change rows: kind and origin (`core.tables.change`), then the table's columns."""
    return pa.schema([*_ORIGIN_FIELDS, *table_schema(schema)])


# A key in the metadata of stored change rows; its value is the fingerprint of the rows' definition.
DEFINITION = b"lakeingest.definition"


def with_definition(fields: pa.Schema, schema: TableSchema) -> pa.Schema:
    """The Arrow schema `fields`, with the fingerprint of the table's definition `schema` in its metadata."""
    return fields.with_metadata({DEFINITION: schema.fingerprint.encode()})


def reread_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of reread rows. They have no commit time, and a deleted row can have only its key."""
    required = {*schema.key, change.KIND, *change.ORDER}
    return pa.schema([field.with_nullable(field.name not in required) for field in change_schema(schema)])


def rows_after_changes(
    rows: Iterable[pa.RecordBatch], changes: Sequence[pa.Table], key: Sequence[str], schema: TableSchema
) -> Iterator[pa.RecordBatch]:
    """The rows as they are after the changes: first the rows whose keys have no change, then the changed rows.

    A changed row is the row of its key's last change, unless that is a delete. `changes` are in order, and have the
    column `core.tables.change.DELETED`. The keys of all changes are held in memory.
    """
    # Step 1: find the last change of each key: the number of its table in `changes`, and of its row in this table.
    last_change: dict[tuple[Any, ...], tuple[int, int]] = {}
    for number, part in enumerate(changes):
        for row, values in enumerate(zip(*(part[name].to_pylist() for name in key), strict=True)):
            last_change[values] = number, row
    # Step 2: give the rows whose keys have no change.
    for batch in rows:
        if not last_change:
            yield batch
            continue
        keys = zip(*(batch[name].to_pylist() for name in key), strict=True)
        are_unchanged = pa.array([values not in last_change for values in keys], pa.bool_())
        yield batch.filter(are_unchanged)
    # Step 3: give the rows of the last changes, in the order of the changes, without deletes.
    for number, part in enumerate(changes):
        row_numbers = sorted(row for part_number, row in last_change.values() if part_number == number)
        last_changes = part.take(pa.array(row_numbers, pa.int64()))
        are_kept = [not is_deleted for is_deleted in last_changes[change.DELETED].to_pylist()]
        new_rows = last_changes.filter(pa.array(are_kept, pa.bool_())).select(list(schema.names))
        yield from new_rows.cast(table_schema(schema)).to_batches(BATCH_ROWS)


READ_OP = "r"  # the value of the metadata column OP for a row that was read from the table
# The values of OP and of DELETED, by the kind's number. A -U counts as a delete, because its +U brings the new row
_OPS = [{RowKind.INSERT: "c", RowKind.UPDATE_AFTER: "u"}.get(kind, "d") for kind in RowKind]
_DELETES = [kind.is_delete for kind in RowKind]
_PLACE_DIGITS = 6, 10, 20  # the number of digits of each part (epoch, file, position) in the text of a place


def with_read_metadata(rows: pa.Table, schema: TableSchema, place: Place) -> pa.Table:
    """Rows that were read from the table as of `place`, with the metadata columns of their copy."""
    values = {change.OP: READ_OP, change.DELETED: False, change.POSITION: str(place), change.COMMITTED_AT: None}
    values |= {change.DATABASE: schema.table.database, change.TABLE: schema.table.name}
    metadata_fields = list(lake_schema(schema))[len(schema.columns) :]  # they come after the table's columns
    for field in metadata_fields:
        rows = rows.append_column(field, pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows))
    return rows


def with_change_metadata(rows: pa.Table, schema: TableSchema, changes: pa.Table, stop: Place) -> pa.Table:
    """`rows` with the metadata columns of their copy. Row n gets the values of the change in row n of `changes`.

    Changes of epoch 0 are rows that were read again from the table. The exact place of such a row is unknown, but it is
    at `stop` or before, so the row gets the place `stop`.
    """
    is_reread = pc.equal(changes[change.EPOCH], 0)
    kinds = changes[change.KIND].cast(pa.int32())
    for name in (column.name for column in schema.metadata):
        column: pa.ChunkedArray
        match name:
            case change.OP:
                column = pa.array(_OPS).take(kinds.combine_chunks())
                # a reread row that was not deleted was read, not inserted
                column = pc.if_else(pc.and_(is_reread, pc.equal(kinds, RowKind.INSERT.value)), READ_OP, column)
            case change.DELETED:
                column = pa.array(_DELETES).take(kinds.combine_chunks())
            case change.POSITION:
                column = pc.if_else(is_reread, str(stop), place_texts(changes))
            case change.COMMITTED_AT:
                column = pc.if_else(is_reread, pa.scalar(None, INSTANT), changes[change.COMMITTED_AT])
            case change.DATABASE:
                column = pa.repeat(pa.scalar(schema.table.database), rows.num_rows)
            case change.TABLE:
                column = pa.repeat(pa.scalar(schema.table.name), rows.num_rows)
            case _:
                raise ValueError(f"{name} is not a metadata column")
        rows = rows.append_column(name, column)
    return rows


def place_texts(changes: pa.Table) -> pa.ChunkedArray:
    """The place of each change, in the form of `str(Place)`."""
    parts = [
        pc.utf8_lpad(changes[name].cast(pa.string()), width, "0")
        for name, width in zip(change.PLACE, _PLACE_DIGITS, strict=True)
    ]
    return pc.binary_join_element_wise(*parts, ".")


def values_of(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """The values of a column, with the type of `field`; NULLs if the rows lack the column and it may be NULL.

    Raises KeyError if they lack a column that may not be NULL.
    """
    if field.name not in rows.column_names and field.nullable:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    return rows[field.name].cast(field.type)


def few_integers(columns: Sequence[pa.ChunkedArray]) -> "np.ndarray | None":
    """The values of a single column, if these are few integers and none is NULL; else None."""
    if len(columns) != 1 or len(columns[0]) > FEW_ROWS or not pa.types.is_integer(columns[0].type):
        return None
    return None if columns[0].null_count else np.asarray(columns[0].to_numpy())


def last_of_each(values: "np.ndarray") -> "np.ndarray":
    """The index of the last occurrence of each distinct value, ascending."""
    _, from_the_end = np.unique(values[::-1], return_index=True)
    return np.sort(len(values) - 1 - from_the_end)
