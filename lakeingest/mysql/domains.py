"""Finds a transaction by MariaDB's GTID, which consists of a domain, a server, and a number within the domain.

MariaDB describes a position only by the last GTID before the position. This GTID tells which transactions are before
the position only if there is one domain, and if its numbers grow along the binlog. `gtid_strict_mode` makes the numbers
grow.
"""

from collections.abc import Iterator

import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.failover import Found, Logged, find_in_domain, newest
from lakeingest.core.binlog.history import Committed
from lakeingest.core.binlog.position import DomainGtid, FilePosition, file_start
from lakeingest.errors import BinlogGone, SourceBehind, SourceDiverged, StateUnreadable
from lakeingest.mysql.binlog_reader import dump_events
from lakeingest.mysql.connection import connect, file_sizes, free_server_id, literal, query_dicts, query_row
from lakeingest.mysql.wire.events import HEARTBEATS, Event, Type, has_checksums, read_gtid

_FIRST_EVENTS = 4  # how many events of a file are read to find the one that names the GTIDs before the file
# The types of events that are outside of transactions, or begin one
_BETWEEN = {Type.DOMAIN_GTID, Type.BINLOG_CHECKPOINT, Type.ROTATE, Type.STOP, Type.GTID_LIST, Type.FORMAT_DESCRIPTION}


def find_on(source: Source, connection: pymysql.Connection, last: Committed, *, replicates: bool) -> Found:
    """Where the transaction `last` of another server ends in the binlog of this server.

    Raises:
        SourceBehind: this server does not have the transaction yet, and still replicates (`replicates`).
        SourceDiverged: this server does not have the transaction, or has another transaction in its place.
        BinlogGone: the transaction cannot be found, because its file is purged, there are other domains, or numbers may
            be out of order.

    """
    sought = DomainGtid.parse(last.gtid or "")  # the caller has checked it by `has_gtid`
    strict, ends = query_row(connection, "SELECT @@global.gtid_strict_mode, @@global.gtid_binlog_pos", 2)
    if str(strict) not in {"1", "ON"}:
        raise BinlogGone(
            "the source is another server now, and its gtid_strict_mode is OFF: its GTIDs do not say what it has"
        )
    written = _parsed(str(ends))
    if any(gtid.domain != sought.domain for gtid in written):
        raise BinlogGone(f"the source is another server now, and has other GTID domains than that of {sought}")
    last_number = max((gtid.number for gtid in written), default=0)
    if last_number < sought.number:
        if replicates:
            raise SourceBehind(
                f"the source is another server now, and does not have {sought} yet; run the same command again when it"
                " has caught up"
            )
        raise SourceDiverged(f"the source is another server now, and lacks {sought}")
    # The transaction is in the newest file that begins before the transaction.
    file = newest(list(file_sizes(connection)), lambda name: _greatest_before(connection, name) < sought.number)
    if file is None:
        raise BinlogGone("the source is another server now, and has purged all transactions that are copied")
    with connect(source) as reading:
        return find_in_domain(last, transactions_of(reading, file, free_server_id(reading, source)))


def has_gtid(last: Committed | None) -> bool:
    """Whether a transaction has a GTID in MariaDB's form."""
    try:
        return last is not None and bool(DomainGtid.parse(last.gtid or ""))
    except StateUnreadable:
        return False


def _greatest_before(connection: pymysql.Connection, file: str) -> int:
    """The greatest sequence number of the GTIDs before a binlog file; 0 if there is no earlier file.

    Raises BinlogGone if the file does not say which GTIDs are before it.
    """
    listed = gtids_before(connection, file, "Gtid_list").strip("[]")  # the server writes the list in brackets
    return max((gtid.number for gtid in _parsed(listed)), default=0)


def gtids_before(connection: pymysql.Connection, file: str, event: str) -> str:
    """The GTIDs before a binlog file. One of the file's first events, of the type `event`, names them.

    Raises BinlogGone if there is no such event.
    """
    sql = f"SHOW BINLOG EVENTS IN {literal(file)} LIMIT {_FIRST_EVENTS}"
    events = {str(row["event_type"]): str(row["info"]) for row in query_dicts(connection, sql)}
    if event not in events:
        raise BinlogGone(f"the source's {file} does not say which transactions are before it")
    return events[event]


def _parsed(text: str) -> list[DomainGtid]:
    """The GTIDs of a list, as the server writes it: with commas between them. A list may be empty."""
    return [DomainGtid.parse(gtid) for gtid in text.split(",") if gtid.strip()]


def transactions_of(connection: pymysql.Connection, file: str, server_id: int) -> Iterator[Logged[DomainGtid]]:
    """Yield the transactions of a binlog file. The connection cannot be used afterwards.

    Raises BinlogGone if the file is larger than 4 GiB.
    """
    gtid, committed_at = None, 0  # of the open transaction; `gtid` is None between transactions
    end = 0  # where the last event in the file ended
    checksums = True
    for raw in dump_events(connection, file_start(file), server_id):
        event = Event.parse(raw, checksums=checksums)
        if event.type == Type.FORMAT_DESCRIPTION:
            checksums = has_checksums(raw)
        if event.type in HEARTBEATS:  # not in the file
            continue
        if event.is_artificial and not end:  # before the file; a later one may be the ROTATE that ends the file
            continue
        if event.type in _BETWEEN and gtid is not None:  # the transaction ended with the event before this one
            yield Logged(gtid, FilePosition(file, end), committed_at)
            gtid = None
        if event.type in {Type.ROTATE, Type.STOP}:  # the end of the file
            return
        if 0 < event.end < end:  # the end has four bytes, so it starts again from 0 after 4 GiB
            raise BinlogGone(f"the source's {file} is larger than 4 GiB; its positions are not known")
        end = event.end or end  # an artificial event has no end
        if event.type == Type.DOMAIN_GTID:
            beginning = read_gtid(event)
            assert isinstance(beginning.gtid, DomainGtid)  # noqa: S101 - held by read_gtid
            gtid, committed_at = beginning.gtid, beginning.committed_at
    if gtid is not None:
        yield Logged(gtid, FilePosition(file, end), committed_at)
