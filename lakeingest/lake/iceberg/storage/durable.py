"""The files of a local lake, and their names, are synced to the disk before anything refers to them.

If only the catalog were synced, it could name empty files after a power loss. In an object store a file is durable once
the store has answered the request that wrote it.
"""

import re
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, PyArrowLocalFileSystem
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import EMPTY_DICT, Properties

from lakeingest.disk import make_folder, sync
from lakeingest.files import traffic

IO = f"{__name__}.DurableFileIO"  # catalogs load the class by this name
_PLAIN = re.compile(r"file://(/[^?#\x00-\x20]*)")  # a local file whose URL has nothing but the path
_THIS_MACHINE = PyArrowLocalFileSystem()
_TRIES = 6  # of a request to an overloaded store; the pauses between them grow, to some seconds together


class DurableFileIO(PyArrowFileIO):
    """PyIceberg's file access. A local file is durable when it is closed."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, host and path, as PyIceberg does, which parses each location as a URL of any kind."""
        if plain := _PLAIN.fullmatch(location):
            return "file", "", plain[1]
        return PyArrowFileIO.parse_location(location, properties)

    def _initialize_local_fs(self) -> FileSystem:
        """The file system of this machine, which has no state: all tables use one."""
        return _THIS_MACHINE

    def new_input(self, location: str) -> PyArrowFile:
        """A file to read. Raises FileNotFoundError for an unknown scheme, which a damaged manifest may name."""
        try:
            return super().new_input(location)
        except ValueError as error:
            raise FileNotFoundError(f"{location}: {error}") from error

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        out = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            return _LocalFile(location, path, self.fs_by_scheme(scheme, None))  # None: a local file has no host
        traffic.count(files=1)  # PyArrow does not say how long the file became
        return out

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        """The store's file system, with two settings for which PyIceberg has no property.

        With `allow_delayed_open` a small file is written by one request, not by an upload in parts. With
        `retry_strategy` a request to an overloaded store is repeated for some seconds; Arrow's default is less than one
        second. To set these two options, the file system is made again from its pickled options.
        """
        make, (options,) = super()._initialize_s3_fs(netloc).__reduce__()
        retries = AwsStandardS3RetryStrategy(max_attempts=_TRIES)
        return make({**options, "allow_delayed_open": True, "retry_strategy": retries})


class _LocalFile(PyArrowFile):
    """A local file to write, whose folder is made with it, and which is synced when it is closed."""

    def create(self, overwrite: bool = False) -> pa.NativeFile:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Make the file and its folder, and open the file. Raises FileExistsError if it exists, unless `overwrite`."""
        path = Path(self._path)
        if not overwrite and path.exists():
            raise FileExistsError(f"{self.location} exists already")
        make_folder(path.parent)
        return _Synced(path)


class _Synced(pa.OSFile):  # type: ignore[misc]
    """A local file to write, which is synced when it is closed. Arrow writes to this file without calling Python."""

    def __new__(cls, path: Path) -> Self:
        made: Self = super().__new__(cls, str(path), "w")
        return made

    def __init__(self, path: Path) -> None:
        self._path = path

    def close(self) -> None:
        """Close the file. Sync the file and its name to the disk."""
        if not self.closed:
            super().close()
            traffic.count_file(self._path.stat().st_size)
            sync(self._path)
            sync(self._path.parent)


def sync_snapshot(loaded: Table, snapshot: Snapshot) -> None:
    """Sync the files that another engine has written for a snapshot, and their names. Files in a store are skipped."""
    manifests = [
        manifest for manifest in snapshot.manifests(loaded.io) if manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io))
    written = [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]
    written += (entry.data_file.file_path for entry in entries)
    locations = (DurableFileIO.parse_location(location) for location in written)
    paths = {Path(path) for scheme, _, path in locations if scheme == "file"}
    for path in paths | {path.parent for path in paths}:  # the sync of a folder makes the names in it durable
        sync(path)
