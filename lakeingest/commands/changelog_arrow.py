"""The changelog as Arrow record batches: what a row does, where it came from, then the table's columns."""

from collections.abc import Iterator

import pyarrow as pa

from lakeingest.commands.change_lines import OPS, positions
from lakeingest.commands.changelog import Changed, Changelog, Part
from lakeingest.core import change
from lakeingest.core.change import OP, POSITION, RowKind
from lakeingest.core.schema import TableSchema
from lakeingest.rows import INSTANT, table_schema


def batches(changelog: Changelog, parts: Iterator[Part]) -> Iterator[pa.RecordBatch]:
    """Each part as a batch; rows that were read from the table have neither the time of a commit nor a GTID."""
    schema = batch_schema(changelog.schema)
    for part in parts:
        yield _batch(part, changelog.name, schema)


def batch_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of these batches. A delete of a row that was read again may have only the key."""
    origin = [
        pa.field(OP, pa.string(), nullable=False),
        pa.field(POSITION, pa.string(), nullable=False),
        pa.field(change.COMMITTED_AT, INSTANT),
        pa.field(change.GTID, pa.string()),
    ]
    columns = [field if field.name in schema.key else field.with_nullable(True) for field in table_schema(schema)]
    return pa.schema([*origin, *columns])


def _batch(part: Part, name: str, schema: pa.Schema) -> pa.RecordBatch:
    rows, count = part.rows, part.rows.num_rows
    if isinstance(part, Changed):
        ops = [OPS[RowKind(kind)] for kind in rows[change.KIND].to_pylist()]
        origin = [rows[change.COMMITTED_AT], rows[change.GTID]]
    else:
        ops = [OPS[RowKind.INSERT]] * count
        origin = [pa.nulls(count, INSTANT), pa.nulls(count, pa.string())]
    columns = [rows[field.name].cast(field.type) for field in list(schema)[4:]]
    places = pa.array(positions(part, name), pa.string())
    return pa.RecordBatch.from_arrays([pa.array(ops, pa.string()), places, *origin, *columns], schema=schema)
