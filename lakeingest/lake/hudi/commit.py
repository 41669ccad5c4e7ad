"""A commit that lakeingest itself writes into a table's timeline, by the protocol of Hudi's writers.

A writer first writes the entries `requested` and `inflight`. Then it writes the data files, each after a marker file
with its name. Last it writes the completed commit, which readers see. The next writer rolls back an incomplete commit:
Hudi finds its data files by the markers, and `roll_back` by the files' names. Source: Hudi's technical specification
for version 9 of a table, "Timeline" and "Markers".
"""

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import fastavro

from lakeingest.core.figures.clocks import NEAR, spoken
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ClockBehind
from lakeingest.files import file as files
from lakeingest.files.dictionaries import Dictionaries
from lakeingest.files.file import Draft, File
from lakeingest.lake.hudi.file_groups import data_files
from lakeingest.lake.hudi.timeline import DIGITS, MOMENT, moment, timeline

SCHEMA = "schema"  # the property of a commit that has the table's Avro schema


def _nullable(kind: Any, *names: str) -> list[dict[str, Any]]:
    """The Avro fields with these names, which can be null."""
    return [{"name": name, "type": ["null", kind], "default": None} for name in names]


def _record(name: str, fields: Sequence[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


_COUNTS = ("numWrites", "numInserts", "numUpdateWrites", "numDeletes", "totalWriteBytes", "fileSizeInBytes")
_ZEROS = (  # counts that are 0 in each commit of lakeingest
    "totalWriteErrors",
    "totalLogRecords",
    "totalLogBlocks",
    "totalLogFilesCompacted",
    "totalLogReadTimeMs",
    "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "numUpdates",
)
_STAT = _record(
    "HoodieWriteStat",
    [
        *_nullable("string", "fileId", "path", "prevCommit", "partitionPath", "prevBaseFile"),
        *_nullable("long", *_COUNTS, *_ZEROS),
    ],
)
_METADATA = fastavro.parse_schema(  # only the fields that have a value: Hudi reads a missing field as null
    {
        **_record(
            "HoodieCommitMetadata",
            [
                *_nullable({"type": "map", "values": {"type": "array", "items": _STAT}}, "partitionToWriteStats"),
                *_nullable("boolean", "compacted"),
                *_nullable({"type": "map", "values": "string"}, "extraMetadata"),
                *_nullable("string", "operationType"),
            ],
        ),
        "namespace": "org.apache.hudi.avro.model",
    }
)


@dataclass(frozen=True, slots=True)
class Commit:
    """An incomplete commit on the table in `folder`. `instant` is the time when the commit began, in UTC.

    `dictionaries`: which columns of its data files get a dictionary. One of the files decides for all, because the
    files are alike: each row is in a bucket by chance. `finish` finishes the draft of a data file.
    """

    folder: File
    instant: str
    dictionaries: Dictionaries = field(default_factory=Dictionaries, compare=False, repr=False)
    finish: Callable[[Draft], None] = field(default=Draft.finish, compare=False, repr=False)

    @classmethod
    def begin(cls, folder: File) -> Self:
        """Begin a commit, which readers do not see until it is completed."""
        commit = cls(folder, next_moment(folder))
        # in a store, another pipeline may begin a commit in the same millisecond
        while not (commit._timeline / f"{commit.instant}.commit.requested").make():
            commit = cls(folder, next_moment(folder))
        commit._markers.make_folder()
        (commit._timeline / f"{commit.instant}.inflight").write(
            b""
        )  # Hudi leaves the kind of a commit out of this name
        return commit

    def mark(self, name: str, kind: Literal["MERGE", "CREATE"]) -> None:
        """Write the marker of a data file that is about to be written. `name`: `partition/file`, or the file's name.

        `kind` is CREATE for the first file of a group, and MERGE for each later file of the group.
        """
        if "/" in name:
            (self._markers / name.rpartition("/")[0]).make_folder()
        (self._markers / f"{name}.marker.{kind}").write(b"")

    def complete(self, operation: str, written: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> bool:
        """Complete the commit, so that readers see it. Returns False if another run has rolled it back.

        `operation` is Hudi's name for the kind of commit. `written` has the `HoodieWriteStat` of each written file. The
        commit carries the `properties`.
        """
        stats: dict[str, list[Mapping[str, Any]]] = {}
        for stat in written:
            stats.setdefault(stat["partitionPath"], []).append({**dict.fromkeys(_ZEROS, 0), **stat})
        by_partition = stats or {"": []}  # without a file: an entry for the folder itself
        metadata = {"partitionToWriteStats": by_partition, "compacted": False, "extraMetadata": properties}
        contents = io.BytesIO()
        fastavro.writer(contents, _METADATA, [{**metadata, "operationType": operation}])
        if not (self._timeline / f"{self.instant}.inflight").exists():  # `roll_back` of another run has deleted it
            return False
        (self._timeline / f"{self.instant}_{next_moment(self.folder)}.commit").put(contents.getvalue())
        files.delete_all([self._markers, *self._markers.tree()])
        return True

    @property
    def _timeline(self) -> File:
        return self.folder / ".hoodie" / "timeline"

    @property
    def _markers(self) -> File:
        return self.folder / ".hoodie" / ".temp" / self.instant


def roll_back(folder: File) -> None:
    """Delete the files of incomplete commits, then the entries of these commits in the timeline, and all markers.

    A writer that is still at work on such a commit cannot complete the commit later, because `Commit.complete` needs
    the entry `inflight`.
    """
    entries = [file.name.split(".", 1) for file in timeline(folder, "*.*")]
    completed = {times.partition("_")[0] for times, _ in entries if "_" in times}  # `<begun>_<completed>`
    incomplete = {times for times, kind in entries if kind == "commit.requested"} - completed
    for instant in sorted(incomplete):
        # the `*` at both ends also finds Hadoop's checksums, named `.….parquet.crc`
        files.delete_all(data_files(folder, f"*_{instant}.parquet*"))
        for step in ("inflight", "commit.requested"):
            (folder / ".hoodie" / "timeline" / f"{instant}.{step}").delete()
    markers = folder / ".hoodie" / ".temp"  # a process that ends just after its completed commit leaves markers, too
    files.delete_all([markers, *markers.tree()])


def clock_lag(folder: File) -> timedelta:
    """The time by which this machine's clock is behind the last time in the timeline; zero if it is not behind.

    Another machine, whose clock may be ahead, may have written the last time.
    """
    # a name is `<begun>_<completed>.<kind>`, or `<begun>.<kind>` while the write is incomplete
    names = (file.name.partition(".")[0] for file in timeline(folder, "*.*"))
    last = max((instant for name in names for instant in name.split("_")), default="")
    if not last:  # no commit yet
        return timedelta(0)
    return max(timedelta(0), moment(last) - datetime.now(UTC))


def await_clock(table: TableId, folder: File) -> None:
    """Wait until this machine's clock is after the last time in the timeline.

    Hudi takes the instant of a commit from the clock alone. So while the clock is behind, a commit by Hudi would not be
    the last commit of the timeline. Raises ClockBehind if the wait would take more than a minute.
    """
    lag = clock_lag(folder)
    if lag > NEAR:
        difference = spoken(lag.total_seconds())
        raise ClockBehind(
            f"{table}: this machine's clock is {difference} behind the last commit of the copy; only Hudi can write the"
            " next one, and that would be before it: set the clock that is wrong"
        )
    time.sleep(lag.total_seconds())


def next_moment(folder: File) -> str:
    """The present time as an instant; if the clock is behind, a millisecond after the last time in the timeline."""
    lag = clock_lag(folder)
    moved_by = lag + timedelta(milliseconds=1) if lag else timedelta(0)
    return f"{datetime.now(UTC) + moved_by:{MOMENT}}"[:DIGITS]
