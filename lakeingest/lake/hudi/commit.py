"""A commit that lakeingest itself writes into a table's timeline, by the protocol of Hudi's writers.

The order is: requested, inflight; for each data file first its marker; last the completed commit, which readers see.
The next writer rolls back a commit that was not completed: Hudi by the markers, and `roll_back` by the files' names.
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
_METADATA = fastavro.parse_schema(  # the fields that have a value; for readers, the others are null
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
    """A commit that is under way on the table in a folder. Its instant is the time when it began, in UTC."""

    folder: File
    instant: str

    @classmethod
    def begin(cls, folder: File) -> Self:
        """Begin a commit, of which readers see nothing yet."""
        commit = cls(folder, next_moment(folder))
        commit._markers.make_folder()
        for step in ("commit.requested", "inflight"):
            (commit._timeline / f"{commit.instant}.{step}").write(b"")
        return commit

    def mark(self, name: str, kind: Literal["MERGE", "CREATE"]) -> None:
        """Note that a data file is written next. CREATE: it is the first file of its group; MERGE: it is not."""
        (self._markers / f"{name}.marker.{kind}").write(b"")

    def complete(self, operation: str, written: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> bool:
        """Let readers see the commit. False where another run has rolled it back.

        `operation` is Hudi's name for the kind of commit, `written` has the `HoodieWriteStat` of each written file.
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
    """Remove the files of commits that were begun and not completed, then their entries in the timeline.

    Their writers do not complete them after that, because a completion asserts that its commit is still begun.
    """
    entries = [file.name.split(".", 1) for file in timeline(folder, "*.*")]
    completed = {times.partition("_")[0] for times, _ in entries if "_" in times}
    pending = {times for times, kind in entries if kind == "commit.requested"} - completed
    for instant in sorted(pending):
        files.delete_all(folder.listed(f"*_{instant}.parquet*"))
        for step in ("inflight", "commit.requested"):
            (folder / ".hoodie" / "timeline" / f"{instant}.{step}").delete()
    markers = folder / ".hoodie" / ".temp"  # also those of a commit whose process ended just after its completion
    files.delete_all([markers, *markers.tree()])


def behind(folder: File) -> timedelta:
    """How far this machine's clock is behind the last moment in the timeline, whose writer may have another clock."""
    times = (file.name.partition(".")[0] for file in timeline(folder, "*.*"))
    last = max((time for pair in times for time in pair.split("_")), default="")[:DIGITS]
    return max(timedelta(0), moment(last) - datetime.now(UTC)) if last else timedelta(0)


def await_clock(table: TableId, folder: File) -> None:
    """Wait until a commit that Hudi writes now is the last one: Hudi names it by the clock, whatever the timeline has.

    Raises ClockBehind if that would take more than a minute.
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
    """The present moment, or a millisecond after the last moment in the timeline."""
    late = behind(folder)
    now = datetime.now(UTC) + (late and late + timedelta(milliseconds=1))
    return f"{now:{MOMENT}}"[:DIGITS]
