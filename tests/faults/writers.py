"""Faults of our own writers: whatever they return and count, they have written something else.

Each fault keeps the numbers consistent that writers report, as far as it can: so no count of theirs betrays it.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.manifest import DataFile

from lakeingest.core.tables.change import DELETED
from lakeingest.lake.hudi import base_files, row_delta
from lakeingest.lake.hudi.base_files import RECORD, WrittenFile
from lakeingest.lake.iceberg.files import data_files
from lakeingest.lake.iceberg.merges import merger
from lakeingest.lake.iceberg.merges.merger import IcebergMerger
from lakeingest.lake.staged.writer import StagedMerger

SIZE = 5  # the number of the field file_size_in_bytes in Iceberg's specification of a data file
Fault = Callable[[pytest.MonkeyPatch], None]
Rows = Callable[[pa.Table], pa.Table]


def doubled(rows: pa.Table) -> pa.Table:
    """The first row twice, and not the second one."""
    return rows.take(pa.array([0, 0, *range(2, rows.num_rows)]))


def swapped(rows: pa.Table) -> pa.Table:
    """The values of a and b are in the other's column; rows of another table stay as they are."""
    if "b" not in rows.column_names:
        return rows
    return rows.set_column(rows.column_names.index("a"), "a", rows["b"]).set_column(
        rows.column_names.index("b"), "b", rows["a"]
    )


def changed(rows: pa.Table) -> pa.Table:
    """One value of the last row is another one."""
    values = rows["a"].to_pylist()
    return rows.set_column(rows.column_names.index("a"), "a", pa.array([*values[:-1], -7], rows["a"].type))


def without_deletes(rows: pa.Table) -> pa.Table:
    """Deletes are lost."""
    return rows.filter(pc.invert(rows[DELETED]))


def iceberg_rows(fault: Rows) -> Fault:
    """The rows of a file are spoiled on the way to Parquet."""

    def put(patch: pytest.MonkeyPatch) -> None:
        write = data_files.write_rows
        patch.setattr(merger, "write_rows", lambda table, rows: write(table, fault(rows)))

    return put


def iceberg_positions(fault: Callable[["np.ndarray"], "np.ndarray"]) -> Fault:
    """The positions of deleted rows are spoiled."""

    def put(patch: pytest.MonkeyPatch) -> None:
        write = data_files.found_deletes

        def spoiled(table: Any, positions: Mapping[str, "np.ndarray"], files: Iterable[DataFile]) -> Sequence[Any]:
            return write(table, {path: fault(rows) if len(rows) else rows for path, rows in positions.items()}, files)

        patch.setattr(merger, "found_deletes", spoiled)

    return put


def iceberg_lost_delete(patch: pytest.MonkeyPatch) -> None:
    """The merger does not find the deleted rows, and counts them for none."""
    find = IcebergMerger.find
    patch.setattr(IcebergMerger, "find", lambda self, changes: find(self, without_deletes(changes)))


def iceberg_truncated(patch: pytest.MonkeyPatch) -> None:
    """Half of a file is missing, and its length in the manifest is that of the half."""
    write = data_files.write_rows

    def truncated(table: Any, rows: pa.Table) -> list[DataFile]:
        files = write(table, rows)
        for file in files:
            path = Path(unquote(urlsplit(file.file_path).path))
            size = path.stat().st_size // 2
            os.truncate(path, size)
            file[SIZE] = size
        return files

    patch.setattr(merger, "write_rows", truncated)


def hudi_changes(fault: Rows) -> Fault:
    """The changes of a bucket are spoiled before its file is written. All counts are those of the right changes."""

    def put(patch: pytest.MonkeyPatch) -> None:
        write = base_files.write_next_file

        def spoiled(commit: Any, group: Any, previous: Any, changes: pa.Table, gone: Any) -> WrittenFile:
            written = write(commit, group, previous, fault(changes), gone)
            is_old = pc.is_in(changes[RECORD], value_set=previous.rows[RECORD].combine_chunks())
            inserted, updated, deleted = (
                pc.sum(each).as_py() or 0
                for each in (
                    pc.and_not(pc.invert(changes[DELETED]), is_old),
                    pc.and_not(is_old, changes[DELETED]),
                    pc.and_(is_old, changes[DELETED]),
                )
            )
            rows = previous.rows.num_rows + inserted - deleted
            return replace(written, rows=rows, inserted=inserted, updated=updated, deleted=deleted)

        patch.setattr(row_delta, "write_next_file", spoiled)

    return put


def hudi_truncated(patch: pytest.MonkeyPatch) -> None:
    """Half of a file is missing, and its size in the commit is that of the half."""
    write = base_files.write_next_file

    def truncated(commit: Any, *rest: Any) -> WrittenFile:
        written = write(commit, *rest)
        os.truncate(commit.folder / written.name, written.size // 2)
        return replace(written, size=written.size // 2)

    patch.setattr(row_delta, "write_next_file", truncated)


def of_others(rows: pa.Table) -> pa.Table:
    """The updates have the record keys of each other's neighbours, which are no changed keys: they replace them."""
    keys = [
        key if gone else str(int(key) + 20)
        for key, gone in zip(rows[RECORD].to_pylist(), rows[DELETED].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.column_names.index(RECORD), RECORD, pa.array(keys))


def of_nobody(rows: pa.Table) -> pa.Table:
    """The deletes have record keys that no row has."""
    keys = [
        f"{key}0000" if gone else key
        for key, gone in zip(rows[RECORD].to_pylist(), rows[DELETED].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.column_names.index(RECORD), RECORD, pa.array(keys))


def hudi_staged(patch: pytest.MonkeyPatch) -> None:
    """The changes in a file of staging are spoiled, before any publish."""
    write = StagedMerger.write
    patch.setattr(StagedMerger, "write", lambda self, rows: write(self, swapped(rows)))


# By format: a fault of a commit on staging
STAGED: Mapping[str, Fault] = MappingProxyType({"iceberg": iceberg_rows(swapped), "hudi": hudi_staged})

# By format and name: the fault, and what the audit says of it
FAULTS: Mapping[str, Mapping[str, tuple[Fault, str]]] = MappingProxyType(
    {
        "iceberg": {
            "a lost delete": (iceberg_lost_delete, "is still there, although its row was deleted"),
            "a doubled row": (iceberg_rows(doubled), "is there more than once"),
            "a swapped column": (iceberg_rows(swapped), "has another value in a, b"),
            "a truncated file": (iceberg_truncated, "a file is gone or damaged"),
            "a wrong position": (iceberg_positions(lambda rows: np.where(rows % 2, rows - 1, rows + 1)), "once|still"),
            "a delete file that misses": (
                iceberg_positions(lambda rows: rows + 10_000),
                "deletes rows that .* not have",
            ),
            "a value changed in Arrow": (iceberg_rows(changed), "has another value in a"),
        },
        "hudi": {
            "a lost delete": (
                hudi_changes(without_deletes),
                "the commit says .* is still there, although its row was deleted",
            ),
            "a doubled row": (hudi_changes(doubled), "more than once|the commit says"),
            "a swapped column": (hudi_changes(swapped), "has another value in a, b"),
            "a truncated file": (hudi_truncated, "a file is gone or damaged"),
            "a wrong position": (hudi_changes(of_others), "more than once|the commit says"),
            "a delete that misses": (
                hudi_changes(of_nobody),
                "the commit says .* is still there, although its row was deleted",
            ),
            "a value changed in Arrow": (hudi_changes(changed), "has another value in a"),
        },
    }
)
