"""Changes by foreign keys that the source does not log: a copy that is settled is the source's table."""

import os
import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascaded import Cascaded, Standing
from lakeingest.core.cascades.cascades import (
    Affected,
    CascadesRead,
    ForeignKey,
    Move,
    Row,
    RowChange,
    Rule,
    depth,
    depth_by,
    family,
    signature,
    values_of,
)
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded, SpoolGap, StateUnreadable
from tests.core.cascading import COLUMNS, C, Copy, D, G, Killed, Lake, P, Patch, Source, T, place, table
from tests.plugins.profiles import walks

WALKS = int(os.environ.get("LAKEINGEST_CASCADES", "150"))


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


@pytest.mark.no_cover
def test_a_settled_copy_is_the_table_of_the_source() -> None:
    """In every history: rows that go, forget or follow, in several steps; keys that follow; a tree; kills; load."""
    published = compared = reread = 0
    count = walks(WALKS)
    for seed in range(count):
        walk = Walk(seed)
        walk.go()
        published, compared = published + walk.lake.published, compared + walk.lake.compared
        reread += walk.lake.reread
    assert published > 20 * count
    assert compared > count
    assert reread > 10 * count


def alone(_: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
    """Each value is one for itself."""
    return {one: one for one in values}


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
    affected = Affected(CHILD, ("id", "p"), (key,), alone)
    affected.add_rows([(5, 1), (6, 3)])
    affected.add_changes(PARENT, ("id",), [RowChange(place(1), (1,), (2,)), RowChange(place(2), (2,), None)])
    assert affected.sought() == {key: {(1,), (2,)}}
    assert affected.sought() == {}
    assert affected.changes == {RowChange(place(1), (5, 1), (5, 2)), RowChange(place(2), (5, 2), None)}
    assert {(one.place, one.values) for one in affected.moves} == {(place(1), (2,))}


def test_values_that_are_one_to_the_server_are_found_together() -> None:
    """A change from one to another of them is one, too; NULL is in no class."""
    key = ForeignKey(CHILD, ("p",), PARENT, ("id",), Rule.SET_NULL, Rule.CASCADE)

    def folded(_: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        return {one: (one[0].lower(),) for one in values}

    affected = Affected(CHILD, ("id", "p"), (key,), folded)
    affected.add_changes(PARENT, ("id",), [RowChange(place(1), ("a",), ("A",)), RowChange(place(2), ("B",), None)])
    assert affected.sought() == {key: {("a",), ("b",)}}
    affected.add_rows([(5, "A"), (6, "b"), (7, None)])
    assert affected.changes == {
        RowChange(place(1), (5, "A"), (5, "A")),
        RowChange(place(2), (6, "b"), (6, None)),
    }


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
    assert signature([replace(KEY, types=("date",))]) != signature([KEY])
    with pytest.raises(OperatorNeeded, match=r"foreign keys lead from m\.C, m\.P back to m\.C"):
        family(C, keys | {P: (ForeignKey(P, ("id",), C, ("id",), Rule.CASCADE, Rule.NONE),)})


def test_a_ring_counts_each_of_its_tables_once() -> None:
    """So that the tables of a ring have one depth, and each table below it a greater one."""
    parents = {P: {C}, C: {P, C}, G: {C}}
    assert [depth_by(one, lambda table: parents.get(table, ())) for one in (P, C, G)] == [1, 1, 2]


def test_what_is_settled_is_read_back() -> None:
    """And nothing else."""
    settled = CascadesRead("f00d", place(3))
    assert CascadesRead.from_json(settled.to_json()) == settled
    for wrong in ({}, {"keys": "f00d", "to": "3"}, {"keys": "f00d"}):
        with pytest.raises(StateUnreadable):
            CascadesRead.from_json(wrong)


def test_nothing_is_forgotten_of_a_table_that_nobody_asked_for() -> None:
    """It is not known yet."""
    Cascaded().forget(P, place(1))
    assert Standing(place(5), None).start == Standing(place(5), place(7)).start == place(5)


class Fixed:
    """Copies that stand as they are set, rows that they have, and rows that the log takes away."""

    def __init__(self, **standings: Standing) -> None:
        self.standings = {table(name): standing for name, standing in standings.items()}
        self.end = 10
        self.rows: dict[TableId, list[Row]] = {C: [(7, 1, 0)], G: [(8, 7, 0)], T: [(2, 1)]}
        self.gone: dict[TableId, list[RowChange]] = {}
        self.secret: set[ForeignKey] = set()

    @property
    def stop(self) -> Place:
        """The end of the log."""
        return place(self.end)

    def columns(self, name: TableId) -> tuple[str, ...]:
        """All columns."""
        return COLUMNS[name]

    def standing(self, name: TableId) -> Standing:
        """As it was set."""
        return self.standings[name]

    def comparable(self, key: ForeignKey) -> bool:
        """All but these."""
        return key not in self.secret

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """Each value is one for itself."""
        return alone(key, values)

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whatever was removed."""
        return any(one.place <= upto for one in self.logged(key.parent, after))

    def logged(self, name: TableId, after: Place) -> list[RowChange]:
        """The rows that were taken away after that."""
        return [one for one in self.gone.get(name, []) if one.place > after]

    def versions(self, name: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> list[Row]:
        """The rows with these values."""
        columns = COLUMNS[name]
        return [
            row
            for row in self.rows[name]
            for key, all_ in sought.items()
            if values_of(key.columns, columns, row) in all_
        ]


def following(child: TableId, column: str, parent: TableId) -> ForeignKey:
    """A foreign key whose rows go and follow."""
    return ForeignKey(child, (column,), parent, ("id",), Rule.CASCADE, Rule.CASCADE)


CHAIN = {C: (following(C, "p", P),), G: (following(G, "g", C),), T: (following(T, "up", T),)}
LEVEL = Standing(place(2), place(2))


@pytest.mark.parametrize(
    "parent",
    [
        Standing(place(2), None),
        Standing(place(2), place(5)),
        Standing(place(2), place(2), gap=True),
        Standing(place(9), place(9)),
    ],
    ids=["copied for the first time", "merged before anybody looked", "being compared", "settled by a run that ended"],
)
def test_what_became_of_a_parents_rows_is_known_only_of_rows_that_were_exact(parent: Standing) -> None:
    """It does not matter where nothing was changed above it."""
    copies = Fixed(C=parent, G=LEVEL)
    assert Cascaded().changes(G, CHAIN, copies) == set()
    copies.gone = {P: [RowChange(place(4), (1,), None)]}
    with pytest.raises(SpoolGap, match="what foreign keys changed of it after"):
        Cascaded().changes(G, CHAIN, copies)


def test_a_change_several_tables_above_counts() -> None:
    """The parent alone was copied for the first time; its own parent was changed by foreign keys."""
    copies = Fixed(C=LEVEL, G=Standing(place(2), None), D=LEVEL)
    copies.gone = {P: [RowChange(place(4), (1,), None)]}
    with pytest.raises(SpoolGap):
        Cascaded().changes(D, CHAIN | {D: (following(D, "d", G),)}, copies)


def test_what_foreign_keys_change_whose_values_nobody_compares_is_never_known() -> None:
    """It matters to the table, and to those below it, as long as their rows may lack it."""
    copies, cascaded = Fixed(C=LEVEL, G=LEVEL), Cascaded()
    copies.secret = set(CHAIN[C])
    assert cascaded.changes(G, CHAIN, copies) == set()
    copies.gone, copies.end = {P: [RowChange(place(12), (1,), None)]}, 13
    for one in (C, G, C):
        with pytest.raises(SpoolGap, match=r"whose values only the source|not known any more"):
            cascaded.changes(one, CHAIN, copies)
    copies.end = 14
    copies.standings[G] = Standing(place(13), place(13), version=1)
    assert cascaded.changes(G, CHAIN, copies) == set()
    copies.standings[C] = Standing(place(13), place(13), version=1)
    assert cascaded.changes(C, CHAIN, copies) == set()


def test_what_was_found_is_kept_until_merges_pass_it() -> None:
    """The rows of the parent were read again since; a merge beyond what was looked at ends that."""
    copies, cascaded = Fixed(C=LEVEL, G=LEVEL), Cascaded()
    copies.gone = {P: [RowChange(place(4), (1,), None)]}
    copies.end = 5
    [change] = cascaded.changes(C, CHAIN, copies)
    assert change == RowChange(place(4), (7, 1, 0), None)
    copies.rows[C], copies.end = [], 10
    copies.standings[C] = Standing(place(5), place(5), version=1)
    assert cascaded.changes(G, CHAIN, copies) == {RowChange(place(4), (8, 7, 0), None)}
    copies.standings[C], copies.end = Standing(place(5), place(11), version=2), 12
    with pytest.raises(SpoolGap):
        cascaded.changes(G, CHAIN, copies)


def test_versions_that_patches_will_replace_are_followed_from_the_copy_on() -> None:
    """A row that follows 1 to 2 waits in a patch; 2 goes after that, and what is below goes, too."""
    copies = Fixed(C=Standing(place(6), place(3)))
    copies.gone = {P: [RowChange(place(4), (1,), (2,)), RowChange(place(8), (2,), None)]}
    assert RowChange(place(8), (7, 2, 0), None) in Cascaded().changes(C, CHAIN, copies)


def test_values_that_rows_got_by_a_foreign_key_are_known() -> None:
    """Of a row that followed its parent; one that went with it has none."""
    copies, cascaded = Fixed(C=LEVEL), Cascaded()
    copies.gone = {P: [RowChange(place(4), (1,), (2,)), RowChange(place(6), (3,), None)]}
    cascaded.changes(C, CHAIN, copies)
    assert cascaded.moves(C) == {Move(place(4), CHAIN[C][0], (2,))}


def test_a_table_that_refers_to_itself_is_a_parent_like_others() -> None:
    """Its rows go with its own; in a first copy some of them may never have been seen."""
    copies = Fixed(T=LEVEL)
    copies.rows[T] += [(3, 2), (5, 4)]
    copies.gone = {T: [RowChange(place(4), (1, None), None)]}
    assert Cascaded().changes(T, CHAIN, copies) == {RowChange(place(4), row, None) for row in ((2, 1), (3, 2))}
    copies.standings[T] = Standing(place(2), None)
    with pytest.raises(SpoolGap):
        Cascaded().changes(T, CHAIN, copies)


def test_nothing_is_looked_for_twice() -> None:
    """Unless the rows, or the log, are others."""
    copies, cascaded = Fixed(C=LEVEL), Cascaded()
    first = cascaded.changes(C, CHAIN, copies)
    copies.gone = {P: [RowChange(place(4), (1,), None)]}
    assert cascaded.changes(C, CHAIN, copies) is first
    copies.standings[C] = replace(LEVEL, version=1)
    assert len(cascaded.changes(C, CHAIN, copies)) == 1
    cascaded.forget(C, place(4))
    assert cascaded.changes(C, CHAIN, copies) == set()
