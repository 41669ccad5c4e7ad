"""What a snapshot holds, for the audit before its publish: its files of rows, and its new files of deletes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import ancestors_of

from lakeingest.core.proofs.audit import miscount
from lakeingest.lake.iceberg.files.data_files import Positions, SmallFiles, bounds_of, positions_by_path
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.files.live_rows import entries_of
from lakeingest.lake.iceberg.files.row_delta import split_by_content
from lakeingest.lake.iceberg.files.scan_plan import NotByPosition, files_with
from lakeingest.lake.iceberg.storage.entry_fields import Identity, identity, is_vector, referenced_path
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Deletes:
    """The positions in files of deletes. Each file is read once."""

    table: TableFiles
    read: dict[Identity, Positions] = field(default_factory=dict)

    def of(self, file: DataFile) -> Positions:
        """The positions in one file of deletes, by the path of the file whose rows they delete."""
        if identity(file) not in self.read:
            self.read[identity(file)] = dict(positions_by_path(self.table, file))
        return self.read[identity(file)]

    def all_of(self, task: FileScanTask) -> "np.ndarray":
        """The positions of all deleted rows of a data file, each once and ascending."""
        found = [self.of(file).get(task.file.file_path, _NONE) for file in task.delete_files]
        return np.unique(np.concatenate([_NONE, *found]))  # _NONE, because an empty list cannot be concatenated


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """`lake.held.HeldFile` of a file of rows. `task` names the files of deletes that apply to it."""

    table: TableFiles
    task: FileScanTask
    is_new: bool
    deletes: _Deletes
    opened: SmallFiles

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.task.file.file_path

    @property
    def rows(self) -> int:
        """The number of rows by the manifest."""
        return self.task.file.record_count

    def count(self) -> int:
        """The number of rows by the footer."""
        with storage_errors(self.name):
            return self.opened.count(self.task.file)

    def may_have(self, keys: pa.Table) -> "np.ndarray":
        """For each key, whether its first column is within the bounds of the file; True if the bounds are unknown."""
        name = keys.column_names[0]
        bounds = bounds_of(self.task.file, self.table.metadata.schema().find_field(name))
        if bounds is None:
            return np.ones(keys.num_rows, bool)
        lower, upper = (pa.scalar(end, keys[name].type) for end in bounds)
        is_within = pc.and_(pc.greater_equal(keys[name], lower), pc.less_equal(keys[name], upper))
        return np.asarray(is_within.to_numpy(), bool)

    def keys(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of the rows that are not deleted."""
        return self._living(names)

    def first_rows(self, names: Sequence[str], most: int) -> pa.Table:
        """The columns `names` of the rows that are not deleted, among about the first `most` rows."""
        return self._living(names, most)

    def _living(self, names: Sequence[str], most: int | None = None) -> pa.Table:
        """As `first_rows`; None for `most`: all rows of the file."""
        with storage_errors(self.name):
            rows = self.opened.rows(self.task.file, names, most)
            dead = [self.deletes.of(file).get(self.name, _NONE) for file in self.task.delete_files]
        is_living = np.ones(rows.num_rows, bool)
        for positions in dead:  # `IcebergHeld.faulty_deletes` finds positions that are not in the file
            is_living[positions[(positions >= 0) & (positions < rows.num_rows)]] = False
        return rows.filter(pa.array(is_living))


class IcebergHeld:
    """`lake.held.Held` of the snapshot `version`. `published`: the one that readers see; None: readers see none yet."""

    def __init__(self, loaded: Table, version: int, published: int | None) -> None:
        self._loaded, self._version, self._published = loaded, version, published
        self._table = TableFiles.of(loaded)
        self._deletes = _Deletes(self._table)

    @cached_property
    def files(self) -> list[IcebergFile]:
        """All files of rows. Raises NotByPosition as `files_with`."""
        new_rows, _ = self._new_files
        new_paths = {file.file_path for file in new_rows}
        opened = SmallFiles(self._table)
        return [
            IcebergFile(self._table, task, task.file.file_path in new_paths, self._deletes, opened)
            for task in self._tasks(self._version)
        ]

    @cached_property
    def _shown(self) -> dict[str, FileScanTask]:
        """The data files that readers see, by their paths; none if another tool has added deletes by equality."""
        if self._published is None or self._loaded.metadata.snapshot_by_id(self._published) is None:
            return {}
        with suppress(NotByPosition):
            return {task.file.file_path: task for task in self._tasks(self._published)}
        return {}

    def _tasks(self, version: int) -> tuple[FileScanTask, ...]:
        """All data files of a snapshot, each with its files of deletes. Raises NotByPosition as `files_with`."""
        any_column = self._loaded.schema().fields[0].name
        return files_with(self._loaded, version, any_column, bounds=None)

    @cached_property
    def _new_files(self) -> tuple[list[DataFile], list[DataFile]]:
        """The files of rows, and those of deletes, that the snapshot has and `published` does not have."""
        return split_by_content(tuple(_new_files(self._loaded, self._version, self._published)))

    def faulty_deletes(self) -> list[str]:
        """What is wrong with new files of deletes: the number of rows, rows that do not exist, or rows deleted twice.

        Also names data files with two vectors, and new vectors that lack a row that is deleted for readers.
        """
        rows_by_path = {file.name: file.rows for file in self.files}
        _, new_deletes = self._new_files
        by_position = [file for file in new_deletes if file.content is DataFileContent.POSITION_DELETES]
        faults = [fault for file in by_position for fault in self._faults(file, rows_by_path)]
        vectors = [file for file in by_position if is_vector(file)]
        return [*self._doubled_vectors(), *faults, *(fault for file in vectors for fault in self._lost_rows(file))]

    def _doubled_vectors(self) -> Iterator[str]:
        """Yield a fault for each data file that has more than one vector."""
        _, deletes = entries_of(self._loaded, self._version)
        vectors = Counter(referenced_path(entry.data_file) for entry in deletes if is_vector(entry.data_file))
        for path, count in vectors.items():
            if count > 1:
                yield f"{path} has {count} deletion vectors"

    def _lost_rows(self, vector: DataFile) -> Iterator[str]:
        """Yield a fault if a new vector lacks rows of its data file that are deleted for readers already."""
        path = referenced_path(vector)
        if (shown := self._shown.get(path)) is None:
            return
        with storage_errors(vector.file_path):
            lost = np.setdiff1d(self._deletes.all_of(shown), self._deletes.of(vector).get(path, _NONE))
        if len(lost):
            yield f"{vector.file_path} lacks {len(lost)} rows of {path} that were deleted before"

    def _faults(self, file: DataFile, rows_by_path: Mapping[str, int]) -> Iterator[str]:
        """The faults of one file of deletes. `rows_by_path` has the number of rows of each data file of the commit."""
        with storage_errors(file.file_path):
            positions_by_file = self._deletes.of(file)
        fault = miscount(file.file_path, file.record_count, sum(map(len, positions_by_file.values())))
        if fault is not None:
            yield fault
        for path, positions in positions_by_file.items():
            if path not in rows_by_path:
                yield f"{file.file_path} deletes rows of {path}, which the commit does not have"
            elif positions.min() < 0 or positions.max() >= rows_by_path[path]:
                yield f"{file.file_path} deletes rows that {path} does not have"
            elif len(np.unique(positions)) < len(positions):
                yield f"{file.file_path} deletes a row of {path} twice"


def _new_files(loaded: Table, version: int, published: int | None) -> Iterator[DataFile]:
    """The files, of rows and of deletes, that a snapshot has and `published` does not have."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the table was loaded with it
    history = ancestors_of(snapshot, loaded.metadata)  # the newest first
    unpublished = {each.snapshot_id for each in takewhile(lambda each: each.snapshot_id != published, history)}
    for manifest in manifests_of(snapshot, loaded.io):
        if manifest.added_snapshot_id in unpublished:  # else it has only files that readers see already
            entries = manifest.fetch_manifest_entry(loaded.io)
            yield from (entry.data_file for entry in entries if entry.snapshot_id in unpublished)
