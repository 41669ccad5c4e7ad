"""The port, the methods of each lake format: four protocols for four groups of callers. `Target` combines the four.

A commit of ours is *marked*: it carries the complete progress of the copy.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NewType, Protocol

import pyarrow as pa

from lakeingest import config
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.inventory import Inventory
from lakeingest.lake.joint_answer import JointAnswer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MergesBy = Literal["rows", "changes"]
Written = NewType("Written", bytes)  # the files that an executor has written; only their format can read it
OpenSpark = Callable[[], "SparkSession"]  # returns the running session, or starts one


def no_spark() -> "SparkSession":
    """Stands in for OpenSpark in commands that read no rows. A call is a mistake of the program: RuntimeError."""
    raise RuntimeError("this target was opened without Spark")


@dataclass(frozen=True, slots=True)
class Staged:
    """The state in which our last commit left a table. `version` is that commit, and it carries the `progress`.

    If readers see a compaction by someone else, on which staging is not built yet, `version` is that compaction.
    `published` is the version that readers see; None before the first publish. `lost` names the missing or damaged file
    because of which `recover` went back to an older commit; '' if `recover` did not go back. `changed` is the time of
    the table's last change, in seconds since 1970 by the clock of the writer; 0 if the time is not known. `same_rows`
    is True if `version` has the same rows as `published`, and differs only in its progress. `taken_back` names the
    commits of others that our publish of `version` took out of the table: clusterings, which have changed no row.
    """

    progress: Progress
    version: int
    published: int | None
    lost: str = field(default="", compare=False)
    changed: float = field(default=0.0, compare=False)
    same_rows: bool = field(default=False, compare=False)
    taken_back: tuple[str, ...] = field(default=(), compare=False)

    @property
    def visible(self) -> bool:
        """True if `version` is the commit that readers see."""
        return self.version == self.published

    @property
    def is_restarted(self) -> bool:
        """True if readers see a copy that is not complete again yet.

        The copy was started over, or went on although changes were lost.
        """
        return self.published is not None and (self.progress.gap or not self.progress.splits.complete)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look at a table finds: `staged`, as `Tables.inspect` returns it, and the table properties."""

    staged: Staged
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Effects:
    """The numbers of keys that a merge inserts, updates and deletes."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts about a format that decide which rows a caller writes.

    `merges_by` says what callers give to `Merger.write`:
    - `rows`: only the new rows, because `Merger.replace` deletes the old ones
    - `changes`: the new rows and the deleted rows, which the column `core.tables.change.DELETED` tells apart
    """

    merges_by: MergesBy


class Writer(Protocol):
    """Writes rows as data files. It is pickled and sent to executors. Its files belong to no table before a commit."""

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to new files. Returns what `commit_wave` needs to add these files."""


Bounds = tuple[Any, Any]  # the least and the greatest value of a column in Arrow's order; either can be None: no bound


class Merger(Protocol):
    """Turns collapsed changes into files. It is pickled and sent to executors.

    The changes are cut into ranges of the key. For each range, `replace` is called first, then `write`.
    """

    @property
    def looked_at(self) -> int:
        """The number of rows whose keys mergers read to find the old rows of all changes; 0 if they read none."""

    def replace(self, changes: pa.Table) -> Written:
        """Delete the old rows of the changed keys. `changes` has the key's columns and `core.tables.change.DELETED`."""

    def write(self, rows: pa.Table) -> Written:
        """Write the new rows, or all changes, as `Capabilities.merges_by` says.

        Changes have the column `core.tables.change.DELETED`. If the table itself has that column, the copy keeps
        deleted rows: the column is written like any other, and no change removes a row.
        """


class RowReader(Protocol):
    """Reads some columns of a commit's rows. It is pickled and sent to executors."""

    def read(self) -> pa.Table:
        """The columns, with the types of the format. Raises StateUnreadable if a file is gone or damaged."""


class BatchReader(Protocol):
    """Reads some columns of a commit's rows a part at a time. It is pickled and sent to worker processes."""

    def batches(self) -> Iterator[pa.Table]:
        """The columns of all rows that a reader of the commit would find, with the types of the format.

        Raises StateUnreadable or ForeignWrite if a file is damaged, or is not as lakeingest writes it.
        """


class Rewriter(Protocol):
    """Rewrites some rows of a commit to the next definition of their table. It is pickled and sent to executors."""

    def rewrite(self) -> Written:
        """Write the rows to new files. Returns what `lift` needs to add these files."""


class Tables(Protocol):
    """Finds, creates, drops and recovers the tables of the lake. For preflight and opening.

    Threads may call the methods of all ports, for different tables at the same time (`settings.tables_at_once`).
    """

    settings: config.Target

    def exists(self) -> bool:
        """Whether the lake exists; if it does, the call opens it. Raises CatalogAway if the catalog does not answer."""

    def names(self, *, shown: bool = False) -> Collection[tuple[str, str]]:
        """The namespace and name of every table in the lake, whoever made it. Our unpublished tables are included.

        With `shown`, our tables that are only in the staging folder of Hudi are left out: readers do not find them.
        """

    def recover(self, table: TableId) -> Staged | None:
        """Reset staging to our last commit with all its files. Returns this commit; None if the table does not exist.

        The history of the returned commit contains the commit that readers see.
        - If someone compacted the rows that readers see, or removed staging, staging is built again on the commit that
          readers see, with the same progress.
        - A table without staging that was never published is dropped.
        - If files of the last commits are missing or damaged, staging goes back to the newest commit with all its
          files. If files of the commit that readers see are damaged, readers go back to an older commit, too.

        Raises:
            NotOurTable, NotOurCopy: someone else, or another pipeline, made the table.
            ForeignWrite: someone else changed its rows, columns or partitions.
            PartitionsDiffer: pipeline.yml asks for other partitions.
            StateUnreadable: no commit has all its files; on Hudi, which never goes back, readers lack a file.

        """

    def inspect(self, table: TableId) -> Staged | None:
        """Return what `recover` would return without its repairs, and change nothing. Safe while a run is at work."""
        looked = self.look(table)
        return None if looked is None else looked.staged

    def look(self, table: TableId) -> Looked | None:
        """Return what `inspect` returns, with the table's properties at that time; None if `inspect` returns None."""

    def unchanged(self, tables: Iterable[TableId], *, whole: bool = False) -> Mapping[TableId, Looked]:  # noqa: ARG002
        """What `look` would return, by table. Tables for which only a look can tell this are left out.

        With `whole`, only tables that `recover` would leave as they are.
        """
        return {}

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Make an empty table, invisible to readers until its first publish.

        Raises StaleWriter when another run made it first. The format's `create` lists what else refuses a table.
        """

    def discard(self, table: TableId) -> None:
        """Drop a table that was never published. Raises StaleWriter if it was published, or is dropped already."""

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """For each column, the name of the format's type that holds every value exactly.

        Raises UnsupportedTable when the format does not allow such a column or such a key.
        """

    def storage_errors(self) -> AbstractContextManager[None]:
        """Raise failures of the tables' storage in the block as our errors.

        Spark reads the rows of a DataFrame only when they are used. So use the rows in the block.
        """


class Staging(Protocol):
    """Makes commits that no reader sees. For stages that copy, merge, read rows again or follow DDL."""

    @property
    def capabilities(self) -> Capabilities:
        """The target's capabilities. They never change while the target is open."""

    def writer(self, table: TableId) -> Writer:
        """A Writer to send to the executors."""

    def commit_wave(self, staged: Staged, files: Sequence[Written], progress: Progress) -> Staged:
        """Append a wave's files, and store its progress, in one commit."""

    def merger(self, staged: Staged, key: Sequence[str], bounds: Bounds | None, flag: str = "") -> Merger:
        """A Merger to send to the executors.

        `bounds` are the least and the greatest value of the key's first column in the changes; None: no bounds. `flag`:
        a boolean column that is true in all rows that the changes replace; '' if there is no such column.
        """

    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], progress_of: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Commit everything that mergers have written.

        `progress_of` is called just before the commit: it gets the effects of the merge, and returns its progress.
        """

    def readers(
        self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]
    ) -> Sequence[Sequence[RowReader]]:
        """For each item of `bounds`, a list of RowReaders, which read the columns `names` of `staged`.

        Bounds limit the first of the columns `names`. The readers of an item return every row within the item's bounds,
        and maybe other rows. If the item is None, its readers return every row.
        """

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """Make a commit that changes only the progress, and no rows."""

    def earlier(self, staged: Staged) -> Sequence[Staged]:
        """Our commits on staging after the commit that readers see and before `staged`, the newest first."""

    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Make a new commit that has this progress and the rows of the commit `version`, which is one of `earlier`."""

    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Remove all rows in one commit on staging, with this progress. Readers see the rows until the next publish.

        Later commits have the columns of `schema`. `known` has the old name of each of these columns, or None for a new
        column. If `known` itself is None, all columns keep their names. Raises UnsupportedTable or PartitionsDiffer if
        the copy cannot have these columns.
        """

    def rewriters(self, staged: Staged, lift: Lift) -> Sequence[Rewriter]:
        """Rewriters to send to the executors; an empty list if the lift gives old rows no new values.

        Raises UnsupportedTable or PartitionsDiffer if the copy cannot have the definition after the lift.
        """

    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Give all rows the table's next definition, in one commit on staging with this progress.

        `rewritten` has the results of the Rewriters for the same commit and lift. A renamed column keeps its values.
        Readers see neither the new columns nor the rewritten rows before the next publish. Raises PartitionsDiffer as
        `rewriters`, and StaleWriter also if someone has added a column since.
        """


class Prepared(Protocol):
    """A publish of one table that is audited and ready, and that readers do not see yet."""

    def show(self) -> Staged:
        """Let readers see this table by itself. Raises as `Publishing.publish`, but no AuditFailed."""

    def finish(self) -> Staged:
        """Do what follows a publish that `Joint.show` has made, and return the published state."""


class Joint(Protocol):
    """Publishes several tables in one commit of the catalog, which asserts all that their own commits would assert."""

    def prepare(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Prepared:
        """Check and audit a commit, with the errors of `Publishing.publish`. The table must be published already."""

    def show(self, prepared: Sequence[Prepared]) -> JointAnswer:
        """Let readers see all these tables at once, or none, for example if someone else has changed one of them.

        The caller then calls `Prepared.show` for each table not known to be seen, even if the joint commit may be late.
        """


class Publishing(Protocol):
    """Reads the rows of a commit, and lets readers see the commit. For gates, publishes and `verify`."""

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of one commit. Raises StaleWriter if the commit is not found any more."""

    def batch_readers(
        self,
        table: TableId,
        version: int,
        names: Sequence[str],
        bounds: Bounds | None = None,
        flag: str = "",
    ) -> Sequence[BatchReader] | None:
        """Readers that read the columns `names` of all rows of one commit from its files, without Spark.

        `bounds` limit the first of these columns: rows outside of them may be left out. So may rows in which `flag`, a
        boolean column, is not true. None if the commit has rows that only a reader such as Spark can find in its files.
        """

    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:
        """The number of rows of one commit, from metadata; None if only a read of the rows can tell.

        A format can count quickly, or slowly and exactly. If the quick count is `expected`, no slow count is made.
        """

    def publish(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Staged:
        """Let readers see the commit `staged.version` and its position, atomically.

        The publish also shows the comments of `schema`, which has the columns of the commit, and sets these table
        properties. `audit` is called with the files of the commit, before readers see it.

        Raises:
            AuditFailed: `audit` has raised it. Readers see no difference.
            KeyDoubled: with a global key, readers would see one key in two shards. They see no difference.
            StateUnreadable: a file of the commit is gone or damaged, or two of its rows have the same key.
            MainMoved: readers no longer see `staged.published`, because someone compacted the table.
            ForeignWrite: readers no longer see `staged.published`, because someone else changed its rows.
            StaleWriter: readers no longer see `staged.published`, because another run of ours published.
            SchemaChanged, ClockBehind: as `hudi.publication.Publication.publish_by_spark`.

        """

    @property
    def joint(self) -> Joint | None:
        """Publishes several tables at once; None if the lake can only publish one table after the other."""

    def properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of the table; on Hudi, those of the commit that readers see: none before the first publish."""


class Upkeep(Protocol):
    """Puts the same rows into fewer files, and deletes unneeded files. For maintenance."""

    def maintain(self, staged: Staged) -> Staged:
        """Put the rows that readers see into fewer files, and remove old snapshots, in one commit on staging.

        Returns `staged` itself if there is nothing to do. A snapshot stays if a branch or tag of others refers to it.
        """

    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete unneeded files older than `age`. Returns their number and bytes. OperatorNeeded: not in our folder."""

    def inventory(self, table: TableId) -> Inventory:
        """What a table takes up: the files that readers see (on Hudi, also older ones), their bytes, its snapshots."""


class Target(Tables, Staging, Publishing, Upkeep, Protocol):
    """The whole port to a lake format, whose tables carry their own progress.

    Every commit carries the complete progress. A method that commits asserts that the given `Staged` is still the last
    commit on staging. If another writer has committed there, the method raises StaleWriter, and nothing of ours becomes
    visible. A process may be killed at any time: `recover` then finds each step done or not begun. A failure of the
    storage raises StorageFailed. A missing file raises StateUnreadable.

    Opening a target creates nothing and starts no Spark. The target calls its OpenSpark only for work that takes a
    Spark job: to `read` rows and, in some formats, to merge, to publish or to make `readers`.
    """
