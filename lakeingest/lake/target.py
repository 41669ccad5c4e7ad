"""The port to a lake format, as four protocols, one for each group of callers. `Target` is all of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NewType, Protocol

import pyarrow as pa

from lakeingest.core.lift import Lift
from lakeingest.core.origins import Origins
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MergesBy = Literal["rows", "changes"]
Written = NewType("Written", bytes)  # names files that an executor has written, for a commit; its format can read it
OpenSpark = Callable[[], "SparkSession"]  # returns the running session; starts one if none is running


def no_spark() -> "SparkSession":
    """The OpenSpark of commands that read no rows. Raises RuntimeError: a call is a mistake in the program."""
    raise RuntimeError("this target was opened without Spark")


@dataclass(frozen=True, slots=True)
class Staged:
    """A table of the lake as its last marked staging commit left it.

    `version` names that commit; `published` is the version that readers see, None before the first publish. If readers
    see someone else's compaction, and staging is not yet built on it, `version` is that compaction. `lost` names the
    file that was missing or damaged, if `recover` went back to an older commit because of it. `changed` is the time of
    the table's last change, in seconds since 1970 by the clock of its writer; 0 if it is not known. `same_rows`: the
    commit has the same rows as the one that readers see, and adds only progress to it.
    """

    progress: Progress
    version: int
    published: int | None
    lost: str = field(default="", compare=False)
    changed: float = field(default=0.0, compare=False)
    same_rows: bool = field(default=False, compare=False)

    @property
    def visible(self) -> bool:
        """Whether readers see exactly this commit."""
        return self.version == self.published

    @property
    def is_restarted(self) -> bool:
        """Whether readers see a copy that was started over, or went on over a gap, and is not complete since then."""
        return self.published is not None and (self.progress.gap or not self.progress.splits.complete)


@dataclass(frozen=True, slots=True)
class Effects:
    """How many keys a merge inserts, updates and deletes."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The parts of a table: the files of rows and of deletes that readers open, their bytes, and its snapshots."""

    files: int
    deletes: int
    bytes: int
    snapshots: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The differences between targets that callers must know, because they hand over other values.

    `merges_by` says what mergers write. `rows`: only the new rows, because `replace` deletes the old ones. `changes`:
    the new rows, and deleted rows that `core.change.DELETED` marks.
    """

    merges_by: MergesBy


class Writer(Protocol):
    """Writes rows as data files on an executor, to which it is pickled. No table has the files before a commit."""

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to new files. The result is for `commit_wave`."""


Bounds = tuple[Any, Any]  # the least and the greatest value of a column, in Arrow's order; None: no bound


class Merger(Protocol):
    """Turns collapsed changes into files on executors, to which it is pickled.

    The changes are cut into ranges of the key: for each range, `replace` comes first, then `write`.
    """

    def replace(self, changes: pa.Table) -> Written:
        """Delete the rows that these changes replace. The changes have the key's columns and `core.change.DELETED`."""

    def write(self, rows: pa.Table) -> Written:
        """Write what `Capabilities.merges_by` says; changes have `core.change.DELETED`.

        If the table itself has that column, deleted rows stay: the column is like any other, and no change removes a
        row.
        """


class RowReader(Protocol):
    """Reads columns of a commit's rows on an executor, to which it is pickled."""

    def read(self) -> pa.Table:
        """The columns of these rows, with the types of the format."""


class Rewriter(Protocol):
    """Rewrites some rows of a commit for their table's next definition on an executor, to which it is pickled."""

    def rewrite(self) -> Written:
        """Write the rows to new files. The result is for `lift`."""


class Tables(Protocol):
    """The tables of the lake: to find, create and drop them, and to see where they stand. For preflight and opening."""

    def exists(self) -> bool:
        """Whether the lake exists. If so, it is opened."""

    def names(self) -> Collection[tuple[str, str]]:
        """The namespace and name of every table, whoever made it; also of our tables that are not yet published."""

    def recover(self, table: TableId) -> Staged | None:
        """Reset staging to the table's last marked commit, and return that; None where there is no such table.

        The commit's history contains the one that readers see. If someone compacted that or removed staging, staging is
        built on it again, with the same progress; a table without a published commit is dropped instead. If files of
        the last commits are missing or damaged, staging, and main if necessary, go back to the newest commit with all
        its files.

        Raises NotOurTable when someone else made the table; ForeignWrite when someone else changed its rows, columns or
        partitions.
        """

    def inspect(self, table: TableId) -> Staged | None:
        """The result that `recover` would have. It changes nothing, so it is safe while a run is at work."""

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Make an empty table, invisible to readers until its first publish.

        Raises StaleWriter when another run made it first.
        """

    def discard(self, table: TableId) -> None:
        """Drop a table that was never published. Raises StaleWriter when it was published, or is gone."""

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The format's names of the types that hold every value of the columns exactly.

        Raises UnsupportedTable when the format does not allow such a column or such a key.
        """

    def storage_errors(self) -> AbstractContextManager[None]:
        """Raise failures of the tables' storage in the block as our errors.

        Spark reads rows only when they are used, so they must be used in the block.
        """


class Staging(Protocol):
    """Commits that no reader sees. For stages that copy, merge, read rows again or follow DDL."""

    @property
    def capabilities(self) -> Capabilities:
        """The target's capabilities, which never change while it is open."""

    def writer(self, table: TableId) -> Writer:
        """A writer for the executors."""

    def commit_wave(self, staged: Staged, files: Sequence[Written], progress: Progress) -> Staged:
        """Append a wave's files and its progress in one commit."""

    def merger(self, staged: Staged, key: Sequence[str], bounds: Bounds | None) -> Merger:
        """A merger for the executors. The first column of each changed key is within the bounds; None: no bounds."""

    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], after: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Commit everything that mergers have written.

        `after` returns the progress of that commit; it is called just before the commit, when the effects are known.
        """

    def readers(
        self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]
    ) -> Sequence[Sequence[RowReader]]:
        """For each of the bounds, readers of these columns of the commit's rows within them, and maybe of other rows.

        A row is within bounds if its value of the first column is; None: each row is.
        """

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """Make a commit of progress alone."""

    def earlier(self, staged: Staged) -> Sequence[Staged]:
        """The commits of staging before the last one, the newest first, without those that readers have seen."""

    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Undo all commits after the commit `version`, one of `earlier`, by a new commit with this progress."""

    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Take out all rows in one staging commit with this progress. Readers see no difference before the publish.

        The next publish has the rows of later commits, with the columns of `schema`. `known` has the origin of each
        column; None: columns are matched by name. Raises SchemaChanged where the format cannot give the table another
        key.
        """

    def rewriters(self, staged: Staged, lift: Lift) -> Sequence[Rewriter]:
        """Rewriters for the executors, if old rows must be written anew with their values in new columns; else none."""

    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Give all rows the table's next definition, in one staging commit with this progress.

        `rewritten` has the results of the rewriters of the same commit and lift. A column stays the same one if its
        identity stays, whatever its name is. Readers see none of its rows and columns before the publish. Raises
        SchemaChanged where the format cannot do that.
        """


class Publishing(Protocol):
    """The rows of a commit, and how readers come to see it. For gates, publishes and `verify`."""

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of one commit."""

    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:
        """The number of rows of one commit, from metadata; None where only a read can tell.

        If the quickest way finds as many rows as are `expected`, that is enough.
        """

    def publish(self, staged: Staged, schema: TableSchema, properties: Mapping[str, str]) -> Staged:
        """Let readers see the commit `staged.version` and its position, atomically.

        They also see the comments of `schema`, whose columns are those of the table.

        Raises:
            StateUnreadable: a file of the commit is gone or damaged, or two of its rows have the same key.
            MainMoved: readers no longer see `staged.published`, because someone compacted it.
            ForeignWrite: the same, because someone changed its rows.
            StaleWriter: the same, because another run of ours published.

        """

    def properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of the last publish."""


class Upkeep(Protocol):
    """The same rows in fewer files. For maintenance."""

    def maintain(self, staged: Staged) -> Staged:
        """Put the rows that readers see into fewer files, and remove old snapshots: one marked commit on staging.

        Returns `staged` itself where there is nothing to do. Snapshots of others' branches and tags stay.
        """

    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete files older than `age` that nothing refers to. Returns how many, and their bytes."""

    def inventory(self, table: TableId) -> Inventory:
        """The parts of the table that readers see."""


class Target(Tables, Staging, Publishing, Upkeep, Protocol):
    """The whole port to a lake format, whose tables carry their own progress.

    Every commit carries the complete progress, and asserts that staging is where the given `Staged` left it. It raises
    StaleWriter when another writer moved staging; nothing of ours is visible then. A process may die anywhere:
    `recover` finds each step done or not begun. A failure of the storage is StorageFailed, a missing file
    StateUnreadable.

    To open a target creates nothing, and starts no Spark. The target calls its OpenSpark only for work that takes a
    job: to `read` rows, and where the format cannot merge, publish or have readers without one.
    """
