"""A commit that lakeingest writes into a table's timeline itself, by the protocol of Hudi's writers.

Requested, then inflight; a marker before each data file, the data file; last the completed commit, which readers see.
Whoever writes next rolls back a commit that was not completed: Hudi by the markers, and `roll_back` by names of files.
Source: Hudi's technical specification for version 9 of a table, "Timeline" and "Markers".
"""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import fastavro

from lakeingest.core.clocks import NEAR, spoken
from lakeingest.core.schema import TableId
from lakeingest.errors import ClockBehind
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.timeline import DIGITS, MOMENT, moment, timeline

SCHEMA = "schema"  # the property with the table's columns, in Avro


def _nullable(kind: Any, *names: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": ["null", kind], "default": None} for name in names]


def _record(name: str, fields: Sequence[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


_COUNTS = ("numWrites", "numInserts", "numUpdateWrites", "numDeletes", "totalWriteBytes", "fileSizeInBytes")
_ZEROS = (
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
_METADATA = fastavro.parse_schema(  # the fields that have a value; those that it lacks are null for whoever reads it
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
    """A commit that is under way on the table in a folder; its instant is when it began, in UTC."""

    folder: File
    instant: str

    @classmethod
    def begin(cls, folder: File) -> Self:
        """Readers see nothing of it."""
        commit = cls(folder, next_moment(folder))
        commit._markers.make_folder()
        for step in ("commit.requested", "inflight"):
            (commit._timeline / f"{commit.instant}.{step}").write(b"")
        return commit

    def mark(self, name: str, kind: Literal["MERGE", "CREATE"]) -> None:
        """Say that a data file is written next: a new one of a file group that has one, or the first one of a group."""
        (self._markers / f"{name}.marker.{kind}").write(b"")

    def complete(self, operation: str, written: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> bool:
        """Let readers see it: Hudi's name for the kind of commit, and the `HoodieWriteStat` of each written file.

        False where another run has rolled it back.
        """
        stats = [{**dict.fromkeys(_ZEROS, 0), **stat} for stat in written]
        metadata = {"partitionToWriteStats": {"": stats}, "compacted": False, "extraMetadata": properties}
        contents = io.BytesIO()
        fastavro.writer(contents, _METADATA, [{**metadata, "operationType": operation}])
        if not (self._timeline / f"{self.instant}.inflight").exists():
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
    """Remove what commits wrote that were begun and not completed, then what the timeline says of them.

    Whoever wrote them does not complete them: a completion asserts that its commit is still begun.
    """
    found = [file.name.split(".", 1) for file in timeline(folder, "*.*")]
    completed = {times.partition("_")[0] for times, _ in found if "_" in times}
    pending = {times for times, kind in found if kind == "commit.requested"} - completed
    for instant in sorted(pending):
        files.delete_all(folder.listed(f"*_{instant}.parquet*"))
        for step in ("inflight", "commit.requested"):
            (folder / ".hoodie" / "timeline" / f"{instant}.{step}").delete()
    markers = folder / ".hoodie" / ".temp"  # also those of commits that were completed just before the end of a process
    files.delete_all([markers, *markers.tree()])


def behind(folder: File) -> timedelta:
    """By how much this machine's clock is behind the last moment in the timeline, whose writer may have another one."""
    times = (file.name.partition(".")[0] for file in timeline(folder, "*.*"))
    last = max((time for pair in times for time in pair.split("_")), default="")[:DIGITS]
    return max(timedelta(0), moment(last) - datetime.now(UTC)) if last else timedelta(0)


def await_clock(table: TableId, folder: File) -> None:
    """Wait until a commit that Hudi writes now is the last one: it takes the time for that, whatever the timeline has.

    ClockBehind where that takes more than a minute.
    """
    late = behind(folder)
    if late > NEAR:
        difference = spoken(late.total_seconds())
        raise ClockBehind(
            f"{table}: this machine's clock is {difference} behind the last commit of the copy; only Hudi can write the"
            " next one, and that would be before it: set the clock that is wrong"
        )
    time.sleep(late.total_seconds())


def next_moment(folder: File) -> str:
    """Now, or a millisecond after the last moment in the timeline."""
    late = behind(folder)
    now = datetime.now(UTC) + (late and late + timedelta(milliseconds=1))
    return f"{now:{MOMENT}}"[:DIGITS]
