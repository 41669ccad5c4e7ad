"""Reads files of staging: rows, and the last change of each key."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors

_NUMBER = "_lakeingest_number"


def last_changes(merges: Sequence[Sequence[File]], key: Sequence[str]) -> pa.Table | None:
    """The last change of each key in the files of these merges, the oldest merge first; None without merges."""
    tables = [read_rows(file) for merge in merges for file in merge]
    if not tables:
        return None
    changes = pa.concat_tables(tables)
    if len(merges) == 1:  # one merge has one change of a key
        return changes
    numbered = changes.select(list(key)).append_column(_NUMBER, pa.array(np.arange(len(changes))))
    return changes.take(numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"])


def read_rows(file: File, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file of staging. Raises StateUnreadable where it is damaged."""
    with parse_errors(str(file)), files.parquet(file) as opened:
        return opened.read(None if columns is None else list(columns))


def read_all_rows(staged_files: Iterable[File]) -> pa.Table:
    """The rows of these files of staging. Some files may lack a column that the source has dropped."""
    return pa.concat_tables((read_rows(file) for file in staged_files), promote_options="default")


def in_groups(staged_files: Iterable[File], size: int) -> list[list[File]]:
    """The files in groups of about `size` bytes."""
    groups: list[list[File]] = []
    filled = size
    for file in staged_files:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.size()
    return groups
