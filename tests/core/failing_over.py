"""The world of `tests.core.world` with servers that take over from each other.

A server that takes over has the transactions of the one before it under the same GTIDs, at other places in its binlog.
It may lack the last ones, may have given their GTIDs to other transactions, may have transactions that only it has, and
may have purged the oldest ones.
"""

import json
from dataclasses import dataclass

from lakeingest.core.binlog.failover import Found, Logged, epoch_of, find
from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Place, Position
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.progress import Progress
from lakeingest.errors import BinlogGone, LakeIngestError, SourceDiverged
from tests.core.world import ORDERS, Row, Source, Statement, Table, Transaction, World, execute

FAILOVERS_MAX = 3


@dataclass(frozen=True)
class Timed(Transaction):
    """A transaction with the time of its commit, which no other transaction has."""

    committed_at: int
    statements: tuple[Statement, ...]


class Server(Source):
    """A server by its uuid. Its places are of an epoch of its own."""

    clock = 0  # of all servers

    def __init__(self, rows: Table, number: int, base: int) -> None:
        super().__init__(rows, gtids=True)
        self.number, self.epoch, self.purged = number, number, 0
        self.file = FilePosition("binlog.000001", base)
        self.ends, self.places = [self.file], [self.file.place(self.epoch)]

    @property
    def uuid(self) -> str:
        """Its uuid."""
        return f"{self.number:08d}-71ca-11e1-9e33-c80aa9429562"

    def gtid_set(self, count: int) -> GtidSet:
        """The first `count` transactions."""
        return GtidSet.of_gtids(one.gtid for one in self.log[:count])

    def flush(self, statements: list[Statement], *, rotate: bool) -> None:
        """As any server does it."""
        keys = frozenset(key for statement in statements for key in statement if key is not None)
        if any(keys & waiting.keys for waiting in self.log[self.visible :]):
            return
        if rotate and self.visible == self.written:
            self.file = FilePosition(f"binlog.{self.file.number + 1:06d}", 4)
        Server.clock += 1
        ours = [one.gtid.number for one in self.log if one.gtid.uuid == self.uuid]
        self.write(Gtid(self.uuid, len(ours) + 1), Server.clock, statements)

    def write(self, gtid: Gtid, committed_at: int, statements: list[Statement]) -> None:
        """Write a transaction, of its own or of another server."""
        end, table = FilePosition(self.file.file, self.ends[-1].pos + 100), dict(self.tables[-1])
        place = end.place(self.epoch)
        keys = frozenset(key for statement in statements for key in statement if key is not None)
        changes = execute(table, statements, place, value=committed_at)
        self.log.append(Timed(gtid, place, keys, tuple(changes), committed_at, tuple(statements)))
        self.ends.append(end)
        self.places.append(place)
        self.tables.append(table)

    def transactions(self) -> list[Timed]:
        """Its binlog."""
        return [one for one in self.log if isinstance(one, Timed)]


class FailingOver(World):
    """The job finds each position again by its GTIDs; chunks that were not merged go on as far as they are proven."""

    source: Server

    def __init__(self, rows: Table, *, gtids: bool) -> None:  # noqa: ARG002 - there is no failover without them
        self.servers, self.commits = [Server(rows, 1, 4)], list[tuple[tuple[Row, ...], str]]()
        super().__init__(rows, gtids=True)
        self.source = self.servers[0]
        self.diverged = self.moves = self.needless = self.carries = 0

    def store(self, rows: tuple[Row, ...], progress: Progress) -> None:
        """A job can go back to an earlier commit."""
        super().store(rows, progress)
        self.commits.append(self.lake.marked)

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        steps = {
            "fail_over": len(self.servers) <= FAILOVERS_MAX and self.source.written > 4 * len(self.servers),
            "purge": bool(self.spool) and self.source.purged < self.source.executed,
        }
        return [*super().possible(), *(step for step, now in steps.items() if now)]

    # The servers.

    def fail_over(self, lost: int, errant: int | None, reused: list[Statement] | None, some: list[Statement]) -> None:
        """Another server takes over, without the `lost` last transactions.

        It has an `errant` transaction after so many, `some` statements; it has given the first lost GTID to another.
        """
        before = self.source
        count = max(before.written - lost, before.purged)
        server = Server(self.servers[0].tables[0], len(self.servers) + 1, 4 + 50 * len(self.servers))
        for number, one in enumerate(before.transactions()):
            if errant == number <= count:
                Server.clock += 1
                server.write(Gtid(server.uuid, 1), Server.clock, some)
            if number < count:
                server.write(one.gtid, one.committed_at, list(one.statements))
            if number == count and reused is not None:
                Server.clock += 1
                server.write(one.gtid, Server.clock, reused)
        server.visible = server.executed = server.written
        self.servers.append(server)
        self.source = server
        self.begin()

    def purge(self, some: int) -> None:
        """The server drops its oldest transactions; of what the job has to read it drops none."""
        needed = 0 if self.progress is None or self.progress.position is None else self.spooled[0]
        self.source.purged = max(self.source.purged, min(some, needed))

    # What a run does first.

    def begin(self) -> None:
        """Where another server answers, positions are found again."""
        super().begin()
        if self.progress is not None and (self.progress.server_uuid, self.progress.epoch) != self.here:
            self.move()

    def reopen_spool(self) -> None:
        """A spool is of one server."""
        if self.progress is not None and (self.progress.server_uuid, self.progress.epoch) == self.here:
            super().reopen_spool()

    @property
    def here(self) -> tuple[str, int]:
        """The server, and its epoch as the job counts."""
        epoch = epoch_of(self.source.uuid, [(self.state.server_uuid, self.state.epoch)])
        # the job was not there at each change of server; the world numbers places by servers
        return self.source.uuid, max(epoch, self.source.epoch)

    def move(self) -> None:
        """The commit's position is found again; a quiet table's, if what was stated is not of this history."""
        for with_stated in (True, False):
            if not with_stated:
                self.stated = None
                shown = self.lake.marked
                self.progress = progress_form.from_json(json.loads(shown[1]))
            progress = self.state
            if self.is_unmerged(progress):
                if self.carry(progress):
                    return
                break
            assert progress.position is not None
            try:
                found = self.found(progress.position)
            except SourceDiverged:
                if self.stated is None or not with_stated:
                    self.is_needless(progress)
                    break
                continue
            except LakeIngestError:
                break
            self.goes_on(progress, found)
            return
        self.copy_again()

    def is_unmerged(self, progress: Progress) -> bool:
        """Whether chunks were read and not merged, or all of it was lifted to no common stop."""
        return progress.splits.stop is None

    def carry(self, progress: Progress) -> bool:
        """Go on with the last commit whose chunks saw nothing that this server lacks; whether there is one."""
        server = next(one for one in self.servers if one.uuid == progress.server_uuid)
        first, end = server.places.index(progress.covered_from), self.spooled[1]
        try:
            opened, reached = (self.here_of(server, count) for count in (first, end))
        except LakeIngestError:
            return False
        for rows, doc in reversed(self.commits):
            before = progress_form.from_json(json.loads(doc))
            if self.is_proven(before, server.places[end]):
                self.carries += 1
                self.spool = (self.source.ends.index(opened.at),) * 2
                self.store(rows, self.carried(before, opened, reached))
                return True
        return False

    def here_of(self, server: Server, count: int) -> Position:
        """The position after so many transactions of another server, as this one has it."""
        saved = self.position(count, server)
        found = self.found(saved)
        return found.position(saved, *self.here, self.history(self.source.ends.index(found.end), self.source))

    def is_proven(self, progress: Progress, place: Place) -> bool:
        """Whether the chunks of a commit saw nothing that this server lacks."""
        return progress.is_proven(place)

    def carried(self, progress: Progress, opened: Position, reached: Position) -> Progress:
        """The progress of a commit on this server."""
        return progress.carried(opened, reached)

    def found(self, position: Position) -> Found:
        """Where the position's transactions end here; and no errant one changes the table."""
        source = self.source
        before, logged = source.gtid_set(source.purged), self.logged()
        known = position.gtids or GtidSet()
        if not before <= known or known <= before:
            raise BinlogGone("purged")
        found = find(position, before, logged)
        if any(one.gtid in found.errant and one.changes for one in source.log):
            raise SourceDiverged("errant")
        return found

    def logged(self) -> list[Logged[Gtid]]:
        """The transactions that the server still has."""
        source = self.source
        ends = source.ends[source.purged + 1 :]
        return [
            Logged(one.gtid, end, one.committed_at)
            for one, end in zip(source.transactions()[source.purged :], ends, strict=True)
        ]

    def goes_on(self, progress: Progress, found: Found) -> None:
        """The copy goes on from there."""
        assert progress.position is not None
        self.moves += 1
        count = self.source.ends.index(found.end)
        position = found.position(progress.position, *self.here, self.history(count, self.source))
        self.spool = count, count
        self.store(self.lake.rows, progress.moved(position))

    def copy_again(self) -> None:
        """Readers keep what they see; the table is copied as at first."""
        self.lake.marked, self.spool, self.stated = ((), ""), None, None
        self.lake.compacted = False
        self.lake.rows, self.lake.doc = self.lake.marked
        self.progress, self.reads, self.plan, self.commits = None, [], None, []

    def is_needless(self, progress: Progress) -> None:
        """Count a table that is copied again although the server has the history that it was copied from."""
        self.diverged += 1
        position = progress.position
        assert position is not None
        server = next(one for one in self.servers if one.uuid == progress.server_uuid)
        had = server.transactions()[: server.ends.index(position.at)]
        ours = self.source.transactions()
        if [(one.gtid, one.committed_at) for one in had] == [(one.gtid, one.committed_at) for one in ours[: len(had)]]:
            self.needless += bool(had)

    # As in any world, with the server's names.

    def open_spool(self) -> None:
        """The spool opens before the first low watermark."""
        count = self.opening()
        self.spool = count, count
        new = Progress(ORDERS, "f00d", self.source.uuid, self.source.epoch, self.source.places[count])
        self.store(self.lake.rows, new.created())

    def position(self, count: int, server: Server | None = None) -> Position:
        """The position after so many transactions of a server, of the source if none is named."""
        source = server or self.source
        return Position(
            source.uuid, source.epoch, source.ends[count], source.gtid_set(count), self.history(count, source)
        )

    def history(self, count: int, source: Server) -> History | None:
        """The last of so many transactions."""
        if not count:
            return None
        last = source.transactions()[count - 1]
        return History(last=Committed("binlog.000001", 4, str(last.gtid), last.committed_at))
