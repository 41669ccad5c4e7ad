"""Shards: the columns that they share, which of their commits readers see, and a model of both in any order."""

import random
from dataclasses import dataclass, field

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.core.tables.shards import (
    NOTHING,
    ShardsDiffer,
    SharedColumn,
    Showing,
    family,
    field_id,
    held,
    joined,
    shard_of,
    text_of,
    wider,
)

ID, NAME = SharedColumn("id", "int"), SharedColumn("name", "string")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int", "int", "int"),
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("decimal(9, 2)", "decimal(12, 2)", "decimal(12, 2)"),
        ("decimal(12, 2)", "decimal(9, 2)", "decimal(12, 2)"),
        ("string", "string", "string"),
    ],
)
def test_types_of_one_family_meet_in_the_wider_one(one: str, other: str, both: str) -> None:
    """And a column of either type has one field id, so that files of both are read."""
    assert family(one) == family(other)
    assert wider(one, other) == both
    assert field_id("n", one) == field_id("N", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("int", "string"), ("decimal(9, 2)", "decimal(9, 3)"), ("float", "double"), ("timestamp", "timestamptz")],
)
def test_other_types_do_not_meet(one: str, other: str) -> None:
    """A shard that has the other one is refused: its values could not be read as they are."""
    assert field_id("n", one) != field_id("n", other)
    with pytest.raises(ShardsDiffer, match="n is"):
        joined([ID, SharedColumn("n", one)], ["id"], [ID, SharedColumn("n", other)], ["id"])


def test_columns_meet_by_name() -> None:
    """Whatever their order; a column that one of them lacks stays; the first name counts."""
    columns = joined([ID, NAME], ["id"], [SharedColumn("NAME", "string"), SharedColumn("ID", "long")], ["ID"])
    assert columns == (SharedColumn("id", "long"), NAME)
    columns = joined(columns, ["id"], [ID, SharedColumn("new", "date")], ["id"])
    assert columns == (SharedColumn("id", "long"), NAME, SharedColumn("new", "date"))
    assert len({column.field_id for column in columns}) == len(columns)
    assert field_id("v", "list<float>") != field_id("v", "list<float>", "elements")


def test_another_key_is_refused() -> None:
    """Its order does not matter, because rows are found by all of its columns."""
    assert joined([ID, NAME], ["id", "name"], [ID, NAME], ["name", "id"]) == (ID, NAME)
    with pytest.raises(ShardsDiffer, match=r"its key is \(name\), and that of the other shards is \(id\)"):
        joined([ID, NAME], ["id"], [ID, NAME], ["name"])


def test_two_names_with_one_field_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would mix up the two columns. Nobody has found two such names: here there are few ids."""
    monkeypatch.setattr("lakeingest.core.tables.shards._IDS", 1)
    with pytest.raises(ShardsDiffer, match="name has the field id of id"):
        joined([], ["id"], [ID, NAME], ["id"])


@pytest.mark.parametrize(
    "shard", [TableId("a.b", "c"), TableId("a", "b.c"), TableId("a/b", "c/d"), TableId("%2F", "é")]
)
def test_the_name_of_a_shard_says_which_table_it_is(shard: TableId) -> None:
    """Databases and tables may have dots and slashes."""
    assert shard_of(text_of(shard)) == shard


def test_shards_have_names_of_their_own() -> None:
    """A dot or a slash of a database is not taken for the end of its name."""
    assert text_of(TableId("a.b", "c")) != text_of(TableId("a", "b.c"))
    assert text_of(TableId("a/b", "c")) != text_of(TableId("a", "b/c"))


def test_a_commit_says_which_commits_it_shows() -> None:
    """As a text, too."""
    orders = TableId("shop", "orders")
    showing = NOTHING.showing({text_of(orders): 2**62})
    assert Showing.of_text(showing.to_text()) == showing
    assert (showing.commit_of(orders), showing.commit_of(TableId("shop", "x"))) == (2**62, None)
    assert held([NOTHING, showing, showing.showing({text_of(orders): 7})], orders) == {7, 2**62}


@dataclass
class Lake:
    """A model: the commits of each shard, by number, what its own main is at, and the snapshots of the shared table."""

    copies: dict[TableId, dict[int, int]]  # by commit: the position that its rows are as of
    mains: dict[TableId, int] = field(default_factory=dict)
    snapshots: list[Showing] = field(default_factory=list)
    commits: int = 0

    def publish(self, shard: TableId, position: int) -> None:
        """A new commit of a shard, which its main is at; readers of the shared table do not see it yet."""
        self.commits += 1
        self.copies[shard][self.commits] = position
        self.mains[shard] = self.commits

    def show(self, shard: TableId) -> None:
        """What a run does after a publish, and when it recovers the shard."""
        if shard in self.mains:
            shown = self.snapshots[-1] if self.snapshots else NOTHING
            self.snapshots.append(shown.showing({text_of(shard): self.mains[shard]}))

    def expire(self, shard: TableId) -> None:
        """Remove all commits of a shard that nobody needs."""
        needed = held(self.snapshots, shard) | {self.mains.get(shard, 0)}
        self.copies[shard] = {commit: at for commit, at in self.copies[shard].items() if commit in needed}

    def forget(self) -> None:
        """Remove all snapshots of the shared table but the last."""
        del self.snapshots[:-1]

    def positions(self, showing: Showing) -> dict[str, int]:
        """The position of each shard that a snapshot shows. KeyError: its files are gone."""
        return {name: self.copies[shard_of(name)][commit] for name, commit in showing.commits.items()}


@pytest.mark.parametrize("seed", range(50))
def test_in_any_order_readers_see_each_shard_at_one_position_that_never_goes_back(seed: int) -> None:
    """Publishes, kills between the two steps, expiry of both, and shards that join, in any order."""
    choose = random.Random(seed)
    shards = [TableId(f"db{number}", "orders") for number in range(4)]
    lake, seen, clock = Lake({shard: {} for shard in shards}), dict[str, int](), 0
    for _ in range(200):
        shard, clock = choose.choice(shards), clock + 1
        match choose.choice(("publish", "killed", "recover", "expire", "forget")):
            case "publish":
                lake.publish(shard, clock)
                lake.show(shard)
            case "killed":
                lake.publish(shard, clock)
            case "recover":
                lake.show(shard)
            case "expire":
                lake.expire(shard)
            case "forget":
                lake.forget()
        for snapshot in lake.snapshots:  # each is whole, also the older ones that queries may read
            lake.positions(snapshot)
        now = lake.positions(lake.snapshots[-1]) if lake.snapshots else {}
        assert all(now[name] >= position for name, position in seen.items())
        seen = now
    for shard in shards:
        lake.show(shard)
    assert lake.positions(lake.snapshots[-1]) == {
        text_of(shard): lake.copies[shard][commit] for shard, commit in lake.mains.items()
    }
