"""The user's choice of columns: which are copied, hidden or cast to another type, and which get another name."""

from collections.abc import Iterable
from dataclasses import dataclass, field

# The forms in which a copy hides the values of a column (`Column.choice`)
HASHED = "hashed"  # each value is replaced by its keyed hash
MASKED = "masked"  # each letter and digit of a text is replaced
HIDDEN = frozenset({HASHED, MASKED})


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that are copied, left out, hidden, cast or renamed, by the names that they have at the source.

    `include`: only these columns are copied; () for all columns.
    `exclude`: these columns are left out, even if `include` names them.
    `hash`, `mask`: the copy has these columns in the form HASHED or MASKED.
    `key_id`: a short digest of the key of the hashes; '' if `hash` is empty, or if there is no key.
    `cast`: pairs of a column's name and the type that it has in the copy, a key of `core.tables.casts.CASTS`.
    `rename`: pairs of a column's name and the name that it has in the copy. Choices that differ only in `rename` are
    equal, because each renamed column of a definition says itself how it is named (`Column.renamed_from`).

    As in MySQL, the case of letters does not count. A name need not be that of a column: DDL may add the column later.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    key_id: str = ""
    cast: tuple[tuple[str, str], ...] = ()
    rename: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def form(self, name: str) -> str:
        """The form in which the copy hides the values of a column of this name; '' if it does not hide them."""
        if _has(self.hash, name):
            return HASHED
        return MASKED if _has(self.mask, name) else ""

    def type_in_copy(self, name: str) -> str:
        """The type to which a column of this name is cast; '' if it is not cast."""
        return next((to for old, to in self.cast if old.casefold() == name.casefold()), "")

    def leaves_out(self, name: str) -> bool:
        """Whether a column of this name is left out."""
        is_included = not self.include or _has(self.include, name)
        return not is_included or _has(self.exclude, name)

    def name_in_copy(self, name: str) -> str:
        """The name that a column of this name has in the copy."""
        return next((new for old, new in self.rename if old.casefold() == name.casefold()), name)

    def copies_as_is(self, name: str) -> bool:
        """Whether the copy has a column of this name with the same name, type and values."""
        is_as_is = not self.leaves_out(name) and not self.form(name) and not self.type_in_copy(name)
        return is_as_is and self.name_in_copy(name) == name

    def without_column(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The names in this choice that none of the `columns` has, each once."""
        present = tuple(columns)
        # of `cast` and `rename`, the names at the source, which come first in the pairs
        named = (*self.include, *self.exclude, *self.hash, *self.mask, *dict(self.cast), *dict(self.rename))
        return tuple(name for name in dict.fromkeys(named) if not _has(present, name))


def _has(names: Iterable[str], name: str) -> bool:
    """Whether `name` is one of the names, in any case of letters."""
    return name.casefold() in map(str.casefold, names)


ALL_COLUMNS = ColumnChoice()
