"""Numbers of rows in files of the spool: executors return these numbers, and not the values of the rows."""

from collections.abc import Sequence

import numpy as np

from lakeingest.files.file import File

FILE_ROWS = 250_000  # rows of a task, which has all their columns in memory, and of a file that it writes

RowNumbers = dict[File, "np.ndarray"]  # by file


def row_numbers(files: Sequence[File], at: "np.ndarray", rows: "np.ndarray") -> RowNumbers:
    """Group row numbers by file.

    `rows`: for each row, its number within its file. `at`: for each row, the index of its file in `files`, ascending.
    """
    rows = rows.astype(np.min_scalar_type(rows.max(initial=0)))  # the driver has the numbers of all rows of a merge
    file_indices, starts = np.unique(at, return_index=True)  # with the index in `at` at which each file's rows start
    return dict(zip((files[index] for index in file_indices), np.split(rows, starts[1:]), strict=False))


def in_groups(slices: Sequence[RowNumbers]) -> list[list[tuple[File, "np.ndarray"]]]:
    """The rows of all slices in the order of their files, in groups of about FILE_ROWS rows."""
    groups: list[list[tuple[File, np.ndarray]]] = [[]]
    free_rows = FILE_ROWS  # the number of rows that the last group can still take
    for file in dict.fromkeys(file for slice_ in slices for file in slice_):
        rows = np.sort(np.concatenate([slice_[file] for slice_ in slices if file in slice_]))
        part_count = -(-len(rows) // FILE_ROWS)  # rounded up, so that a part has at most FILE_ROWS rows
        for part in np.array_split(rows, part_count):
            if len(part) > free_rows:
                groups.append([])
                free_rows = FILE_ROWS
            groups[-1].append((file, part))
            free_rows -= len(part)
    return [group for group in groups if group]
