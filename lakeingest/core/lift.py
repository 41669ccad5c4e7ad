"""Lifts: how the rows of a table become rows of its next definition, column by column, whatever the columns are called.

A lift never looks at values: it is known from the definitions alone which rows come through it exactly.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from lakeingest.core.schema import INTEGERS, Column, Kind, TableSchema
from lakeingest.core.widening import holds

_NUMBERS = INTEGERS | {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}


class NotLiftable(ValueError):
    """Rows of before cannot be made rows of after without the source."""


class Unexplained(NotLiftable):
    """The DDL in the binlog does not lead to the definition: rows of before may have been read by a wrong one."""


@dataclass(frozen=True, slots=True)
class Lift:
    """From one definition to the next. `origins` has for each column of `after` its name before; None: it is new.

    `strict`: the statement between them failed if a value did not fit. NotLiftable where it changes the key, or a
    column to one that cannot hold every value of before.
    """

    before: TableSchema
    after: TableSchema
    origins: tuple[str | None, ...]
    strict: bool = False

    def __post_init__(self) -> None:
        origin = dict(zip(self.after.names, self.origins, strict=True))
        if tuple(origin[name] for name in self.after.key) != self.before.key:
            self._refuse("its key is not what it was")
        if (self.before.choices, self.before.skipped) != (self.after.choices, self.after.skipped):
            self._refuse("its rows are mapped in another way")
        known = {column.name: column for column in self.before.columns}
        for column in self.after.columns:
            old = origin[column.name]
            if old is None:
                self._fill(column)
            elif not self._is_exact(known[old], column):
                self._refuse(f"{column.name} was {known[old].source_type} and is {column.source_type}")

    def _is_exact(self, old: Column, column: Column) -> bool:
        """Whether each row has the same value after; the key stays as it is, because rows are found by it."""
        if column.name in self.after.key:
            return holds(old, column, strict=True) and holds(column, old, strict=True)
        return holds(old, column, strict=self.strict)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The columns of before that are no more, in their order."""
        return tuple(name for name in self.before.names if name not in self.origins)

    @property
    def fills(self) -> dict[str, str]:
        """The text of what rows of before have in new columns, by their names; NULL in the others."""
        new = (column for column, origin in zip(self.after.columns, self.origins, strict=True) if origin is None)
        return {column.name: text for column in new if (text := self._fill(column)) is not None}

    def _fill(self, column: Column) -> str | None:
        """What the server gives a row that was there before: the default, or the implicit one of the type."""
        if column.name in self.after.generated:
            self._refuse(f"{column.name} is a new generated column")
        text = column.default
        if text is None and not column.nullable:
            text = "0" if column.kind in _NUMBERS else (*column.members, "")[0]
            if column.kind not in {*_NUMBERS, Kind.STRING} or column.source_type.name == "set":
                self._refuse(f"{column.name} is new and NOT NULL, and has no default")
        if text is None:
            return None
        if column.kind in {Kind.DATE, Kind.DATETIME} and _is_moment(text):
            return text
        if column.kind not in {*_NUMBERS, Kind.STRING} or column.source_type.name in {"char", "year"}:
            self._refuse(f"the default of {column.name}, of type {column.source_type}, is not known exactly")
        return text

    def _refuse(self, reason: str) -> NoReturn:
        raise NotLiftable(f"{self.after.table}: {reason}")


def _is_moment(text: str) -> bool:
    """Whether it is a day of the calendar, and no zero date."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
