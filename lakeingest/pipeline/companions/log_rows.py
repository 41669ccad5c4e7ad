"""Parts of a changelog as rows of its table (`core.companions.log_columns`). No value is decoded or changed."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.log_columns import BINLOG, COPY, DDL_JSON, ORIGIN, REREAD, SCHEMA
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Copied
from lakeingest.pipeline.companions.log_tables import Log
from lakeingest.rows import INSTANT, place_texts, table_schema
from lakeingest.spool.followed import Altered

DDL, TRUNCATE, RESET = "DDL", "TRUNCATE", "RESET"
_NAMES = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}
_OPS = [_NAMES[kind] for kind in RowKind]  # by the kind's number


def place_of_first(part: Copied | Changed) -> Place:
    """The place of the first row of a part that has rows."""
    return part.place if isinstance(part, Copied) else _place_at(part.rows, 0)


def position_after(part: Copied | Changed, name: str) -> ReadTo:
    """The position in the changelog `name` after the last row of a part that has rows.

    For a row of the binlog, it is the end of the row's transaction.
    """
    place = part.place if isinstance(part, Copied) else _place_at(part.rows, part.rows.num_rows - 1)
    if isinstance(part, Changed) and is_reread(part):
        return ReadTo(place, log=name, reread=part.rows[change.ORDINAL][part.rows.num_rows - 1].as_py())
    return ReadTo(place, log=name)


def _place_at(rows: pa.RecordBatch, number: int) -> Place:
    """The place of the change row with this number."""
    return Place(*(rows[name][number].as_py() for name in change.PLACE))


def is_reread(part: Changed) -> bool:
    """Whether the rows of the part were read again: such rows have no commit time."""
    return bool(part.rows.num_rows) and not part.rows[change.COMMITTED_AT][0].is_valid


def copied_rows(rows: pa.Table, schema: TableSchema, place: Place, log: Log) -> pa.Table:
    """Rows of a copy, with the columns of `schema`, as rows of the log. NUMBER and LOGGED_AT are still missing."""
    own = {change.OP: "+I", ORIGIN: COPY, change.POSITION: str(place), SCHEMA: schema.fingerprint}
    columns = {name: pa.repeat(pa.scalar(value, pa.string()), rows.num_rows) for name, value in own.items()}
    return pa.table(columns | _values(rows, log))


def changed_rows(rows: pa.Table, schema: TableSchema, log: Log, *, reread: bool) -> pa.Table:
    """Change rows as rows of the log. NUMBER and LOGGED_AT are still missing.

    `schema`: the definition of the rows. `reread`: they were read again, and are not from the binlog.
    """
    count = rows.num_rows
    columns = {
        change.OP: pa.array(_OPS).take(rows[change.KIND].cast(pa.int32()).combine_chunks()),
        ORIGIN: pa.repeat(pa.scalar(REREAD if reread else BINLOG), count),
        change.POSITION: place_texts(rows),
        change.COMMITTED_AT: rows[change.COMMITTED_AT],
        change.GTID: rows[change.GTID],
        change.ORDINAL: rows[change.ORDINAL],
        SCHEMA: pa.repeat(pa.scalar(schema.fingerprint), count),
    }
    return pa.table(columns | _values(rows, log))


def ddl_row(part: Altered, log: TableSchema, old: Mapping[str, str], new: Mapping[str, str]) -> pa.Table:
    """The row of the log for DDL. NUMBER and LOGGED_AT are still missing.

    In each column that the DDL has added, the row has the value that older rows have there. `old`, `new`: the column of
    the log for each column of the table before and after the DDL.
    """
    followed = part.followed
    alteration = part.alteration
    doc: dict[str, Any] = {"statement": alteration.text or alteration.statement}
    values: dict[str, pa.Scalar] = {}
    if not alteration.empties:  # a TRUNCATE changes no column: its statement says all
        doc |= _definition(followed.after, new)
        # `was`: the column of the log that had the values before the DDL; None for a new column
        for column, old_name in zip(doc["columns"], followed.origins, strict=True):
            column["was"] = None if old_name is None else old[old_name]
        types = table_schema(log)
        for name, value in followed.fills.items():
            if value.is_valid:
                values[new[name]] = value.cast(types.field(new[name]).type)
    return _document_row(TRUNCATE if alteration.empties else DDL, followed.place, followed.after, doc, values, followed)


def reset_row(place: Place, schema: TableSchema, columns: Mapping[str, str], why: str) -> pa.Table:
    """The row of the log after which no older row counts. NUMBER and LOGGED_AT are still missing.

    `columns`: the column of the log for each column of the table.
    """
    return _document_row(RESET, place, schema, {"why": why, **_definition(schema, columns)}, {}, None)


def _document_row(
    op: str,
    place: Place,
    schema: TableSchema,
    doc: Mapping[str, Any],
    values: Mapping[str, pa.Scalar],
    of: Any,
) -> pa.Table:
    """The row that a document describes. `of`: the DDL in the binlog; None for a RESET, which is of no transaction."""
    text = json.dumps(doc, ensure_ascii=False)
    columns: dict[str, pa.Array] = {
        change.OP: pa.array([op]),
        ORIGIN: pa.array([None if of is None else BINLOG], pa.string()),
        change.POSITION: pa.array([str(place)]),
        change.COMMITTED_AT: pa.array([None if of is None else of.committed_at], INSTANT),
        change.GTID: pa.array([None if of is None else of.gtid], pa.string()),
        change.ORDINAL: pa.array([None if of is None else 0], pa.int64()),  # DDL is alone in its transaction
        SCHEMA: pa.array([schema.fingerprint]),
        DDL_JSON: pa.array([text]),
    }
    return pa.table(columns | {name: pa.repeat(value, 1) for name, value in values.items()})


def _definition(schema: TableSchema, columns: Mapping[str, str]) -> dict[str, Any]:
    """The key and the columns of a definition: the name in the table, and the column of the log."""
    return {
        "key": list(schema.key),
        "columns": [
            {
                "name": column.name,
                "column": columns[column.name],
                "type": str(column.source_type),
                "nullable": column.nullable,
            }
            for column in schema.columns
        ],
    }


def _values(rows: pa.Table, log: Log) -> dict[str, pa.ChunkedArray]:
    """The values of the table's columns, by the names of the log's columns and with their types."""
    types = table_schema(log.schema)
    return {name: rows[own].cast(types.field(name).type) for own, name in log.columns.items()}


def sum_of(tables: list[pa.Table]) -> pa.Table:
    """All rows of the tables, in order. A column that some of the tables lack is NULL in their rows."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
