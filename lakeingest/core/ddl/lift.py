"""Lifts: how the rows of a copy become rows of the table's next definition, column by column, also across renames.

Whether a lift keeps every value exactly is decided without looking at rows: from the two definitions, and from the
changes in the DDL statement. If that is not known, the lift is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from lakeingest.core.ddl.widening import is_same, unfitting_properties
from lakeingest.core.tables.column_choice import HASHED
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.row_filter import operands, parse
from lakeingest.core.tables.schema import INTEGERS, Column, Kind, TableSchema

_NUMBERS = INTEGERS | {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}
# Properties that do not decide which values a copy can store, so a guessed definition is allowed to be wrong in them
_COMPARED = {"source_type.members", "default", "charset", "collation", "generation"}


class NotLiftable(ValueError):
    """Without the source, the rows of the copy cannot be brought to the definition after the DDL."""


class Unexplained(NotLiftable):
    """The DDL in the binlog does not lead to the current definition: rows may have been read by a wrong definition."""


@dataclass(frozen=True, slots=True)
class Lift:
    """The step from one definition of a table to the next.

    `origins`: for each column of `after`, its name in `before`; None if the column is new.
    `defined`: the columns of `after` that the statement defined; None if it may have defined any of them.
    `unseen`: the old and new names of the skipped columns that the statement added, dropped, renamed or defined.
    `is_guess`: `before` may be wrong, and the lifted rows are compared with the source afterwards. So it is enough that
    the copy can store the rows.

    Raises NotLiftable if

    - the step changes the key, or how rows are mapped;
    - a column of the user's condition on rows is another column now, and the lift is no guess;
    - the step changes a column from which a generated column may be computed, and the lift is no guess;
    - it is not certain that the new type of a column holds every old value;
    - nobody knows the values of old rows in a new column.
    """

    before: TableSchema
    after: TableSchema
    origins: tuple[str | None, ...]
    defined: frozenset[str] | None = None
    is_guess: bool = False
    unseen: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        old_names = dict(zip(self.after.names, self.origins, strict=True))  # by the name in `after`
        if tuple(old_names[name] for name in self.after.key) != self.before.key:
            self._refuse("its key is not what it was")
        if self.before.choices != self.after.choices:
            self._refuse("its rows are mapped in another way")
        if self.after.choices.rows and not self.is_guess:
            self._assert_chosen_alike(operands(parse(self.after.choices.rows)))
        old_columns = {column.name: column for column in self.before.columns}
        # the old and new names, at the source, of all columns that are dropped, new or changed
        changed = {*(old_columns[name].source_name for name in self.dropped), *self.unseen}
        for column in self.after.columns:
            old_name = old_names[column.name]
            if old_name is None:
                self._value_in_old_rows(column)  # refuses the lift if the value is not known
                changed.add(column.source_name)
                continue
            old = old_columns[old_name]
            self._assert_keeps_values(old, column)
            if old.source_name != column.source_name or not self._keeps_definition(old, column):
                changed |= {old.source_name, column.source_name}
        if not self.is_guess:
            self._refuse_if_generated_from(changed)

    def _assert_chosen_alike(self, names: frozenset[str]) -> None:
        """Refuse the lift if the condition of the user may choose other rows; `names`: its columns, casefolded."""
        old_columns = {column.name: column for column in self.before.columns}
        if not names <= {name.casefold() for name in self.after.source_names}:
            self._refuse("a column that chooses the rows has another name, or is gone")
        for column, origin in zip(self.after.columns, self.origins, strict=True):
            if column.source_name.casefold() in names:
                old = None if origin is None else old_columns[origin]
                if old is None or old.source_name.casefold() != column.source_name.casefold():
                    self._refuse(f"{column.source_name}, which chooses the rows, was another column")

    def _keeps_definition(self, old: Column, column: Column) -> bool:
        """Whether the column certainly has its old definition, apart from its name."""
        renamed = replace(old, name=column.name, renamed_from=column.renamed_from)
        was_defined = self.defined is None or column.name in self.defined
        # if the statement did not define the column, even the parts that nobody knows are as they were
        return is_same(renamed, column) if was_defined else renamed == column

    def _assert_keeps_values(self, old: Column, column: Column) -> None:
        """Refuse the lift if the change of the column may give rows another value."""
        if lossy := self._lossy_properties(old, column):
            types = f"was {old.source_type} and is {column.source_type}"
            by = ", ".join(name.replace("source_type.", "its type's ") for name in lossy)
            self._refuse(f"{column.name} {types}, and rows may have other values (by {by})")

    def _lossy_properties(self, old: Column, column: Column) -> list[str]:
        """The changed properties of the column that may give rows another value; empty if no value can change."""
        if self._keeps_definition(old, column):
            return []
        lossy = [*unfitting_properties(old, column)]
        if old.name in self.before.generated:
            lossy.append("generation")
        # a column of the key must hold the same values as before, in the same order: rows are found by their key, and
        # the order of keys decides which split has a row
        if column.name in self.after.key:
            lossy += [*unfitting_properties(column, old)]  # in the other direction, too
            is_unknown = bool(column.charset) and not old.collation  # a text, whose old collation nobody knows
            if is_unknown or old.collation != column.collation:
                lossy.append("collation")
        # a guessed old definition may be wrong in `_COMPARED`, so a difference in these means nothing
        ignored = _COMPARED if self.is_guess else set()
        return [name for name in dict.fromkeys(lossy) if name not in ignored]

    def _refuse_if_generated_from(self, changed: set[str]) -> None:
        """Refuse the lift if a generated column may be computed from a changed column.

        When a column in its expression changes, the server computes the generated column again. If any column is
        changed, skipped columns count as changed, too, because a skipped column may be computed from a changed column.
        """
        if not changed:
            return
        for name in self.after.generated:
            generated = self.after.column(name)
            expression = generated.generation  # '' if it is not known
            maybe_changed = {*changed, *self.after.skipped} - {generated.source_name}  # it cannot name itself
            if not expression or any(_may_name(expression, column) for column in maybe_changed):
                self._refuse(f"the generated column {name} may be computed from {', '.join(sorted(changed))}")

    @property
    def dropped(self) -> tuple[str, ...]:
        """The dropped columns, in their order."""
        return tuple(name for name in self.before.names if name not in self.origins)

    @property
    def fills(self) -> Mapping[str, object]:
        """The values of old rows in new columns, by the columns' names. A new column without an entry is NULL."""
        new = (column for column, origin in zip(self.after.columns, self.origins, strict=True) if origin is None)
        return {column.name: value for column in new if (value := self._value_in_old_rows(column)) is not None}

    def _value_in_old_rows(self, column: Column) -> object:
        """The value that the server gave to old rows in a new column; None is NULL.

        If the lift is a guess, a default that the server may round later is taken as it is. For a column that can be
        NULL, a guess also takes NULL in the place of an unknown value. Raises NotLiftable for any other unknown value.
        """
        if column.name in self.after.generated:
            self._refuse(f"{column.name} is a new generated column")
        default = column.default
        if column.choice == HASHED and default != Value(None):
            self._refuse(f"what older rows have in {column.name}, which is new and hashed, is not known")
        if isinstance(default, Value):
            if default.value is None and not column.nullable:
                self._refuse(f"the default of {column.name} is NULL, and it cannot be NULL: older rows are not known")
            if default.value is None or self.is_guess or _is_kept(column, default.value):
                return default.value
            self._refuse(f"a server may round the default of {column.name}, of type {column.source_type}, later")
        implicit = _implicit(column) if default is Default.NONE else None  # None if only the server knows it
        if implicit is not None:
            return implicit
        may_guess_null = self.is_guess and column.nullable
        if not may_guess_null:
            self._refuse(f"what older rows have in {column.name}, which is new, is not known: {default.value}")
        return None  # the guess: NULL

    def _refuse(self, reason: str) -> NoReturn:
        """Raise NotLiftable."""
        raise NotLiftable(f"{self.after.table}: {reason}")


def _is_kept(column: Column, value: object) -> bool:
    """Whether the value of the default stays the same through later DDL that does not name the column.

    Such DDL writes each default as a text and reads the text again (measured, MySQL 9.7 and MariaDB 11.4). The text of
    a FLOAT has only six digits. The text of a TIMESTAMP is in the session's time zone, where an hour of autumn comes
    twice.
    """
    if column.kind is Kind.FLOAT:
        return value == 0  # for most other values, six digits are too few
    return column.source_type.name != "timestamp"


def _implicit(column: Column) -> object:
    """The value of old rows in a new NOT NULL column without a default; None if only the server knows it.

    Source: MySQL manual, "Data Type Default Values".
    """
    if column.kind in _NUMBERS:
        return 0
    if column.source_type.name == "enum":
        return column.members[0] if column.charset and column.has_exact_members else None
    return "" if column.kind is Kind.STRING else None


def _may_name(expression: str, column: str) -> bool:
    """Whether an expression may name a column; True in doubt."""
    # the name alone, between backquotes, and between double quotes
    spellings = {column, column.replace("`", "``"), column.replace('"', '""')}
    text = expression.casefold()
    return any(re.search(rf"(?<![\w$]){re.escape(spelling.casefold())}(?![\w$])", text) for spelling in spellings)
