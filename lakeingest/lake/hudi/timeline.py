"""The timeline of a Hudi table: which commits are ours, and which of them readers see. It needs no Spark.

A commit of ours is *marked*: its metadata carries the progress. No other write may follow it, not even clustering,
which changes no row but writes files that belong to no bucket.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, TypeVar

import fastavro

from lakeingest.config import History
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, ForeignWrite, StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.marks import OWNER, PROGRESS, parse_progress
from lakeingest.lake.refusals import foreign_write, not_ours

PREFIX = "hoodie."  # Hudi stores only keys with this prefix in the metadata of a commit
VERSION = "lakeingest.version"
KEY = "lakeingest.key"
BUCKETS = "lakeingest.buckets"
MOMENT = "%Y%m%d%H%M%S%f"
DIGITS = 17  # up to milliseconds
T = TypeVar("T")
_MOST_BUCKETS = 1 << 20
_WRITES = {"commit", "deltacommit", "replacecommit"}


@dataclass(frozen=True, slots=True)
class Instant:
    """A completed write: the time at which it began, which is its name in Hudi, and its properties."""

    time: str
    properties: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """The time, in seconds since 1970."""
        return moment(self.time).timestamp()

    @property
    def version(self) -> int:
        """The commit of staging that it made visible."""
        return self._parsed(VERSION, int)

    @property
    def key(self) -> list[str]:
        """The columns of the table's key."""
        return self.names(KEY)

    @property
    def buckets(self) -> int:
        """The number of buckets into which the keys are divided."""
        return self._parsed(BUCKETS, _bucket_count)

    def names(self, of: str) -> list[str]:
        """The names of columns in a property. Raises StateUnreadable when it is damaged."""
        return self._parsed(of, _names)

    def progress(self, table: TableId) -> Progress:
        """The table's progress as of this commit. Raises StateUnreadable when it is damaged."""
        return parse_progress(table, f"commit {self.time}", self.properties[PROGRESS])

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.properties[name])
        except DAMAGED as error:
            raise StateUnreadable(f"the property {name} of commit {self.time} is unreadable: {error}") from error


def newest(table: TableId, folder: File, *, building: bool = False) -> Instant | None:
    """The commit of ours whose rows readers of the table in the folder see.

    A folder that we are `building` may have no commit: then it is no table yet, and the result is None. Raises
    NotOurTable when the folder is no copy of the table; ForeignWrite when someone else wrote to it after our commit, or
    emptied it.
    """
    foreign: Instant | None = None
    for instant in completed(folder):
        if OWNER not in instant.properties:
            foreign = foreign or instant
        elif instant.properties[OWNER] != str(table):
            raise not_ours(str(folder), table)
        elif foreign is not None:
            raise foreign_write(table, f"commit {foreign.time}", f"commit {instant.time}")
        elif planned := planned_clustering(folder):
            raise ForeignWrite(
                f"{table}: someone else scheduled a clustering of it, {planned.stem}; its rows cannot be changed"
                f" meanwhile; `lakeingest rollback {table}` removes {planned}"
            )
        else:
            return instant
    if foreign is not None:
        raise not_ours(str(folder), table)
    if not building:  # after TRUNCATE or CREATE TABLE
        raise ForeignWrite(
            f"{table}: {folder} has no commit: someone else emptied or downgraded the table, or created one in its"
            " place; remove it to copy the table again"
        )
    return None


def retained(folder: File, history: History) -> int:
    """The number of commits that the next write retains: Hudi limits the history by a number.

    A publish rewrites the files that it touches, so `keep` applies only if the user set it.
    """
    young = 0
    if "keep" in history.model_fields_set:
        oldest = datetime.now(UTC) - history.keep
        since = f"{oldest:{MOMENT}}"[:DIGITS]
        young = sum(completed >= since for completed, _, _ in writes(folder)) + 1  # the next commit counts, too
    return min(max(history.least, young), history.most)


def writes(folder: File) -> list[tuple[str, str, File]]:
    """The times when each write of the timeline was completed and begun, in UTC, and its file.

    A file's name is `<begun>_<completed>.<kind>`.
    """
    entries = []
    for file in timeline(folder, "*_*.*"):
        times, _, kind = file.name.partition(".")
        if kind in _WRITES:
            begun, _, completed = times.partition("_")
            entries.append((completed, begun, file))
    return entries


def moment(instant: str) -> datetime:
    """The moment that an instant of the timeline is named after, up to milliseconds."""
    return datetime.strptime(instant[:DIGITS], MOMENT).replace(tzinfo=UTC)


def timeline(folder: File, pattern: str) -> list[File]:
    """The files of the timeline whose names match, sorted, without Hadoop's, whose names begin with a dot."""
    return [file for file in (folder / ".hoodie" / "timeline").listed(pattern) if not file.name.startswith(".")]


@contextmanager
def metadata_of(file: File) -> Iterator[dict[str, Any]]:
    """The contents of a commit's file (Hudi's `HoodieCommitMetadata`, in Avro).

    Raises StateUnreadable where the file is damaged.
    """
    contents = BytesIO(file.read())  # errors of the disk are named elsewhere
    try:
        metadata: Any = next(iter(fastavro.reader(contents)))
        yield metadata
    except Exception as error:  # for damaged bytes fastavro raises almost any error, also MemoryError
        raise StateUnreadable(f"{file} is no commit of a Hudi table: {type(error).__name__}: {error}") from error


def completed(folder: File) -> Iterator[Instant]:
    """The completed writes, the last one first."""
    for _, begun, file in sorted(writes(folder), reverse=True):
        yield _read(begun, file)


def planned_clustering(folder: File) -> File | None:
    """The file of a clustering that is scheduled and not completed. Until it is, Hudi refuses to change its rows."""
    entries = timeline(folder, "*.*")
    done = {file.name.partition("_")[0] for file in entries if file.name.endswith(".replacecommit")}
    kinds = (".clustering.requested", ".replacecommit.requested")
    planned = (file for file in entries if file.name.endswith(kinds))
    return next((file for file in planned if file.name.partition(".")[0] not in done), None)


def _read(begun: str, file: File) -> Instant:
    with metadata_of(file) as metadata:
        metadata_properties = metadata["extraMetadata"] or {}
        properties = {
            key.removeprefix(PREFIX): value for key, value in metadata_properties.items() if key.startswith(PREFIX)
        }
        return Instant(begun, properties)


def _bucket_count(text: str) -> int:
    """A number of buckets. Raises ValueError unless it is at least 1 and below the limit."""
    count = int(text)
    if not 1 <= count < _MOST_BUCKETS:
        raise ValueError(f"{count} is no number of buckets")
    return count


def _names(text: str) -> list[str]:
    """The names of columns in a JSON list. Raises ValueError if one has other characters than letters, digits and _."""
    names = [str(name) for name in json.loads(text)]
    if not all(re.fullmatch(r"\w+", name) for name in names):
        raise ValueError(f"{names} are no names of columns")
    return names
