"""Failing over: the source is another server now. In its binlog, each copy continues after the copy's last transaction.

Places of the old server are never compared with places of the new server: a new spool begins, and each copy gets a
commit with its position on the new server. An incomplete copy keeps each chunk whose transactions the new server has.
The old spool proves which chunks these are. So chunks that were read after the old spool's end are read again. Patches
that wait for a merge are read again, too. For an incomplete copy, the new spool begins at the position that corresponds
to the start of the copy.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from lakeingest.config import Config
from lakeingest.core.binlog.failover import epoch_of
from lakeingest.core.binlog.position import FIRST_EPOCH, Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, RestartNeeded, SourceDiverged
from lakeingest.lake import formats
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.failover import ThisServer
from lakeingest.pipeline.events import FailedOver
from lakeingest.pipeline.run.commit_progress import commit_progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Failover:
    """How copies that were made from another server continue on the server `server_uuid`, in this `epoch` of places.

    `moved`: for each of these copies that is not in `failed`, its progress on that server. `back`: for each incomplete
    copy that continues, the staging commit from which it continues, which may be an earlier commit. An incomplete copy
    that is in `moved` and not in `back` is made again. `failed`: the complete copies that cannot continue, and why.
    """

    server_uuid: str
    epoch: int
    moved: Mapping[TableId, Progress] = field(default_factory=dict)
    back: Mapping[TableId, int] = field(default_factory=dict)
    failed: Mapping[TableId, LakeIngestError] = field(default_factory=dict)

    def is_own_spool(self, spool: Spool) -> bool:
        """Whether the spool was read from this server, in this epoch."""
        return (spool.position.server_uuid, spool.position.epoch) == (self.server_uuid, self.epoch)


def is_successor(source: BinlogSource, progress: Collection[Progress], spool: Spool | None) -> bool:
    """Whether the source, which is another server now, has the history of a copy or of the spool."""
    positions = [copy.position for copy in progress if copy.position is not None]
    positions += [] if spool is None else [spool.position]
    server = source.here(FIRST_EPOCH)
    return any(server.takes_over(position) for position in dict.fromkeys(positions))


def failover(
    config: Config,
    source: BinlogSource,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    spool: Spool | None,
    asked: Collection[TableId] = (),
) -> Failover:
    """How these copies continue on the source's server. Nothing is changed.

    `asked`: tables whose copy is started over if it cannot continue.

    Raises:
        SourceBehind: the source still has to get transactions that copies have.
        RestartNeeded: no copy can continue, and none of them is in `asked`. The error is the reason of one copy.

    """
    # Step 1: the copies that were made from another server, or from this server in an earlier epoch
    here = source.state().uuid
    stored = [(progress.server_uuid, progress.epoch) for progress in copied.values()]
    stored += [] if spool is None else [(spool.position.server_uuid, spool.position.epoch)]
    epoch = epoch_of(here, stored)
    from_elsewhere = {
        table: progress for table, progress in copied.items() if (progress.server_uuid, progress.epoch) != (here, epoch)
    }
    if not from_elsewhere:
        return Failover(here, epoch)
    # Step 2: find the position of each of these copies on this server
    moving = _Moving(config, source.here(epoch), schemas)
    moved, failed, back = dict[TableId, Progress](), dict[TableId, LakeIngestError](), dict[TableId, int]()
    for table, progress in from_elsewhere.items():
        if progress.splits.stop is None or progress.position is None:  # the copy is incomplete: it has no one position
            progress_and_commit = None if spool is None else moving.moved_chunks(progress, spool)
            if progress_and_commit is None:
                moved[table] = replace(progress, patches=(), position=None)  # the table is copied again
            else:
                moved[table], back[table] = progress_and_commit
            continue
        try:
            moved[table] = moving.moved(progress)
        except RestartNeeded as error:
            failed[table] = error
    none_continues = bool(failed) and failed.keys() == copied.keys()
    if none_continues and failed.keys().isdisjoint(asked):
        raise next(iter(failed.values()))
    return Failover(here, epoch, moved, back, failed)


class _Moving:
    """Finds the position on this server from which each copy goes on.

    The server is asked once for a position that many copies share.
    """

    def __init__(self, config: Config, server: ThisServer, schemas: Mapping[TableId, TableSchema]) -> None:
        self._committed, self._server, self._schemas = formats.open_target(config), server, schemas
        self._found = dict[Position, tuple[Position, Collection[TableId]] | RestartNeeded]()

    def moved(self, progress: Progress) -> Progress:
        """The progress of a complete copy on this server.

        If the position of the copy has diverged, but was only noted for a quiet table, the copy continues from the
        position of its last commit.
        """
        assert progress.position is not None  # noqa: S101 - the caller has looked
        try:
            return progress.moved(self._position(progress.table, progress.position))
        except SourceDiverged:
            staged = self._committed.inspect(progress.table)
            if staged is None or staged.progress.position in {None, progress.position}:
                raise  # there is no other position
            return self.moved(staged.progress)  # the diverged position was only noted

    def moved_chunks(self, progress: Progress, spool: Spool) -> tuple[Progress, int] | None:
        """The progress that an incomplete copy can go on with on this server, and the staging commit with its chunks.

        None if the old spool cannot prove that this server has the transactions that the chunks saw.
        """
        # Step 1: the spool must have the copy's history
        table, schema, end = progress.table, self._schemas.get(progress.table), spool.position
        is_of_spool = (end.server_uuid, end.epoch) == (progress.server_uuid, progress.epoch)
        if not is_of_spool or schema is None or schema.fingerprint != progress.fingerprint:
            return None
        # Step 2: the spool's positions from the start of the copy on; `proven`: those that this server has
        positions = [spool.opened, *(after for *_, after in spool.parts())]
        count_to_start = bisect_right(positions, progress.covered_from, key=attrgetter("place"))
        staged = self._committed.inspect(table)
        if staged is None or count_to_start == 0:  # the spool begins after the copy's start
            return None
        of_copy = positions[count_to_start - 1 :]  # from the last position that is not after the copy's start
        if not self._holds(table, of_copy[0]):
            return None
        # the positions that this server has come first: find the first position that it does not have
        count_proven = bisect_left(of_copy, True, key=lambda position: not self._holds(table, position))
        proven = of_copy[:count_proven]
        # Step 3: the newest commit whose chunks saw nothing after the last proven position
        first_here, last_here = self._position(table, proven[0]), self._position(table, proven[-1])
        for commit in (staged, *self._committed.earlier(staged)):
            if commit.progress.is_proven(proven[-1].place):
                return commit.progress.carried(first_here, last_here), commit.version
        return None

    def _holds(self, table: TableId, saved: Position) -> bool:
        """Whether this server has the position, and no errant transaction before the position changed the table.

        If this is true for a position, it is true for all earlier positions that are still in the server's binlog.
        """
        try:
            return bool(self._position(table, saved))  # always True, or an error
        except RestartNeeded:
            return False

    def _position(self, table: TableId, saved: Position) -> Position:
        """The `saved` position on this server.

        Raises RestartNeeded if this server does not have the position, or if errant transactions before the position
        changed the table.
        """
        if saved not in self._found:
            try:
                self._found[saved] = self._server.moved(saved, self._schemas)
            except RestartNeeded as error:
                self._found[saved] = error
        answer = self._found[saved]
        if isinstance(answer, SourceDiverged):
            raise SourceDiverged(f"{table} has diverged: {answer}; `lakeingest resnapshot {table}` copies it again")
        if isinstance(answer, RestartNeeded):
            raise answer
        position, changed_by_errant = answer
        if table in changed_by_errant:
            raise SourceDiverged(
                f"{table} has diverged: transactions of this server alone changed it, and are before the last ones that"
                f" are copied; `lakeingest resnapshot {table}` copies it again"
            )
        return position


def commit_failover(
    edges: Edges, tables: Mapping[TableId, TableRun], moved: Mapping[TableId, Progress], back: Mapping[TableId, int]
) -> None:
    """Commit the progress that each continued copy has on the new server; `moved` and `back` are as in `Failover`.

    No row changes, but an incomplete copy may go back to an earlier commit.
    """
    # complete copies, and the incomplete copies that have chunks on the new server; other copies are made again
    continued = {
        name: progress
        for name, progress in moved.items()
        if (progress.splits.stop or name in back) and tables[name].copy is not None
    }
    if continued:
        [server_uuid] = {progress.server_uuid for progress in continued.values()}  # all are on the new server
        edges.observe(FailedOver(server_uuid, len(continued)))
    for name, progress in continued.items():
        table = tables[name]
        version = back.get(name, table.staged.version)
        with working_on(edges, table):
            if version == table.staged.version:
                commit_progress(edges, table, progress)
            else:
                table.advance(edges.committing.go_back(table.staged, version, progress), sound=True)
