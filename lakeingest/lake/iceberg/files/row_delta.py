"""An Iceberg commit that adds files of rows and of deletes, and removes files. PyIceberg has only parts of this.

Source: Iceberg's table specification, "Manifests", "Snapshots" and "Row Lineage". The commit extends PyIceberg's
appending snapshot. New deletes go into a manifest of deletes, and a manifest with removed files is written again. In
version 3 the commit also gives ids to new rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT

from lakeingest.lake.iceberg.files.kept_files import KeptManifest, copied, manifests_of
from lakeingest.lake.iceberg.storage.entry_fields import THIRD, identity, is_vector, with_all_fields, with_size_of_blob
from lakeingest.lake.iceberg.storage.format_version import is_third
from lakeingest.lake.iceberg.storage.manifest_files import WRITERS, write_list


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files of rows and of deletes that a commit adds, and the files of both kinds that it removes."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()


NO_FILES = FileChanges()
FOR_EVER = (1 << 63) - 1  # milliseconds: the branch is not removed by a retention setting of the table
_DELETE_MANIFESTS = 8  # of version 3: a commit puts them together if there are so many. Nothing else combines vectors


def split_by_content(files: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
    """The files of rows, and the files of deletes, among these files."""
    rows = [file for file in files if file.content is DataFileContent.DATA]
    return rows, [file for file in files if file.content is not DataFileContent.DATA]


class RowDelta(_FastAppendFiles):
    """A snapshot on a branch that adds and removes files at once.

    The commit is refused if someone has changed the columns or the partitions since the files were written.
    """

    def __init__(
        self,
        transaction: Transaction,
        io: FileIO,
        branch: str,
        properties: Mapping[str, str],
        changes: FileChanges,
        kind: Operation | None = None,
    ) -> None:
        rows, deletes = split_by_content(changes.added)
        by_files = Operation.OVERWRITE if changes.removed or deletes else Operation.APPEND
        self._kind = kind or by_files
        # `_summary` puts `_kind` in the place of this operation, because PyIceberg counts no files for a `replace`
        super().__init__(by_files, transaction, io, snapshot_properties=dict(properties), branch=branch)
        self._added_data_files = rows
        self._deletes = deletes
        self._removed = {identity(file): file for file in changes.removed}

    def _commit(self) -> UpdatesAndRequirements:
        """PyIceberg's updates and requirements. The branch is kept for ever; columns and partitions are asserted."""
        metadata = self._transaction.table_metadata
        shape_assertions = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),  # type: ignore[call-arg]
        )
        return self._snapshot_updates(metadata), shape_assertions

    def _snapshot_updates(self, metadata: TableMetadata) -> tuple[TableUpdate, ...]:
        """Write the manifests and their list. Returns the updates that add the snapshot and move the branch.

        `lakeingest.lake.iceberg.commits.commit` asserts where the branch is.
        """
        branch, in_third = self._target_branch, is_third(metadata)
        assert branch is not None  # noqa: S101 - each of our commits is on a branch
        manifests = self._manifests()
        location = self._transaction._table.location_provider().new_metadata_location(  # noqa: SLF001
            f"snap-{self._snapshot_id}-0-{self.commit_uuid}.avro"
        )
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self._snapshot_id,
                "parent-snapshot-id": self._parent_snapshot_id,
                "sequence-number": metadata.next_sequence_number(),
                "manifest-list": location,
                "summary": self._summary(self.snapshot_properties),
                "schema-id": metadata.current_schema_id,
                "first-row-id": (getattr(metadata, "next_row_id", None) or 0) if in_third else None,
            }
        )
        next_row_id = write_list(self._io.new_output(location), snapshot, manifests, self._compression)
        if in_third:
            snapshot = snapshot.model_copy(update={"added_rows": next_row_id - (snapshot.first_row_id or 0)})
        move = {"ref-name": branch, "snapshot-id": self._snapshot_id, "type": SnapshotRefType.BRANCH}
        kept = {} if branch == MAIN_BRANCH else {"max-ref-age-ms": FOR_EVER}  # main is kept anyway
        return AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate({**move, **kept})

    def _manifests(self) -> list[ManifestFile]:
        """Write new manifests. Returns that of new rows, those of files of earlier commits, and that of new deletes."""
        return [
            *self._manifest(ManifestContent.DATA, self._added(self._added_data_files)),
            *self._existing_manifests(),
            *self._manifest(ManifestContent.DELETES, self._added(self._deletes)),
        ]

    def _added(self, files: Iterable[DataFile]) -> Iterator[ManifestEntry]:
        """The entries of new files. They get their sequence number when the commit succeeds."""
        for file in files:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=with_all_fields(file)
            )

    def _existing_manifests(self) -> list[ManifestFile]:
        """The manifests of the snapshot on which the commit builds.

        In the place of all manifests with removed files, two new ones are written, for rows and for deletes: otherwise,
        a compaction would write one for each of them. Many manifests of vectors are replaced by one, too.
        """
        if self._parent_snapshot_id is None:
            return []
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        assert parent is not None  # noqa: S101 - staging is there
        unchanged: list[ManifestFile] = []
        changed: dict[ManifestContent, list[ManifestEntry]] = {}
        manifests = manifests_of(parent, self._io)
        has_many = self._has_many_vectors(manifests)
        for manifest in manifests:
            is_combined = has_many and manifest.content is ManifestContent.DELETES
            entries = manifest.fetch_manifest_entry(self._io) if self._removed or is_combined else []
            if is_combined or any(identity(entry.data_file) in self._removed for entry in entries):
                changed.setdefault(manifest.content, []).extend(map(self._after, entries))
            elif manifest.has_added_files() or manifest.has_existing_files():  # else it only names removed files
                unchanged.append(manifest)
        rewritten = [one for content, entries in changed.items() for one in self._manifest(content, entries)]
        return unchanged + rewritten

    def _has_many_vectors(self, manifests: Iterable[KeptManifest]) -> bool:
        """Whether so many of these manifests have vectors that they are put together."""
        if not is_third(self._transaction.table_metadata):
            return False
        return sum(manifest.content is ManifestContent.DELETES for manifest in manifests) >= _DELETE_MANIFESTS

    def _after(self, entry: ManifestEntry) -> ManifestEntry:
        """The entry of a file of an earlier snapshot, which this commit keeps or removes."""
        is_removed = identity(entry.data_file) in self._removed
        changed = copied(entry)
        changed.status = ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING
        if is_removed:
            changed.snapshot_id = self._snapshot_id  # the snapshot that removes the file
        return changed

    def _manifest(self, content: ManifestContent, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write a manifest of these entries. Returns a list with this manifest; empty if there are no entries."""
        listed = list(entries)
        if not listed:
            return []
        metadata = self._transaction.table_metadata
        writer_class = WRITERS[THIRD if is_third(metadata) else 2, content]
        output = self.new_manifest_output()
        with writer_class(metadata.spec(), self.schema(), output, self._snapshot_id, self._compression) as writer:
            for entry in listed:
                writer.add_entry(entry)
        return [writer.to_manifest_file()]

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """PyIceberg's summary, which also counts the files of deletes and the removed files."""
        added, deleted = self._added_data_files, self._deleted_data_files
        # PyIceberg's summary counts the files in these two attributes: they have all files for this call alone. They
        # are no sets, because a set of PyIceberg's would have only one of several vectors that are in one file
        self._added_data_files = [_as_counted(file) for file in (*added, *self._deletes)]
        self._deleted_data_files = list(map(_as_counted, self._removed.values()))  # type: ignore[assignment]
        vectors = {"added-dvs": sum(map(is_vector, self._deletes))}
        vectors["removed-dvs"] = sum(map(is_vector, self._removed.values()))
        counts = {name: str(count) for name, count in vectors.items() if count}
        try:
            summary = super()._summary({**counts, **snapshot_properties})
            # PyIceberg does not count for a `replace`
            return Summary(operation=self._kind, **summary.additional_properties)
        finally:
            self._added_data_files, self._deleted_data_files = added, deleted


def append_nothing(transaction: Transaction, branch: str) -> int:
    """Add to the transaction a snapshot on this branch, which has the same files as the branch. Returns its id."""
    snapshot = RowDelta(transaction, transaction._table.io, branch, EMPTY_DICT, NO_FILES)  # noqa: SLF001
    snapshot.commit()  # into the transaction
    return snapshot.snapshot_id


def _as_counted(file: DataFile) -> DataFile:
    """The file with the size that counts in summaries."""
    return with_size_of_blob(file) if is_vector(file) else file
