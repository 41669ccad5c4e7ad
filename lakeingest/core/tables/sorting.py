"""Sort orders: how pipeline.yml sorts the rows within each file of a copy, and by which columns it can."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakeingest.core.tables.partitioning import COMPARED
from lakeingest.core.tables.schema import TableSchema

_PLAIN = r"[^`(),]+?"
_ITEM = re.compile(rf"(`(?:[^`]|``)+`|{_PLAIN})(?:\s+(asc|desc))?", re.DOTALL | re.IGNORECASE)
_ENDS_AS_DIRECTION = re.compile(r".*\s(asc|desc)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SortField:
    """A column of the copy by which rows are sorted, NULL first. `str` gives its text in `sort_by`, as `day desc`."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        is_plain = re.fullmatch(_PLAIN, self.column, re.DOTALL) and self.column == self.column.strip()
        if not is_plain or _ENDS_AS_DIRECTION.fullmatch(self.column):
            column = "`" + self.column.replace("`", "``") + "`"
        else:
            column = self.column
        return f"{column} desc" if self.descending else column

    @classmethod
    def parse(cls, text: str) -> "SortField":
        """Read a column, and perhaps `asc` or `desc` after it. Raises ValueError for another text."""
        item = _ITEM.fullmatch(text.strip())
        if item is None:
            raise ValueError(
                f"{text!r} is no column to sort by: write a column, or `created_at desc`; a name with a comma, a"
                " parenthesis or a backquote stands between backquotes"
            )
        name, direction = item.groups()
        column = name[1:-1].replace("``", "`") if name.startswith("`") else name
        return cls(column, (direction or "").lower() == "desc")


def parse_all(texts: Iterable[str]) -> tuple[SortField, ...]:
    """Read the items of `sort_by`. Raises ValueError for a wrong item, or if two have one column, in any case."""
    fields = tuple(map(SortField.parse, texts))
    columns = [field.column.casefold() for field in fields]
    twice = next((field.column for field in fields if columns.count(field.column.casefold()) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice; rows are sorted by a column only once")
    return fields


def refusal(fields: Sequence[SortField], schema: TableSchema) -> str | None:
    """The first reason why rows of this definition cannot be sorted by these fields; None if they can."""
    for field in fields:
        if field.column not in schema.names:
            return f"sort_by names {field.column}, which is not a column of the table, or is skipped"
        column = schema.column(field.column)
        if column.kind not in COMPARED:
            return f"sort_by: {field.column} is {column.source_type}, by which rows cannot be sorted"
    return None
