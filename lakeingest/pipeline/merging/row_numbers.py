"""Numbers of rows in files of the spool: executors return these numbers, and not the values of the rows."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from lakeingest.files.file import File

FILE_ROWS = 250_000  # the most rows of a task, and of a file that it writes
# The most bytes of these rows: a task has them in memory about three times, to read, to take and to encode
FILE_BYTES = 96 << 20

RowNumbers = dict[File, "np.ndarray"]  # by file


def row_numbers(files: Sequence[File], at: "np.ndarray", rows: "np.ndarray") -> RowNumbers:
    """Group row numbers by file.

    `rows`: for each row, its number within its file. `at`: for each row, the index of its file in `files`, ascending.
    """
    rows = rows.astype(np.min_scalar_type(rows.max(initial=0)))  # the driver has the numbers of all rows of a merge
    file_indices, starts = np.unique(at, return_index=True)  # with the index in `at` at which each file's rows start
    # without rows, `split` gives one empty part for no file, hence `strict=False`
    return dict(zip((files[index] for index in file_indices), np.split(rows, starts[1:]), strict=False))


def in_groups(
    slices: Sequence[RowNumbers], row_bytes: Callable[[File], float]
) -> list[list[tuple[File, "np.ndarray"]]]:
    """The rows of all slices in the order of their files, in groups of about FILE_ROWS rows, or of about FILE_BYTES.

    `row_bytes`: the bytes of a row of a file. A row of more than FILE_BYTES is a group of its own.
    """
    groups: list[list[tuple[File, np.ndarray]]] = [[]]
    free = 1.0  # the share of the last group that more rows can still take
    for file in dict.fromkeys(file for slice_ in slices for file in slice_):
        rows = np.sort(np.concatenate([slice_[file] for slice_ in slices if file in slice_]))
        most_rows = min(FILE_ROWS, max(1, int(FILE_BYTES // max(1.0, row_bytes(file)))))  # of this file in a group
        for part in np.array_split(rows, math.ceil(len(rows) / most_rows)):
            if len(part) / most_rows > free:
                groups.append([])
                free = 1.0
            groups[-1].append((file, part))
            free -= len(part) / most_rows
    return [group for group in groups if group]
