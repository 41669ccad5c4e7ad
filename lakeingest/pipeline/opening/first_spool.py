"""The spool that a run begins with: the one of before, or a new one, which opens before the first low watermark."""

from collections.abc import Collection
from dataclasses import replace

import pymysql

from lakeingest.config import Config
from lakeingest.core.history import History
from lakeingest.core.position import FilePosition, GtidSet, Position, in_same_file
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import written_position
from lakeingest.mysql.continuity import executed_with, file_began, last_transaction, wait_until_over
from lakeingest.pipeline.binlog.coverage import has_low_at_file_start, is_exact
from lakeingest.pipeline.opening.loading import is_kept
from lakeingest.pipeline.opening.resumption import Resumption, resumption
from lakeingest.spool.spool import Spool


def open_spool(
    config: Config,
    connection: pymysql.Connection,
    target: Target,
    schemas: dict[TableId, TableSchema],
    loaded: dict[TableId, Staged | None],
    failed: dict[TableId, LakeIngestError],
    asked: Collection[TableId],
) -> tuple[Spool, frozenset[TableId], Resumption]:
    """A spool that covers every mark of the loaded tables: the existing spool, or a new one.

    If the first copy of a table cannot be continued, it is copied again from the start, because readers have not seen
    it, or is compared. The tables that are answered have a copy that is to be started over, or compared. A table whose
    position cannot be continued fails, and is removed from `schemas` and `loaded`, unless it was `asked` for. A table
    that is in `failed` and in `schemas` has a copy which cannot be loaded: that copy may need the existing spool.
    Copies of another server have in `loaded` the progress on this one, which is still to be committed.
    """
    copied = {table: staged.progress for table, staged in loaded.items() if staged}
    unknown = any(table in schemas for table in failed)
    chosen = resumption(config, connection, schemas, copied, asked=asked, unknown=unknown)
    again = frozenset(table for table in chosen.again if is_kept(config, connection, loaded[table], schemas[table]))
    for table in chosen.again:
        if table not in again:
            target.discard(table)
            loaded[table] = None
    for table, progress in chosen.moved.items():
        if staged := loaded[table]:
            loaded[table] = replace(staged, progress=progress)
    for table, error in chosen.failed.items():
        failed[table] = error
        if table not in asked:
            del loaded[table], schemas[table]
    if chosen.spool is not None:
        return chosen.spool, again, chosen
    begins = chosen.begins or _opening(config, connection, chosen.epoch)
    if (again or None in loaded.values()) and has_low_at_file_start(connection, begins):
        begins = begins.start_of_file
    return Spool.open(state_of(config) / "spool", begins), again, chosen


def _opening(config: Config, connection: pymysql.Connection, epoch: int) -> Position:
    """Where a first spool begins: every transaction before it is executed.

    The file is read before the executed set: a rotation waits for the commits of earlier files, so all of them are
    executed then. Where low watermarks are exact, the spool begins at the written position.
    """
    at, began = _dated_position(config, connection)
    has_gtids = server_state(connection).executed is not None
    last = last_transaction(config.source, connection, at) if has_gtids or is_exact(connection) else None
    if not is_exact(connection):
        at = at.start_of_file
    state = executed_with(connection, GtidSet.parse(last.gtid or "") if has_gtids and last else GtidSet())
    return Position(state.uuid, epoch, at, state.executed, History(began, last=last))


def _dated_position(config: Config, connection: pymysql.Connection) -> tuple[FilePosition, int]:
    """The written position, and the second in which its file was begun; this second is over.

    So a binlog that is reset after now begins in another second.
    """
    at = written_position(connection)
    while True:
        before, began = at, file_began(config.source, at.file)
        wait_until_over(connection, began)
        at = written_position(connection)
        if in_same_file(at, before):
            return at, began
