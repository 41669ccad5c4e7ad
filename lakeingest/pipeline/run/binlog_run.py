"""The binlog within one run: its spool, the tables whose changes are spooled, and where it can be cut."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeingest.core.cascaded import Cascaded
from lakeingest.core.cascades import ForeignKeys
from lakeingest.core.position import FilePosition, is_before
from lakeingest.core.prepared import Xid
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool

if TYPE_CHECKING:
    from lakeingest.mysql.binlog_source import BinlogSource  # numba: it takes a second to import


@dataclass(slots=True)
class BinlogRun:
    """The spool of a run, and what the run has learned of the binlog.

    `tables` are all tables of the run, also those that are not watched. `follows_ddl`: where the binlog holds DDL of a
    table, its rows are lifted over that, or read again.
    """

    spool: Spool
    tables: Mapping[TableId, TableRun]
    follows_ddl: bool
    foreign_keys: ForeignKeys = field(default_factory=dict, init=False)  # whose changes the source does not log
    logs_cascades: bool = field(default=True, init=False)  # False: a part of the binlog that is needed lacks these
    cascaded: Cascaded = field(default_factory=Cascaded, init=False)
    # by epoch: what the spool has not seen prepared, and the server lists; it has not ended, unless the spool has that
    older_xids: Mapping[int, frozenset[Xid]] = field(default_factory=dict, init=False)
    # without GTIDs: up to where the current file was searched for DDL of a table, and the place that this has led to
    searched: dict[TableId, tuple[FilePosition, FilePosition | None]] = field(default_factory=dict, init=False)
    # tables that the run does not know, of which the binlog had rows since that was asked last
    met: set[TableId] = field(default_factory=set, init=False)
    _chunk_ends: list[FilePosition] = field(default_factory=list, init=False)
    _file_seconds: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def schemas(self) -> dict[TableId, TableSchema]:
        """The definitions of the watched tables."""
        return {table.id: table.schema for table in self.tables.values() if table.watch is Watch.WATCHED}

    @property
    def waiting(self) -> dict[TableId, TableSchema]:
        """The definitions, before their next DDL, of the tables that wait to be lifted over it."""
        return {table.id: table.schema for table in self.tables.values() if table.watch is Watch.AT_DDL}

    @property
    def followed(self) -> frozenset[TableId]:
        """The tables whose DDL is followed: those that are complete."""
        if not self.follows_ddl:
            return frozenset()
        complete = (table for table in self.tables.values() if table.copy is not None and not table.has_missing_chunks)
        return frozenset(table.id for table in complete)

    @property
    def boundaries(self) -> tuple[FilePosition, ...]:
        """Known ends of transactions after the spool: those that were noted in time, and high watermarks of chunks."""
        return (*self.spool.boundaries, *self._chunk_ends)

    def add_boundaries(self, chunk_ends: Iterable[FilePosition]) -> None:
        """The binlog can be cut at these high watermarks of chunks."""
        self._chunk_ends += chunk_ends

    def forget_boundaries(self) -> None:
        """The source was away: a crash may have taken the end of the binlog in which the high watermarks were."""
        self._chunk_ends.clear()

    def append(self, segments: Sequence[Manifest]) -> None:
        """Make the segments part of the spool. Boundaries that it has passed are of no more use."""
        self.spool.append(segments)
        self._chunk_ends = [at for at in self._chunk_ends if is_before(self.spool.position.at, at)]

    def second_of(self, source: "BinlogSource", file: str) -> int:
        """The second (since 1970) in which a binlog file was begun; the source is asked once for each file."""
        if file not in self._file_seconds:
            self._file_seconds[file] = source.file_began(file)
        return self._file_seconds[file]
