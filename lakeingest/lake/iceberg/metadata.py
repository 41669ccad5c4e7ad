"""Keeps a table's history of thousands of snapshots from being copied by every step of a commit."""

from typing import Any, Self

from pyiceberg.table.metadata import TableMetadata


class Shared(list[Any]):
    """A list that deep copies share: its items are never changed.

    PyIceberg makes a deep copy of the metadata twice for each commit. With 2,000 snapshots each takes 0.13 s.
    """

    def __add__(self, more: list[Any]) -> "Shared":
        return Shared([*self, *more])

    def __deepcopy__(self, _: object) -> Self:
        return self


def with_shared_history(metadata: TableMetadata) -> TableMetadata:
    """The same metadata; its deep copies share the snapshots and their log."""
    shared = {"snapshots": Shared(metadata.snapshots), "snapshot_log": Shared(metadata.snapshot_log)}
    return metadata.model_copy(update=shared)


def without_history(metadata: TableMetadata) -> TableMetadata:
    """What an executor needs in order to read and write files of the table: it has no snapshots."""
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": [], "metadata_log": []})
