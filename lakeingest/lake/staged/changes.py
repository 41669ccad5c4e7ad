"""Reads the files of staging into Arrow: rows, and the last change of each key."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors

_NUMBER = "_lakeingest_number"


def last_changes(merges: Sequence[Sequence[File]], key: Sequence[str]) -> pa.Table | None:
    """The last change of each key. `merges` has the files of changes of each merge, the oldest merge first.

    Returns None if there are no files. Raises as `read_rows`.
    """
    tables = [read_rows(file) for merge in merges for file in merge]
    if not tables:
        return None
    changes = pa.concat_tables(tables)
    if len(merges) == 1:  # within a merge, each key has at most one change
        return changes
    # a later change has a greater number, because the changes are in the order of their merges
    numbered = changes.select(list(key)).append_column(_NUMBER, pa.array(np.arange(len(changes))))
    last_numbers = numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    return changes.take(last_numbers)


def read_rows(file: File, columns: Sequence[str] | None = None, *, in_threads: bool = True) -> pa.Table:
    """The rows of a file, with all columns or only `columns`.

    Raises StateUnreadable if the file is damaged, and FileNotFoundError if it is gone. `in_threads`: threads share the
    columns. That is slower if other files are read at the same time.
    """
    with parse_errors(str(file)), files.parquet(file) as opened:
        return opened.read(None if columns is None else list(columns), use_threads=in_threads)


def read_all_rows(staged_files: Iterable[File]) -> pa.Table:
    """The rows of all these files of staging, of which there is at least one. Raises as `read_rows`.

    If only some of the files have a column, the source has dropped it. It is NULL in the rows of files without it.
    """
    return pa.concat_tables((read_rows(file) for file in staged_files), promote_options="default")


def groups_of_size(staged_files: Iterable[File], size: int) -> list[list[File]]:
    """The files, in order, divided into groups. A group ends as soon as its files have `size` bytes or more."""
    groups: list[list[File]] = []
    group_size = size  # so that the first file begins a group
    for file in staged_files:
        if group_size >= size:
            groups.append([])
            group_size = 0
        groups[-1].append(file)
        group_size += file.size()
    return groups
