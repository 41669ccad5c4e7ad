"""The spool that a run begins with: the existing one, or a new one, which opens before the first low watermark."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lakeingest.config import Config
from lakeingest.core.history import History
from lakeingest.core.position import FilePosition, GtidSet, Position, in_same_file
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.files.file import state_of
from lakeingest.lake.target import Tables
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.opening.loading import Loaded, is_kept
from lakeingest.pipeline.opening.resumption import resumption
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Start:
    """A spool that covers every mark of the loaded tables, and these tables.

    The copies of the tables in `again` are to be started over, or compared. `moved` are those of another server, with
    the progress on this one, which is still to be committed (`back`: `failover.Failover`).
    """

    spool: Spool
    loaded: Loaded
    again: frozenset[TableId]
    moved: Mapping[TableId, Progress]
    back: Mapping[TableId, int]


def open_spool(
    config: Config, source: BinlogSource, target: Tables, loaded: Loaded, asked: Collection[TableId]
) -> Start:
    """Open the existing spool, or a new one.

    If the first copy of a table cannot be continued, it is copied again from the start, because readers have not seen
    it, or is compared. A table whose position cannot be continued fails, and has no definition and no state from then
    on, unless someone `asked` to read it again. One that has failed before and has a definition may need the existing
    spool.
    """
    schemas, staged, failed = dict(loaded.schemas), dict(loaded.staged), dict(loaded.failed)
    copied = {table: copy.progress for table, copy in staged.items() if copy}
    unknown = any(table in schemas for table in failed)
    chosen = resumption(config, source, schemas, copied, asked=asked, unknown=unknown)
    again = frozenset(table for table in chosen.again if is_kept(source, staged[table], schemas[table]))
    for table in chosen.again:
        if table not in again:
            target.discard(table)
            staged[table] = None
    for table, progress in chosen.moved.items():
        if copy := staged[table]:
            staged[table] = replace(copy, progress=progress)
    for table, error in chosen.failed.items():
        failed[table] = error
        if table not in asked:
            del staged[table], schemas[table]
    spool = chosen.spool
    if spool is None:
        begins = chosen.begins or _opening(source, chosen.epoch)
        if (again or None in staged.values()) and source.has_low_at_file_start(begins):
            begins = begins.start_of_file
        spool = Spool.open(state_of(config) / "spool", begins)
    loaded = replace(loaded, schemas=schemas, staged=staged, failed=failed)
    return Start(spool, loaded, again, chosen.moved, chosen.back)


def _opening(source: BinlogSource, epoch: int) -> Position:
    """Where a first spool begins: every transaction before it is executed.

    The file is read before the executed set: a rotation waits for the commits of earlier files, so all of them are
    executed then. Where low watermarks are exact, the spool begins at the written position.
    """
    at, began = _dated_position(source)
    has_gtids, is_exact = source.state().executed is not None, source.has_exact_lows()
    last = source.last_transaction(at) if has_gtids or is_exact else None
    if not is_exact:
        at = at.start_of_file
    state = source.executed_with(GtidSet.parse(last.gtid or "") if has_gtids and last else GtidSet())
    return Position(state.uuid, epoch, at, state.executed, History(began, last=last))


def _dated_position(source: BinlogSource) -> tuple[FilePosition, int]:
    """The written position, and the second in which its file was begun; this second is over.

    So a binlog that is reset after now begins in another second.
    """
    at = source.written()
    while True:
        before, began = at, source.file_began(at.file)
        source.wait_until_over(began)
        at = source.written()
        if in_same_file(at, before):
            return at, began
