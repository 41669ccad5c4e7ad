"""Failover: where a saved position is in the binlog of another server that continues the same history.

A replica has the same transactions as its source, with the same GTIDs, but at other places in its binlog. So places of
two servers are never compared. A position is found again by its GTIDs. All servers of a history also have the same
commit time for a GTID. If two transactions got the same GTID on two servers, their commit times differ.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lakeingest.core.history import Committed, History
from lakeingest.core.position import FIRST_EPOCH, DomainGtid, FilePosition, Gtid, GtidSet, Position
from lakeingest.errors import SourceDiverged

AnyGtid = TypeVar("AnyGtid", Gtid, DomainGtid)


@dataclass(frozen=True, slots=True)
class Logged(Generic[AnyGtid]):
    """A transaction in a binlog: its GTID, where it ends, and when it was committed, in µs.

    In MySQL, `committed_at` is the time at which the original server committed the transaction. MariaDB stores whole
    seconds. On the original server it is the second of the commit; on a replica it is the second in which the original
    server began the last statement.
    """

    gtid: AnyGtid
    end: FilePosition
    committed_at: int


@dataclass(frozen=True, slots=True)
class Found:
    """Where the last transaction of a position ends in the binlog of another server.

    `errant`: the transactions before that end which the position does not have. The copy does not have them, and they
    cannot be applied to it now, because later transactions may have changed the same rows again.
    """

    end: FilePosition
    errant: GtidSet

    def position(self, saved: Position, server_uuid: str, epoch: int, history: History | None) -> Position:
        """The `saved` position on this server. `history`: the history of the server's binlog at that place."""
        gtids = None if saved.gtids is None else saved.gtids | self.errant
        return replace(saved, server_uuid=server_uuid, epoch=epoch, at=self.end, gtids=gtids, history=history)


def epoch_of(server_uuid: str, known: Collection[tuple[str, int]]) -> int:
    """The epoch of this server: the last known epoch or, if another server has that epoch, the next epoch.

    `known`: the servers and epochs in everything that the pipeline has stored.
    """
    last = max((epoch for _, epoch in known), default=FIRST_EPOCH)
    servers = {server for server, epoch in known if epoch == last}
    return last if servers <= {server_uuid} else last + 1


def is_related(position: Position, executed: GtidSet | None) -> bool:
    """Whether a server that executed these GTIDs has a GTID of the position: then both have one history."""
    return bool(position.gtids and executed and position.gtids & executed)


def newest(files: Sequence[str], holds: Callable[[str], bool]) -> str | None:
    """The newest of these binlog files for which `holds` is true; None if there is none.

    `files` are in order, the oldest first. If `holds` is false for a file, it must be false for all later files: so
    `holds` is called for few files only.
    """
    count = bisect_left(files, True, key=lambda file: not holds(file))
    return files[count - 1] if count else None


def find(position: Position, before: GtidSet, transactions: Iterable[Logged[Gtid]]) -> Found:
    """Where the last transaction of the position ends, among `transactions` of a binlog.

    `before`: the GTIDs of all transactions before these. Raises SourceDiverged if the binlog does not have the last
    transaction, or has another transaction with that GTID. A position of an earlier version may not name its last
    transaction: then SourceDiverged is raised, too.
    """
    copied = position.gtids or GtidSet()
    last = None if position.history is None else position.history.last
    end, errant = None, before - copied
    skipped: list[Gtid] = []  # transactions that the copy does not have; errant if one that it has follows
    is_proven = False
    for transaction in transactions:
        if transaction.gtid not in copied:
            skipped.append(transaction.gtid)
            continue
        end = transaction.end
        if skipped:
            errant, skipped = errant | GtidSet.of_gtids(skipped), []
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
    a transaction later than the original server does. So if the file has this GTID with a later date, it is another
    transaction. Raises SourceDiverged if the transactions break one of these rules, or if `last` is not among them.
    """
    sought, previous = DomainGtid.parse(last.gtid or ""), None
    for transaction in transactions:
        gtid = transaction.gtid
        if gtid.domain != sought.domain or (previous is not None and gtid.number != previous + 1):
            raise SourceDiverged(f"the source has {gtid} out of order, or in another domain than {sought}")
        if gtid == sought:
            if transaction.committed_at > last.committed_at:
                break  # it is another transaction with the same GTID
            return Found(transaction.end, GtidSet())
        previous = gtid.number
    raise SourceDiverged(f"the source does not show that {sought} is the transaction that is copied")
