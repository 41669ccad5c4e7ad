"""The user's choice of columns: which columns of a table are copied, and of which the copy hides the values."""

from collections.abc import Iterable
from dataclasses import dataclass

# The forms in which a copy hides the values of a column (`Column.choice`)
HASHED = "hashed"  # each value is replaced by its keyed hash
MASKED = "masked"  # each letter and digit of a text is replaced
HIDDEN = frozenset({HASHED, MASKED})


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The names of the columns that are copied, of those that are left out, and of those whose values are hidden.

    `include`: only these columns are copied; () for all columns.
    `exclude`: these columns are left out, even if `include` names them.
    `hash`, `mask`: the copy has these columns in the form HASHED or MASKED.
    `key_id`: a short digest of the key of the hashes; '' if `hash` is empty, or if there is no key.

    As in MySQL, the case of letters does not count. A name need not be that of a column: DDL may add the column later.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    key_id: str = ""

    def form(self, name: str) -> str:
        """The form in which the copy hides the values of a column of this name; '' if it does not hide them."""
        if _has(self.hash, name):
            return HASHED
        return MASKED if _has(self.mask, name) else ""

    def leaves_out(self, name: str) -> bool:
        """Whether a column of this name is left out."""
        is_included = not self.include or _has(self.include, name)
        return not is_included or _has(self.exclude, name)

    def without_column(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The chosen names that none of these columns has, in their order."""
        present = tuple(columns)
        return tuple(
            name
            for name in dict.fromkeys((*self.include, *self.exclude, *self.hash, *self.mask))
            if not _has(present, name)
        )


def _has(names: Iterable[str], name: str) -> bool:
    return name.casefold() in map(str.casefold, names)


ALL_COLUMNS = ColumnChoice()
