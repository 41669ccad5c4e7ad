"""Counts the rows of a snapshot without reading them, and removes positions of deletes that delete no row.

The totals of a summary count every position in the files of deletes. After a compaction by someone else, some positions
may be in data files that the compaction has replaced. Such positions delete no row of the snapshot. They stay until a
commit removes their files of deletes. Source: Iceberg's table specification, "Scan Planning": a position delete applies
to the data file of its path if the data sequence number of the data file is not greater than that of the delete. If a
deletion vector applies to a data file, no other deletes do.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table

from lakeingest.lake.iceberg.files.data_files import Positions, path_bounds, positions_by_path, write_deletes
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.storage.entry_fields import is_vector, referenced_path
from lakeingest.lake.iceberg.storage.metadata import TableFiles


def count_rows(loaded: Table, version: int, expected: int | None) -> int | None:
    """The number of rows by the snapshot's summary if it equals `expected`, else what `count_live_rows` returns."""
    if expected is not None and total_rows(loaded, version) == expected:
        return expected
    return count_live_rows(loaded, version)


def total_rows(loaded: Table, version: int) -> int | None:
    """The number of rows of a snapshot by its summary; None if the snapshot is gone, or its summary does not say it."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    if snapshot is None or snapshot.summary is None:
        return None
    rows, deletes = (snapshot.summary[f"total-{name}"] for name in ("records", "position-deletes"))
    # a writer may leave out a total, which is not 0 then
    return None if rows is None or deletes is None else int(rows) - int(deletes)


def count_live_rows(loaded: Table, version: int) -> int | None:
    """The number of rows of a snapshot: those in its files of rows, minus those that its deletes apply to.

    None if some deletes are not by position. Raises as `positions_by_path`.
    """
    rows, deletes = entries_of(loaded, version)
    if not _are_by_position(deletes):
        return None
    dead = applying_positions(TableFiles.of(loaded), rows, deletes)
    return sum(entry.data_file.record_count for entry in rows) - sum(map(len, dead.values()))


def without_dangling_deletes(loaded: Table, version: int) -> FileChanges:
    """Write all positions that delete a row, each once, to one file. Returns changes to put it in place of all deletes.

    If the table has partitions, one file is written for each partition.

    NO_FILES if every stored position deletes a row and is stored once, or if some deletes are not by position.
    """
    rows, deletes = entries_of(loaded, version)
    if not _are_by_position(deletes):
        return NO_FILES
    files = TableFiles.of(loaded)
    dead = applying_positions(files, rows, deletes)
    if sum(map(len, dead.values())) == sum(entry.data_file.record_count for entry in deletes):
        return NO_FILES
    replaced = tuple(entry.data_file for entry in deletes)
    data_files = [entry.data_file for entry in rows]
    return FileChanges(added=tuple(write_deletes(files, dead, data_files)), removed=replaced)


def positions_in(positions: Positions, files: Sequence[DataFile]) -> Positions:
    """The positions of rows in these data files, without those in other files."""
    paths = {file.file_path for file in files}
    return {path: rows for path, rows in positions.items() if path in paths}


def entries_of(loaded: Table, version: int) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """The manifest entries of a snapshot's files of rows, and those of its files of deletes."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the table was loaded with it
    manifests = manifests_of(snapshot, loaded.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io)]
    rows = [entry for entry in entries if entry.data_file.content is DataFileContent.DATA]
    return rows, [entry for entry in entries if entry.data_file.content is not DataFileContent.DATA]


def _are_by_position(deletes: Sequence[ManifestEntry]) -> bool:
    return all(entry.data_file.content is DataFileContent.POSITION_DELETES for entry in deletes)


def applying_positions(files: TableFiles, rows: Sequence[ManifestEntry], deletes: Sequence[ManifestEntry]) -> Positions:
    """The positions that delete a row, each once and ascending, by the path of the row's file.

    A delete applies only to data files that are not newer than the delete.
    """
    numbers = {entry.data_file.file_path: _sequence_number(entry) for entry in rows}
    paths = sorted(numbers)
    applying = defaultdict(list)
    of_vectors = {  # the paths of the data files with a vector: no other deletes apply to them
        referenced_path(delete.data_file)
        for delete in deletes
        if is_vector(delete.data_file) and is_applying(delete, referenced_path(delete.data_file), numbers)
    }
    for delete in deletes:
        if _may_apply(delete.data_file, paths):
            for path, positions in positions_by_path(files, delete.data_file):
                is_replaced = path in of_vectors and not is_vector(delete.data_file)
                if not is_replaced and is_applying(delete, path, numbers):
                    applying[path].append(positions)
    return {path: np.unique(np.concatenate(parts)) for path, parts in applying.items()}


def is_applying(delete: ManifestEntry, path: str, numbers: Mapping[str, int]) -> bool:
    """Whether `delete` applies to the data file `path`. `numbers`: the sequence numbers of all data files."""
    return path in numbers and numbers[path] <= _sequence_number(delete)


def _may_apply(delete: DataFile, paths: Sequence[str]) -> bool:
    """Whether one of the `paths`, which are sorted, is within the bounds of this file; True if it has no bounds."""
    lower, upper = path_bounds(delete)
    if lower is None or upper is None:
        return True
    index = bisect_left(paths, lower, key=str.encode)  # of the first path that is not below the lower bound
    return index < len(paths) and paths[index].encode() <= upper


def _sequence_number(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0
