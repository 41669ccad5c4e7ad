"""Resuming: how a run continues from the stored state. Nothing is changed here: `lakeingest check` only wants to know.

The facts are gathered here, from the spool and from the source. `core.copies.resuming` decides.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType

from lakeingest.config import Config
from lakeingest.core.binlog.position import FIRST_EPOCH, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.resuming import Stored, resume
from lakeingest.core.copies.signals import agenda
from lakeingest.core.copies.startup import begun_empty
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import BinlogGone, LakeIngestError, SpoolGap, UnsupportedEvent
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.opening.failover import failover, is_successor
from lakeingest.spool.halts import is_watched_to_halt
from lakeingest.spool.spool import Spool
from lakeingest.state.owner import StateOwner, assert_owner, owner_of
from lakeingest.state.signals import SignalFolder

NO_STARTS: Mapping[TableId, Position] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a run continues.

    `spool`: the stored spool, if the run continues it. If `spool` is None, a new spool begins at the position `begins`,
    or, if `begins` is None, at the current position.
    `again`: tables that are copied again, because their copies are incomplete and cannot be continued. Readers see no
    rows of such a copy, or, if it was started over, the old rows.
    `failed`: tables whose copies cannot be continued, with the reasons; the other tables can go on without them.
    `epoch`: the epoch of the source's places.
    `moved` and `back`: the copies that were made from another server, as in `failover.Failover`.
    `starts`: the progress with which new copies begin empty, at a place of the binlog.
    """

    spool: Spool | None
    begins: Position | None = None
    again: tuple[TableId, ...] = ()
    failed: Mapping[TableId, LakeIngestError] = field(default_factory=dict)
    epoch: int = FIRST_EPOCH
    moved: Mapping[TableId, Progress] = field(default_factory=dict)
    back: Mapping[TableId, int] = field(default_factory=dict)
    starts: Mapping[TableId, Progress] = field(default_factory=dict)


def owner(config: Config, source: BinlogSource, tables: Collection[TableId]) -> tuple[StateOwner, StateOwner | None]:
    """The owner that the state folder must have, and its present owner if this server takes over from another server.

    The second value is None if this server does not take over. A server takes over if it has the history from which the
    copies were made, or if nothing was copied yet. Nothing is changed. Raises NotOurState if the folder belongs to
    another pipeline or another server. Raises BinlogGone if this pipeline has copies of `tables`, and the source is a
    server that has no transaction in common with them.
    """
    folder, state = state_of(config), source.state()
    ours, stored = StateOwner(config.name, state.uuid), owner_of(folder)
    if stored is None and (spool := Spool.load(folder / "spool")) is not None:  # someone removed owner.json
        stored = StateOwner(config.name, spool.opened.server_uuid)
    if stored is not None and stored.pipeline == ours.pipeline and stored.server != ours.server:
        # the source is another server now
        spool = Spool.load(folder / "spool")
        copied = [staged.progress for staged in copies(open_target(config), tables).staged.values()]
        is_unused = spool is None and not copied
        if is_unused or is_successor(source, copied, spool):
            return ours, stored
        if any(progress.position is not None for progress in copied):
            raise BinlogGone(
                f"the source is another server now: {state.uuid}, and the tables were copied from {stored.server}, with"
                " which it has no transaction in common"
            )
    assert_owner(folder, stored, ours)
    return ours, None


def asked_to_read_again(
    config: Config, tables: Collection[TableId], staged: Mapping[TableId, Staged | None]
) -> frozenset[TableId]:
    """The tables that are not paused, and for which someone has asked to read all rows again."""
    signals = [document.signal for document in SignalFolder(state_of(config)).read()]
    progress = {table: copy.progress for table, copy in staged.items() if copy}
    visible = {table: copy.progress for table, copy in staged.items() if copy and copy.visible}
    return agenda(signals, tables, progress, visible).whole


def resumption(
    config: Config,
    source: BinlogSource,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    *,
    asked: Collection[TableId] = (),
    unknown: bool = False,
    starts: Mapping[TableId, Position] = NO_STARTS,
) -> Resumption:
    """How a run continues these tables, which are copied completely or in part. Nothing is changed.

    If the source is another server now, the copies that have its history continue (`failover`). `asked`: tables whose
    copy is started over if it cannot be continued. `unknown`: other tables have copies that cannot be loaded, and may
    need the stored spool. `starts`: the positions at which the copies of other tables begin empty.

    Raises:
        BinlogGone: for every table, the source does not have the binlog that the table needs, or has another history;
            and no table is in `asked`.
        SourceBehind: the source still has to get that binlog.
        StateUnreadable: the spool is damaged.

    """
    spool = Spool.load(state_of(config) / "spool")
    moves = failover(config, source, schemas, copied, spool, asked)
    # the copies as they are on this server
    moved = {table: moves.moved.get(table, progress) for table, progress in copied.items() if table not in moves.failed}
    begun = {table: _begun(schemas[table], replace(position, epoch=moves.epoch)) for table, position in starts.items()}
    moved |= begun  # a copy that begins at a place needs the same binlog as a copy with this position
    if spool is not None and not moves.is_own_spool(spool):  # its places are of another server
        spool = None
    stored = None if spool is None else _facts_of_spool(spool, moved)
    chosen = resume(moved, stored, _Answers(config, source, schemas, spool), asked, unknown=unknown)
    failed = {**moves.failed, **chosen.failed}
    kept = spool if chosen.keeps_spool else None
    return Resumption(
        kept,
        chosen.begins,
        chosen.again,
        failed=failed,
        epoch=moves.epoch,
        moved=moves.moved,
        back=moves.back,
        starts={table: progress for table, progress in begun.items() if table not in failed},
    )


def _begun(schema: TableSchema, position: Position) -> Progress:
    """The progress of a copy that begins empty at the position."""
    of_server = position.server_uuid, position.epoch
    return begun_empty(
        Progress(schema.table, schema.fingerprint, *of_server, position.place, position=position), position
    )


def _facts_of_spool(spool: Spool, copied: Mapping[TableId, Progress]) -> Stored:
    """The facts about the stored spool that decide whether these copies can continue with the spool."""
    covers = {table for table, progress in copied.items() if _is_covered(spool, progress)}
    positions = {table: copied[table].position for table in covers}
    doubts = {table for table, position in positions.items() if position and spool.has_same_history(position) is None}
    return Stored(spool.opened, spool.position, covers, doubts)


class _Answers:
    """The source's answers about places of its binlog, up to the end of the spool."""

    def __init__(
        self,
        config: Config,
        source: BinlogSource,
        schemas: Mapping[TableId, TableSchema],
        spool: Spool | None,
    ) -> None:
        self._config, self._source, self._schemas, self._spool = config, source, schemas, spool
        self._gone = dict[Position, LakeIngestError | None]()

    @cached_property
    def _files(self) -> Mapping[str, int]:
        return self._source.files()

    def binlog_gone(self, position: Position) -> LakeIngestError | None:
        """The error if the source no longer has the binlog after the position; else None.

        The source is asked only once about each position.
        """
        if position not in self._gone:
            self._gone[position] = _binlog_gone(partial(self._source.assert_there, position))
        return self._gone[position]

    def contradicts(self, position: Position) -> LakeIngestError | None:
        """The error if the source's binlog has another history at the position; else None."""
        return _binlog_gone(partial(self._source.assert_same_history, position, self._files))

    def unreadable(self, table: TableId, since: Position) -> LakeIngestError | None:
        """The error if a change of the table after `since`, in the spool's range, cannot be replayed; else None.

        If DDL is followed, only changes up to the next DDL are checked.
        """
        assert self._spool is not None  # noqa: S101 - it is called only for tables that have a spool
        if since.place >= self._spool.position.place:  # a copy that is to begin after the spool's end
            return None
        segment = Segment.after(since, self._spool.position.at)
        try:
            for _ in self._source.changes(segment, {table: self._schemas[table]}):
                pass  # to decode the changes is enough: a change that cannot be replayed raises an error
        except LakeIngestError as error:
            if not error.tables:
                raise
            is_ddl = isinstance(error, UnsupportedEvent) and error.ddl is not None
            return None if is_ddl and self._config.evolves else error
        return None


def _binlog_gone(look: Callable[[], object]) -> LakeIngestError | None:
    """The BinlogGone that `look` raises; None if it raises no error."""
    try:
        look()
    except BinlogGone as error:
        return error
    return None


def _is_covered(spool: Spool, progress: Progress) -> bool:
    """Whether the spool has the history of the table's copy, and every change that the next merge of the copy needs.

    A complete copy that waits at its DDL is covered, too: the changes after the DDL are read later.
    """
    position = spool.position
    if (progress.server_uuid, progress.epoch) != (position.server_uuid, position.epoch):
        return False
    if progress.position is not None and spool.has_same_history(progress.position) is False:  # None: not known
        return False
    if not progress.splits.all:  # without a chunk, only the start of the copy must be within the spool
        return spool.start <= progress.needed_from <= position.place
    try:
        spool.files(progress.table, progress.needed_from, position.place)
    except SpoolGap:
        return progress.splits.complete and is_watched_to_halt(spool, progress.table, progress.needed_from)
    return True
