"""Manifests and lists of manifests, as each version of Iceberg's format has them.

PyIceberg writes those of version 2, but takes several times as long.

Source: Iceberg's table specification, "Manifests", "Manifest Lists" and "First Row ID Assignment".
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion
from pyiceberg.types import StructType

from lakeingest.lake.iceberg.storage.avro_files import AvroOutput, Form
from lakeingest.lake.iceberg.storage.entry_fields import THIRD

_LISTS = {
    version: Form(MANIFEST_LIST_FILE_SCHEMAS[version], MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")
    for version in (2, THIRD)
}
_NAMES = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[THIRD].fields]  # version 3 has one field more, at the end
_NUMBER, _LEAST_NUMBER, _FIRST_ROW_ID = map(_NAMES.index, ("sequence_number", "min_sequence_number", "first_row_id"))


@lru_cache(256)
def _entries(version: TableVersion, of_records: TableVersion, partition: StructType) -> Form:
    """How a manifest's entries are written in `version`. They are given with the fields of the version `of_records`.

    `partition` is the type of the partitions of the files in these entries.
    """

    def schema(one_version: TableVersion) -> Schema:
        files = data_file_with_partition(partition, one_version)
        return manifest_entry_schema_with_data_file(one_version, files)

    return Form(schema(version), schema(of_records), "manifest_entry")


class RowManifest(ManifestWriterV2):
    """A manifest of data files."""

    def new_writer(self) -> AvroOutput[ManifestEntry]:
        """A writer of the manifest's file."""
        form = _entries(self.version, DEFAULT_READ_VERSION, self._spec.partition_type(self._schema))
        return AvroOutput[ManifestEntry](self._output_file, form, self._meta)


class DeleteManifest(RowManifest):
    """A manifest of files of deletes."""

    def content(self) -> ManifestContent:
        """The kind of the files that the manifest lists."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, Any]:
        return {**super()._meta, "content": "deletes"}


class RowManifest3(RowManifest):
    """A manifest of data files, in version 3. Its entries have all fields of this version."""

    @property
    def version(self) -> TableVersion:
        """The version of the format."""
        return THIRD

    def new_writer(self) -> AvroOutput[ManifestEntry]:
        """A writer of the manifest's file, whose entries have the fields of version 3."""
        form = _entries(THIRD, THIRD, self._spec.partition_type(self._schema))
        return AvroOutput[ManifestEntry](self._output_file, form, self._meta)


class DeleteManifest3(RowManifest3, DeleteManifest):
    """A manifest of files of deletes, in version 3."""


WRITERS = {
    (2, ManifestContent.DATA): RowManifest,
    (2, ManifestContent.DELETES): DeleteManifest,
    (THIRD, ManifestContent.DATA): RowManifest3,
    (THIRD, ManifestContent.DELETES): DeleteManifest3,
}


def manifest_row_id(manifest: ManifestFile) -> int | None:
    """A manifest's first row id, from which its data files without a first row id get theirs; None: it has none."""
    found: int | None = _values(manifest)[_FIRST_ROW_ID]
    return found


def write_list(
    output: OutputFile, snapshot: Snapshot, manifests: Sequence[ManifestFile], compression: AvroCompressionCodec
) -> int:
    """Write the list of a snapshot's manifests. Returns the id that the next new row of the table gets.

    Only in version 3 a snapshot has a first row id, and rows have ids: there a manifest of data files that has no first
    row id gets one here, from which all its rows get their ids. Raises ValueError if a manifest of another commit has
    no sequence number.
    """
    version = 2 if snapshot.first_row_id is None else THIRD
    number, next_row_id = snapshot.sequence_number or 0, snapshot.first_row_id or 0
    records = []
    for manifest in manifests:
        values = _values(manifest)
        for place in (_NUMBER, _LEAST_NUMBER):  # unassigned in a manifest that this commit has written
            if values[place] == UNASSIGNED_SEQ:
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    raise ValueError(
                        f"{manifest.manifest_path}: another commit has written it, but it has no sequence number"
                    )
                values[place] = number
        if version == THIRD and manifest.content is ManifestContent.DATA and values[_FIRST_ROW_ID] is None:
            values[_FIRST_ROW_ID] = next_row_id
            # also for files that were there before: those of an earlier version have no ids yet
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        records.append(ManifestFile(*values))
    parent = snapshot.parent_snapshot_id
    described = {
        "snapshot-id": str(snapshot.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(number),
        **({"first-row-id": str(snapshot.first_row_id)} if version == THIRD else {}),
        "format-version": str(version),
        AVRO_CODEC_KEY: compression,
    }
    with AvroOutput[ManifestFile](output, _LISTS[version], described) as out:
        out.write_block(records)
    return next_row_id


def _values(manifest: ManifestFile) -> list[Any]:
    """The values of all fields that version 3 has; None for a field that the manifest does not have."""
    return [manifest[number] if number < len(manifest) else None for number in range(len(_NAMES))]
