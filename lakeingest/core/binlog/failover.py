"""Failover: where a saved position is in the binlog of another server that continues the same history.

A replica has the same transactions as its primary, with the same GTIDs, but at other places in its binlog. So places
of two servers are never compared, and a position is found again by its GTIDs. All servers of a history also have the
same commit time for a GTID. If two servers gave the same GTID to two transactions, the commit times differ.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import FIRST_EPOCH, DomainGtid, FilePosition, Gtid, GtidSet, Position
from lakeingest.errors import SourceDiverged

AnyGtid = TypeVar("AnyGtid", Gtid, DomainGtid)


@dataclass(frozen=True, slots=True)
class Logged(Generic[AnyGtid]):
    """A transaction in a binlog: its GTID, where it ends, and when it was committed, in µs.

    In MySQL, `committed_at` is the time at which the original server committed the transaction. MariaDB stores a whole
    second: on the original server, the second of the commit; on a replica, the second in which the original server
    began the last statement.
    """

    gtid: AnyGtid
    end: FilePosition
    committed_at: int


@dataclass(frozen=True, slots=True)
class Found:
    """Where the last transaction of a position ends in the binlog of another server.

    `errant`: the transactions before `end` that the position does not have. The copy does not have them either, and
    they cannot be applied now, because later transactions may have changed the same rows again.
    """

    end: FilePosition
    errant: GtidSet

    def position(self, saved: Position, server_uuid: str, epoch: int, history: History | None) -> Position:
        """The `saved` position on this server. `history`: the history of the server's binlog at `end`."""
        gtids = None if saved.gtids is None else saved.gtids | self.errant
        return replace(saved, server_uuid=server_uuid, epoch=epoch, at=self.end, gtids=gtids, history=history)


def epoch_of(server_uuid: str, known: Collection[tuple[str, int]]) -> int:
    """The epoch of this server: the last known epoch or, if another server has that epoch, the next epoch.

    `known`: the servers and epochs in everything that the pipeline has stored. If empty, the epoch is FIRST_EPOCH.
    """
    last = max((epoch for _, epoch in known), default=FIRST_EPOCH)
    servers_of_last = {server for server, epoch in known if epoch == last}
    has_other_server = bool(servers_of_last - {server_uuid})
    return last + 1 if has_other_server else last


def is_related(position: Position, executed: GtidSet | None) -> bool:
    """Whether a server that executed these GTIDs has a GTID of the position: then both have one history.

    False if the server or the position has no GTIDs.
    """
    return bool(position.gtids and executed and position.gtids & executed)


def newest(files: Sequence[str], holds: Callable[[str], bool]) -> str | None:
    """The newest of these binlog files for which `holds` is true; None if there is none.

    `files` are in order, the oldest first. If `holds` is false for a file, `holds` must be false for all later files.
    So only few files are tried.
    """
    # `not holds` is False for some first files, and True for all later ones: `bisect_left` counts the files with False
    count = bisect_left(files, True, key=lambda file: not holds(file))
    return files[count - 1] if count else None


def find(position: Position, before: GtidSet, transactions: Iterable[Logged[Gtid]]) -> Found:
    """Where the last copied transaction ends, among `transactions` of a binlog.

    A transaction is copied if the position has its GTID. `before`: the GTIDs of all transactions before `transactions`.

    Raises:
        SourceDiverged: the binlog does not have the transaction that the position's history names as the last one, or
            has another transaction with that GTID; or the position's history names none.

    """
    copied = position.gtids or GtidSet()
    last = None if position.history is None else position.history.last
    end: FilePosition | None = None  # of the last copied transaction that the loop has seen
    errant = before - copied
    uncopied: list[Gtid] = []  # the transactions after `end`: they are errant if a copied transaction follows
    is_proven = False  # whether `last` was found, and is the same transaction
    for transaction in transactions:
        if transaction.gtid not in copied:
            uncopied.append(transaction.gtid)
            continue
        end = transaction.end
        if uncopied:
            errant |= GtidSet.of_gtids(uncopied)
            uncopied = []
        if last is not None and str(transaction.gtid) == last.gtid:
            if transaction.committed_at != last.committed_at:
                raise SourceDiverged(f"{last.gtid} is another transaction on the source than the one that is copied")
            is_proven = True
    if end is None or not is_proven:
        name = "the last transaction of the position" if last is None else last.gtid
        raise SourceDiverged(f"the source does not show that {name} is the transaction that is copied")
    return Found(end, errant)


def find_in_domain(last: Committed, transactions: Iterable[Logged[DomainGtid]]) -> Found:
    """Where the transaction `last` ends among the transactions of a binlog file of MariaDB.

    All transactions must be of one domain, with consecutive numbers: then none of them is errant. A replica never dates
    a transaction later than the original server does. So a transaction with the GTID of `last`, but a later date, is
    another one.

    Raises:
        SourceDiverged: the file lacks `last`, or has another transaction with the GTID of `last`; or a transaction
            before `last` is of another domain, or its number is not the next one.
        StateUnreadable: `last` has no GTID of MariaDB.

    """
    sought = DomainGtid.parse(last.gtid or "")
    previous_number: int | None = None
    for transaction in transactions:
        gtid = transaction.gtid
        is_next = previous_number is None or gtid.number == previous_number + 1
        if gtid.domain != sought.domain or not is_next:
            raise SourceDiverged(f"the source has {gtid} out of order, or in another domain than {sought}")
        if gtid == sought:
            if transaction.committed_at > last.committed_at:
                break  # another transaction has the same GTID
            return Found(transaction.end, GtidSet())
        previous_number = gtid.number
    raise SourceDiverged(f"the source does not show that {sought} is the transaction that is copied")
