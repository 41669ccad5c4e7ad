"""What the pipeline asks of a lake format; one file implements it for each, its functions in this order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Staged:
    """A table of the lake as its last marked staging commit left it.

    `version` names that commit; `published` is the version that readers see, None before the first publish. Where
    someone's compaction is what readers see, and staging was not yet built on it, `version` is that. `lost` says which
    file was gone or damaged where `recover` went back to an older commit, whose files are whole.
    """

    progress: Progress
    version: int
    published: int | None
    lost: str = field(default="", compare=False)

    @property
    def visible(self) -> bool:
        """Whether readers see exactly this commit."""
        return self.version == self.published


@dataclass(frozen=True, slots=True)
class Effects:
    """How many keys a merge inserts, updates and deletes."""

    inserted: int
    updated: int
    deleted: int


class Writer(Protocol):
    """Writes rows as data files, on an executor; pickled to get there. Files are part of no table until committed."""

    def write(self, rows: pa.Table) -> bytes:
        """Write the rows to files of their own names; what comes back is for `commit_wave`."""


Bounds = tuple[Any, Any]  # the least and the greatest value of a column, as Arrow gives them and orders them


class Merger(Protocol):
    """Turns collapsed changes into files, on executors; pickled to get there.

    The changes are cut into ranges of the key; each is asked for what it replaces, then its new rows are written.
    """

    @property
    def keeps_deletes(self) -> bool:
        """Whether the rows of keys that are gone are written too, with `core.change.DELETED`."""

    def replace(self, changes: pa.Table) -> bytes:
        """Take away the rows that these changes replace; they have the key's columns and `core.change.DELETED`."""

    def write(self, rows: pa.Table) -> bytes:
        """Write new rows; with `keeps_deletes` they have `core.change.DELETED`.

        Where the table has that column, deleted rows stay: it is a column like the others, and no change takes a row
        away.
        """


class Target(Protocol):
    """Tables that carry their own progress.

    Every commit asserts that staging is where the given `Staged` left it and
    carries the complete progress; StaleWriter when another writer moved it, and nothing of ours is visible then.
    A process may die anywhere: `recover` finds each step done or not begun. What fails where tables are kept is a
    StorageFailed, a file that is gone a StateUnreadable. Opening one makes nothing.
    """

    def exists(self) -> bool:
        """Whether there is anything yet to look for tables in; it is opened then."""

    def names(self) -> Collection[tuple[str, str]]:
        """The namespace and name of every table that is there, whoever made it; of ours also before they are shown."""

    def storage_errors(self) -> AbstractContextManager[None]:
        """Names what fails in the storage of the tables within the block: rows are read late."""

    def recover(self, table: TableId) -> Staged | None:
        """The table's last marked commit, after staging was reset to it; None where there is no such table.

        What readers see is in its history: where someone compacted that, or removed staging, staging is built on it
        anew, with the progress that it had; a table that nobody has seen is dropped then. Where files of the last
        commits are gone or damaged, staging, and main if it must, go back to the newest commit that is whole.
        NotOurTable and ForeignWrite when someone else made the table, or changed its rows, columns or partitions.
        """

    def inspect(self, table: TableId) -> Staged | None:
        """What `recover` would answer; nothing is changed, so it is safe beside a run."""

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """An empty table, invisible to readers until its first publish; StaleWriter when another run made it first."""

    def discard(self, table: TableId) -> None:
        """Drop a table that was never published; StaleWriter when it was, or is gone."""

    def writer(self, table: TableId) -> Writer:
        """For the executors."""

    def commit_wave(self, staged: Staged, files: Sequence[bytes], progress: Progress) -> Staged:
        """Append a wave's files and its progress in one commit."""

    def merger(self, staged: Staged, key: Sequence[str], bounds: Bounds | None) -> Merger:
        """For the executors: of changes whose keys begin with a value within the bounds; None: with any."""

    def commit_merge(
        self,
        staged: Staged,
        open_spark: "Callable[[], SparkSession]",
        merged: Sequence[bytes],
        after: Callable[[Effects], Progress],
    ) -> tuple[Staged, Effects]:
        """All that mergers have written, in one commit; `open_spark` is called where that takes a job of Spark.

        `after` answers the progress of that commit; it is called right before it, when the effects are known.
        """

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of nothing but progress."""

    def read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """The rows of one commit."""

    def count(self, table: TableId, version: int) -> int | None:
        """The rows of one commit by what the format says of itself; None where only a read can tell."""

    def publish(
        self, staged: Staged, open_spark: "Callable[[], SparkSession]", properties: Mapping[str, str]
    ) -> Staged:
        """Let readers see the commit `staged.version` and its position, atomically; `open_spark` as in `commit_merge`.

        StateUnreadable when a file of the commit is gone or damaged, or a key is in it twice.
        Refused when they no longer see `staged.published`: MainMoved when someone compacted it, ForeignWrite when
        someone changed its rows, StaleWriter when another run of ours published.
        """

    def properties(self, table: TableId) -> Mapping[str, str]:
        """Those that the last publish was given."""

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The format's own names of the types that hold every value of the columns exactly.

        UnsupportedTable where it cannot have such a column, or such a key.
        """
