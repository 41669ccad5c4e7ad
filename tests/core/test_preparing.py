"""Transactions are prepared and ended between all other steps, and each shortcut of copying them is found out."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.change import ChangeRow
from tests.core.preparing import Lost, Preparing, XaEnd, XaPrepare
from tests.core.test_interleavings import KEYS, statements
from tests.core.world import Transaction
from tests.plugins.profiles import walks

WALKS = 300


def walked(kind: type[Preparing], seed: int) -> Preparing:
    """A world after one random walk; each walk prefers other steps. It ends early where the binlog lacks something."""
    chance = Random(seed)
    world = kind(dict.fromkeys(chance.sample(KEYS, 5), 0), gtids=chance.random() < 0.7)
    arguments: dict[str, Callable[[], list[Any]]] = {
        "transaction": lambda: [statements(chance), chance.randrange(4)],
        "prepare": lambda: [chance.randrange(2), statements(chance), chance.randrange(4)],
        **dict.fromkeys(["forward", "read", "plan_merge", "settle", "purge", "show"], lambda: [chance.randrange(4)]),
    }
    weight: dict[str, float] = {
        step: chance.choice([1, 4, 16]) for step in [*kind.CALM, "transaction", "forget", "quiet", "prepare", "settle"]
    }
    weight |= {
        "show": chance.choice([1, 4, 16]),
        "crash": 1,
        "compact": 1,
        "set_back": 1,
        "purge": chance.choice([0, 0, 1]),
    }
    try:
        for _ in range(220):
            if not (possible := world.possible()):
                break
            (step,) = chance.choices(possible, [weight[step] for step in possible])
            getattr(world, step)(*arguments.get(step, list)())
        world.finish()
    except Lost:
        assert world.source.purged, "stopped although the binlog has all, so the copy is not the table"
        world.lost = True
    return world


@pytest.mark.no_cover
def test_rows_count_where_they_are_committed_whatever_comes_between() -> None:
    """And the walks get around: most publish several times, many look for what was prepared, some in vain."""
    worlds = [walked(Preparing, seed) for seed in range(max(WALKS // 6, walks(WALKS // 2)))]
    assert sum(world.publishes for world in worlds) > 1.5 * len(worlds)
    assert sum(world.looks for world in worlds) > len(worlds) / 2
    assert len(worlds) / 100 < sum(world.lost for world in worlds) < len(worlds) / 4


class SpoolsRowsWhereTheyArePrepared(Preparing):
    """As if XA PREPARE were a commit; XA ROLLBACK does not take the rows back."""

    def spooled_at(self, one: Transaction, rows: tuple[ChangeRow, ...]) -> tuple[ChangeRow, ...]:
        """The rows of the binlog where they are."""
        return one.rows if isinstance(one, XaPrepare) else () if isinstance(one, XaEnd) else rows


class LeavesRowsAtTheirPlace(Preparing):
    """A chunk whose low watermark is between PREPARE and COMMIT drops them, though its view does not have them."""

    def rows_of(self, found: Prepared | None, one: XaEnd) -> tuple[ChangeRow, ...]:
        """With the place of XA PREPARE."""
        rows = super().rows_of(found, one)
        assert found is not None
        return tuple(replace(row, place=found.stop.place(0)) for row in rows)


class CommitsWhatIsRolledBack(Preparing):
    """As if each end were a commit."""

    def ended(self, pending: Pending, start: int, one: XaEnd, known: tuple[int, Any] | None) -> tuple[ChangeRow, ...]:
        """Whatever the statement is."""
        return super().ended(pending, start, replace(one, is_committed=True), known)


class PassesOverAnUnknownName(Preparing):
    """What was prepared in another segment, before the spool, or before a crash, is no matter."""

    def find(self, xid: Xid, start: int, known: tuple[int, Any] | None) -> Prepared | None:  # noqa: ARG002
        """Nobody looks."""
        return None

    def rows_of(self, found: Prepared | None, one: XaEnd) -> tuple[ChangeRow, ...]:
        """No rows."""
        return () if found is None else super().rows_of(found, one)


class LooksOnlyAtWhatIsKnown(PassesOverAnUnknownName):
    """What was prepared before the spool began, or before a rebuilt one begins, is in no segment."""

    def find(self, xid: Xid, start: int, known: tuple[int, Any] | None) -> Prepared | None:
        """Not in the binlog before that."""
        since, prepared = known or (start, [])
        return self.left_by(since, start).after(Pending.from_json(prepared)).prepared.get(xid)


class KeepsWhatIsPreparedInMemory(LooksOnlyAtWhatIsKnown):
    """A crash forgets it."""

    def begin(self) -> None:
        """The next run knows nothing."""
        super().begin()
        self.manifests = [(end, []) for end, _ in self.manifests]


class ForgetsItWithItsSegment(LooksOnlyAtWhatIsKnown):
    """A transaction may stay prepared for longer than its segment is kept."""

    def forget(self) -> None:
        """Only what is prepared in the segments that are left is known."""
        super().forget()
        begin, _ = self.spooled
        since = self.source.ends[begin].place(0)
        for number, (end, prepared) in enumerate(self.manifests):
            left = Pending.from_json(prepared).prepared.items()
            young = {xid: one for xid, one in left if one.start.place(0) >= since}
            self.manifests[number] = end, Pending(young).to_json()


class DoesNotReadWhatIsBetween(Preparing):
    """The name may have been used again since: these are the rows of before."""

    def find(self, xid: Xid, start: int, known: tuple[int, Any] | None) -> Prepared | None:
        """What is known at the spool's end is taken for what is prepared at the segment's start."""
        prepared = Pending.from_json(known[1]).prepared if known else {}
        return prepared.get(xid) or super().find(xid, start, known)


class LooksAtTheOldestFirst(Preparing):
    """The name may have been used before."""

    def find(self, xid: Xid, start: int, known: tuple[int, Any] | None) -> Prepared | None:  # noqa: ARG002
        """The first one of that name."""
        for number, one in enumerate(self.source.log[:start]):
            if isinstance(one, XaPrepare) and one.xid == xid and number >= self.source.purged:
                return Prepared(self.source.ends[number], self.source.ends[number + 1], None)
        return None


class KnowsTheEndWhenItReadsAgain(Preparing):
    """What is read again from an earlier place has other transactions of these names."""

    def read_part(self, start: int, stop: int, known: tuple[int, Any] | None) -> Pending:
        """What is prepared at the spool's end is taken for what is prepared before it."""
        last = self.manifests[-1] if self.manifests else None
        return super().read_part(start, stop, (start, last[1]) if known is None and last else known)


class PassesOverWhatIsPurged(Preparing):
    """The rows are not in the binlog any more."""

    def rows_of(self, found: Prepared | None, one: XaEnd) -> tuple[ChangeRow, ...]:
        """So there are none."""
        try:
            return super().rows_of(found, one)
        except Lost:
            return ()


MUTANTS = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Preparing)]


@pytest.mark.parametrize("mutant", [kind for kind in MUTANTS if kind.__module__ == __name__])
def test_a_shortcut_with_prepared_transactions_shows_readers_a_wrong_table(mutant: type[Preparing]) -> None:
    """One of the walks publishes rows that the source did not have there, or counts them wrongly."""
    with pytest.raises(AssertionError, match=r"not the table|by the books"):
        deque(walked(mutant, seed) for seed in range(WALKS))
