"""changelog-json: each line has a row kind and a row, as in Flink's format changelog-json, and the row's origin.

A row is `{"op": "+I", "data": {…}, "position": "…", "committed_at": "…", "gtid": "…"}`. Decimals and unsigned bigints
are JSON numbers with all their digits, binary values are base64, times are ISO 8601. The rows of a copy, and rows that
were read again, have neither a commit time nor a GTID. If a key was read again and has no row any more, the line is a
-D that has only the key.

DDL is `{"op": "DDL", "data": null, …, "statement": "…", "key": […], "columns": […]}`: later rows have these columns.
Each column has MySQL's type, whether the column is nullable, and the column's old name in `was`. For a new column,
`was` is null, and `fill` is the value of the existing rows.

TRUNCATE is `{"op": "TRUNCATE", "data": null, …, "statement": "…"}`: all rows are deleted.
"""

from collections.abc import Iterator

from lakeingest.commands.change_lines import (
    DDL,
    OPS,
    TRUNCATE,
    Encode,
    is_truncate,
    json_binary,
    json_boolean,
    json_date,
    json_float32,
    json_number,
    json_text,
    json_vector,
    positions,
    statement,
    time_encoder,
    values_of_added,
)
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Copied, Part
from lakeingest.spool.followed import Altered

json_committed_at = time_encoder(6, "Z")
_ENCODERS: dict[Kind, Encode] = {
    Kind.INT32: str,
    Kind.INT64: str,
    Kind.UINT64: json_number,
    Kind.DECIMAL: json_number,
    Kind.FLOAT: json_float32,
    Kind.DOUBLE: repr,
    Kind.DATE: json_date,
    Kind.BOOLEAN: json_boolean,
    Kind.BINARY: json_binary,
    Kind.VECTOR: json_vector,
    Kind.MICROS: str,
}


class RowObjects:
    """Writes rows as JSON objects, with the values of changelog-json."""

    def __init__(self) -> None:
        self._schema: TableSchema | None = None  # the definition that `_columns` were made for
        self._columns: list[tuple[str, str, Encode]] = []  # of each column: its name, its JSON label, its encoder

    def of(self, part: Copied | Changed) -> list[str]:
        """An object for each row of the part."""
        if part.schema is not self._schema:  # encoders are made once for parts with the same definition
            self._schema = part.schema
            self._columns = [
                (column.name, f"{json_text(column.name)}: ", encoder(column)) for column in part.schema.columns
            ]
        labelled_columns = [  # for each column, the texts `"name": value` of all rows
            [label + ("null" if value is None else encode(value)) for value in part.rows[name].to_pylist()]
            for name, label, encode in self._columns
        ]
        return [f"{{{', '.join(labelled)}}}" for labelled in zip(*labelled_columns, strict=True)]


def origins(part: Copied | Changed) -> tuple[list[str], list[str], list[str]]:
    """For all rows of the part: their kinds, and as JSON their commit times and GTIDs; null where there is none."""
    rows, row_count = part.rows, part.rows.num_rows
    if isinstance(part, Copied):
        return ["+I"] * row_count, ["null"] * row_count, ["null"] * row_count
    ops = [OPS[RowKind(kind)] for kind in rows[change.KIND].to_pylist()]
    committed_at = rows[change.COMMITTED_AT].to_pylist()
    times = ["null" if value is None else json_committed_at(value) for value in committed_at]
    return ops, times, [text_or_null(value) for value in rows[change.GTID].to_pylist()]


class ChangelogJson:
    """Writes lines of changelog-json for one table; `name` is the name of the table's changelog."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects = RowObjects()

    def lines(self, part: Part) -> Iterator[str]:
        """A line for each row of the part, or one line for DDL. The lines have no line ends."""
        if isinstance(part, Altered):
            yield self._ddl_line(part)
            return
        ops, times, gtids = origins(part)
        rows, at = self._objects.of(part), positions(part, self._name)
        for op, row, position, time, gtid in zip(ops, rows, at, times, gtids, strict=True):
            yield (f'{{"op": "{op}", "data": {row}, "position": "{position}", "committed_at": {time}, "gtid": {gtid}}}')

    def _ddl_line(self, part: Altered) -> str:
        """The line of DDL."""
        followed, [position] = part.followed, positions(part, self._name)
        return (
            f'{{"op": "{TRUNCATE if is_truncate(part) else DDL}", "data": null, "position": "{position}",'
            f' "committed_at": {json_committed_at(followed.committed_at)}, "gtid": {text_or_null(followed.gtid)},'
            f" {ddl_members(part)}}}"
        )


def ddl_members(part: Altered) -> str:
    """What a JSON object says of DDL: `statement`, `key` and `columns`.

    For TRUNCATE, `key` and `columns` are left out, because TRUNCATE does not change them.
    """
    said = f'"statement": {json_text(statement(part))}'
    if is_truncate(part):
        return said
    key = ", ".join(map(json_text, part.followed.after.key))
    return f'{said}, "key": [{key}], "columns": [{", ".join(_column_objects(part))}]'


def _column_objects(part: Altered) -> Iterator[str]:
    """The table's columns after DDL, each as a JSON object. Only new columns have the field `fill`."""
    added = values_of_added(part)
    for column, old_name in zip(part.followed.after.columns, part.followed.origins, strict=True):
        fields = (
            f'"name": {json_text(column.name)}, "type": {json_text(str(column.source_type))},'
            f' "nullable": {json_boolean(column.nullable)}, "was": {text_or_null(old_name)}'
        )
        if old_name is None:
            value = added[column.name]
            fields += f', "fill": {"null" if value is None else encoder(column)(value)}'
        yield f"{{{fields}}}"


def text_or_null(value: str | None) -> str:
    """A JSON string, or null."""
    return "null" if value is None else json_text(value)


def encoder(column: Column) -> Encode:
    """The function that writes a value of this column as JSON. The function is not called for NULL."""
    if column.kind is Kind.DATETIME:
        return time_encoder(column.fraction)
    if column.kind is Kind.TIMESTAMP:
        return time_encoder(column.fraction, "Z")
    return _ENCODERS.get(column.kind, json_text)
