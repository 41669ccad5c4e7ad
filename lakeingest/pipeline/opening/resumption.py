"""Resume: how a run continues from the stored state. Nothing is changed here, so `check` asks it too.

The facts are gathered here, from the spool and from the source; `core.resuming` decides.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from lakeingest.config import Config
from lakeingest.core.position import FIRST_EPOCH, Position
from lakeingest.core.progress import Progress
from lakeingest.core.resuming import Stored, resume
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.core.signals import agenda
from lakeingest.errors import BinlogGone, LakeIngestError, SpoolGap, UnsupportedEvent
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.opening.failover import failover, is_successor
from lakeingest.spool.halts import waits
from lakeingest.spool.spool import Spool
from lakeingest.state.owner import StateOwner, assert_owner, owner_of
from lakeingest.state.signals import SignalFolder


@dataclass(frozen=True, slots=True)
class Resumption:
    """The run continues `spool`. If it is None, a new spool begins at `begins`, or now if that is None too.

    The tables in `again` are copied again: their copies are not complete, and cannot be continued. Readers have not
    seen them; or they see the old rows, and the copy was started over. The copies of the tables in `failed`
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


def owner(config: Config, source: BinlogSource, tables: Collection[TableId]) -> tuple[StateOwner, StateOwner | None]:
    """The owner that the state folder must have, and the one that it has if this one takes over. Nothing is changed.

    A server takes over from another one if it has transactions of the history that copies were made from, or if nothing
    was copied yet. NotOurState where the folder belongs to another pipeline or another server; BinlogGone where it
    belongs to this pipeline's copies of `tables`, but the source is now another server.
    """
    folder, state = state_of(config), source.state()
    ours, found = StateOwner(config.name, state.uuid), owner_of(folder)
    if found is None and (spool := Spool.load(folder / "spool")) is not None:  # the previous version stored no owner
        found = StateOwner(config.name, spool.opened.server_uuid)
    if found is not None and found.pipeline == ours.pipeline and found.server != ours.server:
        spool = Spool.load(folder / "spool")
        progress = [staged.progress for staged in copies(open_target(config), tables).staged.values()]
        is_unused = spool is None and not progress
        if is_unused or is_successor(source, progress, spool):
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
    source: BinlogSource,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
    *,
    asked: Collection[TableId] = (),
    unknown: bool = False,
) -> Resumption:
    """How a run continues these tables, which are copied in whole or in part. Nothing is changed.

    If the source is another server than it was, those of its history go on (`failover`). `unknown`: other tables
    have copies that cannot be loaded, and may need the existing spool. `asked`: if such a table cannot be continued,
    its copy is started over.

    Raises:
        BinlogGone: the source no longer has the binlog that every table needs, or has another history, and no table
            was asked for.
        SourceBehind: the source is still to get that binlog.
        StateUnreadable: the spool is damaged.

    """
    spool = Spool.load(state_of(config) / "spool")
    over = failover(config, source, schemas, copied, spool, asked)
    here = {table: over.moved.get(table, progress) for table, progress in copied.items() if table not in over.failed}
    if spool is not None and not over.is_of_here(spool):
        spool = None
    stored = None if spool is None else _stored(spool, here)
    chosen = resume(here, stored, _Answers(config, source, schemas, spool), asked, unknown=unknown)
    failed = {**over.failed, **chosen.failed}
    kept = spool if chosen.keeps_spool else None
    return Resumption(kept, chosen.begins, chosen.again, failed, over.epoch, over.moved, over.back)


def _stored(spool: Spool, copied: Mapping[TableId, Progress]) -> Stored:
    """What the spool has for these tables."""
    covers = {table for table, progress in copied.items() if _covered(spool, progress)}
    positions = {table: copied[table].position for table in covers}
    doubts = {table for table, position in positions.items() if position and spool.agrees(position) is None}
    return Stored(spool.opened, spool.position, covers, doubts)


class _Answers:
    """The source's answers about places of its binlog, up to the end of the spool; each is asked for once."""

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

    def gone(self, position: Position) -> LakeIngestError | None:
        if position not in self._gone:
            self._gone[position] = _reason(partial(self._source.assert_there, position))
        return self._gone[position]

    def contradicts(self, position: Position) -> LakeIngestError | None:
        return _reason(partial(self._source.assert_same_history, position, self._files))

    def unreadable(self, table: TableId, since: Position) -> LakeIngestError | None:
        """The same up to DDL of the table, where its copy goes on after that."""
        assert self._spool is not None  # noqa: S101 - only tables that a spool went past are asked for
        segment = Segment.after(since, self._spool.position.at)
        try:
            for _ in self._source.changes(segment, {table: self._schemas[table]}):
                pass
        except LakeIngestError as error:
            if not error.tables:
                raise
            is_ddl = isinstance(error, UnsupportedEvent) and error.ddl is not None
            return None if is_ddl and self._config.evolves else error
        return None


def _reason(look: Callable[[], object]) -> LakeIngestError | None:
    """The BinlogGone that a look at the source ends with, if it does."""
    try:
        look()
    except BinlogGone as error:
        return error
    return None


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
