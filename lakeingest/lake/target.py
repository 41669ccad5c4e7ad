"""What the pipeline asks of a lake format, as four protocols by who asks. `Target` is all of them."""

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
Written = NewType("Written", bytes)  # what an executor has written, for the commit; only its format can read it
OpenSpark = Callable[[], "SparkSession"]  # answers the running session; starts one if none is running


def no_spark() -> "SparkSession":
    """The OpenSpark of commands that read no rows. A call is a mistake in the program, a RuntimeError."""
    raise RuntimeError("this target was opened without Spark")


@dataclass(frozen=True, slots=True)
class Staged:
    """A table of the lake as its last marked staging commit left it.

    `version` names that commit; `published` is the version that readers see, None before the first publish. If readers
    see someone else's compaction, and staging is not yet built on it, `version` is that compaction. `lost` names the
    file that was gone or damaged, if `recover` went back to an older commit for it. `changed` is when the table was
    changed last, in seconds since 1970 by the clock of who did; 0 if that is not known. `same_rows`: the commit was
    made on what readers see, with progress alone, and has the same rows.
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
        """Whether a copy that readers see was started over, or went on over a gap, and is not complete since."""
        return self.published is not None and (self.progress.gap or not self.progress.splits.complete)


@dataclass(frozen=True, slots=True)
class Effects:
    """How many keys a merge inserts, updates and deletes."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a table consists of: the files of rows and of deletes that readers open, their bytes, and its snapshots."""

    files: int
    deletes: int
    bytes: int
    snapshots: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What callers must know of a target, because they give it other things for it.

    `merges_by` is what its mergers write: `rows`, the new rows alone, since `replace` deletes the old ones; or
    `changes`, the new rows and those of keys that are gone, told apart by `core.change.DELETED`.
    """

    merges_by: MergesBy


class Writer(Protocol):
    """Writes rows as data files on an executor, to which it is pickled. Files are part of no table until committed."""

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to new files; the answer is for `commit_wave`."""


Bounds = tuple[Any, Any]  # the least and the greatest value of a column, in Arrow's order; None: no bound


class Merger(Protocol):
    """Turns collapsed changes into files on executors, to which it is pickled.

    The changes are cut into ranges of the key: for each range, `replace` comes first, then `write`.
    """

    def replace(self, changes: pa.Table) -> Written:
        """Delete the rows that these changes replace; the changes have the key's columns and `core.change.DELETED`."""

    def write(self, rows: pa.Table) -> Written:
        """Write what `Capabilities.merges_by` says; changes have `core.change.DELETED`.

        Where the table has that column, deleted rows stay: it is a column like the others, and no change removes a
        row.
        """


class RowReader(Protocol):
    """Reads columns of a commit's rows, on an executor; pickled to get there."""

    def read(self) -> pa.Table:
        """The columns that were asked for, with the types of the format."""


class Rewriter(Protocol):
    """Writes some rows of a commit anew, by their table's next definition, on an executor; pickled to get there."""

    def rewrite(self) -> Written:
        """Write the rows to new files; the answer is for `lift`."""


class Tables(Protocol):
    """The tables of the lake: whether they are there, where they stand, create and drop. Preflight and opening ask."""

    def exists(self) -> bool:
        """Whether the lake exists; it is opened then."""

    def names(self) -> Collection[tuple[str, str]]:
        """The namespace and name of every table, whoever made it; of ours also before their first publish."""

    def recover(self, table: TableId) -> Staged | None:
        """The table's last marked commit, after staging was reset to it; None where there is no such table.

        The commit's history contains what readers see. If someone compacted that or removed staging, staging is built
        on it again, with the same progress; a table without a published commit is dropped instead. If files of the last
        commits are gone or damaged, staging, and main if necessary, go back to the newest commit with all its files.
        NotOurTable when someone else made the table; ForeignWrite when someone else changed its rows, columns or
        partitions.
        """

    def inspect(self, table: TableId) -> Staged | None:
        """What `recover` would answer. It changes nothing, so it is safe while a run is at work."""

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """An empty table, invisible to readers until its first publish; StaleWriter when another run made it first."""

    def discard(self, table: TableId) -> None:
        """Drop a table that was never published; StaleWriter when it was, or is gone."""

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The format's names of the types that hold every value of the columns exactly.

        UnsupportedTable when the format does not allow such a column or such a key.
        """

    def storage_errors(self) -> AbstractContextManager[None]:
        """Names a failure of the tables' storage within the block; Spark reads rows only when they are used."""


class Staging(Protocol):
    """Commits that no reader sees. Whoever copies, merges, reads rows again or follows DDL asks."""

    @property
    def capabilities(self) -> Capabilities:
        """The same as long as the target is open."""

    def writer(self, table: TableId) -> Writer:
        """For the executors."""

    def commit_wave(self, staged: Staged, files: Sequence[Written], progress: Progress) -> Staged:
        """Append a wave's files and its progress in one commit."""

    def merger(self, staged: Staged, key: Sequence[str], bounds: Bounds | None) -> Merger:
        """For the executors. The first column of each changed key is within the bounds; None: it may have any value."""

    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], after: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Commit everything that mergers have written.

        `after` answers the progress of that commit; it is called just before, when the effects are known.
        """

    def readers(
        self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]
    ) -> Sequence[Sequence[RowReader]]:
        """For each of the bounds, readers of these columns of all rows of a commit within them, and maybe of others.

        A row is within bounds if its value of the first column is; None: each row is.
        """

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of progress alone."""

    def earlier(self, staged: Staged) -> Sequence[Staged]:
        """The commits of staging before the last one, the newest first, none that readers have seen."""

    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Take out what staging got after the commit `version`, one of `earlier`; then as `mark`."""

    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Take out all rows in one staging commit with this progress; readers see no difference before the publish.

        What is published next are the rows of later commits, with the columns of `schema`. `known` has the
        origin of each column; None: columns are matched by name. SchemaChanged where the format cannot give the table
        another key.
        """

    def rewriters(self, staged: Staged, lift: Lift) -> Sequence[Rewriter]:
        """For the executors, if old rows have to be written anew, with their values in the new columns."""

    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Give all rows the table's next definition, in one staging commit with this progress.

        `rewritten` is what the rewriters of the same commit and lift have answered.

        A column stays the same one if its identity stays, whatever its name is. Readers see neither rows nor columns of
        it before the publish. SchemaChanged where the format cannot do that.
        """


class Publishing(Protocol):
    """The rows of a commit, and how readers come to see it. Gates, publishes and `verify` ask."""

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of one commit."""

    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:
        """The number of rows of one commit, from metadata; None where only a read can tell.

        The quickest look is enough where it finds as many as are `expected`.
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
    """The same rows in fewer files. Maintenance asks."""

    def maintain(self, staged: Staged) -> Staged:
        """The rows that readers see in fewer files, without old snapshots: one marked commit on staging.

        `staged` itself where there is nothing to do. Snapshots of branches and tags of others stay.
        """

    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete files older than `age` that nothing refers to; how many, and their bytes."""

    def inventory(self, table: TableId) -> Inventory:
        """What the table that readers see consists of."""


class Target(Tables, Staging, Publishing, Upkeep, Protocol):
    """All that a run asks of a lake format, whose tables carry their own progress.

    Every commit asserts that staging is where the given `Staged` left it and carries the complete progress;
    StaleWriter when another writer moved it, and nothing of ours is visible then. A process may die anywhere: `recover`
    finds each step done or not begun. A failure of the storage is StorageFailed, a missing file StateUnreadable.

    To open a target creates nothing, and starts no Spark. The target calls the OpenSpark that it was given only for
    work that takes a job: to `read` rows, and where the format cannot merge, publish or have readers without one.
    """
