"""An Iceberg commit that adds files of rows and of deletes, and removes files. PyIceberg has only parts of this.

Source: Iceberg's table specification, "Manifests" and "Snapshots". The commit extends PyIceberg's appending snapshot.
New deletes go into a manifest of deletes, and a manifest with removed files is written again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT

from lakeingest.lake.iceberg.kept_files import copied, manifests_of


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files, of rows and of deletes, that a commit adds, and those that it removes."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()


NO_FILES = FileChanges()
FOR_EVER = (1 << 63) - 1  # milliseconds: the branch is not removed by a retention setting of the table


def split_by_content(files: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
    """The files of rows, and the files of deletes, among these files."""
    rows = [file for file in files if file.content is DataFileContent.DATA]
    return rows, [file for file in files if file.content is not DataFileContent.DATA]


class RowDelta(_FastAppendFiles):
    """A snapshot on a branch that adds and removes files at once.

    The commit is refused if someone has changed the columns or the partitions since the files were written.
    """

    def __init__(
        self, transaction: Transaction, io: FileIO, branch: str, properties: Mapping[str, str], changes: FileChanges
    ) -> None:
        rows, deletes = split_by_content(changes.added)
        kind = Operation.OVERWRITE if changes.removed or deletes else Operation.APPEND
        super().__init__(kind, transaction, io, snapshot_properties=dict(properties), branch=branch)
        self._added_data_files = rows
        self._deletes = deletes
        self._removed = {file.file_path: file for file in changes.removed}

    def _commit(self) -> UpdatesAndRequirements:
        """PyIceberg's updates and requirements. The branch is kept for ever; columns and partitions are asserted."""
        updates, requirements = super()._commit()
        kept_for_ever = [
            update.model_copy(update={"max_ref_age_ms": FOR_EVER})
            if isinstance(update, SetSnapshotRefUpdate)
            else update
            for update in updates
        ]
        metadata = self._transaction.table_metadata
        shape_assertions = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),  # type: ignore[call-arg]
        )
        return tuple(kept_for_ever), (*requirements, *shape_assertions)

    def _manifests(self) -> list[ManifestFile]:
        """A manifest of the new files of rows, the manifests of the earlier files, and one of the new deletes."""
        return [
            *self._manifest(ManifestContent.DATA, self._added(self._added_data_files)),
            *self._existing_manifests(),
            *self._manifest(ManifestContent.DELETES, self._added(self._deletes)),
        ]

    def _added(self, files: Iterable[DataFile]) -> Iterator[ManifestEntry]:
        """The entries of new files. They get their sequence number when the commit succeeds."""
        for file in files:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
            )

    def _existing_manifests(self) -> list[ManifestFile]:
        """The manifests of the snapshot on which the commit builds.

        All manifests with removed files are replaced by two new ones, for rows and for deletes. Without that, a
        compaction would write a new manifest for each of them.
        """
        if self._parent_snapshot_id is None:
            return []
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        assert parent is not None  # noqa: S101 - staging is there
        unchanged: list[ManifestFile] = []
        changed: dict[ManifestContent, list[ManifestEntry]] = {}
        for manifest in manifests_of(parent, self._io):
            entries = manifest.fetch_manifest_entry(self._io) if self._removed else []
            if any(entry.data_file.file_path in self._removed for entry in entries):
                changed.setdefault(manifest.content, []).extend(map(self._after, entries))
            elif manifest.has_added_files() or manifest.has_existing_files():
                unchanged.append(manifest)
        rewritten = [one for content, entries in changed.items() for one in self._manifest(content, entries)]
        return unchanged + rewritten

    def _after(self, entry: ManifestEntry) -> ManifestEntry:
        """The entry of a file of an earlier snapshot, which this commit keeps or removes."""
        is_removed = entry.data_file.file_path in self._removed
        changed = copied(entry)
        changed.status = ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING
        if is_removed:
            changed.snapshot_id = self._snapshot_id  # the snapshot that removes the file
        return changed

    def _manifest(self, content: ManifestContent, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """A list with a new manifest of these entries; an empty list if there are no entries."""
        listed = list(entries)
        if not listed:
            return []
        kind = _DeleteManifest if content is ManifestContent.DELETES else ManifestWriterV2
        spec = self._transaction.table_metadata.spec()
        with kind(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression) as writer:
            for entry in listed:
                writer.add_entry(entry)
        return [writer.to_manifest_file()]

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """PyIceberg's summary, which also counts the files of deletes and the removed files."""
        added, deleted = self._added_data_files, self._deleted_data_files
        # PyIceberg's summary counts the files in these two attributes: they have all files for this call alone
        self._added_data_files, self._deleted_data_files = [*added, *self._deletes], set(self._removed.values())
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files, self._deleted_data_files = added, deleted


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, Any]:
        return {**super()._meta, "content": "deletes"}
