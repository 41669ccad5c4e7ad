"""How many rows a snapshot has, without a read of them, and the deletes that delete none.

The totals of a summary count every position in the files of deletes. Someone's compaction may leave positions of files
that it rewrote: they delete no row of the snapshot, and stay until a commit takes their files out.
Source: Iceberg's table specification, "Scan Planning": a position delete applies to the data file of its path, if that
file's data sequence number is not greater than its own.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table

from lakeingest.lake.iceberg.data_files import PATH, Positions, positions_by_path, write_deletes
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.iceberg.row_delta import NO_FILES, FileChanges


def counted(loaded: Table, version: int, expected: int | None) -> int | None:
    """The rows of a snapshot: by its summary where that says what is expected, else as `live_rows`."""
    if expected is not None and total_rows(loaded, version) == expected:
        return expected
    return live_rows(loaded, version)


def total_rows(loaded: Table, version: int) -> int | None:
    """The rows of a snapshot by its summary; None where it has none."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    if snapshot is None or snapshot.summary is None:
        return None
    totals = [int(snapshot.summary[f"total-{name}"] or 0) for name in ("records", "position-deletes")]
    return totals[0] - totals[1]


def live_rows(loaded: Table, version: int) -> int | None:
    """The rows of a snapshot, by its files of rows and the positions of deletes that apply to one of them.

    None where other deletes than by position are among them. Raises as `positions_by_path`.
    """
    rows, deletes = _entries(loaded, version)
    if not _by_position(deletes):
        return None
    dead = _applying(TableFiles.of(loaded), rows, deletes)
    return sum(one.data_file.record_count for one in rows) - sum(map(len, dead.values()))


def without_dangling(loaded: Table, version: int) -> FileChanges:
    """What leaves only the positions that delete a row of the snapshot, each once; no changes where all do."""
    rows, deletes = _entries(loaded, version)
    if not _by_position(deletes):
        return NO_FILES
    files = TableFiles.of(loaded)
    dead = _applying(files, rows, deletes)
    if sum(map(len, dead.values())) == sum(one.data_file.record_count for one in deletes):
        return NO_FILES
    return FileChanges(tuple(write_deletes(files, dead)), tuple(one.data_file for one in deletes))


def of_files(positions: Positions, files: Sequence[DataFile]) -> Positions:
    """The positions of rows of these files."""
    paths = {file.file_path for file in files}
    return {path: found for path, found in positions.items() if path in paths}


def _entries(loaded: Table, version: int) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """The entries of the files of rows, and of the files of deletes."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the table was loaded with it
    found = [entry for one in snapshot.manifests(loaded.io) for entry in one.fetch_manifest_entry(loaded.io)]
    rows = [entry for entry in found if entry.data_file.content is DataFileContent.DATA]
    return rows, [entry for entry in found if entry.data_file.content is not DataFileContent.DATA]


def _by_position(deletes: Sequence[ManifestEntry]) -> bool:
    return all(one.data_file.content is DataFileContent.POSITION_DELETES for one in deletes)


def _applying(files: TableFiles, rows: Sequence[ManifestEntry], deletes: Sequence[ManifestEntry]) -> Positions:
    """The positions that delete a row, each once, by the path of its file."""
    written = {one.data_file.file_path: _number(one) for one in rows}
    paths = sorted(written)
    found = defaultdict(list)
    for delete in deletes:
        if _may_apply(delete.data_file, paths):
            for path, positions in positions_by_path(files, delete.data_file):
                if path in written and written[path] <= _number(delete):
                    found[path].append(positions)
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}


def _may_apply(delete: DataFile, paths: Sequence[str]) -> bool:
    """Whether one of these paths, which are sorted, is between the bounds of a file of deletes."""
    lower, upper = (_bound(ends) for ends in (delete.lower_bounds, delete.upper_bounds))
    if lower is None or upper is None:
        return True
    place = bisect_left(paths, lower, key=str.encode)
    return place < len(paths) and paths[place].encode() <= upper


def _bound(ends: Mapping[int, bytes] | None) -> bytes | None:
    return (ends or {}).get(PATH)


def _number(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0
