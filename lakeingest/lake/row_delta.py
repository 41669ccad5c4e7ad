"""A commit of Iceberg that adds data files and position deletes at once; PyIceberg has only one of the two.

Source: Iceberg's table specification, "Position Delete Files" and "Manifests". Of PyIceberg's appending snapshot it
changes what is added: the deletes go into a manifest of their own kind, and into the summary's counts.
"""

import struct
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Transaction
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record

_PATH, _POS = 2147483546, 2147483545  # field ids that the specification reserves
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS)}),
    ]
)


def write_deletes(metadata: TableMetadata, io: FileIO, deletes: pa.Table) -> DataFile:
    """One file of deletes, rows of `file_path` and `pos` in that order; readers pass it over by its bounds."""
    places = load_location_provider(metadata.location, metadata.properties)
    path = places.new_data_location(f"{uuid.uuid4()}-deletes.parquet")
    out = io.new_output(path)
    with out.create() as stream:
        pq.write_table(deletes.cast(_SCHEMA), stream, compression="zstd")
    paths, positions = deletes["file_path"], deletes["pos"].to_numpy()
    ends = paths[0].as_py().encode(), paths[-1].as_py().encode()
    lowest, highest = (struct.pack("<q", int(end)) for end in (positions.min(), positions.max()))
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=deletes.num_rows,
        file_size_in_bytes=len(out),
        lower_bounds={_PATH: ends[0], _POS: lowest},
        upper_bounds={_PATH: ends[1], _POS: highest},
        value_counts={_PATH: deletes.num_rows, _POS: deletes.num_rows},
        null_value_counts={_PATH: 0, _POS: 0},
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
    )


class RowDelta(_FastAppendFiles):
    """A snapshot on a branch with data files and files of deletes, of which neither is seen without the other."""

    def __init__(self, transaction: Transaction, io: FileIO, branch: str, properties: Mapping[str, str]) -> None:
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties=dict(properties), branch=branch)
        self._deletes: list[DataFile] = []

    def add(self, file: DataFile) -> None:
        """One more file, of rows or of deletes."""
        if file.content is DataFileContent.DATA:
            self.append_data_file(file)
        else:
            self._deletes.append(file)
            self._operation = Operation.OVERWRITE

    def _manifests(self) -> list[ManifestFile]:
        return [*super()._manifests(), *self._delete_manifest()]

    def _delete_manifest(self) -> list[ManifestFile]:
        if not self._deletes:
            return []
        spec = self._transaction.table_metadata.spec()
        output = self.new_manifest_output()
        with _DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression) as writer:
            for file in self._deletes:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                writer.add(entry)
        return [writer.to_manifest_file()]

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        rows = self._added_data_files
        self._added_data_files = [*rows, *self._deletes]  # what the summary counts
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = rows


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, Any]:
        return {**super()._meta, "content": "deletes"}
