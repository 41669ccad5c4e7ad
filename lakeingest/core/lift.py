"""Lifts: how the rows of a table become rows of its next definition, column by column, whatever the columns are called.

A lift never looks at values: it is known from the definitions alone which rows come through it exactly.
"""

from dataclasses import dataclass
from typing import NoReturn

from lakeingest.core.schema import Column, TableSchema
from lakeingest.core.widening import holds


class NotLiftable(ValueError):
    """Rows of before cannot be made rows of after without the source."""


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
        if dropped := sorted(set(self.before.names) - set(self.origins)):
            self._refuse(f"{', '.join(dropped)} was dropped")
        known = {column.name: column for column in self.before.columns}
        for column in self.after.columns:
            old = origin[column.name]
            if old is None:
                self._assert_null(column)
            elif not self._is_exact(known[old], column):
                self._refuse(f"{column.name} was {known[old].source_type} and is {column.source_type}")

    def _is_exact(self, old: Column, column: Column) -> bool:
        """Whether each row has the same value after; the key stays as it is, because rows are found by it."""
        if column.name in self.after.key:
            return holds(old, column, strict=True) and holds(column, old, strict=True)
        return holds(old, column, strict=self.strict)

    def _assert_null(self, column: Column) -> None:
        if column.name in self.after.generated:
            self._refuse(f"{column.name} is a new generated column")
        if not column.nullable:
            self._refuse(f"{column.name} is new and NOT NULL")

    def _refuse(self, reason: str) -> NoReturn:
        raise NotLiftable(f"{self.after.table}: {reason}")
