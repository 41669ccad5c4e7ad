"""The spool that a run begins with: the stored spool, or a new spool that opens before the first low watermark."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lakeingest.config import Config
from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position, in_same_file
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import state_of
from lakeingest.lake.target import Tables
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.opening.loading import Loaded, is_kept
from lakeingest.pipeline.opening.resumption import resumption
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Start:
    """The loaded tables, and a spool that covers every mark of their splits.

    `again`: tables whose copies must be started over, or compared. `moved` and `back`: the copies that were made from
    another server, as in `failover.Failover`; their progress is still to be committed. `starts`: new copies that are
    still to be made, each with the progress with which it begins empty.
    """

    spool: Spool
    loaded: Loaded
    again: frozenset[TableId]
    moved: Mapping[TableId, Progress]
    back: Mapping[TableId, int]
    starts: Mapping[TableId, Progress]


def open_spool(
    config: Config,
    source: BinlogSource,
    target: Tables,
    loaded: Loaded,
    asked: Collection[TableId],
    starts: Mapping[TableId, Position],
) -> Start:
    """Open the stored spool, or a new spool, and say which of the loaded copies continue with this spool.

    An incomplete copy that cannot continue is dropped and made again; but if it is worth keeping (`is_kept`), it is
    started over or compared. A complete copy that cannot continue fails. Then the result has neither the table's
    definition nor its staged state; but it has both for the tables in `asked`, which someone wants to have read again.
    `starts`: the positions at which the copies of new tables begin empty.
    """
    # Step 1: decide, from the copies, the stored spool and the source's binlog
    schemas, staged, failed = dict(loaded.schemas), dict(loaded.staged), dict(loaded.failed)
    copied = {table: copy.progress for table, copy in staged.items() if copy}
    # a copy that could not be loaded, but whose table has a definition, may need the stored spool
    has_unknown = any(table in schemas for table in failed)
    chosen = resumption(config, source, schemas, copied, asked=asked, unknown=has_unknown, starts=starts)
    # Step 2: carry out the decision for the copies, first for those that are dropped
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
    # Step 3: a new spool opens where the copies continue, and before the first low watermark
    spool = chosen.spool
    if spool is None:
        begins = chosen.begins or _first_position(source, chosen.epoch)
        new = {table for table, copy in staged.items() if copy is None}
        has_tables_that_begin = bool(again) or bool(new - chosen.starts.keys())  # else no low watermark is read
        if has_tables_that_begin and source.has_low_at_file_start(begins):
            begins = begins.start_of_file  # because the low watermarks of tables that begin are the start of the file
        spool = Spool.open(state_of(config) / "spool", begins)
    loaded = replace(loaded, schemas=schemas, staged=staged, failed=failed)
    return Start(spool, loaded, again, chosen.moved, chosen.back, chosen.starts)


def _first_position(source: BinlogSource, epoch: int) -> Position:
    """The position at which a first spool begins: the source has executed every transaction before it.

    The spool begins at the start of the source's current file or, if low watermarks are exact, at the written position.
    The executed set has all transactions of the earlier files: it is read after the name of the file, and the source
    begins a file only after the commits of the earlier files.
    """
    at, began = _dated_position(source)
    has_gtids, is_exact = source.state().executed is not None, source.has_exact_lows()
    last = source.last_transaction(at) if has_gtids or is_exact else None
    if not is_exact:
        at = at.start_of_file
    # the server writes a transaction to its binlog shortly before it executes it: wait for the last transaction
    last_gtid = GtidSet.parse(last.gtid or "") if has_gtids and last else GtidSet()
    state = source.executed_with(last_gtid)
    return Position(state.uuid, epoch, at, state.executed, History(began, last=last))


def _dated_position(source: BinlogSource) -> tuple[FilePosition, int]:
    """The written position, and the second in which the source began the file of this position.

    When this returns, that second is over. So if the source is reset later, its new file begins in a later second.
    """
    at = source.written()
    while True:
        before_wait, began = at, source.file_began(at.file)
        source.wait_until_over(began)
        at = source.written()
        if in_same_file(at, before_wait):  # otherwise the source has begun the next file during the wait
            return at, began
