"""Compaction: now and then a commit combines the small files of earlier commits, and their files of deletes.

Each merge adds a small data file and a file of deletes. Readers and later merges have to open all these files. Tables
of version 3 have vectors instead, which are never combined: `vector_compaction` has what differs.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.files.data_files import (
    Positions,
    drop_deleted,
    has_living_rows,
    read_deletes,
    read_rows,
    write_deletes,
)
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.files.live_rows import entries_of, positions_in, without_dangling_deletes
from lakeingest.lake.iceberg.files.partitions import by_partition
from lakeingest.lake.iceberg.files.row_delta import FileChanges, split_by_content
from lakeingest.lake.iceberg.merges import folding
from lakeingest.lake.iceberg.merges.folding import Group, groups_by_key, write_groups
from lakeingest.lake.iceberg.storage.metadata import TableFiles

FILES = 8  # so many small data files, or files of deletes, lead to a compaction; in some tables fewer (`many_files`)
DEAD = 0.3  # a merge rewrites a data file if more than this share of its rows is deleted


def with_compaction(loaded: Table, version: int, new: Sequence[DataFile]) -> FileChanges:
    """The changes of a commit that adds the `new` files to a snapshot, with a compaction if there are many files.

    A compaction rewrites data files of the snapshot, and none of the `new` data files. It puts all deletes of a
    partition, also the new ones, into one file. Partitions are never combined: each partition that has many files is
    compacted by itself.
    """
    table, snapshot = TableFiles.of(loaded), loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the commit builds on it
    manifests = manifests_of(snapshot, loaded.io)
    many = many_files(loaded)
    if not needs_compaction(manifests, many):
        return FileChanges(tuple(new))
    files = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io)]
    new_rows, new_deletes = split_by_content(new)
    added, rows_left = list(new_rows), folding.ROWS_AT_ONCE
    removed: list[DataFile] = []
    new_deletes_of = by_partition(new_deletes)
    for partition, old_files in by_partition(files).items():
        deletes = new_deletes_of.pop(partition, [])
        # without partitions, the manifests have shown already that there are many files
        if table.metadata.spec().is_unpartitioned() or _has_many_files(old_files, many):
            changes, rows_read = _compaction_of(table, old_files, deletes, many, rows_left)
            rows_left -= rows_read
            added, removed = [*added, *changes.added], [*removed, *changes.removed]
        else:
            added += deletes
    # the deletes in partitions without an old file
    added += [file for deletes in new_deletes_of.values() for file in deletes]
    return FileChanges(tuple(added), tuple(removed))


def _compaction_of(
    table: TableFiles, present: Sequence[DataFile], new_deletes: Sequence[DataFile], many: int, most_rows: int
) -> tuple[FileChanges, int]:
    """Combine the files of one partition, with new files of deletes. Returns the changes, and the number of rows read.

    At most `most_rows` rows are read: files that would exceed this limit are left as they are.
    """
    rows, deletes = split_by_content(present)
    dead = read_deletes(table, [*deletes, *new_deletes])
    counts = counts_of(dead)
    groups = groups_to_rewrite(rows, small_files(rows, many), counts, most_rows)
    changes = _rewritten(table, rows, deletes, [Group(group) for group in groups], dead)
    return changes, sum(rows_to_read(group, counts) for group in groups)


def _rewritten(
    table: TableFiles,
    rows: Sequence[DataFile],
    deletes: Sequence[DataFile],
    groups: Sequence[Group],
    dead: Positions,
) -> FileChanges:
    """Write the rows of each of these `groups` to new files, and the deletes of all other files in `rows` to one file.

    Returns the changes that put the new files in place of the old ones.
    """
    replaced = [file for group in groups for file in group.all_files]
    replaced_paths = {file.file_path for file in replaced}
    kept = [file for file in rows if file.file_path not in replaced_paths]
    names = [field.name for field in table.metadata.schema().fields]

    def living(file: DataFile) -> list[pa.Table]:
        is_read = has_living_rows(table, file, dead)
        return [drop_deleted(read_rows(table, file, names), file, dead)] if is_read else []

    added = write_groups(table, groups, living)
    combined = write_deletes(table, positions_in(dead, kept), kept)
    return FileChanges(added=(*added, *combined), removed=(*replaced, *deletes))


def full_compaction(loaded: Table, version: int) -> FileChanges:
    """Combine all small files and all deletes of a snapshot, in each partition. Returns the changes.

    Each file with a deleted row is rewritten: see `groups_by_key`. If there is nothing to combine, the changes are
    those of `without_dangling_deletes`.
    """
    table = TableFiles.of(loaded)
    added: list[DataFile] = []
    removed: list[DataFile] = []
    for present in by_partition(files_of(loaded, version)).values():
        rows, deletes = split_by_content(present)
        dead = read_deletes(table, deletes)
        groups = groups_by_key(table.metadata.schema(), rows, counts_of(dead))
        if groups or len(deletes) > 1:  # one file of deletes cannot be combined
            changes = _rewritten(table, rows, deletes, groups, dead)
            added, removed = [*added, *changes.added], [*removed, *changes.removed]
    if not removed:
        return without_dangling_deletes(loaded, version)
    return FileChanges(tuple(added), tuple(removed))


def files_of(loaded: Table, version: int) -> tuple[DataFile, ...]:
    """All files of rows and of deletes that a snapshot has."""
    rows, deletes = entries_of(loaded, version)
    return tuple(entry.data_file for entry in (*rows, *deletes))


def many_files(loaded: Table) -> int:
    """How many small data files, or files of deletes, lead to a compaction.

    Tables have different numbers, so that not all tables of a run combine their files in the same round.
    """
    return FILES - loaded.metadata.table_uuid.int % max(1, FILES // 4)


def small_files(rows: Sequence[DataFile], many: int) -> list[DataFile]:
    """The small ones of these data files, if there are at least `many`; else none, because a few may stay."""
    small = [file for file in rows if file.record_count < folding.SMALL_ROWS]
    return small if len(small) >= many else []


def counts_of(dead: Positions) -> Mapping[str, int]:
    """The number of deleted rows of each data file."""
    return {path: len(rows) for path, rows in dead.items()}


def rows_to_read(files: Sequence[DataFile], dead: Mapping[str, int]) -> int:
    """The rows that are read to rewrite these files. A file whose rows are all dead is removed without a read."""
    return sum(file.record_count for file in files if dead.get(file.file_path, 0) < file.record_count)


def _has_many_dead(file: DataFile, dead: Mapping[str, int]) -> bool:
    return dead.get(file.file_path, 0) > DEAD * file.record_count


def needs_compaction(manifests: Sequence[ManifestFile], many: int) -> bool:
    """Whether these manifests have `many` small data files, or `many` files of deletes.

    The manifests are not read. By a manifest's totals, all of its data files count as small if they have few rows on
    average.
    """
    small_count = deletes_count = 0  # the numbers of small data files, and of files of deletes
    for manifest in manifests:
        file_count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        row_count = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        if manifest.content is ManifestContent.DELETES:
            deletes_count += file_count
        elif row_count < folding.SMALL_ROWS * file_count:
            small_count += file_count
    return small_count >= many or deletes_count >= many


def _has_many_files(present: Sequence[DataFile], many: int) -> bool:
    """Whether a partition with these files has `many` small data files, or `many` files of deletes."""
    rows, deletes = split_by_content(present)
    return sum(file.record_count < folding.SMALL_ROWS for file in rows) >= many or len(deletes) >= many


def groups_to_rewrite(
    files: Sequence[DataFile], small: Sequence[DataFile], dead: Mapping[str, int], most_rows: int
) -> list[list[DataFile]]:
    """The data files to rewrite, in groups that become one file each.

    All files in `small` are one group. Each other file with many dead rows is a group of its own, so that its keys stay
    close together. Of all groups together, up to `most_rows` rows are read: a group that would exceed this limit is
    left out. `dead` has the number of deleted rows of each file.
    """
    groups: list[list[DataFile]] = [list(small)] if small else []
    groups += [[file] for file in files if _has_many_dead(file, dead) and file not in small]
    chosen = []
    remaining_rows = most_rows
    for group in groups:
        group_rows = rows_to_read(group, dead)
        if not group_rows or group_rows <= remaining_rows:
            chosen.append(group)
            remaining_rows -= group_rows
    return chosen
