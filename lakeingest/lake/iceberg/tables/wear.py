"""How worn an Iceberg table is, by its metadata alone: no manifest is read.

Each commit of ours carries the number of the last commit whose credit is spent (`core.copies.wear`), and takes it over
from the commit on which it builds.
"""

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from lakeingest.core.copies.wear import Wear

PAID = "lakeingest.tidied"  # a sequence number: commits up to it give no credit any more


def wear_of(metadata: TableMetadata, version: int) -> Wear:
    """How worn the table is as of this snapshot."""
    snapshot = metadata.snapshot_by_id(version)
    totals = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    files, rows, dead = (int(totals.get(f"total-{name}", 0)) for name in ("data-files", "records", "position-deletes"))
    last = 0 if snapshot is None else snapshot.sequence_number or 0
    return Wear(max(0, last - int(paid(metadata, version)[PAID])), files, rows, dead)


def paid(metadata: TableMetadata, version: int) -> Mapping[str, str]:
    """The property PAID of a commit on this snapshot.

    A snapshot without it gives no credit: someone else has compacted the table, or it is older than the property.
    """
    snapshot = metadata.snapshot_by_id(version)
    properties = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    last = 0 if snapshot is None else snapshot.sequence_number or 0
    noted = properties.get(PAID, "")
    return {PAID: noted if noted.isdecimal() else str(last)}


def paid_after(metadata: TableMetadata, version: int, left: int) -> Mapping[str, str]:
    """The property PAID of a commit on this snapshot, after which the credit of `left` commits is left."""
    snapshot = metadata.snapshot_by_id(version)
    last = 0 if snapshot is None else snapshot.sequence_number or 0
    return {PAID: str(max(0, last - left))}
