"""Manifests and lists of manifests, as each version of Iceberg's format has them. PyIceberg writes those of version 2.

Source: Iceberg's table specification, "Manifests", "Manifest Lists" and "First Row ID Assignment".
"""

from collections.abc import Sequence
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion

from lakeingest.lake.iceberg.storage.entry_fields import THIRD

_LIST = MANIFEST_LIST_FILE_SCHEMAS[THIRD]
_NAMES = [field.name for field in _LIST.fields]
_NUMBER, _LEAST_NUMBER, _FIRST_ROW_ID = map(_NAMES.index, ("sequence_number", "min_sequence_number", "first_row_id"))


class DeleteManifest(ManifestWriterV2):
    """A manifest of files of deletes."""

    def content(self) -> ManifestContent:
        """The kind of the files that the manifest lists."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, Any]:
        return {**super()._meta, "content": "deletes"}


class RowManifest3(ManifestWriterV2):
    """A manifest of data files, in version 3. Its entries have all fields of this version."""

    @property
    def version(self) -> TableVersion:
        """The version of the format."""
        return THIRD

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """A writer of the manifest's file, whose entries have the fields of version 3."""
        schema = self._with_partition(THIRD)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class DeleteManifest3(RowManifest3, DeleteManifest):
    """A manifest of files of deletes, in version 3."""


WRITERS = {
    (2, ManifestContent.DATA): ManifestWriterV2,
    (2, ManifestContent.DELETES): DeleteManifest,
    (THIRD, ManifestContent.DATA): RowManifest3,
    (THIRD, ManifestContent.DELETES): DeleteManifest3,
}


def manifest_row_id(manifest: ManifestFile) -> int | None:
    """The first id for rows of a manifest's data files that have no first row id themselves; None if there is none."""
    found: int | None = _values(manifest)[_FIRST_ROW_ID]
    return found


def write_list(
    output: OutputFile, snapshot: Snapshot, manifests: Sequence[ManifestFile], compression: AvroCompressionCodec
) -> int:
    """Write the list of a snapshot's manifests in version 3. Returns the id that the next new row of the table gets.

    A manifest of data files that has no first row id gets one here, from which all its rows get their ids.
    """
    number, next_row_id = snapshot.sequence_number or 0, snapshot.first_row_id or 0
    records = []
    for manifest in manifests:
        values = _values(manifest)
        for place in (_NUMBER, _LEAST_NUMBER):  # unassigned in a manifest that this commit has written
            values[place] = number if values[place] == UNASSIGNED_SEQ else values[place]
        if manifest.content is ManifestContent.DATA and values[_FIRST_ROW_ID] is None:
            values[_FIRST_ROW_ID] = next_row_id
            # also for files that were there before: those of an earlier version have no ids yet
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        records.append(ManifestFile(*values))
    parent = snapshot.parent_snapshot_id
    described = {
        "snapshot-id": str(snapshot.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(number),
        "first-row-id": str(snapshot.first_row_id),
        "format-version": str(THIRD),
        AVRO_CODEC_KEY: compression,
    }
    with AvroOutputFile[ManifestFile](output, _LIST, "manifest_file", record_schema=_LIST, metadata=described) as out:
        out.write_block(records)
    return next_row_id


def _values(manifest: ManifestFile) -> list[Any]:
    """The values of all fields that version 3 has; None for a field that the manifest does not have."""
    return [manifest[number] if number < len(manifest) else None for number in range(len(_NAMES))]
