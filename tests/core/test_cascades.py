"""Changes by foreign keys that the source does not log: a copy that is settled is the source's table."""

import os
import random

import pytest

from lakeingest.core.cascaded import Cascaded, Standing
from lakeingest.core.cascades import Affected, ForeignKey, RowChange, Rule, Settled, depth, family, signature
from lakeingest.errors import OperatorNeeded, StateUnreadable
from tests.core.cascading import C, Copy, G, Killed, Lake, P, Patch, Source, place, table

WALKS = int(os.environ.get("LAKEINGEST_CASCADES", "60"))


class Walk:
    """One random history of a source, and of runs that copy it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.source = Source(self.chance)
        self.busy = self.chance.choice([0.0, 0.2, 0.5])
        for _ in range(30):
            self.source.change()
        self.source.removing = 0.5
        self.lake = Lake(self.source, self.noise)
        self.waiting: list[tuple[Copy, int, Patch]] = []

    def noise(self) -> None:
        """What the source does in between."""
        while self.chance.random() < self.busy:
            self.source.change()

    def go(self) -> None:
        """First copies in any order, then rounds, then rest."""
        lake, copies = self.lake, list(self.lake.copies.values())
        self.chance.shuffle(copies)
        for copy in copies:
            copy.to = copy.needed = lake.end
        since = lake.end
        for copy in copies:
            lake.copy_first(copy.name)
            copy.to = copy.needed = since
        self.lake.between = self.between
        for _ in range(8):
            try:
                self.round()
            except Killed:
                self.lake.cascaded = Cascaded()
            for _ in range(self.chance.randrange(4)):
                self.source.change()
        self.busy, self.lake.between = 0.0, lambda: None
        self.rest()

    def between(self) -> None:
        """Rows were read again, and are not merged."""
        if self.chance.random() < 0.1:
            raise Killed

    def rest(self) -> None:
        """The source is quiet: each copy gets to be its table."""
        lake, copies = self.lake, list(self.lake.copies.values())
        for copy, since, patch in self.waiting:
            lake.commit(copy, patch, since=since, to=min(copy.to, since))
        for _ in range(60):
            lake.spool()
            for copy in lake.in_order():
                lake.catch_up(copy)
                if copy.gap:
                    lake.compare_some(copy)
            if all(copy.at == lake.end and not copy.gap and lake.is_settled(copy) for copy in copies):
                break
        for copy in copies:
            assert not copy.gap
            assert copy.rows == self.source.states[-1][copy.name]

    def round(self) -> None:
        """Tables catch up, parents first; rows are compared, or read again for somebody; a run may end anywhere."""
        lake = self.lake
        lake.spool()
        for copy in lake.in_order():
            if self.chance.random() < 0.1:
                return  # it has stopped
            if self.chance.random() < 0.1:
                lake.cascaded = Cascaded()
            if copy.at is not None and self.chance.random() < 0.2:
                lake.merge(copy)  # nobody sees that
            lake.catch_up(copy)
            if copy.gap and self.chance.random() < 0.5:
                lake.compare_some(copy)
            if copy.at is not None and self.chance.random() < 0.2:
                since, (low, seen) = lake.end, lake.view(copy.name)
                keys = [key for key in {*copy.rows, *seen} if self.chance.random() < 0.5]
                self.waiting.append((copy, since, Patch(low, {key: seen.get(key) for key in keys})))
            if self.waiting and self.chance.random() < 0.5:
                one, since, patch = self.waiting.pop()
                lake.commit(one, patch, since=since, to=min(one.to, since))
                lake.spool()


def test_a_settled_copy_is_the_table_of_the_source() -> None:
    """In every history: rows that go, forget or follow, in several steps; keys that follow; a tree; kills; load."""
    published = compared = reread = 0
    for seed in range(WALKS):
        walk = Walk(seed)
        walk.go()
        published, compared = published + walk.lake.published, compared + walk.lake.compared
        reread += walk.lake.reread
    assert published > 20 * WALKS
    assert compared > WALKS
    assert reread > 10 * WALKS


PARENT, CHILD = table("parent"), table("child")
KEY = ForeignKey(CHILD, ("x", "y"), PARENT, ("b", "a"), Rule.CASCADE, Rule.SET_NULL)


def test_a_foreign_key_touches_rows_with_the_values_of_before() -> None:
    """In the order of its columns; NULL refers to nothing, and other columns of the parent do not matter."""
    names = ("id", "a", "b")
    gone = RowChange(place(1), (7, 1, 2), None)
    assert KEY.effect(names, gone) == ((2, 1), None)
    assert KEY.effect(names, RowChange(place(1), (7, 1, 2), (7, 1, 3))) == ((2, 1), (None, None))
    assert KEY.effect(names, RowChange(place(1), (7, 1, 2), (8, 1, 2))) is None
    assert KEY.effect(names, RowChange(place(1), (7, None, 2), None)) is None
    lazy = ForeignKey(CHILD, ("x", "y"), PARENT, ("b", "a"), Rule.NONE, Rule.CASCADE)
    assert lazy.effect(names, gone) is None
    assert lazy.effect(names, RowChange(place(1), (7, 1, 2), (7, 1, 3))) == ((2, 1), (3, 1))


def test_each_value_is_sought_once_and_a_changed_row_is_changed_again() -> None:
    """A row that follows 1 to 2 goes with 2; both changes are found, whatever came first."""
    key = ForeignKey(CHILD, ("p",), PARENT, ("id",), Rule.CASCADE, Rule.CASCADE)
    affected = Affected(CHILD, ("id", "p"), (key,))
    affected.add_rows([(5, 1), (6, 3)])
    affected.add_changes(PARENT, ("id",), [RowChange(place(1), (1,), (2,)), RowChange(place(2), (2,), None)])
    assert affected.sought() == {key: {(1,), (2,)}}
    assert affected.sought() == {}
    assert affected.changes == {RowChange(place(1), (5, 1), (5, 2)), RowChange(place(2), (5, 2), None)}
    assert {(one.place, one.values) for one in affected.moves} == {(place(1), (2,))}


def test_the_order_and_the_signature_of_foreign_keys() -> None:
    """Parents are before children. A table may refer to itself, but not over others."""
    keys = {
        C: (ForeignKey(C, ("p",), P, ("id",), Rule.CASCADE, Rule.NONE),),
        G: (
            ForeignKey(G, ("g",), C, ("id",), Rule.CASCADE, Rule.NONE),
            ForeignKey(G, ("v",), G, ("id",), Rule.CASCADE, Rule.NONE),
        ),
    }
    assert [depth(one, keys) for one in (P, C, G)] == [0, 1, 2]
    assert family(G, keys) == tuple(sorted([*keys[C], *keys[G]]))
    assert signature(family(P, keys)) == ""
    assert len({signature(family(one, keys)) for one in (C, G)}) == 2
    with pytest.raises(OperatorNeeded, match=r"foreign keys lead from m\.C, m\.P back to m\.C"):
        family(C, keys | {P: (ForeignKey(P, ("id",), C, ("id",), Rule.CASCADE, Rule.NONE),)})


def test_what_is_settled_is_read_back() -> None:
    """And nothing else."""
    settled = Settled("f00d", place(3))
    assert Settled.from_json(settled.to_json()) == settled
    for wrong in ({}, {"keys": "f00d", "to": "3"}, {"keys": "f00d"}):
        with pytest.raises(StateUnreadable):
            Settled.from_json(wrong)


def test_nothing_is_forgotten_of_a_table_that_nobody_asked_for() -> None:
    """It is not known yet."""
    Cascaded().forget(P, place(1))
    assert Standing(place(5), None).start == Standing(place(5), place(7)).start == place(5)
