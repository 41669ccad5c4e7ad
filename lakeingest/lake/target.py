"""What the pipeline asks of a lake format; one file implements it for each, its functions in this order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Staged:
    """A table of the lake as its last marked staging commit left it.

    `version` names that commit; `published` is the version that readers see, None before the first publish.
    """

    progress: Progress
    version: int
    published: int | None

    @property
    def visible(self) -> bool:
        """Whether readers see exactly this commit."""
        return self.version == self.published


class Writer(Protocol):
    """Writes rows as data files, on an executor; pickled to get there. Files are part of no table until committed."""

    def write(self, rows: pa.Table) -> bytes:
        """Write the rows to files of their own names; what comes back is for `commit_wave`."""


class Target(Protocol):
    """Tables that carry their own progress.

    Every commit asserts that staging is where the given `Staged` left it and
    carries the complete progress; StaleWriter when another writer moved it, and nothing of ours is visible then.
    """

    def load(self, table: TableId) -> Staged | None:
        """The table's last marked commit, after staging was reset to it; None where there is no such table.

        NotOurTable and ForeignWrite when someone else made it or wrote to it.
        """

    def look(self, table: TableId) -> Staged | None:
        """What `load` would answer; nothing is changed, so it is safe beside a run."""

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """An empty table, invisible to readers until its first publish."""

    def discard(self, table: TableId) -> None:
        """Drop a table that was never published."""

    def writer(self, table: TableId) -> Writer:
        """For the executors."""

    def commit_wave(self, staged: Staged, files: Sequence[bytes], progress: Progress) -> Staged:
        """Append a wave's files and its progress in one commit."""

    def merge(
        self, staged: Staged, spark: "SparkSession", changes: "DataFrame", key: Sequence[str], progress: Progress
    ) -> Staged:
        """Upsert and delete collapsed changes (`_lakeingest_deleted` says which), then mark the progress."""

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of nothing but progress."""

    def read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """The rows of one commit."""

    def publish(self, staged: Staged, properties: Mapping[str, str]) -> Staged:
        """Let readers see the commit `staged.version` and its position, atomically; fails if anyone else moved main."""
