"""How a run goes on from what is saved: decided before anything is changed, so that `check` asks the very same."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pymysql

from lakeingest.config import Config
from lakeingest.control.owner import StateOwner, assert_owner, owner_of
from lakeingest.control.spool import Spool
from lakeingest.core.position import Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import BinlogGone, SpoolGap
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import file_sizes
from lakeingest.mysql.continuity import prove, same_history, still_there


@dataclass(frozen=True, slots=True)
class Resumption:
    """`spool` is gone on with; None: a new one begins at `begins`, or where that is None, too, at the present.

    The first copies of the tables in `again` cannot be gone on with: nobody has seen them yet, so they are made anew.
    """

    spool: Spool | None
    begins: Position | None = None
    again: tuple[TableId, ...] = ()


def owner(config: Config, connection: pymysql.Connection, tables: Collection[TableId]) -> StateOwner:
    """Who this pipeline is, to the state folder. Nothing is changed.

    NotOurState where the folder is of another pipeline or another server; BinlogGone where it is of this pipeline's
    copies of `tables`, and the source became another server.
    """
    folder, state = config.state, server_state(connection)
    ours, found = StateOwner(config.name, state.uuid), owner_of(folder)
    if found is None and (spool := Spool.load(folder / "spool")) is not None:  # the previous version named no owner
        found = StateOwner(config.name, spool.opened.server_uuid)
    if found is not None and found.pipeline == ours.pipeline and found.server != ours.server:
        for staged in copies(open_target(config), tables).there.values():
            if staged.progress.position is not None:
                same_history(state, staged.progress.position)
    assert_owner(folder, found, ours)
    return ours


def resumption(
    config: Config, connection: pymysql.Connection, copied: Mapping[TableId, Progress], *, unknown: bool = False
) -> Resumption:
    """How a run goes on with these tables that are copied, in whole or in part. Nothing is changed.

    With `unknown` other tables have copies that cannot be loaded: the spool that is there may be needed for them.
    BinlogGone where the source no longer has, or no longer is, the binlog of a position that is needed: the spool's,
    or where that is not enough, the position of each table. StateUnreadable when the spool is damaged.
    """
    spool = Spool.load(config.state / "spool")
    again = tuple(table for table, progress in copied.items() if progress.splits.stop is None)
    kept = [one.position for table, one in copied.items() if table not in again and one.position is not None]
    begun = unknown or any(progress.splits.all for progress in copied.values())
    if spool is not None and begun and all(_covered(spool, progress) for progress in copied.values()):
        try:
            _prove_spool(config, connection, spool, copied)
        except BinlogGone:
            # what was read after the last merge may be lost with the end of the binlog, and be nobody's loss
            if all(position.place >= spool.position.place for position in kept):
                raise
        else:
            return Resumption(spool, None, tuple(_lost(config, connection, spool, copied)))
    for position in dict.fromkeys(kept):
        still_there(config.source, connection, position)
    return Resumption(None, min(kept, key=lambda position: position.place, default=None), again)


def _lost(
    config: Config, connection: pymysql.Connection, spool: Spool, copied: Mapping[TableId, Progress]
) -> Iterator[TableId]:
    """The tables of which a chunk was read behind the spool's position, in a part of the binlog that is gone since."""
    for table, progress in copied.items():
        mark = progress.read_to
        if progress.splits.stop is None and mark is not None and mark.place > spool.position.place:
            try:
                still_there(config.source, connection, mark)
            except BinlogGone:
                yield table


def _prove_spool(
    config: Config, connection: pymysql.Connection, spool: Spool, copied: Mapping[TableId, Progress]
) -> None:
    """BinlogGone unless the spool's position holds, and those of the tables that the spool cannot answer for."""
    still_there(config.source, connection, spool.position)
    positions = dict.fromkeys(one.position for one in copied.values() if one.position is not None)
    if asked := [position for position in positions if spool.agrees(position) is None]:
        files = file_sizes(connection)
        for position in asked:
            prove(config.source, position, files)


def _covered(spool: Spool, progress: Progress) -> bool:
    """Whether the spool is of the table's history, and holds every change that its next merge needs."""
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
        return False
    return True
