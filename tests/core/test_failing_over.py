"""Servers take over from each other between all other steps, and each shortcut is found out."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lakeingest.core.binlog.failover import Found
from lakeingest.core.binlog.position import GtidSet, Place, Position
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.waves.splits import Split, Splits
from tests.core.failing_over import FailingOver
from tests.core.test_interleavings import KEYS, statements
from tests.plugins.profiles import halves

WALKS = 400
SEEDS = (110, 147, 340, *range(WALKS))  # of walks that find each shortcut out; the first ones find the rarest


def walked(kind: type[FailingOver], seed: int) -> FailingOver:
    """A world after one random walk; each walk prefers other steps."""
    chance = Random(seed)
    world = kind(dict.fromkeys(chance.sample(KEYS, 5), 0), gtids=True)

    def takes_over() -> list[Any]:
        errant = chance.randrange(12) if chance.random() < 0.4 else None
        reused = statements(chance) if chance.random() < 0.4 else None
        return [chance.choice([0, 0, 0, 1, 2, 4]), errant, reused, statements(chance)]

    arguments: dict[str, Callable[[], list[Any]]] = {
        "transaction": lambda: [statements(chance), chance.randrange(4)],
        "fail_over": takes_over,
        **dict.fromkeys(["forward", "read", "plan_merge", "purge"], lambda: [chance.randrange(4)]),
    }
    weight: dict[str, float] = {
        step: chance.choice([1, 4, 16]) for step in [*kind.CALM, "transaction", "forget", "quiet"]
    }
    weight |= {"crash": 1, "compact": 1, "set_back": 1, "purge": 1, "fail_over": chance.choice([0.2, 1])}
    for _ in range(220):
        if not (possible := world.possible()):
            break
        (step,) = chance.choices(possible, [weight[step] for step in possible])
        getattr(world, step)(*arguments.get(step, list)())
    world.finish()
    return world


@pytest.mark.no_cover
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.long("the other half of the walks", only=("1",))
def test_the_copy_is_the_sources_whichever_server_takes_over(half: int) -> None:
    """And the walks get around: most go on over a failover, some diverge, none is copied again without need."""
    worlds = [walked(FailingOver, seed) for seed in halves(WALKS, WALKS // 5)[half]]
    assert sum(world.publishes for world in worlds) > 2 * len(worlds)
    assert sum(world.moves > 0 for world in worlds) > len(worlds) / 6
    assert sum(world.carries > 0 for world in worlds) > len(worlds) / 20
    assert sum(world.diverged > 0 for world in worlds) > len(worlds) / 10
    assert not sum(world.needless for world in worlds)


class ComparesSets(FailingOver):
    """A position holds where its GTIDs are executed."""

    def found(self, position: Position) -> Found:
        """Whatever transactions these are."""
        known = position.gtids or GtidSet()
        ours = [one for one in self.logged() if one.gtid in known]
        if not ours or not known <= self.source.gtid_set(self.source.executed):
            return super().found(position)
        last = max(ours, key=lambda one: one.end.pos)
        before = self.source.transactions()[: self.source.ends.index(last.end)]
        unknown = GtidSet.of_gtids(one.gtid for one in before) - known
        if any(one.gtid in unknown and one.changes for one in self.source.log):
            return super().found(position)
        return Found(last.end, unknown)


class AppliesErrant(FailingOver):
    """The first unknown transaction is where the copy goes on."""

    def found(self, position: Position) -> Found:
        """Errant ones are read like any others."""
        known, source = position.gtids or GtidSet(), self.source
        count = next((n for n, one in enumerate(source.log) if one.gtid not in known), len(source.log))
        if not known <= source.gtid_set(source.executed):
            return super().found(position)
        return Found(source.ends[count], GtidSet())


class PassesErrant(FailingOver):
    """The copy goes on after the last transaction that it knows."""

    def found(self, position: Position) -> Found:
        """What came before it has been seen."""
        log = self.source.log
        try:
            self.source.log = [_harmless(one) for one in log]
            return super().found(position)
        finally:
            self.source.log = log


def _harmless(one: Any) -> Any:
    return replace(one, changes=())


class KeepsUnmerged(FailingOver):
    """Chunks that were read from the other server count."""

    def is_unmerged(self, progress: Progress) -> bool:
        """They have their watermarks."""
        return progress.position is None or progress.position.place == progress.covered_from

    def goes_on(self, progress: Progress, found: Found) -> None:
        """All splits are taken to stand at the position."""
        assert progress.position is not None
        place = progress.position.place
        level = Splits(tuple(Split(split.range, merged_at=place) for split in progress.splits.all))
        if not level.complete:
            self.copy_again()
            return
        super().goes_on(replace(progress, splits=level, phase=Phase.COPIED), found)


class CarriesUnproven(FailingOver):
    """Chunks count whatever they saw."""

    def is_proven(self, progress: Progress, place: Place) -> bool:
        """Nobody asks whether this server has it."""
        return super().is_proven(progress, replace(place, file=10**9))


class CarriesOtherServers(FailingOver):
    """Whatever was read before the last failover was read early enough."""

    def is_proven(self, progress: Progress, place: Place) -> bool:
        """On whatever server."""
        return super().is_proven(replace(progress, epoch=place.epoch), place)


class CarriesWithoutRepeating(FailingOver):
    """What chunks have seen is not read again."""

    def carried(self, progress: Progress, opened: Position, reached: Position) -> Progress:
        """They stand where the other server's transactions end."""
        carried = super().carried(progress, opened, reached)
        return replace(carried, splits=_with_marks(carried, low=reached.gtids))


class CarriesWithoutHighs(FailingOver):
    """A merge may stop anywhere."""

    def carried(self, progress: Progress, opened: Position, reached: Position) -> Progress:
        """The high watermark is the low one."""
        carried = super().carried(progress, opened, reached)
        return replace(carried, splits=_with_marks(carried, high=opened.place))


def _with_marks(progress: Progress, **marks: Any) -> Splits:
    return Splits(tuple(replace(split, **marks) for split in progress.splits.all))


class KeepsStatements(FailingOver):
    """What was said of a quiet table is true for ever."""

    def found(self, position: Position) -> Found:
        """Its commit tells where to read on."""
        if self.stated is None:
            return super().found(position)
        known = self.stated[1]
        self.stated = None
        count = min(len(self.source.log), (known.gtids or GtidSet()).count)
        return Found(self.source.ends[count], GtidSet())


class ComparesPlaces(FailingOver):
    """A position is a file and a byte."""

    def found(self, position: Position) -> Found:
        """The first transaction that ends there or later."""
        ends = self.source.ends
        at = next((end for end in ends if (end.number, end.pos) >= (position.at.number, position.at.pos)), ends[-1])
        return Found(at, GtidSet())


MUTANTS = [kind for kind in FailingOver.__subclasses__() if kind.__module__ == __name__]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_shortcut_over_a_failover_shows_readers_a_wrong_table(mutant: type[FailingOver]) -> None:
    """One of the walks publishes rows that the source did not have there."""
    with pytest.raises(AssertionError, match=r"not the table|by the books"):
        deque(walked(mutant, seed) for seed in SEEDS)
