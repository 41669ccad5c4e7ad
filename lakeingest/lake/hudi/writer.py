"""What executors write for a Hudi table: files in staging, which the publish hands to Hudi."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import ge, le
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakeingest.core.keys import quote
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import storage_errors
from lakeingest.lake.hudi.folder import location
from lakeingest.lake.hudi.staging import StagingFolder
from lakeingest.lake.target import Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class HudiWriter:
    """Writes Parquet files into staging."""

    folder: StagingFolder

    def write(self, rows: pa.Table) -> bytes:
        """The file's name. Every call writes a new file, so retried and speculative tasks are harmless."""
        with storage_errors(str(self.folder.path)):
            return self.folder.write(rows).encode()


@dataclass(frozen=True, slots=True)
class HudiMerger(HudiWriter):
    """Writes the last change of each key; Hudi finds the old rows by its index."""

    keeps_deletes: bool = True

    def replace(self, changes: pa.Table) -> bytes:  # noqa: ARG002
        """Write nothing: the publish replaces rows."""
        return b""


@dataclass(frozen=True, slots=True)
class HudiRows:
    """`lake.target.RowReader` of rows that Spark has written to the files of a folder."""

    path: File

    @classmethod
    def written(cls, rows: "DataFrame", names: Sequence[str], bounds: Sequence[Bounds | None], path: File) -> Self:
        """Have Spark write these columns of the rows that are within the bounds, and of those between them."""
        first, known = rows[quote(names[0])], [one or (None, None) for one in bounds]
        for is_within, outermost, ends in zip((ge, le), (min, max), zip(*known, strict=True), strict=True):
            if None not in ends:
                rows = rows.where(is_within(first, outermost(ends)))
        rows.select(*map(quote, names)).write.parquet(location(path))
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
