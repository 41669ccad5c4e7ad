"""Proves, before changes are read from a saved position, that the source still has the binlog of that position.

A server that was reset, or restored from a backup, may have the same name, files with the same names that are long
enough, and GTIDs with the same numbers. So the events that the position's history describes, at most two, are read
again and compared.
"""

import time
from collections.abc import Callable, Collection

import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.history import Committed
from lakeingest.core.binlog.position import (
    FILE_START,
    FIRST_EPOCH,
    FilePosition,
    GtidSet,
    Position,
    bytes_between,
    file_start,
    in_same_file,
    is_before,
    is_in_one_of,
    is_within,
)
from lakeingest.core.binlog.segments import LEAST_BYTES, Segment
from lakeingest.core.tables.schema import NO_TABLES
from lakeingest.errors import BinlogGone, Retryable, UnsupportedEvent
from lakeingest.mysql.binlog_reader import SegmentFacts, assert_same_server, can_begin_at, read_event, read_segment
from lakeingest.mysql.chunk_reader import ServerState, server_state
from lakeingest.mysql.connection import beside, clock, file_sizes, free_server_id, query_row, written_position
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.wire.events import ACTIONS, Action, Event, digest, read_gtid
from lakeingest.mysql.wire.grammar import other_history

CLOCK_PAUSE_SECONDS = 0.1
EXECUTED_WITHIN_SECONDS = 60  # the longest time from written to executed: a semi-synchronous replica may answer late
EXECUTED_PAUSE_SECONDS = 0.05


def require_binlog(source: Source, connection: pymysql.Connection, position: Position) -> None:
    """Raise BinlogGone if the source does not have the binlog of the position any more.

    Raises SourceReplaced if the source is another server now. Events are read on connections of their own.
    """
    require_same_history(server_state(connection), position)
    sizes = file_sizes(connection)
    if not is_in_one_of(position.at, sizes):
        raise BinlogGone(f"the source has purged {position.at.file}; the changes from there on are lost")
    written = written_position(connection)
    if is_before(written, position.at):
        raise BinlogGone(f"the source's binlog ends at {written}, before our position {position.at}: it was reset")
    # the size of the current file need not be asked: `written` is in it, and is not before the position
    if not in_same_file(written, position.at) and not is_within(position.at, sizes):
        raise BinlogGone(f"the source's {position.at.file} ends before our position {position.at}: its end was lost")
    prove(source, position, sizes)


def require_same_history(state: ServerState, position: Position) -> None:
    """Raise BinlogGone if the server has not executed all transactions of the position, or has changed its gtid_mode.

    Raises SourceReplaced if `state` is of another server.
    """
    assert_same_server(state.uuid, position.server_uuid, position.at)
    has_gtids, had_gtids = state.executed is not None, position.gtids is not None
    if has_gtids != had_gtids:
        raise BinlogGone("the source's gtid_mode was changed since the last run; the tables must be copied again")
    if state.executed is not None and position.gtids is not None and not position.gtids <= state.executed:
        raise BinlogGone(
            f"the source lacks {position.gtids - state.executed}, which is copied already: its binlog was reset"
        )


def prove(source: Source, position: Position, files: Collection[str]) -> None:
    """Raise BinlogGone if the binlog contradicts the history of the position; `files` are the source's binlog files.

    Raises SourceReplaced if the source is another server now. Raises nothing for a purged file, or for an event at
    which a dump cannot begin: these cannot be compared.
    """
    history, at = position.history, position.at
    if history is None or not is_in_one_of(at, files):
        return
    event, last = history.event, history.last
    # Step 1: compare the event that ends at the position. If the history has no such event, read the first event of the
    # file. The read also tells when the file was begun, which is compared, too.
    event_begins = FilePosition(at.file, FILE_START if event is None else event.pos)
    if history.began is not None and can_begin_at(event_begins):
        began, _, raw = _read_event_at(source, event_begins, at, position)
        if event is not None and digest(raw) != event.digest:
            raise other_history(at, "another event ends there")
        if began != history.began:
            raise other_history(at, f"{at.file} was begun at another time")
    # Step 2: compare the last transaction before the position, unless its file was purged.
    if last is None or last.file not in files:
        return
    last_begins = FilePosition(last.file, last.pos)
    if can_begin_at(last_begins):
        _, beginning, _ = _read_event_at(source, last_begins, at, position)
        if not _begins_transaction(beginning, last):
            raise other_history(at, f"another transaction begins at {last.file}:{last.pos}")


def file_began(source: Source, file: str) -> int:
    """The second (since 1970) in which a binlog file was begun. Raises BinlogGone if the source lacks the file."""
    start = file_start(file)
    return _read_event_at(source, start, start)[0]


def last_transaction(source: Source, connection: pymysql.Connection, end: FilePosition) -> Committed | None:
    """The last transaction with a GTID up to `end`, which is the end of a transaction.

    Whole files are read, the newest first, until a file has such a transaction; rows are not decoded. The result is
    None if no file has one, if more than `LEAST_BYTES` of a file would be read, or if an event is refused.
    """
    uuid, sizes = server_state(connection).uuid, file_sizes(connection)
    files_up_to_end = [file for file in sizes if not is_before(end, file_start(file))]
    stop = end
    for file in reversed(files_up_to_end):
        if bytes_between(file_start(file), stop, sizes) > LEAST_BYTES:  # to read it would take long
            return None
        facts = SegmentFacts()
        with beside(source) as reading:
            segment = Segment(uuid, FIRST_EPOCH, file_start(file), stop, skip=GtidSet())  # any epoch: no row is used
            try:
                for _ in read_segment(reading, segment, NO_TABLES, free_server_id(reading, source), facts):
                    pass  # read to the end, which sets `facts`
            except UnsupportedEvent:
                return None
        if facts.history is not None and facts.history.last is not None:
            return facts.history.last
        stop = file_start(file)
    return None


def executed_with(
    connection: pymysql.Connection, gtids: GtidSet, look: Callable[[ServerState], None] = lambda _: None
) -> ServerState:
    """Wait until the server has executed the transactions `gtids`, which are in its binlog. Returns its state.

    `look` is called with every state that is read. Without GTIDs, the first state is returned. Raises Retryable if the
    server takes too long. Errors of `look` are raised, too.
    """
    deadline = time.monotonic() + EXECUTED_WITHIN_SECONDS
    while True:
        state = server_state(connection)
        look(state)
        if state.executed is None or gtids <= state.executed:
            return state
        if time.monotonic() > deadline:
            raise Retryable(f"{gtids - state.executed} is in the binlog but not executed; run the same command again")
        time.sleep(EXECUTED_PAUSE_SECONDS)


def wait_until_over(connection: pymysql.Connection, second: int) -> None:
    """Wait until the server's clock has passed `second` (since 1970): for at most a second if it shows `second` now.

    If the binlog is reset afterwards, the new files begin in later seconds, by which they differ from the old files.
    """
    while second >= clock(connection):
        time.sleep(CLOCK_PAUSE_SECONDS)


def _read_event_at(
    source: Source, begins: FilePosition, at: FilePosition, position: Position | None = None
) -> tuple[int, Event, bytes]:
    """Read the event that begins at `begins`, on a connection of its own, as `read_event` does.

    Raises BinlogGone, which names `at`, if no event begins at `begins`. Raises SourceReplaced if the server is not that
    of `position`. Without `position`, the server is not checked.
    """
    with beside(source) as connection:
        if position is not None:
            uuid = str(query_row(connection, f"SELECT {dialect(connection).server}", 1)[0])
            assert_same_server(uuid, position.server_uuid, position.at)
        try:
            return read_event(connection, begins, free_server_id(connection, source))
        except BinlogGone as error:
            raise other_history(at, f"no event begins at {begins}") from error


def _begins_transaction(event: Event, last: Committed) -> bool:
    """Whether the event begins the transaction `last`."""
    if ACTIONS.get(event.type) is not Action.GTID:
        return False
    begun = read_gtid(event)
    gtid = None if begun.gtid is None else str(begun.gtid)
    return (gtid, begun.committed_at) == (last.gtid, last.committed_at)
