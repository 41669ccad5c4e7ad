"""An Iceberg commit that adds files of rows and of deletes and removes files; PyIceberg has only parts of this.

Source: Iceberg's table specification, "Manifests" and "Snapshots". It extends PyIceberg's appending snapshot: deletes
go into a separate kind of manifest, and a manifest with removed files is written again.
"""

from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files, of rows and of deletes, that a commit adds and removes."""

    added: tuple[DataFile, ...] = ()
    gone: tuple[DataFile, ...] = ()


NO_FILES = FileChanges()
FOR_EVER = (1 << 63) - 1  # milliseconds: no retention setting of the table removes the branch


def split_by_content(files: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
    """The files of rows, and the files of deletes."""
    rows = [file for file in files if file.content is DataFileContent.DATA]
    return rows, [file for file in files if file.content is not DataFileContent.DATA]


class RowDelta(_FastAppendFiles):
    """A snapshot on a branch that adds and removes files at once.

    It is refused if someone changed the columns or the partitions that its files were written for.
    """

    def __init__(
        self, transaction: Transaction, io: FileIO, branch: str, properties: Mapping[str, str], changes: FileChanges
    ) -> None:
        rows, deletes = split_by_content(changes.added)
        kind = Operation.OVERWRITE if changes.gone or deletes else Operation.APPEND
        super().__init__(kind, transaction, io, snapshot_properties=dict(properties), branch=branch)
        self._added_data_files = rows
        self._deletes = deletes
        self._gone = {file.file_path: file for file in changes.gone}

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        lasting = [
            update.model_copy(update={"max_ref_age_ms": FOR_EVER})
            if isinstance(update, SetSnapshotRefUpdate)
            else update
            for update in updates
        ]
        metadata = self._transaction.table_metadata
        shape = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),  # type: ignore[call-arg]
        )
        return tuple(lasting), (*requirements, *shape)

    def _manifests(self) -> list[ManifestFile]:
        added = (
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)
            for file in self._deletes
        )
        return [*super()._manifests(), *self._manifest(ManifestContent.DELETES, added)]

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        if not self._gone:
            return manifests
        return [remaining for manifest in manifests for remaining in self._without_gone(manifest)]

    def _without_gone(self, manifest: ManifestFile) -> list[ManifestFile]:
        """The manifest unchanged, or a new one in which the removed files are marked as deleted."""
        entries = manifest.fetch_manifest_entry(self._io)
        if not any(entry.data_file.file_path in self._gone for entry in entries):
            return [manifest]
        for entry in entries:
            is_gone = entry.data_file.file_path in self._gone
            entry.status = ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING
            if is_gone:
                entry.snapshot_id = self._snapshot_id
        return self._manifest(manifest.content, entries)

    def _manifest(self, content: ManifestContent, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """A manifest with these entries; an empty list if it would have none."""
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
        added, deleted = self._added_data_files, self._deleted_data_files
        # PyIceberg's summary counts the files in these two attributes
        self._added_data_files, self._deleted_data_files = [*added, *self._deletes], set(self._gone.values())
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
