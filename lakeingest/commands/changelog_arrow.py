"""The changelog as Arrow record batches: a row's kind, its origin, then the table's columns."""

from collections.abc import Iterator

import pyarrow as pa

from lakeingest.commands.change_lines import DDL, OPS, TRUNCATE, is_truncate, positions
from lakeingest.commands.changelog_json import ChangelogJson
from lakeingest.core.tables import change
from lakeingest.core.tables.change import OP, POSITION, RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Changelog, Copied, Part
from lakeingest.rows import INSTANT, table_schema
from lakeingest.spool.followed import Altered

DDL_LINE = b"lakeingest.ddl"  # the key in the metadata of a DDL batch; its value is the DDL's line of changelog-json


def batches(changelog: Changelog, parts: Iterator[Part]) -> Iterator[pa.RecordBatch]:
    """Each part as a batch. Rows of a copy, and rows that were read again, have neither a commit time nor a GTID.

    DDL is a batch of one row, with the table's new columns and without values in them. The metadata of this batch have
    the DDL's line of changelog-json, under the key `DDL_LINE`.
    """
    for part in parts:
        yield batch_of(part, changelog.name)


def batch_of(part: Part, name: str) -> pa.RecordBatch:
    """A part as a batch, as `batches` describes it. `name` is the name of the table's changelog."""
    return _ddl_batch(part, name) if isinstance(part, Altered) else _row_batch(part, name)


def batch_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's batches.

    Columns outside the key are nullable, because some deletes have only the key.
    """
    columns = [field if field.name in schema.key else field.with_nullable(True) for field in table_schema(schema)]
    return pa.schema([*ORIGIN, *columns])


ORIGIN = [  # the columns that say where a row comes from
    pa.field(OP, pa.string(), nullable=False),
    pa.field(POSITION, pa.string(), nullable=False),
    pa.field(change.COMMITTED_AT, INSTANT),
    pa.field(change.GTID, pa.string()),
]


def _ddl_batch(part: Altered, name: str) -> pa.RecordBatch:
    """A batch of one row, whose kind (`op`) is DDL or TRUNCATE. `name` is the name of the table's changelog."""
    columns = [field.with_nullable(True) for field in table_schema(part.followed.after)]
    [line] = ChangelogJson(name).lines(part)
    schema = pa.schema([*ORIGIN, *columns], metadata={DDL_LINE: line})
    row = dict.fromkeys(schema.names) | {
        OP: TRUNCATE if is_truncate(part) else DDL,
        POSITION: positions(part, name)[0],
        change.COMMITTED_AT: part.followed.committed_at,
        change.GTID: part.followed.gtid,
    }
    return pa.RecordBatch.from_pylist([row], schema=schema)


def _row_batch(part: Copied | Changed, name: str) -> pa.RecordBatch:
    """The rows of a part, with their kinds and origin. Rows of a copy are inserts without a commit time and a GTID."""
    rows, row_count, schema = part.rows, part.rows.num_rows, batch_schema(part.schema)
    if isinstance(part, Changed):
        ops = [OPS[RowKind(kind)] for kind in rows[change.KIND].to_pylist()]
        origin = [rows[change.COMMITTED_AT], rows[change.GTID]]
    else:
        ops = [OPS[RowKind.INSERT]] * row_count
        origin = [pa.nulls(row_count, INSTANT), pa.nulls(row_count, pa.string())]
    columns_of_table = list(schema)[len(ORIGIN) :]
    columns = [rows[field.name].cast(field.type) for field in columns_of_table]
    positions_after = pa.array(positions(part, name), pa.string())
    return pa.RecordBatch.from_arrays([pa.array(ops, pa.string()), positions_after, *origin, *columns], schema=schema)
