"""Extent: how much of each table `verify` compares. A share of its chunks, for a limited time, or some columns."""

import difflib
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, TypeVar

from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import UsageError

Item = TypeVar("Item")

_SEEDS = 2**32
_COLUMN = r"\s*`(?:[^`]|``)+`\s*|[^`,]+"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of each table is compared.

    `sample`: the share of a table's chunks that is compared, at least one chunk. These chunks are drawn by chance, and
    `seed` decides which are drawn; None if nothing is left to chance. `max_seconds`: after so many seconds no new chunk
    is begun; None: no limit. `columns`: the columns that are compared, besides those of the key; None: all columns.
    """

    sample: float = 1.0
    seed: int | None = None
    max_seconds: float | None = None
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        sample: float | None = None,
        seed: int | None = None,
        max_seconds: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """The extent that a user asks for; a seed is drawn if one is needed. Raises UsageError for a wrong value."""
        if sample is not None and not 0 < sample <= 1:
            raise UsageError(f"--sample is a share of the chunks, above 0 and at most 1, not {sample:g}")
        if max_seconds is not None and not max_seconds > 0:
            raise UsageError(f"--max-seconds is a number above 0, not {max_seconds:g}")
        if columns is not None and not columns:
            raise UsageError("--columns names at least one column")
        is_by_chance = sample is not None or max_seconds is not None
        if seed is not None and not is_by_chance:
            raise UsageError("--seed goes with --sample or --max-seconds: otherwise nothing is drawn")
        if is_by_chance and seed is None:
            seed = random.SystemRandom().randrange(_SEEDS)
        names = None if columns is None else tuple(columns)
        return cls(1.0 if sample is None else sample, seed, max_seconds, names)

    def drawn(self, table: TableId, count: int) -> tuple[int, ...]:
        """The numbers of the chunks to compare, among `count` chunks of a table, in the order of their comparison.

        The order is by chance, so that a comparison of limited time is not always of the first chunks.
        """
        if self.seed is None:
            return tuple(range(count))
        wanted = math.ceil(count * Fraction(str(self.sample)))  # exact: 0.1 as a float is more than a tenth
        return tuple(self._chance(table).sample(range(count), max(1, wanted)))

    def in_turn(self, tables: Sequence[TableId]) -> list[TableId]:
        """The tables in the order of their comparison: by chance if the time is limited, so that each has its turn."""
        return self._chance("tables").sample(tables, len(tables)) if self.max_seconds is not None else list(tables)

    def timer(self) -> Callable[[], bool]:
        """A function that says whether a new chunk may be begun. The time begins now."""
        if self.max_seconds is None:
            return lambda: True
        end = time.monotonic() + self.max_seconds
        return lambda: time.monotonic() < end

    def compared(self, schema: TableSchema) -> TableSchema:
        """The definition with only the compared columns. Raises UsageError for a column that the table does not have.

        The message names the column with the nearest name.
        """
        if self.columns is None:
            return schema
        for name in self.columns:
            if name not in schema.names:
                near = difflib.get_close_matches(name, schema.names, 1)
                hint = f"did you mean {near[0]}?" if near else f"its columns are {', '.join(schema.names)}"
                raise UsageError(f"--columns: {schema.table} has no column {name}; {hint}")
        return schema.with_columns(self.columns)

    def _chance(self, what: object) -> random.Random:
        """The random numbers for one purpose. They depend only on the seed and on `what`, not on other tables."""
        return random.Random(f"{self.seed} {what}")  # noqa: S311 - the seed is printed, so that a draw can be repeated


WHOLE = Extent()


def column_names(text: str) -> list[str]:
    """The names of columns in a text `a,b`. A name with a comma or a backquote is quoted by backquotes, as in SQL.

    Raises UsageError for another text.
    """
    if not re.fullmatch(f"({_COLUMN})(,({_COLUMN}))*", text):
        raise UsageError(f"--columns: not a list of columns: {text!r} (wanted: a,b)")
    names = [name.strip() for name in re.findall(_COLUMN, text)]
    return [name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names]


def share_text(compared: int, every: int) -> str:
    """`compared` as a share of `every`, in percent, rounded down: the text is `100 %` only if nothing is left out."""
    tenths = 1000 * compared // every
    return f"{tenths / 10:g} %" if tenths or not compared else "less than 0.1 %"
