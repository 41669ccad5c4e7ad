"""The state machine takes every kind of step in any order and crashes anywhere.

Each mutant is a shortcut that somebody has taken for right; walks that the algorithm survives find it out.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from lakeingest.core.binlog.position import GtidSet, Low, Place
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.splits import Splits
from lakeingest.core.waves.wave import MergePlan
from lakeingest.errors import SpoolGap
from tests.core.world import CALM, Collated, FromReplica, Read, Statement, Table, TellsItsPlace, World
from tests.plugins.profiles import halves, walks

KEYS = range(8)
WALKS = 300
SOUND = (World, Collated, TellsItsPlace, FromReplica)
SOME = st.integers(0, 3)
STATEMENTS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.sampled_from(KEYS)), max_size=3)


def when(step: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """The rule is tried only while the world can take this step."""
    return precondition(lambda machine: step in machine.world.possible())


class Interleavings(RuleBasedStateMachine):
    """The steps of a world as rules: Hypothesis chooses their order."""

    world: World

    @initialize(
        kind=st.sampled_from(SOUND),
        rows=st.dictionaries(st.sampled_from(KEYS), st.just(0)),
        gtids=st.booleans(),
    )
    def start(self, kind: type[World], rows: Table, *, gtids: bool) -> None:
        """A table with some rows, on a server with GTIDs or without."""
        self.world = kind(rows, gtids=gtids)

    @when("transaction")
    @rule(statements=STATEMENTS, rotate=SOME)
    def transaction(self, statements: list[Statement], rotate: int) -> None:
        """A client writes."""
        self.world.transaction(statements, rotate)

    @when("engine_commit")
    @rule()
    def engine_commit(self) -> None:
        """Rows become visible."""
        self.world.engine_commit()

    @when("gtid_add")
    @rule()
    def gtid_add(self) -> None:
        """A GTID becomes executed."""
        self.world.gtid_add()

    @when("open_spool")
    @rule()
    def open_spool(self) -> None:
        """The spool opens."""
        self.world.open_spool()

    @when("forward")
    @rule(some=SOME)
    def forward(self, some: int) -> None:
        """The spool goes on."""
        self.world.forward(some)

    @when("plan_wave")
    @rule()
    def plan_wave(self) -> None:
        """Chunks are planned."""
        self.world.plan_wave()

    @when("read")
    @rule(some=SOME)
    def read(self, some: int) -> None:
        """A chunk gets its low watermark, its view, or its high watermark."""
        self.world.read(some)

    @when("commit_wave")
    @rule()
    def commit_wave(self) -> None:
        """A wave is on staging."""
        self.world.commit_wave()

    @when("plan_merge")
    @rule(some=SOME)
    def plan_merge(self, some: int) -> None:
        """A merge is planned."""
        self.world.plan_merge(some)

    @when("merge")
    @rule()
    def merge(self) -> None:
        """A merge is on staging, unmarked."""
        self.world.merge()

    @when("mark")
    @rule()
    def mark(self) -> None:
        """The merge is marked."""
        self.world.mark()

    @when("audit")
    @rule()
    def audit(self) -> None:
        """The gates pass."""
        self.world.audit()

    @when("publish")
    @rule()
    def publish(self) -> None:
        """Readers see it."""
        self.world.publish()

    @when("forget")
    @rule()
    def forget(self) -> None:
        """The spool drops what nobody needs."""
        self.world.forget()

    @when("compact")
    @rule()
    def compact(self) -> None:
        """Someone rewrites what readers see."""
        self.world.compact()

    @when("set_back")
    @rule()
    def set_back(self) -> None:
        """Someone rolls the table back."""
        self.world.set_back()

    @when("quiet")
    @rule()
    def quiet(self) -> None:
        """The position of a quiet table advances."""
        self.world.quiet()

    @when("crash")
    @rule()
    def crash(self) -> None:
        """The job dies, and its successor resumes."""
        self.world.crash()

    def teardown(self) -> None:
        """Once the source is quiet, the target becomes equal to it."""
        if hasattr(self, "world"):
            self.world.finish()


@pytest.mark.no_cover
@pytest.mark.parametrize("histories", [100, 200])
@pytest.mark.long("twice as many of the same", only=("200",))
def test_every_interleaving_is_survived(histories: int) -> None:
    """Whatever comes between the steps of a copy, readers see a table that the source had."""
    tried = settings(max_examples=walks(histories), stateful_step_count=80)
    run_state_machine_as_test(Interleavings, settings=tried)


class LowIsTheWrittenPosition(World):
    """Flink CDC without GTIDs: a transaction that is written but not yet visible is lost."""

    def low(self) -> Low:
        """The position that the server shows."""
        return self.source.gtid_set(self.source.written)


class HighIsExecuted(World):
    """A view sees transactions that are not executed yet."""

    def high(self) -> Place:
        """What `gtid_executed` says after the view."""
        return self.source.places[self.source.executed]


class MergeFromThePreviousStop(World):
    """Splits of a later wave need changes that earlier merges dropped."""

    def start(self, plan: MergePlan) -> Place:
        """Where the last merge ended."""
        return self.state.position.place if self.state.position else plan.start


class LiftAllSplits(World):
    """A wave that was committed after the plan was not in the merge."""

    def lifted(self, plan: MergePlan) -> MergePlan:
        """Every split that is finished now."""
        return replace(plan, splits=self.state.splits)


class KeepAnUnmarkedMerge(World):
    """The rows are ahead of what the next merge is planned from."""

    def begin(self) -> None:
        """The tip's rows, and the newest progress there is."""
        self.lake.marked = self.lake.rows, self.lake.marked[1]
        super().begin()


class KeyMoveJudgedByTheNewKey(World):
    """The old key's row belongs to another split, whose mark is another."""

    def judged(self, changes: list[ChangeRow], index: int) -> Key:
        """Both halves of an update by the second."""
        update = changes[index].kind is RowKind.UPDATE_BEFORE
        return changes[index + 1].key if update else changes[index].key


class ViewBeforeLow(World):
    """What is executed in between is in low but not in the view."""

    READING = ("rows", "low", "high")


class ForgetWhatIsStaged(World):
    """Staging is branched again from what readers see where someone compacts that, so it needs what they need."""

    def possible(self) -> list[str]:
        """Also before the table is published."""
        forgettable = self.progress and self.progress.splits.stop and self.lake.doc and not self.plan
        return [*super().possible(), *(["forget"] if forgettable else [])]


class QuietByTheTablesName(World):
    """What was stated of a version counts for whatever readers see, also for an older one."""

    def is_of_main(self, version: int) -> bool:  # noqa: ARG002 - that is the mistake
        """Nobody looks at the version."""
        return True


class QuietToTheWrittenPosition(World):
    """The spool does not know what is written after its end."""

    def quiet_to(self) -> int:
        """Up to what the server shows."""
        return self.source.written


class SpoolOpensAtTheWrittenPosition(World):
    """What is written but not executed may be in no low, so a merge would need it."""

    def opening(self) -> int:
        """All that is written counts as past."""
        return self.source.written


class AnotherOrderThanTheServers(World):
    """Flink CDC with a collated key: a change is judged by the split that its key would be in elsewhere."""

    def is_in(self, key: int, keys: KeyRange) -> bool:
        """The server cuts by its own order."""
        rank = Collated.ORDER.index(key)
        return (rank,) in keys


class LowOfTheLastChunk(Collated):
    """The chunks before it lack what came between."""

    def commit_wave(self) -> None:
        """Every chunk of the wave, and those before, with the newest low."""
        newest = max((read.low for read in self.reads), key=self.reach)
        for read in self.reads:
            read.low = newest
        if self.state.splits.all:
            joined = replace(self.state.splits.all[0], low=newest)
            self.progress = replace(self.state, splits=Splits((joined,)))
        super().commit_wave()

    def reach(self, low: Low | None) -> int:
        """How many transactions are in a low."""
        return low.count if isinstance(low, GtidSet) else 0


class TellsTheWrittenPosition(TellsItsPlace):
    """Debezium for MariaDB: the view lacks what is written but not visible."""

    def view(self) -> Place:
        """What the server shows."""
        return self.source.places[-1]


class ReplicaWithoutWait(FromReplica):
    """A replica that lags lacks what is before low."""

    def waited_for(self, read: Read) -> int:  # noqa: ARG002 - that is the mistake
        """Nothing."""
        return 0


class ReplicaReadAfterHigh(FromReplica):
    """The replica applies what is written after high, and the merge may end before that."""

    READING = ("low", "high", "rows")


def walked(kind: type[World], seed: int) -> World:
    """A world after one random walk; each walk prefers other steps, so that none is like another."""
    chance = Random(seed)
    rows, gtids = dict.fromkeys(chance.sample(KEYS, 5), 0), chance.random() < 0.5
    world = kind(rows, gtids=gtids or kind not in SOUND)  # every mutant is wrong with GTIDs
    arguments: dict[str, Callable[[], list[Any]]] = {
        "transaction": lambda: [statements(chance), chance.randrange(4)],
        **dict.fromkeys(["forward", "read", "plan_merge"], lambda: [chance.randrange(4)]),
    }
    weight = {step: chance.choice([1, 4, 16]) for step in [*CALM, "transaction", "forget", "quiet"]}
    weight |= {"crash": 1, "compact": 1, "set_back": 1}
    for _ in range(180):
        if not (possible := world.possible()):
            break
        (step,) = chance.choices(possible, [weight[step] for step in possible])
        getattr(world, step)(*arguments.get(step, list)())
    world.finish()
    return world


def statements(chance: Random) -> list[Statement]:
    """A transaction of at most two statements; without any it changes other tables."""
    return [(chance.choice(KEYS), chance.choice([None, *KEYS])) for _ in range(chance.randint(0, 2))]


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.no_cover
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.long("the other half of the walks", only=("1",))
def test_the_algorithm_survives_the_walks_that_the_shortcuts_do_not(kind: type[World], half: int) -> None:
    """And the walks get around: there is more than one publish in most of them."""
    worlds = [walked(kind, seed) for seed in halves(WALKS)[half]]
    assert sum(world.publishes for world in worlds) > 2 * len(worlds)
    assert sum(world.quiets for world in worlds) > len(worlds) / 10


MUTANTS = [kind for sound in SOUND for kind in sound.__subclasses__() if kind.__module__ == __name__]
REFUSED = {SpoolOpensAtTheWrittenPosition: "the spool begins after", ForgetWhatIsStaged: "the spool begins at"}


@pytest.mark.parametrize("mutant", REFUSED)
def test_a_spool_that_lacks_what_a_split_needs_is_refused(mutant: type[World]) -> None:
    """Planning the merge notices it, before a wrong table can be shown."""
    with pytest.raises(SpoolGap, match=REFUSED[mutant]):
        deque(walked(mutant, seed) for seed in range(WALKS))


@pytest.mark.parametrize("mutant", [kind for kind in MUTANTS if kind not in REFUSED])
def test_a_shortcut_shows_readers_a_wrong_table(mutant: type[World]) -> None:
    """One of the walks publishes rows that the source did not have there, or counts them wrongly."""
    with pytest.raises(AssertionError, match=r"not the table|by the books"):
        deque(walked(mutant, seed) for seed in range(WALKS))
