"""The timeline of a Hudi table, read without Spark: its entries, and what they say.

A commit of ours carries the progress in its metadata.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, TypeVar

import fastavro

from lakeingest.config import History
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.hudi.partitions import parse_named
from lakeingest.lake.marks import PROGRESS, parse_progress
from lakeingest.lake.staged.staging import Named

PREFIX = "hoodie."  # Hudi stores only keys with this prefix in the metadata of a commit
VERSION = "lakeingest.version"
KEY = "lakeingest.key"
BUCKETS = "lakeingest.buckets"
PARTITIONS = "lakeingest.partitions"
MOMENT = "%Y%m%d%H%M%S%f"  # the format of an instant, with microseconds
DIGITS = 17  # so many first digits of an instant are used: up to milliseconds
T = TypeVar("T")
_MOST_BUCKETS = 1 << 20
_WRITES = {"commit", "deltacommit", "replacecommit"}


@dataclass(frozen=True, slots=True)
class Instant:
    """A completed write of the timeline. `time` is the time when the write began, in UTC: Hudi's name for the write.

    `read_at` is the time as of which readers read the rows of this write: `time`, or the time of a later clustering by
    others. What reads a property raises StateUnreadable if it is missing or damaged, but `partitions` may be missing.
    """

    time: str
    properties: Mapping[str, str]
    read_at: str
    replaces_groups: bool = False

    @property
    def seconds(self) -> float:
        """The time when the write began, in seconds since 1970."""
        return moment(self.time).timestamp()

    @property
    def version(self) -> int:
        """The version of the commit of staging that this write made visible."""
        return self._parsed(VERSION, int)

    @property
    def key(self) -> list[str]:
        """The columns of the table's key."""
        return self.names(KEY)

    @property
    def buckets(self) -> int:
        """The table's number of buckets."""
        return self._parsed(BUCKETS, _bucket_count)

    @property
    def partitions(self) -> Named:
        """The partitions of the copy, as `Partitions.named` has them; () if it has none."""
        return self._parsed(PARTITIONS, parse_named) if PARTITIONS in self.properties else ()

    def names(self, property_name: str) -> list[str]:
        """The names of columns that a property has. Raises StateUnreadable if the property is damaged."""
        return self._parsed(property_name, _names)

    def progress(self, table: TableId) -> Progress:
        """The table's progress as of this commit. Raises StateUnreadable if the property is missing or damaged."""
        return parse_progress(table, f"commit {self.time}", self._parsed(PROGRESS, str))

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T:
        """What `parse` makes of the property. Raises StateUnreadable if the property is missing or damaged."""
        try:
            return parse(self.properties[name])
        except DAMAGED as error:
            raise StateUnreadable(f"the property {name} of commit {self.time} is unreadable: {error}") from error


def commits_to_retain(folder: File, history: History) -> int:
    """The number of commits that Hudi must retain at its next write: Hudi takes a number, and no duration.

    The number is at least `history.least` and at most `history.most`. The duration `history.keep` counts only if the
    user set it, because retained commits take space: each publish rewrites whole files, and the old files stay while
    commits are retained.
    """
    young = 0  # the number of commits that are not older than `keep`
    if "keep" in history.model_fields_set:
        kept_since = datetime.now(UTC) - history.keep
        oldest_time = kept_since.strftime(MOMENT)[:DIGITS]  # as the timeline writes times, which sort as texts
        young_writes = [completed for completed, _, _ in writes(folder) if completed >= oldest_time]
        young = len(young_writes) + 1  # the write that is about to be made is young as well
    return min(max(history.least, young), history.most)


def writes(folder: File) -> list[tuple[str, str, File]]:
    """The completed writes of the timeline: the time when each was completed, the time when it began, and its file.

    The times are in UTC. A file's name is `<begun>_<completed>.<kind>`.
    """
    entries = []
    for file in timeline(folder, "*_*.*"):
        times, _, kind = file.name.partition(".")
        if kind in _WRITES:
            begun, _, completed = times.partition("_")
            entries.append((completed, begun, file))
    return entries


def commits_of(folder: File) -> list[tuple[str, str, File]]:
    """As `writes`, without writes of others that replace file groups."""
    return [(end, begun, file) for end, begun, file in writes(folder) if not file.name.endswith(".replacecommit")]


def moment(instant: str) -> datetime:
    """The time of an instant of the timeline, up to milliseconds. Raises ValueError for any other text."""
    return datetime.strptime(instant[:DIGITS], MOMENT).replace(tzinfo=UTC)


def timeline(folder: File, pattern: str) -> list[File]:
    """The files of the timeline whose names match the pattern, sorted. Hadoop's files, named `.…`, are left out."""
    return [file for file in (folder / ".hoodie" / "timeline").listed(pattern) if not file.name.startswith(".")]


@contextmanager
def metadata_of(file: File) -> Iterator[dict[str, Any]]:
    """The contents of a file of the timeline, such as Hudi's `HoodieCommitMetadata` of a commit, in Avro.

    Raises StateUnreadable if the file is damaged. Each error in the block is raised as StateUnreadable, too: the block
    only looks into the contents, and fails if a part of them is missing.
    """
    contents = BytesIO(file.read())  # outside of `try`: for the caller, errors of the storage are no damage
    try:
        metadata: Any = next(iter(fastavro.reader(contents)))
        yield metadata
    except Exception as error:  # for damaged bytes, fastavro raises almost any error, such as MemoryError
        raise StateUnreadable(f"{file} is no commit of a Hudi table: {type(error).__name__}: {error}") from error


def completed_instants(entries: Iterable[tuple[str, str, File]]) -> Iterator[Instant]:
    """The completed writes, as `writes` returns them, the last completed one first."""
    for _, begun, file in sorted(entries, reverse=True):
        yield _instant_of(begun, file)


def _instant_of(begun: str, file: File) -> Instant:
    """The completed write in this file of the timeline, which began at `begun`."""
    with metadata_of(file) as metadata:
        metadata_properties = metadata["extraMetadata"] or {}
        properties = {
            key.removeprefix(PREFIX): value for key, value in metadata_properties.items() if key.startswith(PREFIX)
        }
        return Instant(begun, properties, begun, replaces_groups=file.name.endswith(".replacecommit"))


def _bucket_count(text: str) -> int:
    """The number of buckets in a property. Raises ValueError unless it is at least 1 and below _MOST_BUCKETS."""
    count = int(text)
    if not 1 <= count < _MOST_BUCKETS:
        raise ValueError(f"{count} is no number of buckets")
    return count


def _names(text: str) -> list[str]:
    """The names of columns in a JSON list. Raises ValueError if a name has characters other than letters, digits, _."""
    names = [str(name) for name in json.loads(text)]
    if not all(re.fullmatch(r"\w+", name) for name in names):
        raise ValueError(f"{names} are no names of columns")
    return names
