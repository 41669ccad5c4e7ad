"""Resume: how a run continues from the stored state. It is decided before anything changes, so `check` asks it too."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pymysql

from lakeingest.config import Config
from lakeingest.core.position import FIRST_EPOCH, Place, Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.core.signals import agenda
from lakeingest.errors import BinlogGone, LakeIngestError, SpoolGap, UnsupportedEvent
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import connect, file_sizes, free_server_id
from lakeingest.mysql.continuity import prove, still_there
from lakeingest.pipeline.opening.failover import failover, is_successor
from lakeingest.spool.halts import waits
from lakeingest.spool.spool import Spool
from lakeingest.state.owner import StateOwner, assert_owner, owner_of
from lakeingest.state.signals import SignalFolder


@dataclass(frozen=True, slots=True)
class Resumption:
    """The run continues `spool`. If it is None, a new spool begins at `begins`, or now if that is None too.

    The tables in `again` are copied again: their copies are not complete, and cannot be continued. Readers have not
    seen them; or they see the rows of before, and the copy was started over. The copies of the tables in `failed`
    cannot be continued, for these reasons; the other tables can go on without them. Places of the source are of this
    `epoch`; copies that were made from another server have the progress in `moved`, which is to be committed (`back`:
    `failover.Failover`).
    """

    spool: Spool | None
    begins: Position | None = None
    again: tuple[TableId, ...] = ()
    failed: Mapping[TableId, LakeIngestError] = field(default_factory=dict)
    epoch: int = FIRST_EPOCH
    moved: Mapping[TableId, Progress] = field(default_factory=dict)
    back: Mapping[TableId, int] = field(default_factory=dict)


def owner(
    config: Config, connection: pymysql.Connection, tables: Collection[TableId]
) -> tuple[StateOwner, StateOwner | None]:
    """The owner that the state folder must have, and the one that it has if this one takes over. Nothing is changed.

    A server takes over from another one if it has transactions of the history that copies were made from, or if nothing
    was copied yet. NotOurState where the folder belongs to another pipeline or another server; BinlogGone where it
    belongs to this pipeline's copies of `tables`, but the source is now another server.
    """
    folder, state = state_of(config), server_state(connection)
    ours, found = StateOwner(config.name, state.uuid), owner_of(folder)
    if found is None and (spool := Spool.load(folder / "spool")) is not None:  # the previous version stored no owner
        found = StateOwner(config.name, spool.opened.server_uuid)
    if found is not None and found.pipeline == ours.pipeline and found.server != ours.server:
        spool = Spool.load(folder / "spool")
        progress = [staged.progress for staged in copies(open_target(config), tables).staged.values()]
        is_unused = spool is None and not progress
        if is_unused or is_successor(config, connection, progress, spool):
            return ours, found
        if any(one.position is not None for one in progress):
            raise BinlogGone(
                f"the source is another server now: {state.uuid}, and the tables were copied from {found.server}, with"
                " which it has no transaction in common"
            )
    assert_owner(folder, found, ours)
    return ours, None


def asked_anew(
    config: Config, tables: Collection[TableId], staged: Mapping[TableId, Staged | None]
) -> frozenset[TableId]:
    """The tables that are not paused, and of which someone has asked to read all rows again."""
    signals = [one.signal for one in SignalFolder(state_of(config)).read()]
    progress = {table: one.progress for table, one in staged.items() if one}
    visible = {table: one.progress for table, one in staged.items() if one and one.visible}
    return agenda(signals, tables, progress, visible).whole


def resumption(
    config: Config,
    connection: pymysql.Connection,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    *,
    asked: Collection[TableId] = (),
    unknown: bool = False,
) -> Resumption:
    """How a run continues these tables, which are copied in whole or in part. Nothing is changed.

    If the source is another server than it was, those of its history go on (`failover`). `unknown`: other tables
    have copies that cannot be loaded, and may need the existing spool. `asked`: if such a table cannot be continued,
    its copy is started over. BinlogGone where the source no longer has the binlog that every table needs, or has
    another history, and no table was asked for; SourceBehind where it is still to get it. StateUnreadable when the
    spool is damaged.
    """
    spool = Spool.load(state_of(config) / "spool")
    over = failover(config, connection, schemas, copied, spool, asked)
    here = {table: over.moved.get(table, progress) for table, progress in copied.items() if table not in over.failed}
    if spool is not None and not over.is_of_here(spool):
        spool = None
    chosen = _resumption(config, connection, schemas, here, spool, asked, unknown=unknown)
    failed = {**over.failed, **chosen.failed}
    return replace(chosen, failed=failed, epoch=over.epoch, moved=over.moved, back=over.back)


def _resumption(
    config: Config,
    connection: pymysql.Connection,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    spool: Spool | None,
    asked: Collection[TableId],
    *,
    unknown: bool,
) -> Resumption:
    """How a run continues these tables, which are all of this server, as the spool is."""
    is_asked = not copied.keys().isdisjoint(asked)
    partial = _lost_copies(config, connection, copied)
    positions = {
        table: progress.position
        for table, progress in copied.items()
        if table not in partial and progress.position is not None
    }
    begun = unknown or any(progress.splits.all for progress in copied.values())
    covered = (
        {} if spool is None else {table: progress for table, progress in copied.items() if _covered(spool, progress)}
    )
    if spool is not None and begun and (covered or not copied):
        try:
            still_there(config.source, connection, spool.position)
        except BinlogGone:
            # the lost end of the binlog may have been read only after the last merge: then no copy has it
            if not is_asked and all(position.place >= spool.position.place for position in positions.values()):
                raise
        else:
            return _continued(config, connection, schemas, copied, spool, covered, asked)
    failed = _gone(config, connection, positions) | _lost_rereads(config, connection, copied, None)
    if failed and failed.keys() == positions.keys() and not is_asked:
        raise next(iter(failed.values()))
    left = [position for table, position in positions.items() if table not in failed]
    return Resumption(None, min(left, key=attrgetter("place"), default=None), partial, failed)


def _continued(
    config: Config,
    connection: pymysql.Connection,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    spool: Spool,
    covered: Mapping[TableId, Progress],
    asked: Collection[TableId],
) -> Resumption:
    """How a run continues with a spool whose position is proven. It covers the tables in `covered`.

    The other tables stopped while the spool went on. If one of these can be continued, a new spool begins at its
    position.
    """
    failed = _unproven(config, connection, spool, covered)
    failed |= _lost_rereads(config, connection, copied, spool.position.place)
    behind: dict[TableId, Position] = {}
    again = _lost(config, connection, spool, covered)
    for table in copied.keys() - covered.keys():
        position = copied[table].position
        if copied[table].splits.stop is None or position is None:
            again.append(table)
        else:
            behind[table] = position
    failed |= _gone(config, connection, behind)
    for table in behind.keys() - failed.keys():
        segment = Segment.after(behind[table], spool.position.at)
        if error := _unreadable(config, segment, schemas[table]):
            failed[table] = error
    if failed and failed.keys() == copied.keys() and failed.keys().isdisjoint(asked):
        raise next(iter(failed.values()))
    if behind.keys() <= failed.keys():
        return Resumption(spool, None, tuple(again), failed)
    needed = [progress.position or spool.opened for table, progress in copied.items() if table not in {*failed, *again}]
    if any(copied[table].splits.stop is None for table in covered):
        needed.append(spool.opened)
    return Resumption(None, min(needed, key=attrgetter("place")), tuple(again), failed)


def _gone(
    config: Config, connection: pymysql.Connection, positions: Mapping[TableId, Position]
) -> dict[TableId, LakeIngestError]:
    """The tables whose position the source's binlog no longer has, each with its error."""
    errors: dict[Position, LakeIngestError] = {}
    for position in dict.fromkeys(positions.values()):
        try:
            still_there(config.source, connection, position)
        except BinlogGone as error:
            errors[position] = error
    return {table: errors[position] for table, position in positions.items() if position in errors}


def _unproven(
    config: Config, connection: pymysql.Connection, spool: Spool, covered: Mapping[TableId, Progress]
) -> dict[TableId, LakeIngestError]:
    """The tables whose position the spool cannot confirm, and the source's binlog contradicts."""
    failed: dict[TableId, LakeIngestError] = {}
    files: Mapping[str, int] | None = None
    for table, progress in covered.items():
        if progress.position is not None and spool.agrees(progress.position) is None:
            files = file_sizes(connection) if files is None else files
            try:
                prove(config.source, progress.position, files)
            except BinlogGone as error:
                failed[table] = error
    return failed


def _unreadable(config: Config, segment: Segment, schema: TableSchema) -> LakeIngestError | None:
    """Why the segment cannot be replayed for a table that stopped at its start; None where it can be replayed now.

    Up to DDL of the table, where its copy goes on after that.
    """
    try:
        with connect(config.source) as connection:
            server_id = free_server_id(connection, config.source)
            for _ in read_segment(connection, segment, {schema.table: schema}, server_id):
                pass
    except LakeIngestError as error:
        if not error.tables:
            raise
        is_ddl = isinstance(error, UnsupportedEvent) and error.ddl is not None
        return None if is_ddl and config.evolves else error
    return None


def _lost(
    config: Config, connection: pymysql.Connection, spool: Spool, copied: Mapping[TableId, Progress]
) -> list[TableId]:
    """The tables with a chunk that was read after the spool's position, in a part of the binlog that is now lost."""
    copying = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    return list(_gone(config, connection, _read_after(copying, spool.position.place)))


def _lost_copies(
    config: Config, connection: pymysql.Connection, copied: Mapping[TableId, Progress]
) -> tuple[TableId, ...]:
    """The copies that are not complete and cannot go on with a new spool.

    A copy can while it stands where the spool watched it first, and the source has the binlog since, with all that its
    chunks saw.
    """
    partial = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    begun = {
        table: progress.position
        for table, progress in partial.items()
        if progress.position is not None and progress.position.place == progress.covered_from
    }
    read = _read_after({table: copied[table] for table in begun}, None)
    gone = {*_gone(config, connection, begun), *_gone(config, connection, read)}
    return tuple(table for table in partial if table not in begun or table in gone)


def _lost_rereads(
    config: Config, connection: pymysql.Connection, copied: Mapping[TableId, Progress], proven: Place | None
) -> dict[TableId, LakeIngestError]:
    """The tables with rows that were read again in a part of the binlog that is now lost, and wait for the next merge.

    That merge needs the changes up to their high watermark. What lies before a `proven` place is not lost.
    """
    waiting = {table: progress for table, progress in copied.items() if progress.patches}
    gone = _gone(config, connection, _read_after(waiting, proven))
    return {
        table: BinlogGone(f"rows of {table} were read again in a lost part of the binlog: {error}")
        for table, error in gone.items()
    }


def _read_after(copied: Mapping[TableId, Progress], proven: Place | None) -> dict[TableId, Position]:
    """The greatest high watermark of each table that has one, if it is after a `proven` place."""
    marks = {table: progress.read_to for table, progress in copied.items() if progress.read_to is not None}
    return {table: mark for table, mark in marks.items() if proven is None or mark.place > proven}


def _covered(spool: Spool, progress: Progress) -> bool:
    """Whether the spool has the same history as the table, and every change that the next merge needs."""
    position = spool.position
    if (progress.server_uuid, progress.epoch) != (position.server_uuid, position.epoch):
        return False
    if progress.position is not None and spool.agrees(progress.position) is False:
        return False
    if not progress.splits.all:
        return spool.start <= progress.needed_from <= position.place
    try:
        spool.files(progress.table, progress.needed_from, position.place)
    except SpoolGap:
        return progress.splits.complete and waits(spool, progress.table, progress.needed_from)
    return True
