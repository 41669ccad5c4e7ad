"""The files that a commit on a table of version 3 adds and removes: each data file has one deletion vector at most.

Two vectors for one data file cannot be: a commit that deletes rows of it adds a vector with all of its dead rows, and
removes the earlier vector. Such a commit also removes the position deletes of version 2, which an upgraded table may
still have, and writes the rows that they delete into vectors. Vectors are never combined.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.table import Table

from lakeingest.lake.iceberg.files import live_rows
from lakeingest.lake.iceberg.files.data_files import Positions, by_path, drop_deleted, has_living_rows
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.files.live_rows import applying_positions, entries_of, is_applying
from lakeingest.lake.iceberg.files.partitions import by_partition
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.files.row_ids import rows_with_ids, with_row_ids
from lakeingest.lake.iceberg.files.vectors import DeadRows, write_vectors
from lakeingest.lake.iceberg.merges import compaction, folding
from lakeingest.lake.iceberg.merges.compaction import groups_to_rewrite, many_files, small_files
from lakeingest.lake.iceberg.merges.folding import Group, groups_by_key, write_groups
from lakeingest.lake.iceberg.storage.entry_fields import is_vector, referenced_path
from lakeingest.lake.iceberg.storage.format_version import is_third
from lakeingest.lake.iceberg.storage.metadata import TableFiles


def with_compaction(loaded: Table, version: int, new: Sequence[Any]) -> FileChanges:
    """The changes of a commit that adds what mergers have written, with a compaction if there are many files.

    `new`: files of rows and of deletes; in version 3, files of rows and `DeadRows`.
    """
    if not is_third(loaded.metadata):
        return compaction.with_compaction(loaded, version, new)
    new_rows = [file for file in new if isinstance(file, DataFile)]
    dead = by_path(found.positions() for found in new if isinstance(found, DeadRows))
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the commit builds on it
    manifests = [one for one in manifests_of(snapshot, loaded.io) if one.content is ManifestContent.DATA]
    if not dead and not compaction.needs_compaction(manifests, many_files(loaded)):
        return FileChanges(tuple(new_rows))
    present = _Present.of(loaded, version)
    changes = present.changes(dead, present.groups(dead, many_files(loaded)))
    return FileChanges((*new_rows, *changes.added), changes.removed)


def full_compaction(loaded: Table, version: int) -> FileChanges:
    """Combine all small files of a snapshot, in each partition, and write files with deleted rows anew.

    Returns the changes.
    """
    if not is_third(loaded.metadata):
        return compaction.full_compaction(loaded, version)
    present = _Present.of(loaded, version)
    counts = present.counts(applying_positions(present.table, list(present.rows.values()), present.deletes))
    of_places = by_partition(entry.data_file for entry in present.rows.values()).values()
    schema = present.table.metadata.schema()
    return present.changes({}, [group for files in of_places for group in groups_by_key(schema, files, counts)])


def without_dangling_deletes(loaded: Table, version: int) -> FileChanges:
    """The changes that remove vectors which apply to no data file; NO_FILES if there are no such vectors.

    The changes also put position deletes of version 2 into vectors. A table of version 2 is left to `live_rows`.
    """
    if not is_third(loaded.metadata):
        return live_rows.without_dangling_deletes(loaded, version)
    present = _Present.of(loaded, version)
    return present.changes({}, ()) if present.dangling else NO_FILES


@dataclass(frozen=True, slots=True)
class _Present:
    """The files of a snapshot that a commit of version 3 builds on.

    `rows`: the data files by their paths. `vectors`: for the path of each data file with a vector, a list of this
    vector; if somebody else has written a second one, both are in it. `deletes`: files of position deletes, of version
    2. `dangling`: vectors that apply to no data file.
    """

    table: TableFiles
    rows: Mapping[str, ManifestEntry]
    vectors: Mapping[str, Sequence[ManifestEntry]]
    deletes: Sequence[ManifestEntry]
    dangling: Sequence[ManifestEntry]

    @classmethod
    def of(cls, loaded: Table, version: int) -> Self:
        """The files of this snapshot."""
        rows, deletes = entries_of(loaded, version)
        numbers = {entry.data_file.file_path: entry.sequence_number or 0 for entry in rows}
        vectors: dict[str, list[ManifestEntry]] = {}
        dangling: list[ManifestEntry] = []
        for entry in deletes:
            if is_vector(entry.data_file):
                path = referenced_path(entry.data_file)
                of_path = vectors.setdefault(path, []) if is_applying(entry, path, numbers) else dangling
                of_path.append(entry)
        old = [entry for entry in deletes if not is_vector(entry.data_file)]
        rows_by_path = {entry.data_file.file_path: entry for entry in rows}
        return cls(TableFiles.of(loaded), rows_by_path, vectors, old, dangling)

    def counts(self, dead: Positions) -> dict[str, int]:
        """The number of deleted rows of each data file, the rows `dead` included. No vector is read."""
        found = {path: len(rows) for path, rows in dead.items()}
        for path, entries in self.vectors.items():
            found[path] = found.get(path, 0) + sum(entry.data_file.record_count for entry in entries)
        return found

    def groups(self, dead: Positions, many: int) -> list[Group]:
        """The data files that a commit with these dead rows rewrites, in groups that become one file each.

        If a partition has at least `many` small files, they are combined; else its small files stay. Large files with
        many dead rows are rewritten in any case.
        """
        counts, rows_left = self.counts(dead), folding.ROWS_AT_ONCE
        groups: list[Group] = []
        for files in by_partition(entry.data_file for entry in self.rows.values()).values():
            small = small_files(files, many)
            chosen = [file for file in files if small or file.record_count >= folding.SMALL_ROWS]
            of_place = groups_to_rewrite(chosen, small, counts, rows_left)
            rows_left -= sum(compaction.rows_to_read(group, counts) for group in of_place)
            groups += map(Group, of_place)
        return groups

    def changes(self, dead: Positions, groups: Sequence[Group]) -> FileChanges:
        """Write vectors and data files. Returns the changes that delete the rows `dead`, and rewrite these groups."""
        old = applying_positions(self.table, list(self.rows.values()), self.deletes)
        rewritten = [file for group in groups for file in group.all_files]
        touched = {*dead, *old, *(file.file_path for file in rewritten)}
        replaced = [entry for path in sorted(touched) for entry in self.vectors.get(path, ())]
        of_vectors = applying_positions(self.table, list(self.rows.values()), replaced)
        # position deletes do not apply to a data file that has a vector
        all_dead = _united([dead, of_vectors, {path: old[path] for path in old.keys() - self.vectors.keys()}])
        added = self._rewritten(groups, all_dead)
        rewritten_paths = {file.file_path for file in rewritten}
        kept = {path: rows for path, rows in all_dead.items() if path not in rewritten_paths}
        files = {path: self.rows[path].data_file for path in kept}
        removed = (entry.data_file for entry in (*replaced, *self.deletes, *self.dangling))
        return FileChanges((*added, *write_vectors(self.table, kept, files)), (*rewritten, *removed))

    def _rewritten(self, groups: Sequence[Group], dead: Positions) -> list[DataFile]:
        """Write the living rows of each group to new files. The rows keep their ids."""
        table = with_row_ids(self.table)
        names = [field.name for field in self.table.metadata.schema().fields]

        def living(file: DataFile) -> list[pa.Table]:
            """The rows of a file that are not dead, with their ids."""
            if not has_living_rows(self.table, file, dead):
                return []
            rows = rows_with_ids(table, file, names, self.rows[file.file_path].sequence_number or 0)
            return [drop_deleted(rows, file, dead)]

        return write_groups(table, groups, living)


def _united(parts: Iterable[Positions]) -> dict[str, "np.ndarray"]:
    """The positions of all parts, each once and ascending."""
    return {path: np.unique(rows) for path, rows in by_path(parts).items()}
