"""changelog-json: a row kind and a row a line, as Flink's format of that name has it, with where the row came from.

`{"op": "+I", "data": {…}, "position": "…", "committed_at": "…", "gtid": "…"}`. A decimal and an unsigned bigint are
JSON numbers with all their digits, binary values are base64, times are ISO 8601. The rows of a copy, and rows that were
read again, have neither a time of a commit nor a GTID. A key that was read again and has no row is a -D with the key.
"""

from collections.abc import Iterator

from lakeingest.commands.change_lines import (
    OPS,
    Encode,
    binary,
    boolean,
    day,
    moment,
    number,
    positions,
    single,
    text,
    vector,
)
from lakeingest.commands.changelog import Changed, Part
from lakeingest.core import change
from lakeingest.core.change import RowKind
from lakeingest.core.schema import Column, Kind, TableSchema

_COMMITTED_AT = moment(6, "Z")
_ENCODERS: dict[Kind, Encode] = {
    Kind.INT32: str,
    Kind.INT64: str,
    Kind.UINT64: number,
    Kind.DECIMAL: number,
    Kind.FLOAT: single,
    Kind.DOUBLE: repr,
    Kind.DATE: day,
    Kind.BOOLEAN: boolean,
    Kind.BINARY: binary,
    Kind.VECTOR: vector,
    Kind.MICROS: str,
}


class ChangelogJson:
    """Lines of changelog-json, for one table; `name` is that of the stored changelog."""

    def __init__(self, schema: TableSchema, name: str) -> None:
        self._name = name
        self._columns = [(column.name, f"{text(column.name)}: ", encoder(column)) for column in schema.columns]

    def lines(self, part: Part) -> Iterator[str]:
        """A line for each row, without its end."""
        rows, count = part.rows, part.rows.num_rows
        columns = [
            [label + ("null" if value is None else encode(value)) for value in rows[name].to_pylist()]
            for name, label, encode in self._columns
        ]
        kinds, times, gtids = ["+I"] * count, ["null"] * count, ["null"] * count
        if isinstance(part, Changed):
            kinds = [OPS[RowKind(kind)] for kind in rows[change.KIND].to_pylist()]
            committed_at = rows[change.COMMITTED_AT].to_pylist()
            times = ["null" if value is None else _COMMITTED_AT(value) for value in committed_at]
            gtids = ["null" if value is None else text(value) for value in rows[change.GTID].to_pylist()]
        for op, position, at, gtid, *values in zip(
            kinds, positions(part, self._name), times, gtids, *columns, strict=True
        ):
            yield (
                f'{{"op": "{op}", "data": {{{", ".join(values)}}}, "position": "{position}", "committed_at": {at},'
                f' "gtid": {gtid}}}'
            )


def encoder(column: Column) -> Encode:
    """How the values of a column are written."""
    if column.kind is Kind.DATETIME:
        return moment(column.fraction)
    if column.kind is Kind.TIMESTAMP:
        return moment(column.fraction, "Z")
    return _ENCODERS.get(column.kind, text)
