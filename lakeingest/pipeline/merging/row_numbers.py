"""Numbers of rows in files of the spool: how executors say which rows they found, without their values."""

from collections.abc import Sequence

import numpy as np

from lakeingest.files.file import File

FILE_ROWS = 250_000  # rows of a task, which holds all their columns, and of a file that it writes

RowNumbers = dict[File, "np.ndarray"]  # by file


def row_numbers(files: Sequence[File], at: "np.ndarray", rows: "np.ndarray") -> RowNumbers:
    """Of rows the numbers within their files; `at` has the number of each row's file, and ascends."""
    numbers, starts = np.unique(at, return_index=True)
    return dict(zip((files[number] for number in numbers), np.split(rows, starts[1:]), strict=False))


def in_groups(found: Sequence[RowNumbers]) -> list[list[tuple[File, "np.ndarray"]]]:
    """All these rows in the order of their files, in groups of about FILE_ROWS rows."""
    groups: list[list[tuple[File, np.ndarray]]] = [[]]
    left = FILE_ROWS
    for file in dict.fromkeys(file for part in found for file in part):
        rows = np.sort(np.concatenate([part[file] for part in found if file in part]))
        for part in np.array_split(rows, -(-len(rows) // FILE_ROWS)):
            if len(part) > left:
                groups.append([])
                left = FILE_ROWS
            groups[-1].append((file, part))
            left -= len(part)
    return [group for group in groups if group]
