"""XA COMMITs have their place before their rows are visible: each shortcut of reading chunks beside them is found."""

from collections.abc import Callable
from itertools import combinations

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.prepared import Xid
from tests.core.late import Late
from tests.core.test_preparing import walked
from tests.core.world import Read
from tests.plugins.profiles import halves

WALKS = 120


def copy_wave(world: Late, before: Callable[[int], None]) -> None:
    """Read the chunks of a wave step by step, and commit it; `before` is called before each step."""
    if "plan_wave" not in world.possible():
        world.show()
    world.plan_wave()
    step = 0
    while any(not read.high for read in world.reads):
        before(step)
        world.read(0)
        step += 1
    world.commit_wave()


def between(kind: type[Late], committed: int, shown: int) -> None:
    """Before one step of a chunk, rows are prepared and committed; before another one they become visible."""
    world = kind(dict.fromkeys(range(2), 0), gtids=False)
    world.open_spool()

    def go_on(step: int) -> None:
        if step == committed:
            world.prepare(0, [(1, None)], 1)
            world.engine_commit()
            world.settle(1)
            world.engine_commit()
        if step == shown:
            world.show()

    copy_wave(world, go_on)
    world.finish()


def older_than_the_spool(kind: type[Late]) -> None:
    """Rows are prepared before the spool begins. They are committed between two waves, and visible after both."""
    world = kind(dict.fromkeys(range(7), 0), gtids=False)
    world.prepare(0, [(6, None)], 1)
    world.engine_commit()
    world.open_spool()
    copy_wave(world, lambda _: None)
    world.settle(1)
    world.engine_commit()
    world.forward(3)
    copy_wave(world, lambda _: None)
    world.finish()


def directed(kind: type[Late]) -> None:
    """All cases that are unlikely on a random walk."""
    for committed, shown in combinations(range(5), 2):
        between(kind, committed, shown)
    older_than_the_spool(kind)


@pytest.mark.no_cover
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.long("the other half of the walks", only=("1",))
def test_chunks_lack_no_xa_commit_whatever_comes_between(half: int) -> None:
    """And the walks get around: most publish several times, many chunks have a lower low watermark."""
    worlds = [walked(Late, seed) for seed in halves(WALKS)[half]]
    assert sum(world.publishes for world in worlds) > 1.5 * len(worlds)
    directed(Late)
    assert sum(isinstance(world, Late) and world.lowered > 0 for world in worlds) > len(worlds) / 4


class TakesThePlaceOfItsView(Late):
    """As if the view had all that is before its place."""

    def ask(self, read: Read) -> None:
        """Nobody asks."""

    def look(self, read: Read) -> None:
        """Both watermarks are the place."""
        super().look(read)
        read.low = read.high


class TakesThePlaceOfItsViewIfNothingIsListed(Late):
    """A transaction may be prepared and committed between the list and the view."""

    def ask(self, read: Read) -> None:
        """The place is taken later."""
        super().ask(read)
        read.low = read.low if self.source.listed else Place(0, 0, 0)

    def look(self, read: Read) -> None:
        """As where nobody uses XA."""
        super().look(read)
        read.low = read.high if read.low == Place(0, 0, 0) else read.low


class TakesThePlaceOfAnEarlierView(Late):
    """As if a little time were enough."""

    def ask(self, read: Read) -> None:
        """Nobody asks."""


class AsksAfterItsView(Late):
    """What is committed meanwhile is not in the list any more."""

    def ask(self, read: Read) -> None:
        """Not yet."""

    def look(self, read: Read) -> None:
        """The rows are read in the step before."""
        if read.rows is None:
            super().look(read)
            read.high = None
        else:
            super().ask(read)
            read.high = self.view()


class AsksBeforeLow(Late):
    """What is prepared and committed between the two is in no list."""

    def read(self, some: int) -> None:
        """The list comes first."""
        reading = [read for read in self.reads if not read.high]
        read = reading[some % len(reading)]
        if not any(read is one for one in self.asked):
            self.ask(read)
            self.asked.append(read)
        elif read.low is None:
            read.low = self.view()
        else:
            self.look(read)


class TakesWhatIsNotSettled(Late):
    """The spool may have an XA COMMIT that views do not have yet."""

    def can_settle(self) -> bool:
        """Nobody looks."""
        return True


class RemembersWhatHasEnded(Late):
    """What was prepared before the spool is taken for prepared for ever."""

    def known_older(self) -> frozenset[Xid]:
        """Whatever the spool has seen."""
        return self.older


MUTANTS = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Late)]


@pytest.mark.parametrize("mutant", [kind for kind in MUTANTS if kind.__module__ == __name__])
def test_a_shortcut_beside_late_commits_shows_readers_a_wrong_table(mutant: type[Late]) -> None:
    """One of the cases publishes a table that lacks rows, or counts them wrongly."""
    with pytest.raises(AssertionError, match=r"not the table|by the books"):
        directed(mutant)
