"""Failing over: the source is another server now. Copies go on where their transactions end in its binlog.

Places of the old server are not compared with those of the new one: the spool begins anew, and each copy gets a commit
with its new position. An incomplete copy keeps each chunk whose transactions the new server has. The old spool proves
which ones these are, so chunks that were read after its end are read again, and so are patches that wait for a merge.
The new spool begins where the new server has the transactions of the copy's first place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from lakeingest.config import Config
from lakeingest.core.failover import epoch_of
from lakeingest.core.position import FIRST_EPOCH, Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
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
    """What becomes of copies on the new server, whose places are of this `epoch`.

    `moved` has the progress of those that were made from another server, as it is to be committed. Of the copies that
    are not complete only those in `back` go on: with the commit of staging that it names, which may be an earlier one.
    The tables in `failed` cannot go on, for these reasons.
    """

    server_uuid: str
    epoch: int
    moved: Mapping[TableId, Progress] = field(default_factory=dict)
    back: Mapping[TableId, int] = field(default_factory=dict)
    failed: Mapping[TableId, LakeIngestError] = field(default_factory=dict)

    def is_of_here(self, spool: Spool) -> bool:
        """Whether the spool was read from this server."""
        return (spool.position.server_uuid, spool.position.epoch) == (self.server_uuid, self.epoch)


def is_successor(source: BinlogSource, progress: Collection[Progress], spool: Spool | None) -> bool:
    """Whether the source is of the history that copies were made from, though it is another server."""
    positions = [one.position for one in progress if one.position is not None]
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
    """Where these copies go on. Nothing is changed.

    SourceBehind where the source still gets transactions that copies have; the reason of one of them where no copy
    can go on, and nobody `asked` for one of the tables.
    """
    here = source.state().uuid
    known = [(one.server_uuid, one.epoch) for one in copied.values()]
    known += [] if spool is None else [(spool.position.server_uuid, spool.position.epoch)]
    epoch = epoch_of(here, known)
    elsewhere = {table: one for table, one in copied.items() if (one.server_uuid, one.epoch) != (here, epoch)}
    if not elsewhere:
        return Failover(here, epoch)
    moving = _Moving(config, source.here(epoch), schemas)
    moved, failed, back = dict[TableId, Progress](), dict[TableId, LakeIngestError](), dict[TableId, int]()
    for table, progress in elsewhere.items():
        if progress.splits.stop is None or progress.position is None:
            carried = None if spool is None else moving.carried(progress, spool)
            if carried is None:
                moved[table] = replace(progress, patches=(), position=None)  # it is copied again
            else:
                moved[table], back[table] = carried
            continue
        try:
            moved[table] = moving.moved(progress)
        except RestartNeeded as error:
            failed[table] = error
    if failed and failed.keys() == copied.keys() and failed.keys().isdisjoint(asked):
        raise next(iter(failed.values()))
    return Failover(here, epoch, moved, back, failed)


class _Moving:
    """Finds the positions of copies; tables often share one."""

    def __init__(self, config: Config, server: ThisServer, schemas: Mapping[TableId, TableSchema]) -> None:
        self._committed, self._server, self._schemas = formats.open_target(config), server, schemas
        self._found = dict[Position, tuple[Position, Collection[TableId]] | RestartNeeded]()

    def moved(self, progress: Progress) -> Progress:
        """The progress on this server. A quiet table goes on from its last commit if its noted position is unknown."""
        assert progress.position is not None  # noqa: S101 - whoever asks has looked
        try:
            return progress.moved(self._position(progress.table, progress.position))
        except SourceDiverged:
            staged = self._committed.inspect(progress.table)
            if staged is None or staged.progress.position in {None, progress.position}:
                raise
            return self.moved(staged.progress)

    def carried(self, progress: Progress, spool: Spool) -> tuple[Progress, int] | None:
        """The progress on this server of a copy that is not complete, and the commit of staging that has its chunks."""
        table, schema, end = progress.table, self._schemas.get(progress.table), spool.position
        is_of_spool = (end.server_uuid, end.epoch) == (progress.server_uuid, progress.epoch)
        if not is_of_spool or schema is None or schema.fingerprint != progress.fingerprint:
            return None
        known = [spool.opened, *(after for *_, after in spool.parts())]
        known = known[bisect_right(known, progress.covered_from, key=attrgetter("place")) - 1 :]
        staged = self._committed.inspect(table)
        if staged is None or known[0].place > progress.covered_from or not self._holds(table, known[0]):
            return None
        proven = known[: bisect_left(known, True, key=lambda one: not self._holds(table, one))]
        opened, reached = self._position(table, proven[0]), self._position(table, proven[-1])
        for commit in (staged, *self._committed.earlier(staged)):
            if commit.progress.is_proven(proven[-1].place):
                return commit.progress.carried(opened, reached), commit.version
        return None

    def _holds(self, table: TableId, saved: Position) -> bool:
        """Whether this server has the position, and the table is not changed by errant transactions before it.

        If it holds of one, it holds of all before it that the server's binlog still has.
        """
        try:
            return bool(self._position(table, saved))
        except RestartNeeded:
            return False

    def _position(self, table: TableId, saved: Position) -> Position:
        if saved not in self._found:
            try:
                self._found[saved] = self._server.moved(saved, self._schemas)
            except RestartNeeded as error:
                self._found[saved] = error
        found = self._found[saved]
        if isinstance(found, SourceDiverged):
            raise SourceDiverged(f"{table} has diverged: {found}; `lakeingest resnapshot {table}` copies it again")
        if isinstance(found, RestartNeeded):
            raise found
        position, hit = found
        if table in hit:
            raise SourceDiverged(
                f"{table} has diverged: transactions of this server alone changed it, and are before the last ones that"
                f" are copied; `lakeingest resnapshot {table}` copies it again"
            )
        return position


def go_on(
    edges: Edges, tables: Mapping[TableId, TableRun], moved: Mapping[TableId, Progress], back: Mapping[TableId, int]
) -> None:
    """Commit each copy's new position, from which the spool was opened. The rows do not change."""
    going = {
        name: progress
        for name, progress in moved.items()
        if (progress.splits.stop or name in back) and tables[name].copy is not None
    }
    if going:
        [server_uuid] = {progress.server_uuid for progress in going.values()}
        edges.observe(FailedOver(server_uuid, len(going)))
    for name, progress in going.items():
        table = tables[name]
        version = back.get(name, table.staged.version)
        with working_on(edges, table):
            if version == table.staged.version:
                commit_progress(edges, table, progress)
            else:
                table.advance(edges.committing.go_back(table.staged, version, progress), sound=True)
