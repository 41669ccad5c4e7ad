"""Files of a staging folder that executors write and read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakeingest.config.place import Place
from lakeingest.core.tables.keys import quote
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.errors import storage_errors
from lakeingest.lake.staged.changes import read_rows
from lakeingest.lake.staged.staging import StagingFolder
from lakeingest.lake.target import Bounds, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class StagedWriter:
    """Writes Parquet files into staging."""

    folder: StagingFolder

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to a new file, and return its name. Each call makes a new file, so Spark may repeat a task."""
        with storage_errors(str(self.folder.path)):
            return Written(self.folder.write(rows).encode())


@dataclass(frozen=True, slots=True)
class StagedMerger(StagedWriter):
    """Writes the last change of each key. The publish finds and replaces the old rows."""

    @property
    def looked_at(self) -> int:
        """0: mergers read no rows, because the publish finds the rows that are replaced."""
        return 0

    def replace(self, changes: pa.Table) -> Written:  # noqa: ARG002
        """Do nothing, because the publish replaces the old rows."""
        return Written(b"")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A `lake.target.RowReader` of the rows that Spark has written to the files of a folder."""

    path: File

    @classmethod
    def write_columns(
        cls, rows: "DataFrame", names: Sequence[str], bounds: Sequence[Bounds | None], path: File
    ) -> Self:
        """Let Spark write the columns `names` of all rows from the least lower bound to the greatest upper bound.

        Bounds limit the first of these columns. Rows that are between two of the `bounds` are written, too; all rows,
        if an item is None. There is at least one item.
        """
        first_column = rows[quote(names[0])]
        # an item of `bounds`, or one side of an item, can be None: then no row is left out on that side
        pairs: list[Bounds] = [limits or (None, None) for limits in bounds]
        lowers, uppers = [lower for lower, _ in pairs], [upper for _, upper in pairs]
        if None not in lowers:
            rows = rows.where(first_column >= min(lowers))
        if None not in uppers:
            rows = rows.where(first_column <= max(uppers))
        rows.select(*map(quote, names)).write.parquet(Place.of(str(path)).hadoop)
        return cls(path)

    def read(self) -> pa.Table:
        """All rows in the folder. Raises StateUnreadable if files are gone or damaged."""
        with storage_errors(str(self.path)):
            parts = self.path.listed("*.parquet")
            if not parts:
                raise StateUnreadable(f"the rows to compare, in {self.path}, are gone; run the same command again")
            return pa.concat_tables(map(read_rows, parts))
