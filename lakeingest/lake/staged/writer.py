"""What executors write and read for a table that is staged in a folder: files in staging."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import ge, le
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakeingest.config.place import Place
from lakeingest.core.keys import quote
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import storage_errors
from lakeingest.lake.staged.staging import StagingFolder
from lakeingest.lake.target import Bounds, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class StagedWriter:
    """Writes Parquet files into staging."""

    folder: StagingFolder

    def write(self, rows: pa.Table) -> Written:
        """The file's name. Every call writes a new file, so retried and speculative tasks are harmless."""
        with storage_errors(str(self.folder.path)):
            return Written(self.folder.write(rows).encode())


@dataclass(frozen=True, slots=True)
class StagedMerger(StagedWriter):
    """Writes the last change of each key; the publish finds the old rows."""

    def replace(self, changes: pa.Table) -> Written:  # noqa: ARG002
        """Write nothing: the publish replaces rows."""
        return Written(b"")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """`lake.target.RowReader` of rows that Spark has written to the files of a folder."""

    path: File

    @classmethod
    def written(cls, rows: "DataFrame", names: Sequence[str], bounds: Sequence[Bounds | None], path: File) -> Self:
        """Have Spark write these columns of the rows that are within the bounds, and of those between them."""
        first, known = rows[quote(names[0])], [one or (None, None) for one in bounds]
        for is_within, outermost, ends in zip((ge, le), (min, max), zip(*known, strict=True), strict=True):
            if None not in ends:
                rows = rows.where(is_within(first, outermost(ends)))
        rows.select(*map(quote, names)).write.parquet(Place.of(str(path)).hadoop)
        return cls(path)

    def read(self) -> pa.Table:
        """All of them; StateUnreadable where they are gone."""
        with storage_errors(str(self.path)):
            found = self.path.listed("*.parquet")
            if not found:
                raise StateUnreadable(f"the rows to compare, in {self.path}, are gone; run the same command again")
            return pa.concat_tables(map(_rows, found))


def _rows(file: File) -> pa.Table:
    with files.parquet(file) as opened:
        return opened.read()
