"""What every stage of one run shares."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pymysql

from lakeingest.config import Config, Source
from lakeingest.core.position import FilePosition, Place
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurTable
from lakeingest.lake.target import Staged, Target
from lakeingest.pipeline.edges import named
from lakeingest.pipeline.events import Observer, TableStopped
from lakeingest.pipeline.profile import Profile
from lakeingest.spark.session import local_slots, open_session
from lakeingest.spool.spool import Spool
from lakeingest.state.lease import Lease
from lakeingest.state.stopped import Stopped, record_stopped, remove_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = 2  # connections of the driver: a run's own, and one from time to time that looks at the binlog


def tasks_at_once(source: Source, slots: int | None = None) -> int:
    """Tasks at a time on so many slots of Spark (None: on this machine's): each uses two connections, two are ours."""
    return max(1, min(slots or local_slots(), (source.max_connections - OURS) // 2))


@dataclass(slots=True)
class Context:
    """The edges of one run, and where each table stands: `tables` is replaced entry by entry as commits are made.

    Whoever commits, to the target or to the spool, asserts right before it that the lease is held.
    """

    config: Config
    lease: Lease
    connection: pymysql.Connection
    spark: "SparkSession | None"  # None until it is opened: a run that has little to do needs none
    target: Target
    spool: Spool
    schemas: dict[TableId, TableSchema]  # of the watched tables
    observe: Observer
    chosen: tuple[TableId, ...]  # those that this run is to bring up to date
    borrowed: bool = False  # the session is someone else's: it is not ours to start again
    joining: dict[TableId, TableSchema] = field(default_factory=dict)  # new tables, which are not watched yet
    tables: dict[TableId, Staged] = field(default_factory=dict)
    errors: dict[TableId, LakeIngestError] = field(default_factory=dict)  # of the tables that have stopped
    stopped: dict[TableId, Stopped] = field(default_factory=dict)  # the same as values
    profile: Profile = field(default_factory=Profile)
    _sound: dict[TableId, int] = field(default_factory=dict)
    _shown_at: dict[TableId, Place] = field(default_factory=dict)
    boundaries: list[FilePosition] = field(default_factory=list)  # ends of transactions, where the binlog may be cut
    began: dict[str, int] = field(default_factory=dict)  # of binlog files, the second in which each was begun

    @property
    def going_on(self) -> tuple[TableId, ...]:
        """Of the chosen tables those that have not stopped."""
        return tuple(table for table in self.chosen if table not in self.errors)

    @contextmanager
    def working_on(self, table: TableId) -> Iterator[None]:
        """An error of the block that is the table's own stops the table, and the run goes on behind the block."""
        try:
            with named(self.config.source, self.target):
                yield
        except LakeIngestError as error:
            if not error.of_table:
                raise
            self.stop(table, error)

    def stop(self, table: TableId, error: LakeIngestError) -> None:
        """The table stays where it is; why is kept for `status`."""
        self.errors[table], self.stopped[table] = error, Stopped.of(table, error)
        record_stopped(self.config.state, self.stopped[table])
        self.observe(TableStopped(table, error))

    def unwatch(self, table: TableId, error: LakeIngestError) -> None:
        """The binlog holds something of the table that cannot be replayed: it is read for the other tables alone."""
        if self.schemas.pop(table, None) is None:
            return
        if table in self.chosen:
            self.stop(table, error)
        else:
            record_stopped(self.config.state, Stopped.of(table, error))

    def go_on(self, table: TableId) -> None:
        """The table is as it should be."""
        self.errors.pop(table, None)
        self.stopped.pop(table, None)
        remove_stopped(self.config.state, table)

    @property
    def needed_from(self) -> Place | None:
        """No table needs what the spool holds up to there; None where that is not known of every table.

        Staging is branched again from what readers see where someone compacts that, so a table needs what they need.
        """
        needed: list[Place] = []
        for table in self.schemas:
            staged = self.tables.get(table)
            if staged is None:
                return None
            place = staged.progress.needed_from if staged.published is None else self._shown_at.get(table)
            if place is None:
                return None
            needed.append(place)
        return min(needed, default=None)

    @property
    def at_once(self) -> int:
        """Tasks at a time on these slots."""
        return tasks_at_once(self.config.source, self._slots)

    @property
    def readers(self) -> int:
        """Segments of the binlog that are read at a time: each uses one connection."""
        return max(1, min(self._slots, self.config.source.max_connections - OURS))

    @property
    def _slots(self) -> int:
        return local_slots() if self.spark is None else self.spark.sparkContext.defaultParallelism

    def open_spark(self) -> "SparkSession":
        """The session, started if there is none; to be called by the run's own thread."""
        if self.spark is None:
            self.spark = open_session(self.config)
        return self.spark

    def renew_spark(self) -> None:
        """Spark has ended: another one is started when it is needed, and every table stands where the lake says."""
        self.spark = None
        for table in set(self.tables) - set(self.errors):
            with self.working_on(table):
                staged = self.target.recover(table)
                if staged is None:
                    raise NotOurTable(f"{table}: its copy was dropped; the next run copies it again")
                self.advance(staged)

    def workers(self, *, small: bool) -> "SparkSession | None":
        """Where `scatter` runs tasks: in this process where they are small, for Spark takes longer to begin."""
        return None if small else self.open_spark()

    def advance(self, staged: Staged, *, sound: bool = False) -> None:
        """A commit was made: this is where the table stands now. `sound`: the rows that it added are."""
        table = staged.progress.table
        if staged.visible:
            self._shown_at[table] = staged.progress.needed_from
        if staged.visible or (sound and (table not in self.tables or self.is_sound(table))):
            self._sound[table] = staged.version
        self.tables[table] = staged

    def is_sound(self, table: TableId) -> bool:
        """Whether each staged row has passed a gate, or was found sound before this run wrote it."""
        return self._sound.get(table) == self.tables[table].version
