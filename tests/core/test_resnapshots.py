"""Re-snapshots are taken in any order with everything else, and each shortcut is found out."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.copies.needed import needed_by
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import Agenda, Request, agenda
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.rereads import Patch
from lakeingest.core.waves.scope import Scope
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.errors import SpoolGap
from tests.core.rereading import KEYS, Comparing, Rereading, RereadingCollated, RereadingPlaces
from tests.core.test_interleavings import statements
from tests.core.world import ORDERS, SERVER, Read, Row

WALKS = 10
SEEDS = (138, *range(400))  # of walks that find each shortcut out; the first one finds the rarest, to save time
SOUND = (Rereading, Comparing, RereadingCollated, RereadingPlaces)


def walked(kind: type[Rereading], seed: int) -> Rereading:
    """A world after one random walk; at first it goes to a publish, which re-snapshots are about."""
    chance = Random(seed)
    rows, gtids = dict.fromkeys(chance.sample(KEYS, 5), 0), chance.random() < 0.6
    world = kind(rows, gtids=gtids)
    arguments: dict[str, Callable[[], list[Any]]] = {
        "transaction": lambda: [statements(chance), chance.randrange(4)],
        **dict.fromkeys(["forward", "read", "plan_merge", "restart"], lambda: [chance.randrange(4)]),
        "ask": lambda: [chance.randrange(4), chance.choice(KEYS)],
        "damage": lambda: [chance.randrange(3), chance.choice(KEYS), chance.randrange(3)],
    }
    names = {*world.CALM, "transaction", "forget", "quiet"}
    weight: dict[str, float] = {step: chance.choice([2, 6, 16]) for step in sorted(names)}
    weight |= {"crash": 1, "compact": 1, "restart": 0.2, "ask": 0.1, "damage": 8.0}
    for _ in range(180):
        possible = world.possible()
        if not possible:
            break
        (step,) = chance.choices(possible, [weight[step] for step in possible])
        getattr(world, step)(*arguments.get(step, list)())
    world.finish()
    return world


@pytest.mark.parametrize("kind", SOUND)
def test_re_snapshots_survive_the_walks_that_the_shortcuts_do_not(kind: type[Rereading]) -> None:
    """And the walks get around: most have a re-snapshot, and readers see more than one state of the table."""
    worlds = [walked(kind, seed) for seed in range(WALKS)]
    assert sum(len(world.signals) for world in worlds) > 2 * WALKS
    assert sum(world.publishes for world in worlds) > WALKS


class AnswersWithItsFirstWave(Rereading):
    """The chunks that are still to be read have what is damaged."""

    def is_last(self, request: Request) -> bool:  # noqa: ARG002 - whatever was asked for
        """Each wave is the last one."""
        return True


class TakesKeysOfOtherChunksForDeleted(Rereading):
    """A chunk's view has no row of them."""

    def wanted(self, read: Read) -> frozenset[int]:  # noqa: ARG002 - whatever the chunk is
        """All keys of the range that the copy has."""
        return self.listed


class KeepsTheMarksOfWhatIsReadAgain(Rereading):
    """A view may lack changes that are merged already: they have to be applied once more."""

    def within(self, scope: Scope, read: Read) -> KeyRange:  # noqa: ARG002 - whatever was read
        """No key of the table."""
        return KeyRange((len(KEYS),))


class PublishesAForcedCopyByItsOldSplits(Rereading):
    """Its rows lack what nobody spooled."""

    def begin_copy_again(self, new: Progress, waiting: tuple[int, ...]) -> None:
        """Rows and splits stay valid, from where the new spool begins."""
        if self.state.stop is None:
            super().begin_copy_again(new, waiting)
            return
        end = self.spooled[1]
        gtids = self.source.gtid_set(end) if self.source.gtids else None
        position = Position(SERVER, 0, self.source.ends[end], gtids)
        splits = Splits((Split(KeyRange(), merged_at=position.place),))
        rows = len(self.lake.rows)
        progress = replace(new, phase=Phase.LEVEL, splits=splits, position=position, rows=rows, uncounted=True)
        self.store(self.lake.rows, progress)

    def start_over(self, keep: int) -> None:  # noqa: ARG002 - however it goes on
        """Nothing is compared."""
        super().start_over(0)


class PublishesOverAGap(Rereading):
    """The rows have a position, and lack changes from before it."""

    def over_gap(self, covered_from: Place, waiting: tuple[int, ...]) -> Progress:
        """As if all of them were right."""
        return replace(super().over_gap(covered_from, waiting), gap=False)


class ClosesAGapWithPartOfTheRows(Rereading):
    """The others still lack what nobody spooled."""

    def agenda(self) -> Agenda:
        """What signals ask for, as if there were no gap."""
        visible = {} if self.lake.main is None else {ORDERS: self.visible}
        return agenda(self.signals.values(), [ORDERS], {ORDERS: replace(self.state, gap=False)}, visible)


class ForgetsWhatRunningReadsNeed(Rereading):
    """Their lows count only once they are committed."""

    def needed(self) -> Place:
        """What the commits need."""
        return needed_by(self.state, self.visible)


class ForgetsWhatWasReadAgain(Rereading):
    """The table stood at a place once, so it needs nothing from before."""

    def needed(self) -> Place:
        """The last position, whatever was read since."""
        return max(self.place, self.visible.needed_from) if self.state.position else super().needed()


class IsDoneOnStaging(Rereading):
    """Staging may be dropped, and with it what the signal has brought."""

    def agenda(self) -> Agenda:
        """As if readers saw what is staged."""
        return agenda(self.signals.values(), [ORDERS], {ORDERS: self.state}, {ORDERS: self.state})

    def commit_reread(self) -> None:
        """The signals are done with the commit."""
        super().commit_reread()
        self.finish_signals()


class KeepsItsProgressBesideTheCommits(Rereading):
    """It survives the commits that it tells of."""

    def begin(self) -> None:
        """What was read in commits that are gone counts as well."""
        answered = set(self.beside)
        super().begin()
        if self.progress:
            answered |= set(self.progress.answered)
            self.progress = replace(self.progress, answered=tuple(sorted(answered)))
            self.lake.commit(self.lake.rows, self.progress)

    @property
    def beside(self) -> tuple[int, ...]:
        """What the run before this one knew."""
        progress: Progress | None = getattr(self, "progress", None)
        return progress.answered if progress else ()


class EntersAtHigh(Rereading):
    """The view may lack what is before its high watermark."""

    def patch(self, scope: Scope, read: Read) -> Patch | None:
        """Its low is its high."""
        patch = super().patch(scope, read)
        return patch and replace(patch, low=patch.high)


class ComparesKeysAlone(Comparing):
    """A row with a wrong value stays."""

    def leaves_out(self, scope: Scope, row: Row) -> bool:
        """The copy has a row with its key."""
        return scope.range is not None and row[0] in {key for key, _ in self.copy}


class LeavesWhatTheSourceLacks(Rereading):
    """A key that the source has not stays."""

    def wanted(self, read: Read) -> frozenset[int]:  # noqa: ARG002 - whatever was read
        """Only what the view has."""
        return frozenset()


class TakesARowThatNoLongerMatchesForDeleted(Rereading):
    """It has another value in the source, and is gone from the target."""

    def wants(self, row: Row, read: Read) -> bool:
        """Only what matches in the view."""
        if self.request is None or self.request.scope.where is None:
            return super().wants(row, read)
        return self.has(self.request.scope, row)


MUTANTS = [kind for sound in SOUND for kind in sound.__subclasses__() if kind.__module__ == __name__]
REFUSED = (ForgetsWhatRunningReadsNeed, ForgetsWhatWasReadAgain)


@pytest.mark.parametrize("mutant", REFUSED)
def test_a_spool_that_lacks_what_was_read_again_is_refused(mutant: type[Rereading]) -> None:
    """Before a wrong table can be visible."""
    with pytest.raises(SpoolGap, match="the spool begins "):
        deque(walked(mutant, seed) for seed in SEEDS)


@pytest.mark.parametrize("mutant", [kind for kind in MUTANTS if kind not in REFUSED])
def test_a_shortcut_of_re_snapshots_shows_readers_a_wrong_table(mutant: type[Rereading]) -> None:
    """One of the walks publishes rows that the source did not have there, or leaves what is damaged."""
    with pytest.raises(AssertionError, match=r"not the table|by the books|a signal is open"):
        deque(walked(mutant, seed) for seed in SEEDS)
