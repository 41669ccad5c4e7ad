"""A table's metadata. Its history of thousands of snapshots is neither copied nor sent to executors."""

from dataclasses import dataclass, field
from typing import Any, Self

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakeingest.lake.iceberg.durable import DurableFileIO

_OF_STORES = ("s3.", "client.", "gcs.")  # properties of a FileIO; a catalog's other ones may have its password


class Shared(list[Any]):
    """A list that deep copies share, because its items are never changed.

    PyIceberg makes a deep copy of the metadata twice for each commit. With 2,000 snapshots each one takes 0.13 s.
    """

    def __add__(self, more: list[Any]) -> "Shared":
        return Shared([*self, *more])

    def __deepcopy__(self, _: object) -> Self:
        return self


def with_shared_history(metadata: TableMetadata) -> TableMetadata:
    """The same metadata; its deep copies share the snapshots and their log."""
    shared = {"snapshots": Shared(metadata.snapshots), "snapshot_log": Shared(metadata.snapshot_log)}
    return metadata.model_copy(update=shared)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table's definition and access to its store: an executor needs both in order to read and write its files."""

    metadata: TableMetadata
    io: FileIO = field(default_factory=DurableFileIO)

    @classmethod
    def of(cls, loaded: Table) -> Self:
        """The definition and the access of a table, without its snapshots and the catalog's other properties."""
        metadata = loaded.metadata.model_copy(update={"snapshots": [], "snapshot_log": [], "metadata_log": []})
        kept = {name: value for name, value in loaded.io.properties.items() if name.startswith(_OF_STORES)}
        return cls(metadata, DurableFileIO(kept))

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.metadata.location
