"""Points of Hudi tables: a savepoint keeps the files of a commit, also from the cleaner of others.

Hudi archives no commit after the oldest savepoint (`hoodie.archive.beyond.savepoint` is false). That must stay so: if
Hudi archived commits between a savepoint and the newest commit, readers would take the files of these commits for
files of incomplete commits, and miss rows. So the timeline and the folder grow while a point is kept.

Hudi knows one savepoint for a commit. If several points have the same commit, they share the savepoint: its
comment has their names. Source: Hudi's technical specification for version 9 of a table, "Timeline", and its Avro
schema `HoodieSavepointMetadata`.
"""

import io
import time

import fastavro

from lakeingest.core.copies.points import KeptVersion
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.lake.hudi.commit import next_moment
from lakeingest.lake.hudi.file_groups import relative_name, visible_files
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import VERSION, completed_instants, metadata_of, timeline, writes
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale

_BY = "lakeingest"  # who made a savepoint
_FILES = {
    "type": "record",
    "name": "HoodieSavepointPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "savepointDataFile", "type": {"type": "array", "items": "string"}},
    ],
}
_SAVEPOINT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieSavepointMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "savepointedBy", "type": "string"},
            {"name": "savepointedAt", "type": "long"},
            {"name": "comments", "type": "string"},
            {"name": "partitionMetadata", "type": {"type": "map", "values": _FILES}},
            {"name": "version", "type": ["int", "null"], "default": 1},
        ],
    }
)


class HudiPoints:
    """`lake.points.Points` on Hudi tables. Engines read a point by the instant of its commit."""

    def __init__(self, target: HudiTarget) -> None:
        self._target = target

    def keep(self, table: TableId, version: int, name: str) -> KeptVersion:
        """Write a savepoint of the commit, or add the name to the savepoint that the commit has."""
        folder = self._target._folder_of(table).current  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            for instant in completed_instants(writes(folder)):
                is_ours = instant.properties.get(OWNER) == str(table)
                if is_ours and instant.properties.get(VERSION) == str(version):
                    _save(folder, instant.time, name)
                    return KeptVersion(version, instant.time)
        raise stale(table)

    def release(self, table: TableId, kept: KeptVersion, name: str) -> None:
        """Take the name out of each savepoint. A savepoint of ours without names is removed."""
        del kept  # the name alone finds the savepoints
        folder = self._target._folder_of(table).current  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            for file in _savepoints(folder, "*"):  # all: a run that died may not have stored the point's commit
                names = _names(file)
                if name not in names:
                    continue
                names.remove(name)
                instant = file.name.partition("_")[0]
                if names:
                    _write(folder, file, instant, names)
                else:  # the completion first: without it, the rest is no savepoint
                    file.delete()
                    (file.parent / f"{instant}.savepoint.inflight").delete()


def _savepoints(folder: File, instant: str) -> list[File]:
    """The savepoints of the commits whose instants match the pattern `instant`."""
    return timeline(folder, f"{instant}_*.savepoint")


def _names(file: File) -> list[str]:
    """The names of the points that a savepoint of ours has; none for a savepoint of others."""
    with metadata_of(file) as metadata:
        return str(metadata["comments"]).split() if metadata["savepointedBy"] == _BY else []


def _save(folder: File, instant: str, name: str) -> None:
    """Let the commit have a savepoint with this name. A savepoint of others is not changed: it keeps the files, too."""
    for file in _savepoints(folder, instant):  # one at most
        names = _names(file)
        if names and name not in names:  # no names: the savepoint is of others
            _write(folder, file, instant, [*names, name])
        return  # the commit has its savepoint
    timeline_folder = folder / ".hoodie" / "timeline"
    (timeline_folder / f"{instant}.savepoint.inflight").put(b"")
    _write(folder, timeline_folder / f"{instant}_{next_moment(folder)}.savepoint", instant, [name])


def _write(folder: File, file: File, instant: str, names: list[str]) -> None:
    """Write to `file` a savepoint of the commit `instant`, with these names of points."""
    in_partition: dict[str, list[str]] = {}
    for data_file in visible_files(folder, instant):
        in_partition.setdefault(relative_name(data_file, folder).rpartition("/")[0], []).append(data_file.name)
    by_partition = {
        partition: {"partitionPath": partition, "savepointDataFile": of_partition}
        # without a file: an entry for the folder itself
        for partition, of_partition in (in_partition or {"": []}).items()
    }
    doc = {
        "savepointedBy": _BY,
        "savepointedAt": int(time.time() * 1000),
        "comments": " ".join(names),
        "partitionMetadata": by_partition,
        "version": 1,
    }
    contents = io.BytesIO()
    fastavro.writer(contents, _SAVEPOINT, [doc])
    file.put(contents.getvalue())
