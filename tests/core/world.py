"""The whole algorithm, executable: a source, a spool and a target of lists, and the real core between them.

A step is a method of `World`; those that can be taken now are its `possible` ones. A wrong table for readers,
or a wrong count of its rows, is an AssertionError.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Low, Place, Position
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.chunks import chunks_between, even_boundaries
from lakeingest.core.waves.collapse import collapse
from lakeingest.core.waves.splits import Split
from lakeingest.core.waves.wave import MergePlan, plan_merge
from tests.core.logged import log_of

ORDERS, SERVER = TableId("shop", "orders"), "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CHUNK_KEYS, WAVE_CHUNKS = 2, 2
SEGMENT_TRANSACTIONS = 3
STEPS_MAX = 500  # in which a job comes to its end
TRANSACTIONS_MAX, CRASHES_MAX, COMPACTIONS_MAX, SET_BACKS_MAX = 25, 3, 3, 1
CALM = (  # the order in which a job ends when nothing else happens
    *("engine_commit", "gtid_add", "open_spool", "forward", "mark", "merge"),
    *("commit_wave", "read", "plan_wave", "plan_merge", "audit", "publish"),
)

Table = dict[int, int]
Row = tuple[int, int]
Statement = tuple[int, int | None]  # a key, and the key that its row has afterwards; None deletes


@dataclass(frozen=True)
class Transaction:
    """One entry of the binlog."""

    gtid: Gtid
    place: Place
    keys: frozenset[int]
    changes: tuple[ChangeRow, ...]


class Source:
    """A server: its transactions are written, then visible, then executed, in one order."""

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.gtids, self.log, self.tables = gtids, list[Transaction](), [rows]
        self.tells_ends = True  # whether a transaction stands where it ends, else where it begins
        self.file = FilePosition("binlog.999998", 4)
        self.ends, self.places = (
            [self.file],
            [self.file.place(0)],
        )  # of the first 0, 1, 2 ... of them
        self.visible = self.executed = 0

    @property
    def written(self) -> int:
        """The number of transactions in the binlog."""
        return len(self.log)

    def gtid_set(self, count: int) -> GtidSet:
        """The first `count` transactions."""
        return GtidSet.of({(SERVER, ""): [(1, count)]} if count else {})

    def flush(self, statements: list[Statement], *, rotate: bool) -> None:
        """Write a transaction, unless a row lock holds it up; a rotation waits for earlier commits."""
        keys = frozenset(key for statement in statements for key in statement if key is not None)
        if any(keys & waiting.keys for waiting in self.log[self.visible :]):
            return
        number = self.written + 1
        if rotate and self.visible == self.written:
            self.file = FilePosition(f"binlog.{self.file.number + 1:06d}", 4)
        end, table = FilePosition(self.file.file, 100 * number), dict(self.tables[-1])
        begin = max(self.file.place(0), self.places[-1])
        place = end.place(0) if self.tells_ends else replace(begin, pos=begin.pos + 1)
        changes = execute(table, statements, place, value=number)
        self.log.append(Transaction(Gtid(SERVER, number), place, keys, tuple(changes)))
        self.ends.append(end)
        self.places.append(end.place(0))
        self.tables.append(table)


def execute(table: Table, statements: list[Statement], place: Place, value: int) -> list[ChangeRow]:
    """Execute a transaction on `table`; answer the change rows that the binlog gets of it."""
    halves = [half for statement in statements for half in changed(table, *statement, value)]
    return [
        ChangeRow(kind, (key,), place, ordinal, {} if kind.is_delete else {"value": value})
        for ordinal, (kind, key) in enumerate(halves)
    ]


def changed(table: Table, key: int, afterwards: int | None, value: int) -> list[tuple[RowKind, int]]:
    """One statement: an insert where the key is free, else an update, a move of the key, or a delete."""
    if key not in table:
        table[key] = value
        return [(RowKind.INSERT, key)]
    del table[key]
    if afterwards is None:
        return [(RowKind.DELETE, key)]
    moved = key if afterwards in table else afterwards
    table[moved] = value
    return [(RowKind.UPDATE_BEFORE, key), (RowKind.UPDATE_AFTER, moved)]


@dataclass
class Lake:
    """The target: the tip of staging, the newest commit that carries our progress, and main."""

    rows: tuple[Row, ...] = ()  # a multiset: an append can duplicate
    doc: str | None = ""  # None: a commit without our properties
    marked: tuple[tuple[Row, ...], str] = ((), "")
    main: tuple[tuple[Row, ...], str] | None = None  # what readers see, and the progress that it was published with
    earlier: tuple[tuple[Row, ...], str] | None = None  # what they saw before that
    version: int = 0  # of main
    compacted: bool = False  # main was rewritten by someone else, so that staging does not descend from it any more

    def commit(self, rows: tuple[Row, ...], progress: Progress) -> None:
        """A marked commit."""
        self.rows, self.doc = rows, json.dumps(progress_form.to_json(progress))
        self.marked = self.rows, self.doc


@dataclass
class Read:
    """A chunk while it is read."""

    keys: KeyRange
    low: Low | None = None
    rows: tuple[Row, ...] | None = None
    high: Place | None = None


class World:
    """Source, spool, target, and the one job between them, of which a crash loses `reads` and `plan`."""

    READING = ("low", "rows", "high")  # what a chunk gets, in this order
    CALM: tuple[str, ...] = CALM

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.source, self.lake = Source(rows, gtids=gtids), Lake()
        self.spool: tuple[int, int] | None = None  # the transactions after the first, through the second
        self.crashes = self.publishes = self.compactions = self.set_backs = self.quiets = 0
        self.stated: tuple[int, Position] | None = None  # a version is the table as of a position; no crash loses it
        self.begin()

    def begin(self) -> None:
        """What a run does first: a tip without our properties is reset, and all else is read from the tip.

        Where main was compacted, staging is branched from it again, with the progress that main has.
        """
        if self.lake.compacted:
            assert self.lake.main is not None
            self.lake.marked, self.lake.compacted = self.lake.main, False
        self.lake.rows, self.lake.doc = self.lake.marked
        self.progress = progress_form.from_json(json.loads(self.lake.doc)) if self.lake.doc else None
        if self.lake.marked == self.lake.main:
            self.progress = self.visible
        self.reopen_spool()
        self.reads, self.merged = list[Read](), (0, 0)
        self.plan: MergePlan | None = None

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        source, marked, merging = self.source, self.lake.doc is not None, self.plan is not None
        steps = {
            "transaction": source.written < TRANSACTIONS_MAX,
            "engine_commit": source.visible < source.written,
            "gtid_add": source.executed < source.visible,
            "open_spool": self.progress is None,
            "crash": self.crashes < CRASHES_MAX,
            "compact": self.lake.main is not None and self.compactions < COMPACTIONS_MAX,
            "set_back": self.lake.earlier is not None and self.set_backs < SET_BACKS_MAX,
        }
        if self.progress and self.spool:
            splits, phase = self.progress.splits, self.progress.phase
            read = [reading for reading in self.reads if reading.high]
            steps |= {
                "forward": self.spool[1] < source.executed,
                "plan_wave": not self.reads and not splits.complete,
                "read": len(read) < len(self.reads),
                "commit_wave": marked and bool(read) and len(read) == len(self.reads),
                "plan_merge": marked and not merging and bool(self.stops()),
                "merge": marked and merging,
                "mark": not marked,
                "audit": marked and phase is Phase.LEVEL,
                "publish": marked and phase is Phase.AUDITED,
                "forget": marked and phase is Phase.PUBLISHED,
                "quiet": not merging and phase is Phase.PUBLISHED and self.is_shown() and self.is_quiet(),
            }
        return [step for step, now in steps.items() if now]

    # The source.

    def transaction(self, statements: list[Statement], rotate: int) -> None:
        """A client commits: the transaction is in the binlog, nobody sees its rows."""
        self.source.flush(statements, rotate=rotate == 0)

    def engine_commit(self) -> None:
        """The next transaction's rows become visible."""
        self.source.visible += 1

    def gtid_add(self) -> None:
        """The next transaction is in `gtid_executed`."""
        self.source.executed += 1

    # The spool.

    def opening(self) -> int:
        """The transactions that the spool does not reach back to."""
        return self.source.executed

    def open_spool(self) -> None:
        """The spool opens, before the first low watermark; without GTIDs at the start of the current file."""
        source, count = self.source, self.opening()
        covered_from = source.places[count]
        if not source.gtids:
            covered_from = source.file.place(0)
            count = sum(transaction.place <= covered_from for transaction in source.log)
        self.spool = count, count
        self.store(self.lake.rows, Progress(ORDERS, "f00d", SERVER, 0, covered_from).created())

    def forward(self, some: int) -> None:
        """The spool takes up to some more transactions, none that is not executed."""
        begin, end = self.spooled
        self.spool = begin, min(end + 1 + some, self.source.executed)

    def reopen_spool(self) -> None:
        """Readers may see an older version than a position was stated of: the binlog is read again from there on."""
        if self.progress and self.spool and self.progress.splits.stop and (self.stated or self.set_backs):
            (begin, end), needed = self.spool, self.progress.needed_from
            self.spool = min(begin, sum(transaction.place <= needed for transaction in self.source.log)), end

    def forget(self) -> None:
        """The spool drops what is merged; what readers see is all there is, so nobody needs it again."""
        begin, end = self.spooled
        self.spool = max(begin, self.source.places.index(self.place)), end

    # Waves.

    def plan_wave(self) -> None:
        """The next chunks, up to the maximum of now."""
        table, lower = self.source.tables[self.source.visible], self.state.splits.copied_up_to
        start = min(table, default=0) if lower is None else int(lower[0])
        boundaries, last = even_boundaries(start, CHUNK_KEYS, max(table, default=0), WAVE_CHUNKS)
        self.reads = [Read(chunk.range) for chunk in chunks_between(ORDERS, lower, boundaries, last=last)]

    def low(self) -> Low:
        """The low watermark: what is executed; without GTIDs, where the current file begins."""
        source = self.source
        return source.gtid_set(source.executed) if source.gtids else source.file.place(0)

    def high(self) -> Place:
        """The high watermark: what is written."""
        return self.source.places[-1]

    def read(self, some: int) -> None:
        """The next step of one of the chunks."""
        reading = [read for read in self.reads if not read.high]
        read = reading[some % len(reading)]
        match next(step for step in self.READING if getattr(read, step) is None):
            case "low":
                read.low = self.low()
            case "rows":
                read.rows = tuple(row for row in self.seen(read, some).items() if self.wants(row, read))
            case _:
                read.high = self.high()

    def seen(self, read: Read, some: int) -> Table:  # noqa: ARG002 - a replica shows one of several tables
        """The table as a chunk's view shows it."""
        return self.source.tables[self.source.visible]

    def wants(self, row: Row, read: Read) -> bool:
        """Whether a chunk has this row of its view."""
        return self.is_in(row[0], read.keys)

    def is_in(self, key: int, keys: KeyRange) -> bool:
        """Whether the server finds the key in this range."""
        return (key,) in keys

    def commit_wave(self) -> None:
        """Rows and watermarks of the chunks, in one commit."""
        splits = tuple(Split(read.keys, read.low, read.high) for read in self.reads)
        rows = [row for read in self.reads for row in read.rows or ()]
        self.reads = []
        self.store((*self.lake.rows, *rows), self.state.wave_committed(splits, len(rows)))

    # Merges.

    def stops(self) -> list[int]:
        """The stops that a merge may have, the latest first."""
        (begin, end), highs = self.spooled, [patch.high for patch in self.state.patches]
        floor = max([*(split.floor for split in self.state.splits.all), *highs], default=None)
        counts = range(end, begin - 1, -1)
        return [count for count in counts if floor and floor <= self.source.places[count] != self.state.stop]

    def plan_merge(self, some: int) -> None:
        """Freeze the splits and choose a stop."""
        stops, (begin, _) = self.stops(), self.spooled
        stop = stops[some % len(stops)]
        known = [(transaction.gtid, transaction.place) for transaction in self.source.log[begin:stop]]
        before = GtidSet.of_gtids(transaction.gtid for transaction in self.source.log[:begin])
        cuts = range(SEGMENT_TRANSACTIONS, len(known), SEGMENT_TRANSACTIONS)
        log = log_of(known, before if self.source.gtids else GtidSet(), cuts)
        covered_from = max(self.state.covered_from, self.source.places[begin])
        self.plan = plan_merge(self.state.splits, self.source.places[stop], log, covered_from, self.state.patches)

    def start(self, plan: MergePlan) -> Place:
        """Where the merge begins to read the spool."""
        return plan.start

    def judged(self, changes: list[ChangeRow], index: int) -> Key:
        """The key that decides whether a change row is applied."""
        return changes[index].key

    def merge(self) -> None:
        """MERGE INTO staging: a commit that cannot carry our properties."""
        plan, (begin, end) = self.planned, self.spooled
        changes = [change for transaction in self.source.log[begin:end] for change in transaction.changes]
        applied = [
            change
            for index, change in enumerate(changes)
            if self.start(plan) < change.place and plan.should_apply(change.place, self.judged(changes, index))
        ]
        applied += self.reread(plan)
        rows, before = Counter(self.lake.rows), Counter(key for key, _ in self.lake.rows)
        last = {int(key): change for (key,), change in collapse(applied).items()}
        kept = [row for row in rows.elements() if row[0] not in last]
        upserts = [change for change in last.items() if not change[1].kind.is_delete]
        kept += [(key, change.values["value"]) for key, change in upserts for _ in range(max(1, before[key]))]
        self.lake.rows, self.lake.doc = tuple(kept), None
        self.merged = (
            sum(not before[key] for key, _ in upserts),
            sum(before[key] for key, change in last.items() if change.kind.is_delete),
        )

    def reread(self, plan: MergePlan) -> list[ChangeRow]:  # noqa: ARG002 - only worlds with re-snapshots have patches
        """The rows that were read again and wait for this merge."""
        return []

    def lifted(self, plan: MergePlan) -> MergePlan:
        """The plan whose splits the merge lifts."""
        return plan

    def mark(self) -> None:
        """The empty commit that says what the merge was."""
        plan, source = self.planned, self.source
        position = self.position(source.places.index(plan.stop))
        self.plan = None
        self.store(self.lake.rows, self.state.merged(self.lifted(plan), position, *self.merged))

    def position(self, count: int) -> Position:
        """The position after so many transactions."""
        gtids = self.source.gtid_set(count) if self.source.gtids else None
        return Position(SERVER, 0, self.source.ends[count], gtids)

    # A quiet table.

    def is_shown(self) -> bool:
        """Whether readers see what is staged."""
        return self.lake.main == self.lake.marked and not self.lake.compacted

    def is_quiet(self) -> bool:
        """Whether the spool has transactions after the table's position, and none of them changes the table."""
        after = self.source.log[self.source.places.index(self.place) : self.spooled[1]]
        return bool(after) and not any(transaction.changes for transaction in after)

    @property
    def visible(self) -> Progress:
        """The progress that readers see."""
        assert self.lake.main is not None
        shown = progress_form.from_json(json.loads(self.lake.main[1]))
        return shown.unchanged(self.stated[1]) if self.stated and self.is_of_main(self.stated[0]) else shown

    def quiet_to(self) -> int:
        """Up to how many transactions a quiet table is known."""
        return self.spooled[1]

    def quiet(self) -> None:
        """The table has no changes up to the end of the spool: its position advances without a commit."""
        self.quiets += 1
        self.stated = self.lake.version, self.position(self.quiet_to())
        self.progress = self.state.unchanged(self.stated[1])
        self.compare(self.source.tables[self.quiet_to()])

    def is_of_main(self, version: int) -> bool:
        """Whether what was stated of a version is about what readers see."""
        return version == self.lake.version

    # Readers.

    def audit(self) -> None:
        """The gates pass."""
        self.store(self.lake.rows, self.state.audited(len(self.lake.rows) if self.state.uncounted else None))

    def publish(self) -> None:
        """Main moves to the audited rows, and they are the source's table at its position; not over a compaction."""
        if self.lake.compacted:
            self.begin()
            return
        progress, place = self.state, self.place
        before = None if self.lake.main is None else progress_form.from_json(json.loads(self.lake.main[1])).splits.stop
        assert before is None or before <= place, "the position went down"
        self.compare(self.source.tables[self.source.places.index(place)])
        self.publishes += 1
        self.store(self.lake.rows, progress.published())
        self.lake.earlier, self.lake.main = self.lake.main, self.lake.marked
        self.lake.version = self.publishes

    def compare(self, expected: Table) -> None:
        """What readers are about to see is the source's table."""
        assert Counter(self.lake.rows) == Counter(expected.items()), f"not the table at {self.place}"

    def compact(self) -> None:
        """Someone rewrites the files that readers see."""
        self.lake.compacted = True
        self.compactions += 1
        self.lake.version = -self.compactions

    def set_back(self) -> None:
        """Someone rolls the table back to what readers saw before, and removes staging."""
        self.lake.main, self.lake.earlier = self.lake.earlier, None
        self.lake.version, self.lake.compacted = 0, True
        self.set_backs += 1

    # The job.

    def crash(self) -> None:
        """The job is killed, and another begins."""
        self.crashes += 1
        self.begin()

    def store(self, rows: tuple[Row, ...], progress: Progress) -> None:
        """A marked commit; its count of rows must be true."""
        assert progress.uncounted or progress.rows == len(rows), (
            f"{progress.rows} rows by the books, {len(rows)} on staging"
        )
        self.progress = progress
        self.lake.commit(rows, progress)

    @property
    def state(self) -> Progress:
        """The progress, which exists once the spool is open."""
        assert self.progress is not None
        return self.progress

    @property
    def place(self) -> Place:
        """Where the table stands, after a merge."""
        assert self.state.position is not None
        return self.state.position.place

    @property
    def spooled(self) -> tuple[int, int]:
        """The spool, which is open."""
        assert self.spool is not None
        return self.spool

    @property
    def planned(self) -> MergePlan:
        """The plan of the running merge."""
        assert self.plan is not None
        return self.plan

    def finish(self) -> None:
        """The source goes quiet and the next job runs to its end: readers then see the whole table."""
        self.begin()
        taken = 0
        while steps := [step for step in self.CALM if step in self.possible()]:
            taken += 1
            assert taken < STEPS_MAX, "not the table that the job would come to an end of"
            getattr(self, steps[0])(*([0] if steps[0] in {"forward", "read", "plan_merge"} else []))
        assert self.lake.main is not None, "nothing was published"
        assert self.place == self.source.places[-1], "stuck before the end"


class Collated(World):
    """A table whose keys only the server can put in order; what is cut are literals, which it alone compares."""

    ORDER = (3, 0, 6, 1, 7, 4, 2, 5)  # of the keys, the server's

    def plan_wave(self) -> None:
        """The next chunks, at boundaries that the server is asked for."""
        lower = self.state.splits.copied_up_to
        table = self.source.tables[self.source.visible]
        left = [key for key in self.ORDER if key in table and self.is_in(key, KeyRange(lower))]
        cuts: list[Key] = [(f"'{key}'",) for key in left[CHUNK_KEYS::CHUNK_KEYS]]
        chunks = chunks_between(ORDERS, lower, cuts[:WAVE_CHUNKS], last=len(cuts) < WAVE_CHUNKS)
        self.reads = [Read(chunk.range) for chunk in chunks]

    def is_in(self, key: int, keys: KeyRange) -> bool:
        """By the server's order."""
        lower, upper = (None if end is None else self.rank(end[0]) for end in (keys.lower, keys.upper))
        rank = self.ORDER.index(key)
        return (lower is None or lower <= rank) and (upper is None or rank < upper)

    def rank(self, literal: int | str) -> int:
        """Where the server has a literal."""
        return self.ORDER.index(int(str(literal).strip("'")))

    def stops(self) -> list[int]:
        """None before the last chunk is read: who knows of which keys changes would be."""
        return super().stops() if self.state.splits.complete else []


class TellsItsPlace(World):
    """MariaDB: a view tells its place in the binlog, which is both watermarks; a transaction stands where it begins."""

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        super().__init__(rows, gtids=False)
        self.source.tells_ends = not gtids  # there are no GTIDs to choose

    def engine_commit(self) -> None:
        """What is visible is as good as executed: a stop is a view's place."""
        super().engine_commit()
        super().gtid_add()

    def open_spool(self) -> None:
        """At the place of a view, before the first chunk's."""
        count = self.source.visible
        self.spool = count, count
        covered_from = self.source.places[count]
        self.store(self.lake.rows, Progress(ORDERS, "f00d", SERVER, 0, covered_from).created())

    def view(self) -> Place:
        """The place of a view that is opened now."""
        return self.source.places[self.source.visible]

    def read(self, some: int) -> None:
        """All of one of the chunks, in its view."""
        reading = [read for read in self.reads if not read.high]
        read, table = reading[some % len(reading)], self.source.tables[self.source.visible]
        read.low = read.high = self.view()
        read.rows = tuple(row for row in table.items() if self.wants(row, read))


class FromReplica(World):
    """Rows come from a replica, which applies what the source has written, sooner or later and in an order of its own.

    So the view shows each key as of another moment. The chunk has waited until none is before its low.
    """

    def __init__(self, rows: Table, *, gtids: bool) -> None:  # noqa: ARG002 - there is no replica without them
        super().__init__(rows, gtids=True)

    def waited_for(self, read: Read) -> int:
        """How many transactions the replica shows at least."""
        return read.low.count if isinstance(read.low, GtidSet) else 0

    def seen(self, read: Read, some: int) -> Table:
        """No transaction less than was waited for, and none that is not written yet."""
        least, tables = self.waited_for(read), self.source.tables
        moments = {key: tables[least + (some + key) % (len(tables) - least)] for table in tables for key in table}
        return {key: table[key] for key, table in moments.items() if key in table}
