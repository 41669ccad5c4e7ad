"""DDL comes between all other steps, and each shortcut of following it is found out."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.core.ddl.lift import Lift
from tests.core.evolving import Altered, Definition, Evolving, Values
from tests.core.test_interleavings import KEYS, statements
from tests.plugins.profiles import halves

WALKS = 300


def walked(kind: type[Evolving], seed: int) -> Evolving:
    """A world after one random walk; each walk prefers other steps."""
    chance = Random(seed)
    world = kind(dict.fromkeys(chance.sample(KEYS, 5), 0), gtids=chance.random() < 0.7)
    arguments: dict[str, Callable[[], list[Any]]] = {
        "transaction": lambda: [statements(chance), chance.randrange(4)],
        **dict.fromkeys(["forward", "read", "plan_merge", "alter"], lambda: [chance.randrange(4)]),
    }
    weight: dict[str, float] = {
        step: chance.choice([1, 4, 16]) for step in [*kind.CALM, "transaction", "forget", "quiet", "alter"]
    }
    weight |= {"crash": 1, "compact": 1, "set_back": 1, "alter": chance.choice([0.1, 0.3, 4])}
    for _ in range(220):
        if not (possible := world.possible()):
            break
        (step,) = chance.choices(possible, [weight[step] for step in possible])
        getattr(world, step)(*arguments.get(step, list)())
        world.look()
    world.finish()
    return world


@pytest.mark.no_cover
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.long("the other half of the walks", only=("1",))
def test_rows_and_columns_are_the_sources_whenever_ddl_comes(half: int) -> None:
    """And the walks get around: most publish several times, and many lift rows."""
    worlds = [walked(Evolving, seed) for seed in halves(WALKS)[half]]
    assert sum(world.publishes for world in worlds) > 1.5 * len(worlds)
    assert sum(world.state.restarts > 0 for world in worlds) > len(worlds) / 8
    assert {reason.partition(": ")[2] for world in worlds for reason in world.refused} == {
        "DDL changed its values, its key or the table itself"
    }
    assert sum(len(world.definitions) > 1 for world in worlds) > len(worlds) / 2


class MergesAcross(Evolving):
    """Rows before and after DDL in one merge, by one definition."""

    def stops(self) -> list[int]:
        """DDL is no halt."""
        return super(Evolving, self).stops()


class DecodesByTheNewest(Evolving):
    """The definition that the server has now."""

    def decoded_by(self, place: Place) -> Definition:  # noqa: ARG002 - that is the mistake
        """Not the one in force at the row's place."""
        return self.source.definitions[self.source.visible]


class LiftsToTheNewest(Evolving):
    """Over all DDL that the spool has, though merges have not come that far."""

    def chosen(self, found: list[Lift]) -> list[Lift]:
        """The rows get the last definition at the place of the first."""
        return [Lift(found[0].before, found[-1].after, tuple(_origins(found)))]

    def ahead(self) -> list[int]:
        """What was lifted over is not looked at again."""
        known = self.definition.names
        return [number for number in super().ahead() if not set(self.source.definitions[number + 1].names) <= {*known}]


def _origins(found: list[Lift]) -> list[str | None]:
    known = set(found[0].before.names)
    return [name if name in known else None for name in found[-1].after.names]


class LiftsByName(Evolving):
    """Two columns may have exchanged their names."""

    def lifted_row(self, values: Values, lift: Lift) -> Values:
        """Each column has the values of the one that had its name."""
        known = dict(values)
        return tuple((name, known.get(name)) for name in lift.after.names[1:])


class ShowsColumnsWithTheLift(Evolving):
    """Iceberg's current schema is the table's, not a branch's."""

    def after_lift(self) -> None:
        """Readers see the columns of staging."""
        if self.lake.main is not None:
            self.shown = self.definition.names


class ReadsChunksAsTheyWerePlanned(Evolving):
    """The definition is asked for once, before the wave."""

    def altered_before_chunk(self) -> bool:
        """Not when it was planned."""
        return False


class LiftsOverABarrier(Evolving):
    """As if the statement changed nothing that is not in the binlog."""

    def lifts(self, known: list[Alteration], now: Definition) -> list[Lift]:
        """A barrier is DDL without changes, where that leads to the definition of now."""
        return super().lifts([replace(one, is_barrier=False) for one in known], now)


class KeepsRowsThatWereTruncated(Evolving):
    """As if TRUNCATE changed nothing that is not in the binlog."""

    def empties(self, alteration: Alteration) -> bool:  # noqa: ARG002 - that is the mistake
        """Never."""
        return False


class KeepsRowsAtABarrier(Evolving):
    """What is read again is put beside the rows of before."""

    def rows_that_stay(self) -> tuple[Any, ...]:
        """All."""
        return tuple(self.rows_of())


class ReadsAgainByTheOldDefinition(Evolving):
    """The one that the copy has."""

    def next_definition(self) -> Definition:
        """Of before the barrier."""
        return self.definition


class TakesDdlForOver(Evolving):
    """A view may still be as of before it."""

    def can_join(self) -> bool:
        """As soon as it is in the binlog."""
        return True


class TakesAllForSettled(Evolving):
    """Without GTIDs nobody knows which of the transactions after the last DDL have ended."""

    def settled(self) -> Place:
        """All that is written."""
        return self.high()


class HasNoBracket(Evolving):
    """The definition is true at the spool's end, whenever it was read."""

    def is_bound(self) -> bool:
        """At once."""
        return True


MUTANTS = [kind for kind in Evolving.__subclasses__() if kind.__module__ == __name__]
REFUSED = (HasNoBracket,)


@pytest.mark.parametrize("mutant", [kind for kind in MUTANTS if kind not in REFUSED])
def test_a_shortcut_over_ddl_shows_readers_a_wrong_table(mutant: type[Evolving]) -> None:
    """One of the walks publishes rows or columns that the source did not have there."""
    with pytest.raises(AssertionError, match=r"not the table|by the books"):
        deque(walked(mutant, seed) for seed in range(WALKS))


@pytest.mark.parametrize("mutant", REFUSED)
def test_a_definition_that_the_statements_do_not_lead_to_is_refused(mutant: type[Evolving]) -> None:
    """Before any row is lifted by it; the table is read again without need."""
    reasons = (reason for seed in range(WALKS) for reason in walked(mutant, seed).refused)
    assert any("by its DDL its columns would be" in reason for reason in reasons)


def test_the_walks_have_ddl_next_to_each_other() -> None:
    """Otherwise no definition in between would have to be put together."""
    logs = (walked(Evolving, seed).source.log for seed in range(WALKS // 3))
    pairs = (pair for log in logs for pair in pairwise(log))
    assert any(all(isinstance(one, Altered) for one in pair) for pair in pairs)
