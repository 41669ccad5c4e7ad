"""Files in an Iceberg table's folder that nothing refers to: a task or a commit that was killed has left them.

Source: Iceberg's table specification, "Table Metadata". Whatever a snapshot of the table needs is named by its manifest
list, the manifests in that, or the files in those; the rest are versions of metadata.json and statistics.
"""

import os
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.history import MAIN, tip
from lakeingest.lake.target import Inventory


def remove_leftovers(loaded: Table, age: timedelta) -> tuple[int, int]:
    """Delete what is older than `age` and not referred to; how many files and bytes.

    Nothing is deleted where that is not certain: where others may use the files (`gc.enabled`), and where a
    file that the table refers to is not found in the folder under the name that it has there.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":
        return 0, 0
    folder = _local(loaded.metadata.location)
    found = {} if folder is None else dict(_files(folder))
    needed = {path for name in _needed(loaded) if (path := _local(name)) is not None}
    if folder is None or not {path for path in needed if path.is_relative_to(folder)} <= found.keys():
        return 0, 0
    oldest = time.time() - age.total_seconds()
    removed = freed = 0
    for path, (size, changed) in found.items():
        if path not in needed and changed < oldest:
            path.unlink(missing_ok=True)
            removed, freed = removed + 1, freed + size
    return removed, freed


def inventory(loaded: Table) -> Inventory:
    """What readers of main open, by the summary of its snapshot."""
    summary = tip(loaded, MAIN).summary
    totals = {} if summary is None else summary.additional_properties
    files, deletes, size = (
        int(totals.get(f"total-{name}", 0)) for name in ("data-files", "delete-files", "files-size")
    )
    return Inventory(files, deletes, size, len(loaded.metadata.snapshots))


def rows_of(loaded: Table, version: int) -> int | None:
    """The rows of a snapshot by its summary; None where it has none."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    if snapshot is None or snapshot.summary is None:
        return None
    totals = [int(snapshot.summary[f"total-{name}"] or 0) for name in ("records", "position-deletes")]
    return totals[0] - totals[1]


def _needed(loaded: Table) -> Iterator[str]:
    """Every file that the table refers to."""
    metadata = loaded.metadata
    yield loaded.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        manifests |= {one.manifest_path: one for one in snapshot.manifests(loaded.io)}
    for path, manifest in manifests.items():
        yield path
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io))


def _local(name: str) -> Path | None:
    """The path of a file on a local disk; engines write its URI with one slash or with three."""
    path = re.sub(r"^file:/+", "/", name)
    return Path(path if path == name else unquote(path)) if path.startswith("/") else None


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, float]]]:
    """The files below a folder, with the size of each and when it was changed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            stat = path.lstat()
            yield path, (stat.st_size, stat.st_mtime)
