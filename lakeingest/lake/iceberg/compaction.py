"""Compaction: now and then a commit combines the small files and the deletes of the commits before it.

Each merge adds a small data file and a file of deletes. Readers and later merges have to open all of them.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.data_files import Positions, alive, read_deletes, read_rows, write_deletes, write_rows
from lakeingest.lake.iceberg.live_rows import of_files, without_dangling
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.iceberg.row_delta import FileChanges, by_content

FILES = 16  # small data files, or files of deletes, that make a compaction worth while
SMALL_ROWS = 50_000  # of a data file: with fewer rows it is small
DEAD = 0.3  # share of a data file's rows that are deleted: above it the file is rewritten
ROWS_AT_ONCE = 500_000  # that are rewritten, so that no commit takes seconds longer than others


def with_compaction(loaded: Table, version: int, new: Sequence[DataFile]) -> FileChanges:
    """The changes of a commit on this snapshot: the new files, and a compaction if many files are small."""
    table, snapshot = TableFiles.of(loaded), loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - whoever commits builds on it
    manifests = snapshot.manifests(loaded.io)
    if not _are_many(manifests):
        return FileChanges(tuple(new))
    listed = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io)]
    rows, deletes = by_content(listed)
    small = [file for file in rows if file.record_count < SMALL_ROWS]
    new_rows, new_deletes = by_content(new)
    dead = read_deletes(table, [*deletes, *new_deletes])
    groups = _groups_to_rewrite(rows, small if len(small) >= FILES else [], dead)
    old = [file for group in groups for file in group]
    gone = {file.file_path for file in old}
    left = of_files(dead, [file for file in rows if file.file_path not in gone])
    added = [file for group in groups for file in write_rows(table, _alive(table, group, dead))]
    return FileChanges((*new_rows, *added, *write_deletes(table, left)), (*old, *deletes))


def compacted(loaded: Table, version: int) -> FileChanges:
    """What puts all small files and all deletes of a snapshot together, many rows at a time; no changes where none are.

    A file with many dead rows is written anew, too, however large it is.
    """
    table = TableFiles.of(loaded)
    rows, deletes = by_content(files_of(loaded, version))
    dead = read_deletes(table, deletes)
    groups = _all_groups(rows, dead)
    if not groups and len(deletes) < 2:  # noqa: PLR2004 - one file of deletes is as few as can be
        return without_dangling(loaded, version)
    old = [file for group in groups for file in group]
    gone = {file.file_path for file in old}
    left = of_files(dead, [file for file in rows if file.file_path not in gone])
    added = [file for group in groups for file in write_rows(table, _alive(table, group, dead))]
    return FileChanges((*added, *write_deletes(table, left)), (*old, *deletes))


def files_of(loaded: Table, version: int) -> tuple[DataFile, ...]:
    """All files of rows and of deletes that a snapshot has."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - whoever commits builds on it
    entries = (entry for one in snapshot.manifests(loaded.io) for entry in one.fetch_manifest_entry(loaded.io))
    return tuple(entry.data_file for entry in entries)


def _all_groups(files: Sequence[DataFile], dead: Positions) -> list[list[DataFile]]:
    """The small files in groups that are read at once, and each file with many dead rows; none that stays as it is."""
    groups: list[list[DataFile]] = []
    count = ROWS_AT_ONCE
    for file in files:
        if file.record_count >= SMALL_ROWS:
            continue
        if count + file.record_count > ROWS_AT_ONCE:
            groups.append([])
            count = 0
        groups[-1].append(file)
        count += file.record_count
    small = [group for group in groups if len(group) > 1 or _has_many_dead(group[0], dead)]
    return small + [[file] for file in files if file.record_count >= SMALL_ROWS and _has_many_dead(file, dead)]


def _has_many_dead(file: DataFile, dead: Positions) -> bool:
    return len(dead.get(file.file_path, ())) > DEAD * file.record_count


def _are_many(manifests: Sequence[ManifestFile]) -> bool:
    """Whether many files are small or have deletes, by the totals of each manifest."""
    small = deletes = 0
    for manifest in manifests:
        files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        if manifest.content is ManifestContent.DELETES:
            deletes += files
        elif rows < SMALL_ROWS * files:
            small += files
    return small >= FILES or deletes >= FILES


def _groups_to_rewrite(files: Sequence[DataFile], small: Sequence[DataFile], dead: Positions) -> list[list[DataFile]]:
    """The files to rewrite, up to a number of rows, each group as one file.

    The small files are one group. A file with many dead rows is a group by itself: its keys stay close together.
    """
    dying = [file for file in files if _has_many_dead(file, dead)]
    groups: list[list[DataFile]] = [list(small)] if small else []
    groups += [[file] for file in dying if file not in small]
    left, chosen = ROWS_AT_ONCE, []
    for group in groups:
        count = sum(file.record_count for file in group)
        if count <= left:
            chosen.append(group)
            left -= count
    return chosen


def _alive(table: TableFiles, files: Sequence[DataFile], dead: Positions) -> pa.Table:
    """The rows of some files that are not deleted."""
    names = [field.name for field in table.metadata.schema().fields]
    return pa.concat_tables(alive(read_rows(table, file, names), file, dead) for file in files)
