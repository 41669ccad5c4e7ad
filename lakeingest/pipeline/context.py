"""What every stage of one run shares."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pymysql

from lakeingest.config import Config, Source
from lakeingest.control.lease import Lease
from lakeingest.control.spool import Spool
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.lake.target import Staged, Target
from lakeingest.pipeline.events import Observer
from lakeingest.pipeline.profile import Profile
from lakeingest.spark.session import local_slots, open_session

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
    schemas: dict[TableId, TableSchema]
    observe: Observer
    chosen: tuple[TableId, ...]  # of the watched tables, those that this run is to bring up to date
    tables: dict[TableId, Staged] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    _sound: dict[TableId, int] = field(default_factory=dict)
    boundaries: list[FilePosition] = field(default_factory=list)  # ends of transactions, where the binlog may be cut
    began: dict[str, int] = field(default_factory=dict)  # of binlog files, the second in which each was begun

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

    def workers(self, *, small: bool) -> "SparkSession | None":
        """Where `scatter` runs tasks: in this process where they are small, for Spark takes longer to begin."""
        return None if small else self.open_spark()

    def advance(self, staged: Staged, *, sound: bool = False) -> None:
        """A commit was made: this is where the table stands now. `sound`: the rows that it added are."""
        table = staged.progress.table
        if staged.visible or (sound and (table not in self.tables or self.is_sound(table))):
            self._sound[table] = staged.version
        self.tables[table] = staged

    def is_sound(self, table: TableId) -> bool:
        """Whether each staged row has passed a gate, or was found sound before this run wrote it."""
        return self._sound.get(table) == self.tables[table].version
