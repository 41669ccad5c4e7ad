"""The user's choice of columns: which columns of a table are copied."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The names of the columns that are copied, and of those that are left out.

    `include`: only these columns are copied; () for all columns.
    `exclude`: these columns are left out, even if `include` names them.

    As in MySQL, the case of letters does not count. A name need not be that of a column: DDL may add the column later.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def leaves_out(self, name: str) -> bool:
        """Whether a column of this name is left out."""
        is_included = not self.include or _has(self.include, name)
        return not is_included or _has(self.exclude, name)

    def without_column(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The chosen names that none of these columns has, in their order."""
        present = tuple(columns)
        return tuple(name for name in dict.fromkeys((*self.include, *self.exclude)) if not _has(present, name))


def _has(names: Iterable[str], name: str) -> bool:
    return name.casefold() in map(str.casefold, names)


ALL_COLUMNS = ColumnChoice()
