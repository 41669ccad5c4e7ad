"""Readers of the rows of a published commit from its data files, as `lake.target.BatchReader`."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors, storage_errors, unreadable
from lakeingest.lake.hudi.base_files import groups_of
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.table_form import Unfit, has_known_form
from lakeingest.lake.hudi.timeline import Instant
from lakeingest.lake.staged.changes import groups_of_size
from lakeingest.lake.target import Bounds

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BATCH = 16 << 20  # a batch has rows of about so many bytes
_TASK = 8 << 20  # a task reads files of about so many bytes
# for dates and times from this one on, readers need not know the calendar
_CALENDARS_AGREE = pa.scalar(dt.datetime(1900, 1, 1), pa.timestamp("us"))
_SPARK, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True, slots=True)
class HudiRows:
    """`lake.target.BatchReader` on some data files of one commit.

    `bounds` are those of the first column in `names`: row groups without a value within the bounds are left out.
    """

    names: tuple[str, ...]
    files: tuple[File, ...]
    bounds: Bounds | None = None

    def batches(self) -> Iterator[pa.Table]:
        """The columns of all rows of the files, a part at a time.

        Raises StateUnreadable if a file is gone or damaged, lacks a column, or does not say the calendar of old dates.
        """
        for file in self.files:
            with storage_errors(str(file)), parse_errors(str(file)), files.parquet(file) as opened:
                if missing := set(self.names) - set(opened.schema_arrow.names):
                    raise unreadable(str(file), f"it lacks the columns {sorted(missing)}")
                footer = opened.metadata.metadata or {}
                # with the entry _LEGACY, old dates are of the Julian calendar, which Arrow does not know
                has_known_calendar = _SPARK in footer and _LEGACY not in footer
                size, groups = files.rows_of_size(opened, _BATCH), groups_within(opened, self.names[0], self.bounds)
                for batch in opened.iter_batches(size, groups, columns=list(self.names)):
                    if not has_known_calendar and has_old_dates(batch):
                        raise unreadable(str(file), "it does not say the calendar of its old dates")
                    yield pa.Table.from_batches([batch])


def has_old_dates(rows: pa.RecordBatch) -> bool:
    """Whether a date or a time is so old that readers must know the calendar of its file."""
    moments = (column.cast(pa.timestamp("us")) for column in rows.columns if pa.types.is_temporal(column.type))
    return any(pc.any(pc.less(column, _CALENDARS_AGREE)).as_py() for column in moments)


def groups_within(opened: "pq.ParquetFile", name: str, bounds: Bounds | None) -> list[int]:
    """The numbers of the row groups of a file that may have values of this column within the bounds."""
    lower, upper = bounds or (None, None)

    def may_have(number: int) -> bool:
        """Whether the row group may have such values; also True without statistics of integers or decimals."""
        group = opened.metadata.row_group(number)
        columns = (group.column(index) for index in range(group.num_columns))
        known = next((column.statistics for column in columns if column.path_in_schema == name), None)
        if known is None or not known.has_min_max or not isinstance(known.min, int | Decimal):
            return True
        return (lower is None or known.max >= lower) and (upper is None or known.min <= upper)

    return [number for number in range(opened.metadata.num_row_groups) if may_have(number)]


def batch_readers(
    folder: File, published: Instant, names: Sequence[str], bounds: Bounds | None = None
) -> list[HudiRows] | None:
    """Readers of the columns `names` of the rows of a published commit, as `HudiRows` reads them within the bounds.

    None if the table does not have the form that lakeingest gives it, because other files may have rows, too.
    """
    if not has_known_form(folder):
        return None
    visible = visible_files(folder, published.time)
    try:
        groups_of(visible, folder, published.buckets)
    except Unfit:
        return None
    return [HudiRows(tuple(names), tuple(group), bounds) for group in groups_of_size(visible, _TASK)]
