"""Readers of the rows of a published commit from its data files, as `lake.target.BatchReader`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors, storage_errors, unreadable
from lakeingest.lake.hudi.base_files import groups_of
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.table_form import Unfit, has_known_form
from lakeingest.lake.hudi.timeline import Instant
from lakeingest.lake.staged.changes import groups_of_size

_BATCH = 16 << 20
_TASK = 8 << 20  # a task reads files of about so many bytes
_SPARK, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True, slots=True)
class HudiRows:
    """`lake.target.BatchReader` on some data files of one commit."""

    names: tuple[str, ...]
    files: tuple[File, ...]

    def batches(self) -> Iterator[pa.Table]:
        """The columns of all rows of the files, a part at a time."""
        for file in self.files:
            with storage_errors(str(file)), parse_errors(str(file)), files.parquet(file) as opened:
                self._assert_usual(file, opened)
                for batch in opened.iter_batches(files.rows_of_size(opened, _BATCH), columns=list(self.names)):
                    yield pa.Table.from_batches([batch])

    def _assert_usual(self, file: File, opened: pq.ParquetFile) -> None:
        """Raise StateUnreadable unless the file has all columns, and its old dates are in the usual calendar."""
        footer = opened.metadata.metadata or {}
        if missing := set(self.names) - set(opened.schema_arrow.names):
            raise unreadable(str(file), f"it lacks the columns {sorted(missing)}")
        if _SPARK not in footer or _LEGACY in footer:  # a reader must then know how old dates are written
            raise unreadable(str(file), "it does not say the calendar of its dates")


def batch_readers(folder: File, published: Instant, names: Sequence[str]) -> list[HudiRows] | None:
    """Readers of the columns `names` of all rows of a published commit.

    None if the table does not have the form that lakeingest gives it, so that other files may have rows, too.
    """
    if not has_known_form(folder):
        return None
    visible = visible_files(folder, published.time)
    try:
        groups_of(visible, published.buckets)
    except Unfit:
        return None
    return [HudiRows(tuple(names), tuple(group)) for group in groups_of_size(visible, _TASK)]
