"""Failover: where a saved position stands in the binlog of another server, which goes on with the same history.

A replica has the same transactions as its source, with the same GTIDs, but at other places in its binlog. So places of
two servers are never compared. A position is found again by its GTIDs. All servers of a history also have the same
commit time for a GTID; it tells transactions apart that got the same GTID on two servers.
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

    MySQL says when the original server committed it. MariaDB says it on that server, but on a replica when the original
    server began the last statement of it; in seconds.
    """

    gtid: AnyGtid
    end: FilePosition
    committed_at: int


@dataclass(frozen=True, slots=True)
class Found:
    """Where the last transaction of a position ends in the binlog of another server.

    `errant` are the transactions before it that the position does not have. The copy lacks them, and they cannot be
    applied to it now: what they changed may have been changed again.
    """

    end: FilePosition
    errant: GtidSet

    def position(self, saved: Position, server_uuid: str, epoch: int, history: History | None) -> Position:
        """The saved position as this server has it; `history` is that of its binlog there."""
        known = None if saved.gtids is None else saved.gtids | self.errant
        return replace(saved, server_uuid=server_uuid, epoch=epoch, at=self.end, gtids=known, history=history)


def epoch_of(server_uuid: str, known: Collection[tuple[str, int]]) -> int:
    """The epoch of this server, from the servers and epochs of all that is known of the pipeline.

    It is the last epoch, or the next one if that is another server's.
    """
    last = max((epoch for _, epoch in known), default=FIRST_EPOCH)
    return last if {server for server, epoch in known if epoch == last} <= {server_uuid} else last + 1


def is_related(position: Position, executed: GtidSet | None) -> bool:
    """Whether a server that has executed these GTIDs has any of the position's: then both are of one history."""
    return bool(position.gtids and executed and position.gtids & executed)


def newest(files: Sequence[str], holds: Callable[[str], bool]) -> str | None:
    """The newest of these binlog files, oldest first, that this holds of; it holds of none after one that it does not.

    It is asked of few files.
    """
    count = bisect_left(files, True, key=lambda file: not holds(file))
    return files[count - 1] if count else None


def find(position: Position, before: GtidSet, transactions: Iterable[Logged[Gtid]]) -> Found:
    """Where the position's last transaction ends, among the transactions of a binlog after those in `before`.

    SourceDiverged where it is not there, or is not the one that the position names; also where the position, which is
    of an earlier version then, does not name one.
    """
    known, last = position.gtids or GtidSet(), None if position.history is None else position.history.last
    end, unknown, waiting = None, before - known, list[Gtid]()
    is_proven = False
    for one in transactions:
        if one.gtid not in known:
            waiting.append(one.gtid)
            continue
        end = one.end
        if waiting:
            unknown, waiting = unknown | GtidSet.of_gtids(waiting), []
        if last is not None and str(one.gtid) == last.gtid:
            if one.committed_at != last.committed_at:
                raise SourceDiverged(f"{last.gtid} is another transaction on the source than the one that is copied")
            is_proven = True
    if end is None or not is_proven:
        named = "the last transaction of the position" if last is None else last.gtid
        raise SourceDiverged(f"the source does not show that {named} is the transaction that is copied")
    return Found(end, unknown)


def find_in_domain(last: Committed, transactions: Iterable[Logged[DomainGtid]]) -> Found:
    """Where this transaction ends among those of a binlog file of MariaDB.

    All are of one domain, and their numbers follow each other: so the server has no errant transaction among them. A
    replica never dates a transaction later than its original server. One that is dated later got the GTID again.
    SourceDiverged for anything else.
    """
    wanted, before = DomainGtid.parse(last.gtid or ""), None
    for one in transactions:
        if one.gtid.domain != wanted.domain or (before is not None and one.gtid.number != before + 1):
            raise SourceDiverged(f"the source has {one.gtid} out of order, or in another domain than {wanted}")
        if one.gtid == wanted:
            if one.committed_at > last.committed_at:
                break
            return Found(one.end, GtidSet())
        before = one.gtid.number
    raise SourceDiverged(f"the source does not show that {wanted} is the transaction that is copied")
