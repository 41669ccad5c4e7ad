"""The binlog within one run: the spool, the tables whose changes are spooled, and where the binlog can be cut."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeingest.core.binlog.position import FilePosition, is_before
from lakeingest.core.cascades.cascaded import Cascaded
from lakeingest.core.cascades.cascades import ForeignKeys
from lakeingest.core.copies.prepared import Xid
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool

if TYPE_CHECKING:
    from lakeingest.mysql.binlog_source import BinlogSource  # numba: it takes a second to import


@dataclass(slots=True)
class BinlogRun:
    """The spool of a run, and what the run knows about the binlog.

    `tables`: all tables of the run, also unwatched ones. `follows_ddl`: at DDL of a table, its rows are lifted to the
    next definition, or read again; if False, the table stops at its DDL.
    """

    spool: Spool
    tables: Mapping[TableId, TableRun]
    follows_ddl: bool
    foreign_keys: ForeignKeys = field(default_factory=dict, init=False)  # those whose changes the source does not log
    # by table, the parents of all its foreign keys, for the order of publishes; None: the source is to be asked
    parents: Mapping[TableId, frozenset[TableId]] | None = field(default=None, init=False)
    # False: a part of the binlog that a table needs lacks the changes by these foreign keys
    logs_cascades: bool = field(default=True, init=False)
    cascaded: Cascaded = field(default_factory=Cascaded, init=False)
    # by epoch, the prepared transactions that the server has listed and that were prepared before the spool began; each
    # counts as not ended until the spool has its end
    older_xids: Mapping[int, frozenset[Xid]] = field(default_factory=dict, init=False)
    # without GTIDs, by table: the position up to which the current file was searched for DDL, and the position after
    # which the spool has, or can get, all changes of the table; None: DDL in the file makes that impossible
    searched: dict[TableId, tuple[FilePosition, FilePosition | None]] = field(default_factory=dict, init=False)
    # tables that are unknown to the run and have rows in the binlog that was spooled since the last `stop_hidden`
    met: set[TableId] = field(default_factory=set, init=False)
    # a time at which the source had written nothing after the end of the spool, in seconds since 1970; None: unknown
    complete_at: float | None = field(default=None, init=False)
    _chunk_ends: list[FilePosition] = field(default_factory=list, init=False)
    _file_seconds: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def schemas(self) -> dict[TableId, TableSchema]:
        """The definitions of the watched tables."""
        return {table.id: table.schema for table in self.tables.values() if table.watch is Watch.WATCHED}

    @property
    def waiting(self) -> dict[TableId, TableSchema]:
        """The definitions of the tables that wait to be lifted over DDL: the definitions before that DDL."""
        return {table.id: table.schema for table in self.tables.values() if table.watch is Watch.AT_DDL}

    @property
    def followed(self) -> frozenset[TableId]:
        """The tables whose DDL is followed: those with complete copies. Empty if the run does not follow DDL."""
        if not self.follows_ddl:
            return frozenset()
        complete = (table for table in self.tables.values() if table.copy is not None and not table.has_missing_chunks)
        return frozenset(table.id for table in complete)

    @property
    def boundaries(self) -> tuple[FilePosition, ...]:
        """Known ends of transactions after the spool's end: noted positions, and high watermarks of chunks."""
        return (*self.spool.boundaries, *self._chunk_ends)

    def add_boundaries(self, chunk_ends: Iterable[FilePosition]) -> None:
        """Note high watermarks of chunks, at which the binlog can be cut."""
        self._chunk_ends += chunk_ends

    def forget_boundaries(self) -> None:
        """Forget the high watermarks of chunks, because a crash may have cut off the end of the source's binlog."""
        self._chunk_ends.clear()

    def append(self, segments: Sequence[Manifest]) -> None:
        """Make the segments part of the spool, and forget the high watermarks that the spool has passed."""
        self.spool.append(segments)
        self._chunk_ends = [at for at in self._chunk_ends if is_before(self.spool.position.at, at)]

    def saw_end(self, asked_at: float) -> None:
        """Note that the spool has all that the source had written at `asked_at`, in seconds since 1970."""
        self.complete_at = asked_at

    def second_of(self, source: "BinlogSource", file: str) -> int:
        """The second (since 1970) in which a binlog file was begun; the source is asked once for each file."""
        if file not in self._file_seconds:
            self._file_seconds[file] = source.file_began(file)
        return self._file_seconds[file]
