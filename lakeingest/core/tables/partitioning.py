"""Partitions: how pipeline.yml divides the rows of a copy, and which columns each transform takes.

Source: Iceberg's table specification, "Partitioning". A transform makes the value of a row's partition from one column.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.tables.schema import Kind, TableSchema


class Transform(enum.StrEnum):
    """What is done with a column's value; the names are those of Iceberg."""

    IDENTITY = "identity"  # the value itself
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"  # the remainder of a hash
    TRUNCATE = "truncate"  # the beginning of a text, or a number rounded down


_NUMBERED = frozenset({Transform.BUCKET, Transform.TRUNCATE})
_BY_NAME = {transform.value: transform for transform in Transform}
_BY_NAME |= {f"{name}s": _BY_NAME[name] for name in ("year", "month", "day", "hour")}  # as Spark has them
_PLAIN = r"[^`(),]+"
_CALL = re.compile(rf"(\w+)\s*\(\s*(?:(\d{{1,9}})\s*,\s*)?(`(?:[^`]|``)+`|{_PLAIN})\s*\)", re.DOTALL)
_COLUMN = re.compile(rf"`(?:[^`]|``)+`|{_PLAIN}", re.DOTALL)

_DATED = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
_NUMBERS = frozenset({Kind.INT32, Kind.INT64, Kind.UINT64, Kind.DECIMAL, Kind.MICROS})
_BYTES = frozenset(  # texts, and bytes
    {Kind.STRING, Kind.NUMERAL, Kind.JSON, Kind.UUID, Kind.ADDRESS, Kind.TIME, Kind.MOMENT, Kind.BINARY}
)
# floats are left out because 0 and -0 are equal, and have different bytes
COMPARED = frozenset({*_DATED, *_NUMBERS, *_BYTES, Kind.BOOLEAN})
_TAKES: Mapping[Transform, frozenset[Kind]] = {
    Transform.IDENTITY: COMPARED,
    Transform.YEAR: _DATED,
    Transform.MONTH: _DATED,
    Transform.DAY: _DATED,
    Transform.HOUR: _DATED - {Kind.DATE},
    Transform.BUCKET: frozenset({*_DATED, *_NUMBERS, *_BYTES}),
    Transform.TRUNCATE: frozenset({*_NUMBERS, *_BYTES}),
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One way in which rows are divided. `str` gives its text in `partition_by`, such as `day(created_at)`.

    `column`: its name in the copy. `number`: the number of buckets, or the width to which values are truncated; 0 for
    other transforms.
    """

    transform: Transform
    column: str
    number: int = 0

    def __str__(self) -> str:
        is_plain = re.fullmatch(_PLAIN, self.column, re.DOTALL) and self.column == self.column.strip()
        column = self.column if is_plain else "`" + self.column.replace("`", "``") + "`"
        if self.transform is Transform.IDENTITY:
            return column
        return f"{self.transform}({self.number}, {column})" if self.number else f"{self.transform}({column})"

    @classmethod
    def parse(cls, text: str) -> "PartitionField":
        """Read a column alone, or a transform of a column. Raises ValueError for another text."""
        if _COLUMN.fullmatch(text.strip()) is not None:
            return cls(Transform.IDENTITY, _unquoted(text))
        call = _CALL.fullmatch(text.strip())
        if call is None:
            raise ValueError(
                f"{text!r} is no partition: write a column, or a transform such as days(created_at) or bucket(16, id);"
                " a name with a comma, a parenthesis or a backquote stands between backquotes"
            )
        name, number, column = call.groups()
        transform = _BY_NAME.get(name.lower())
        if name.lower() == "void":
            raise ValueError(f"{text!r}: void would put all rows into one partition; leave it out")
        if transform is None:
            raise ValueError(f"{text!r}: there is no transform {name}; known are {', '.join(_BY_NAME)}")
        if (transform in _NUMBERED) != bool(int(number or 0)):  # a missing number, or one that is too much
            wanted = "needs a number from 1 on, as in" if transform in _NUMBERED else "has no number, as in"
            example = f"{transform}(16, id)" if transform in _NUMBERED else f"{transform}(created_at)"
            raise ValueError(f"{text!r}: {transform} {wanted} {example}")
        return cls(transform, _unquoted(column), int(number or 0))


def parse_all(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """Read the items of `partition_by`. Raises ValueError for a wrong item, or if two have one column, in any case."""
    fields = tuple(map(PartitionField.parse, texts))
    columns = [field.column.casefold() for field in fields]
    twice = next((field.column for field in fields if columns.count(field.column.casefold()) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice; a column can divide the rows only once")
    return fields


def refusal(fields: Sequence[PartitionField], schema: TableSchema) -> str | None:
    """The first reason why a table with this definition cannot be divided by these fields; None if it can."""
    for field in fields:
        if field.column not in schema.names:
            return f"partition_by names {field.column}, which is not a column of the table, or is skipped"
        column = schema.column(field.column)
        if column.kind not in _TAKES[field.transform]:
            return f"partition_by: {field}: {field.column} is {column.source_type}, which {field.transform} cannot take"
    return None


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
