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

    `again`: tables whose copies must be started over, or compared. `moved`: by table whose copy was made from another
    server, its progress on this one, which is still to be committed (with `back`, as in `failover.Failover`).
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

    If the first copy of a table cannot be continued, the table is copied again from the start, because readers have not
    seen it, or the copy is compared. A table whose position cannot be continued fails: its definition and its state are
    taken out of `loaded`, unless someone `asked` to read the table again. A table that has failed before and has a
    definition may need the existing spool.
    """
    # Step 1: decide, from the copies, the stored spool and the source's binlog
    schemas, staged, failed = dict(loaded.schemas), dict(loaded.staged), dict(loaded.failed)
    copied = {table: copy.progress for table, copy in staged.items() if copy}
    unknown = any(table in schemas for table in failed)
    chosen = resumption(config, source, schemas, copied, asked=asked, unknown=unknown)
    # Step 2: the copies follow the decision, first those that are dropped
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
    # Step 3: a new spool opens where the copies go on, and before the first low watermark
    spool = chosen.spool
    if spool is None:
        begins = chosen.begins or _opening(source, chosen.epoch)
        if (again or None in staged.values()) and source.has_low_at_file_start(begins):
            begins = begins.start_of_file
        spool = Spool.open(state_of(config) / "spool", begins)
    loaded = replace(loaded, schemas=schemas, staged=staged, failed=failed)
    return Start(spool, loaded, again, chosen.moved, chosen.back)


def _opening(source: BinlogSource, epoch: int) -> Position:
    """The position at which a first spool begins: every transaction before it is executed.

    The file is read before the executed set: a rotation waits for the commits of earlier files, so all of these are
    executed by then. If low watermarks are exact, the spool begins at the written position.
    """
    at, began = _dated_position(source)
    has_gtids, is_exact = source.state().executed is not None, source.has_exact_lows()
    last = source.last_transaction(at) if has_gtids or is_exact else None
    if not is_exact:
        at = at.start_of_file
    # the server writes a transaction to its binlog shortly before it is executed: wait for the last one
    written = GtidSet.parse(last.gtid or "") if has_gtids and last else GtidSet()
    state = source.executed_with(written)
    return Position(state.uuid, epoch, at, state.executed, History(began, last=last))


def _dated_position(source: BinlogSource) -> tuple[FilePosition, int]:
    """The written position, and the second in which its file was begun.

    This second is over, so a binlog that is reset from now on begins in another second.
    """
    at = source.written()
    while True:
        dated, began = at, source.file_began(at.file)
        source.wait_until_over(began)
        at = source.written()
        if in_same_file(at, dated):
            return at, began
