"""The data files of a snapshot that may have rows with some values, each with the files of deletes that apply to it.

Source: Iceberg's table specification, "Scan Planning". PyIceberg's own plan reads each manifest again, and asks by an
expression whether a file of deletes applies to a data file: that took a third of the time of a small merge. Nor does it
say where in a file a deletion vector begins.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import BoundLiteralPredicate, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from lakeingest.lake.errors import unreadable
from lakeingest.lake.iceberg.files.data_files import bounds_of, path_bounds
from lakeingest.lake.iceberg.files.kept_files import KeptManifest, manifests_of
from lakeingest.lake.iceberg.files.partitions import place_of
from lakeingest.lake.iceberg.storage.entry_fields import is_vector
from lakeingest.lake.iceberg.storage.store import in_threads
from lakeingest.lake.target import Bounds


class NotByPosition(ValueError):
    """Someone's deletes are not by position."""


def files_with(
    loaded: Table, version: int, name: str, bounds: Bounds | None, flag: str = ""
) -> tuple[FileScanTask, ...]:
    """The data files of a snapshot that may have rows whose value of the column `name` is within the bounds.

    None for the bounds, or for one of them: no limit. With `flag`, these rows are also true in this boolean column.
    Raises NotByPosition; StateUnreadable if a manifest has an unknown partition spec.
    """
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the table was loaded with it
    schema = loaded.schema()
    limits = [(schema.find_field(name), _limits(schema, name, bounds))]
    if flag:
        limits.append((schema.find_field(flag), (True, True)))
    manifests = manifests_of(snapshot, loaded.io)
    if unknown := {manifest.partition_spec_id for manifest in manifests} - set(loaded.specs()):
        raise unreadable(snapshot.manifest_list, f"it has partition specs that the table lacks: {unknown}")
    entries = _entries(manifests, loaded.io)
    deletes = [entry for entry in entries if entry.data_file.content is not DataFileContent.DATA]
    if any(entry.data_file.content is not DataFileContent.POSITION_DELETES for entry in deletes):
        raise NotByPosition("deletes that are not by position cannot be read")
    index = _Deletes(deletes)
    return tuple(
        FileScanTask(entry.data_file, index.of(entry))
        for entry in entries
        if entry.data_file.content is DataFileContent.DATA
        and all(_overlap(bounds_of(entry.data_file, field), within) for field, within in limits)
    )


def _entries(manifests: Sequence[KeptManifest], io: FileIO) -> list[ManifestEntry]:
    """The entries of these manifests."""
    location = manifests[0].manifest_path if manifests else ""  # tells in_threads whether they are in a store
    parts = in_threads(location, lambda manifest: manifest.fetch_manifest_entry(io), manifests)
    return [entry for part in parts for entry in part]


def _limits(schema: Schema, name: str, bounds: Bounds | None) -> tuple[Any, Any]:
    """The bounds in the form of a column's statistics; None: no limit, or one that no value of the column can be."""
    limits = []
    for compare, bound in zip((GreaterThanOrEqual, LessThanOrEqual), bounds or (None, None), strict=True):
        # PyIceberg converts a Decimal to the type of the column: an integer, or DECIMAL(20, 0)
        literal = Decimal(bound) if type(bound) is int else bound
        condition = None if bound is None else compare(name, literal).bind(schema)
        limits.append(condition.literal.value if isinstance(condition, BoundLiteralPredicate) else None)
    lower, upper = limits
    return lower, upper


def _overlap(in_file: tuple[Any, Any] | None, limits: tuple[Any, Any]) -> bool:
    """Whether a file with these bounds may have values within the limits; True if its bounds are unknown."""
    if in_file is None:
        return True
    (least, greatest), (lower, upper) = in_file, limits
    return (lower is None or greatest >= lower) and (upper is None or least <= upper)


class _Deletes:
    """Finds the files of deletes that may have positions in a data file.

    These files are not older than the data file, and the bounds of their paths include its path. They are of its
    partition; a file of deletes for a single path may be of any partition. If a data file has a vector, no other
    deletes apply to it.
    """

    def __init__(self, deletes: Sequence[ManifestEntry]) -> None:
        self._of_path: dict[bytes, list[ManifestEntry]] = defaultdict(list)
        self._of_partition: dict[Hashable, list[ManifestEntry]] = defaultdict(list)
        for delete in deletes:
            lower, upper = path_bounds(delete.data_file)
            if lower is not None and lower == upper:  # all its positions are in one data file
                self._of_path[lower].append(delete)
            else:
                self._of_partition[place_of(delete.data_file)].append(delete)

    def of(self, rows: ManifestEntry) -> set[DataFile]:
        """The files of deletes for a data file."""
        path, place = rows.data_file.file_path.encode(), place_of(rows.data_file)
        candidates = (*self._of_path.get(path, ()), *self._of_partition.get(place, ()))
        found = {delete.data_file for delete in candidates if _applies(delete, rows, path)}
        return {file for file in found if is_vector(file)} or found


def _applies(delete: ManifestEntry, rows: ManifestEntry, path: bytes) -> bool:
    """Whether a file of deletes is not older than a data file, and may name `path`, the data file's, by its bounds."""
    lower, upper = path_bounds(delete.data_file)
    is_older = (delete.sequence_number or 0) < (rows.sequence_number or 0)
    return not is_older and (lower is None or lower <= path) and (upper is None or path <= upper)
