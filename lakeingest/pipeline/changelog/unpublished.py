"""The rows of a table that is not published yet, for readers of the changelog.

These are the rows of the staged splits, merged with the spooled changes that each split still needs. So all rows are as
of one place: the end of the spool, or the place before the first DDL that the copy has still to follow. A split whose
rows have changes from after this place is left out. If only the server can order the keys, there are no rows until all
chunks are read.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.wave import Mark, marks_of
from lakeingest.lake.target import Staged
from lakeingest.lake.versions import Versions
from lakeingest.rows import rows_after_changes
from lakeingest.spool.collapse import Slice, collapsed, take
from lakeingest.spool.halts import halts
from lakeingest.spool.spool import Spool
from lakeingest.spool.transaction_files import log_of


def unpublished_rows(
    versions: Versions, staged: Staged, schema: TableSchema, spool: Spool
) -> tuple[Place, Iterator[pa.RecordBatch]]:
    """Returns a place, and the rows of the table as of this place.

    The place is the end of the spool, or the place before the first DDL that the copy has still to follow. `staged` is
    a commit of the table, and `schema` the definition of its rows.

    Raises SpoolGap if `spool`, which was loaded later than the commit, no longer has changes that the commit needs.
    """
    progress = staged.progress
    splits = progress.splits
    ddl_ahead = halts(spool, schema.table, progress.needed_from)
    end = ddl_ahead[0].before.place if ddl_ahead else spool.position.place
    if not splits.all:
        return end, iter(())  # no chunk is read yet
    if not splits.ordered and not splits.complete:
        return end, iter(())  # only the server can order the keys, and some chunks are not read yet
    all_marks = marks_of(splits, log_of(spool), max(progress.covered_from, spool.start))
    # Leave out splits whose rows may have changes from after `end`. The rows have all changes up to `mark`, and perhaps
    # some changes up to `floor`: the high watermark, or after a merge the stop of this merge.
    marks: list[Mark] = []
    for split, mark in zip(splits.all, all_marks, strict=True):
        has_only_changes_up_to_end = mark <= end and split.floor <= end
        if has_only_changes_up_to_end:
            marks.append((split.range, mark))
    if not marks:
        return end, iter(())
    rows = versions.rows(schema, staged.version)
    if len(marks) < len(splits.all):  # some splits are left out
        rows = _rows_in_ranges(rows, schema.key, [keys for keys, _ in marks])
    changes = _needed_changes(spool, schema, marks, end)
    return end, rows_after_changes(rows, changes, schema.key, schema)


def _needed_changes(spool: Spool, schema: TableSchema, marks: Sequence[Mark], end: Place) -> list[pa.Table]:
    """The last change of each key up to `end`, among the changes that the splits with these marks still need.

    The tables have the columns of the definition, and `DELETED`.
    """
    files = spool.files(schema.table, min(mark for _, mark in marks), end)
    if not files:
        return []
    last_changes = collapsed(files, schema.key, marks, end, Slice())  # without bounds: of all keys
    # the last changes are in the order of their files: `starts` has the index of the first change of each file
    file_numbers, starts = np.unique(last_changes.files, return_index=True)
    rows_of_files = np.split(last_changes.rows, starts[1:])  # cut where the second and each later file begins
    # without changes, `split` gives one empty part for no file, hence `strict=False`
    return [
        take(files[number], rows, end, deleted=True) for number, rows in zip(file_numbers, rows_of_files, strict=False)
    ]


def _rows_in_ranges(
    rows: Iterator[pa.RecordBatch], key: Sequence[str], ranges: Sequence[KeyRange]
) -> Iterator[pa.RecordBatch]:
    """The rows whose key is in one of the ranges. All parts of keys are integers."""
    for batch in rows:
        keys = zip(*(batch[name].to_pylist() for name in key), strict=True)
        is_in_range = [any(tuple(map(int, values)) in key_range for key_range in ranges) for values in keys]
        yield batch.filter(pa.array(is_in_range, pa.bool_()))
