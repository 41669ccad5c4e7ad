"""What every stage of one run shares."""

import os
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = 2  # connections of the driver: a run's own, and one from time to time that notes where the binlog ends


def tasks_at_once(source: Source, slots: int | None = None) -> int:
    """Tasks at a time on so many slots of Spark (None: on this machine's): each uses two connections, two are ours."""
    return max(1, min(slots or os.cpu_count() or 1, (source.max_connections - OURS) // 2))


@dataclass(slots=True)
class Context:
    """The edges of one run, and where each table stands: `tables` is replaced entry by entry as commits are made.

    Whoever commits, to the target or to the spool, asserts right before it that the lease is held.
    """

    config: Config
    lease: Lease
    connection: pymysql.Connection
    spark: "SparkSession"
    target: Target
    spool: Spool
    schemas: dict[TableId, TableSchema]
    observe: Observer
    chosen: tuple[TableId, ...]  # of the watched tables, those that this run is to bring up to date
    tables: dict[TableId, Staged] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    _sound: dict[TableId, int] = field(default_factory=dict)
    boundaries: list[FilePosition] = field(default_factory=list)  # ends of transactions, where the binlog may be cut

    @property
    def at_once(self) -> int:
        """Tasks at a time on this session."""
        return tasks_at_once(self.config.source, self.spark.sparkContext.defaultParallelism)

    @property
    def readers(self) -> int:
        """Segments of the binlog that are read at a time: each uses one connection."""
        return max(1, min(self.spark.sparkContext.defaultParallelism, self.config.source.max_connections - OURS))

    def advance(self, staged: Staged, *, sound: bool = False) -> None:
        """A commit was made: this is where the table stands now. `sound`: the rows that it added are."""
        table = staged.progress.table
        if staged.visible or (sound and (table not in self.tables or self.is_sound(table))):
            self._sound[table] = staged.version
        self.tables[table] = staged

    def is_sound(self, table: TableId) -> bool:
        """Whether each staged row has passed a gate, or was found sound before this run wrote it."""
        return self._sound.get(table) == self.tables[table].version
