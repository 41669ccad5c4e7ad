"""The rows of a table that is not published yet, for readers of the changelog.

Those of the finished splits, each with the changes that it still needs laid over it, so that all of them are as of the
spool's end. A split that has seen more than the spool holds is left out, and so are splits whose keys only the server
can order, until the table is complete.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.keys import KeyRange
from lakeingest.core.position import Place
from lakeingest.core.schema import TableSchema
from lakeingest.core.wave import Mark, marks_of
from lakeingest.lake.target import Staged
from lakeingest.lake.versions import Versions
from lakeingest.rows import laid_over
from lakeingest.spool.collapse import Slice, collapsed, take
from lakeingest.spool.halts import halts
from lakeingest.spool.spool import Spool
from lakeingest.spool.transaction_files import log_of


def unpublished_rows(
    versions: Versions, staged: Staged, schema: TableSchema, spool: Spool
) -> tuple[Place, Iterator[pa.RecordBatch]]:
    """The spool's end, or the place of the first DDL that the rows are not lifted over yet, and the rows as of there.

    SpoolGap when the spool was loaded too late for this commit.
    """
    progress = staged.progress
    ahead = halts(spool, schema.table, progress.needed_from)
    end, splits = ahead[0].before.place if ahead else spool.position.place, progress.splits
    if not splits.all or not (splits.ordered or splits.complete):
        return end, iter(())
    marks = marks_of(splits, log_of(spool), max(progress.covered_from, spool.start))
    wanted = [
        (split.range, mark) for split, mark in zip(splits.all, marks, strict=True) if max(split.floor, mark) <= end
    ]
    if not wanted:
        return end, iter(())
    rows = versions.rows(schema, staged.version)
    if len(wanted) < len(splits.all):
        rows = _within(rows, schema.key, [keys for keys, _ in wanted])
    return end, laid_over(rows, _changes(spool, schema, wanted, end), schema.key, schema)


def _changes(spool: Spool, schema: TableSchema, marks: Sequence[Mark], end: Place) -> list[pa.Table]:
    """The last change of each key that the splits with these marks still need, whole, with whether it deletes."""
    files = spool.files(schema.table, min(mark for _, mark in marks), end)
    if not files:
        return []
    found = collapsed(files, schema.key, marks, end, Slice())
    numbers, starts = np.unique(found.files, return_index=True)
    parts = np.split(found.rows, starts[1:])
    return [take(files[number], rows, end, deleted=True) for number, rows in zip(numbers, parts, strict=False)]


def _within(rows: Iterator[pa.RecordBatch], key: Sequence[str], ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
    """The rows whose key is in one of the ranges; keys are integers."""
    for batch in rows:
        keys = zip(*(batch[name].to_pylist() for name in key), strict=True)
        inside = [any(tuple(map(int, values)) in one for one in ranges) for values in keys]
        yield batch.filter(pa.array(inside, pa.bool_()))
