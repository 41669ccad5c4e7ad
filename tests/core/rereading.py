"""The world of `tests.core.world` with re-snapshots: signals, damage to the target, copies that are started over.

A copy whose changes the server has purged may go on over that gap, too, also one that is not complete: all its rows are
read again.

Damage is what a re-snapshot is asked for: rows of the target that are not the source's. Until readers see a re-snapshot
that covers it, it is not looked at; at the end all of it must be gone.
"""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.copies.needed import needed_by
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import Action, Agenda, Event, Request, Signal, State, agenda
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.chunks import chunks_between
from lakeingest.core.waves.rereads import Patch
from lakeingest.core.waves.scope import Scope
from lakeingest.core.waves.wave import MergePlan
from tests.core.world import (
    CHUNK_KEYS,
    ORDERS,
    SERVER,
    WAVE_CHUNKS,
    Collated,
    Read,
    Row,
    Table,
    TellsItsPlace,
    World,
)

KEYS = range(8)
ASKED_MAX, RESTARTS_MAX = 4, 1
SCOPES = ("whole", "range", "keys", "where")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Rereading(World):
    """What is read again enters the next merge as a patch; of a range there is one for each chunk."""

    CALM = (
        *("engine_commit", "gtid_add", "open_spool", "forward", "mark", "merge", "commit_wave", "commit_reread"),
        *("read", "plan_wave", "plan_reread", "plan_merge", "audit", "publish"),
    )
    IN_CHUNKS = True  # whether it is known here which keys a chunk of a range has

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.signals: dict[int, Signal] = {}
        self.damaged: dict[int, frozenset[int]] = {}  # keys, by the signal that asks to read them again
        self.files: dict[str, list[ChangeRow]] = {}  # of the patches
        self.restarts = 0
        super().__init__(rows, gtids=gtids)

    def begin(self) -> None:
        """A run knows no read of the one before it."""
        super().begin()
        self.request: Request | None = None
        self.since: Place | None = None
        self.listed: frozenset[int] = frozenset()
        if self.progress and self.spool and self.progress.needed_from < self.source.places[self.spool[0]]:
            self.start_over(0)  # what readers see is older than the spool, since a copy was started over

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        steps = [step for step in super().possible() if step not in {"commit_wave", "forget", "set_back"}]
        if "audit" in steps and self.has_gap:
            steps.remove("audit")
        if not (self.progress and self.spool and self.lake.doc is not None):
            return steps
        read = bool(self.reads) and all(read.high for read in self.reads)
        shown_is_staged = self.lake.main == self.lake.marked and self.state.phase is Phase.PUBLISHED
        more = {
            "commit_wave": read and self.request is None,
            "commit_reread": read and self.request is not None,
            "forget": self.lake.main is not None and self.plan is None,
            "ask": len(self.signals) < ASKED_MAX,
            "damage": len(self.signals) < ASKED_MAX and shown_is_staged and not self.lake.compacted,
            "plan_reread": not self.reads and ORDERS in self.agenda().next,
            "restart": self.restarts < RESTARTS_MAX and not self.plan,
        }
        return steps + [step for step, now in more.items() if now]

    @property
    def has_gap(self) -> bool:
        """Whether nobody may look at what is staged yet."""
        return self.state.gap

    # Signals.

    def agenda(self) -> Agenda:
        """What is to be done about the signals."""
        visible = {} if self.lake.main is None else {ORDERS: self.visible}
        return agenda(self.signals.values(), [ORDERS], {ORDERS: self.state}, visible)

    def open(self) -> bool:
        """Whether a signal is not done."""
        return any(signal.state is not State.DONE for signal in self.signals.values())

    def ask(self, kind: int, at: int) -> None:
        """Someone asks for a re-snapshot."""
        number = len(self.signals) + 1
        self.signals[number] = Signal(number, Action.RESNAPSHOT, "me", NOON, (ORDERS,), self.scope(kind, at))

    def scope(self, kind: int, at: int) -> Scope:
        """One of each kind; the range and the keys are around `at`."""
        match SCOPES[kind]:
            case "whole":
                return Scope(range=KeyRange())
            case "range":
                return Scope(range=KeyRange(self.bound(at), self.bound(at + 4)))
            case "keys":
                return Scope(keys=(self.literal(at), self.literal((at + 3) % len(KEYS))))
            case _:
                return Scope(where="value % 2")

    def literal(self, key: int) -> Key:
        """The key as it stands in a signal."""
        return (key,)

    def bound(self, at: int) -> Key | None:
        """The bound of a range before the key that stands there in the server's order."""
        return (at,) if 0 < at < len(KEYS) else None

    def damage(self, kind: int, at: int, how: int) -> None:
        """A row of the target is lost, changed, or there without reason; someone asks to read it again."""
        (rows, doc), scope = self.lake.marked, self.scope(kind % 3, at)
        hit = [key for key in KEYS if self.has(scope, (key, 0))][-1]
        damaged = [row for row in rows if row[0] != hit] + [[], [(hit, -1)], [(hit, -2)]][how % 3]
        self.lake.rows, self.lake.marked = tuple(damaged), (tuple(damaged), doc)
        self.lake.main = self.lake.marked
        self.ask(kind % 3, at)
        self.damaged[len(self.signals)] = frozenset([hit])

    def has(self, scope: Scope, row: Row) -> bool:
        """Whether the row is in the scope, as the server judges it."""
        if scope.range is not None:
            return self.is_in(row[0], scope.range)
        return row[1] % 2 == 1 if scope.keys is None else self.literal(row[0]) in scope.keys

    # Reads.

    def plan_reread(self) -> None:
        """The next wave of the re-snapshot whose turn it is, or a patch of all that is asked for."""
        self.request, self.since = self.agenda().next[ORDERS], self.reach()
        for first in self.request.signals[:1]:
            self.signals[first] = self.signals[first].after(Event.BEGIN)
        scope, self.copy = self.request.scope, Counter(self.lake.rows)
        self.listed = frozenset(row[0] for row in self.lake.rows if self.has(scope, row)) | self.named(scope)
        if self.in_chunks:
            self.plan_range(self.request)
        else:
            self.reads = [Read(scope.range or KeyRange())]

    @property
    def in_chunks(self) -> bool:
        """Whether the running re-snapshot reads a range chunk by chunk."""
        return self.IN_CHUNKS and self.request is not None and self.request.scope.range is not None

    def named(self, scope: Scope) -> set[int]:
        """The keys that the scope lists."""
        return {key for key in KEYS if scope.keys is not None and self.literal(key) in scope.keys}

    def plan_range(self, request: Request) -> None:
        """The next chunks of the range, which the last one ends."""
        keys = request.scope.range or KeyRange()
        lower = keys.lower if request.up_to is None else request.up_to
        start = 0 if lower is None else int(lower[0])
        cuts = [(start + CHUNK_KEYS * i,) for i in range(1, WAVE_CHUNKS + 1)]
        within = [cut for cut in cuts if cut < (keys.upper or (len(KEYS),))]
        chunks = chunks_between(ORDERS, lower, within, last=False)
        if len(within) < WAVE_CHUNKS:
            chunks += chunks_between(ORDERS, within[-1] if within else lower, [], last=True)
            chunks[-1] = replace(chunks[-1], range=KeyRange(chunks[-1].range.lower, keys.upper))
        self.reads = [Read(chunk.range) for chunk in chunks]

    def plan_wave(self) -> None:
        """Chunks of a copy that has not come to its end."""
        super().plan_wave()
        self.since = self.reach()

    def reach(self) -> Place:
        """A place that every later low contains; without GTIDs not where the spool ends, but where a file begins."""
        end = max(self.source.places[self.spooled[1]], self.state.covered_from)  # it may have no transaction yet
        return end if self.source.gtids or isinstance(self, TellsItsPlace) else min(end, self.source.file.place(0))

    def wants(self, row: Row, read: Read) -> bool:
        """Rows of a patch are those of the scope, and of the keys that the target has in it."""
        if self.request is None or self.in_chunks:
            return super().wants(row, read)
        return row[0] in self.listed or self.has(self.request.scope, row)

    # Commits.

    def commit_wave(self) -> None:
        """What is read from now on has later lows."""
        super().commit_wave()
        self.since = None

    def commit_reread(self) -> None:
        """Rows that were read again are on staging; a merge that was planned before is void."""
        request, since = self.request, self.since
        assert request is not None
        assert since is not None
        self.plan = None
        patches = [patch for read in self.reads if (patch := self.patch(request.scope, read))]
        progress = self.state.reread_rows(
            patches,
            since,
            signals=request.signals,
            up_to=self.reads[-1].keys.upper,
            last=self.is_last(request),
            done=self.done(),
        )
        self.store(self.lake.rows, progress)
        self.reads, self.request, self.since = [], None, None

    def is_last(self, request: Request) -> bool:
        """Whether all that was asked for is read."""
        return not self.in_chunks or self.reads[-1].keys.upper == (request.scope.range or KeyRange()).upper

    def done(self) -> tuple[int, ...]:
        """The signals that are known to be done."""
        return tuple(number for number, signal in self.signals.items() if signal.state is State.DONE)

    def patch(self, scope: Scope, read: Read) -> Patch | None:
        """What a view had, and what it lacked, for the next merge; None for a range that has neither."""
        assert read.low is not None
        assert read.high is not None
        patch = Patch(f"patch-{len(self.files)}", self.within(scope, read), read.low, read.high)
        insert = [
            ChangeRow(RowKind.INSERT, (key,), patch.high, 0, {"value": value})
            for key, value in read.rows or ()
            if not self.leaves_out(scope, (key, value))
        ]
        lacking = sorted(self.wanted(read) - {key for key, _ in read.rows or ()})
        self.files[patch.name] = insert + [ChangeRow(RowKind.DELETE, (key,), patch.high, 0) for key in lacking]
        return patch if self.files[patch.name] or scope.range is None else None

    def wanted(self, read: Read) -> frozenset[int]:
        """The keys that a view is asked for, and that are deleted where it has no row of them."""
        return frozenset(key for key in self.listed if not self.in_chunks or self.is_in(key, read.keys))

    def leaves_out(self, scope: Scope, row: Row) -> bool:  # noqa: ARG002 - every row is written
        """Whether a row that was read again is not written to a patch."""
        return False

    def within(self, scope: Scope, read: Read) -> KeyRange:
        """A range with all keys that are wanted."""
        return read.keys if scope.keys is None else KeyRange(scope.keys[0], (int(scope.keys[-1][0]) + 1,))

    def reread(self, plan: MergePlan) -> list[ChangeRow]:
        """The rows of the patches, in their place."""
        return plan.patched(self.files)

    def restart(self, keep: int) -> None:
        """The server has purged what the spool lacks: the copy is started over, and readers keep what they see."""
        self.restarts += 1
        self.start_over(keep)

    def start_over(self, keep: int) -> None:
        """The spool begins again where the server is, and so does the copy, or it goes on over the gap."""
        self.spool = self.source.executed, self.source.executed
        if not self.source.gtids and not isinstance(self, TellsItsPlace):
            begin = sum(transaction.place <= self.source.file.place(0) for transaction in self.source.log)
            self.spool = min(begin, self.source.executed), self.source.executed
        covered_from = self.source.places[self.spool[0]]
        new = Progress(ORDERS, "f00d", SERVER, 0, covered_from)
        waiting = self.agenda().waiting.get(ORDERS, ())
        self.reads, self.request, self.since = [], None, None
        if keep > 1 and self.state.splits.all and not self.state.patches:
            self.store(self.lake.rows, self.over_gap(covered_from, waiting))
        else:
            self.begin_copy_again(new, waiting)

    def over_gap(self, covered_from: Place, waiting: tuple[int, ...]) -> Progress:
        """The progress of a copy that stands where the spool ends, whatever its rows are."""
        end = self.spooled[1]
        gtids = self.source.gtid_set(end) if self.source.gtids else None
        position = Position(SERVER, 0, self.source.ends[end], gtids)
        return self.state.over_gap(position, "f00d", covered_from, signals=waiting)

    def begin_copy_again(self, new: Progress, waiting: tuple[int, ...]) -> None:
        """A copy that is started over has no row at first."""
        self.store((), self.state.started_over(new, signals=waiting))

    def store(self, rows: tuple[Row, ...], progress: Progress) -> None:
        """What is damaged was not counted."""
        if not self.damaged:
            super().store(rows, progress)
            return
        self.progress = progress
        self.lake.commit(rows, progress)

    # Readers.

    def forget(self) -> None:
        """The spool drops what neither staging, nor readers, nor a running read needs."""
        begin, end = self.spooled
        place = self.needed()
        self.spool = max(begin, sum(transaction.place <= place for transaction in self.source.log[:end])), end

    def needed(self) -> Place:
        """Up to where the spool may forget; a later low is no earlier than what `reach` says now."""
        return needed_by(self.state, self.visible, [self.reach(), *([] if self.since is None else [self.since])])

    def compare(self, expected: Table) -> None:
        """But for the damage whose re-snapshot readers do not see yet."""
        hidden = {key for number, keys in self.damaged.items() if number not in self.answered() for key in keys}
        got = Counter(row for row in self.lake.rows if row[0] not in hidden)
        want = Counter(row for row in expected.items() if row[0] not in hidden)
        assert got == want, f"not the table at {self.place}"

    def answered(self) -> set[int]:
        """The signals that are answered once this is published."""
        return {*self.state.answered, *self.done()}

    def publish(self) -> None:
        """The signals whose rows readers see are done."""
        super().publish()
        self.finish_signals()

    def finish_signals(self) -> None:
        """Their documents say that they are done."""
        for number in self.agenda().finished:
            self.signals[number] = self.signals[number].after(Event.FINISH)
            self.damaged.pop(number, None)

    def finish(self) -> None:
        """Every signal is done in the end, and nothing is damaged."""
        super().finish()
        assert not self.open(), "a signal is open"
        assert not self.damaged
        assert self.lake.main is not None
        assert Counter(self.lake.main[0]) == Counter(self.source.tables[-1].items()), f"not the table at {self.place}"


class Comparing(Rereading):
    """Rows of a range are compared with the copy, as it is when they are asked for: what is the same needs no patch."""

    def leaves_out(self, scope: Scope, row: Row) -> bool:
        """Those that the copy has."""
        return scope.range is not None and row in self.copy


class RereadingCollated(Rereading, Collated):
    """Only the server knows what is in a range: all of it is read at once, and may be any key's."""

    IN_CHUNKS = False

    def literal(self, key: int) -> Key:
        """As the server compares it."""
        return (f"'{key}'",)

    def bound(self, at: int) -> Key | None:
        """Before the key that stands there in the server's order."""
        return self.literal(self.ORDER[at]) if 0 < at < len(KEYS) else None

    def within(self, scope: Scope, read: Read) -> KeyRange:  # noqa: ARG002 - nobody here can tell
        """All keys."""
        return KeyRange()


class RereadingPlaces(Rereading, TellsItsPlace):
    """MariaDB."""
