"""Doubles: which publishes of shards readers may see with a global key, and a model of it in any order."""

import random
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import pytest

from lakeingest.core.tables.doubles import Double, StillDoubled, shown_together

Keys = frozenset[int]
NONE: Keys = frozenset()


@dataclass
class Lake:
    """A model: the keys of each shard as of its last publish, and those that readers see."""

    published: dict[str, Keys] = field(default_factory=dict)
    shown: dict[str, Keys] = field(default_factory=dict)

    def find(self, shard: str, together: AbstractSet[str]) -> Iterator[Double]:
        """As the lake does it: only keys that are new in the shard are looked for."""
        new = self.published[shard] - self.shown.get(shard, NONE)
        for other in sorted(self.shown.keys() | together - {shard}):
            if other == shard:
                continue
            seen = self.published[other] if other in together else self.shown[other]
            for key in sorted(new & seen):
                yield Double(shard, other, str(key), has_left=key not in self.published[other])

    def show(self, shard: str) -> Double | None:
        """Show the last publish of a shard, with others if need be. Returns the double that keeps it from readers."""
        try:
            together = shown_together(shard, self.find)
        except StillDoubled as error:
            [double] = error.args
            assert isinstance(double, Double)
            return double
        self.shown |= {name: self.published[name] for name in together}
        return None

    def publish(self, shard: str, keys: AbstractSet[int]) -> Double | None:
        """Publish a shard, and show it if that makes no double."""
        self.published[shard] = frozenset(keys)
        return self.show(shard)

    def assert_unique(self) -> None:
        """Readers see no key twice."""
        keys = [key for seen in self.shown.values() for key in seen]
        assert len(keys) == len(set(keys))


def lake(**shards: set[int]) -> Lake:
    """A lake whose shards have these keys."""
    keys = {name: frozenset(one) for name, one in shards.items()}
    return Lake(dict(keys), dict(keys))


def test_a_double_keeps_the_later_shard_from_readers_until_it_is_gone() -> None:
    """By name; the other shard goes on. It does not matter in which shard the key goes away."""
    for gone_from in ("a", "b"):
        model = lake(a={1}, b={2})
        assert model.publish("b", {1, 2}) == Double("b", "a", "1", has_left=False)
        assert model.shown["b"] == {2}
        assert model.publish("a", {1, 3}) is None
        assert model.publish("b", {1, 2, 4}) == Double("b", "a", "1", has_left=False)
        if gone_from == "a":
            assert model.publish("a", {3}) is None
            assert model.show("b") is None
        else:
            assert model.publish("b", {2, 4}) is None
        model.assert_unique()
        assert model.shown == model.published


def test_a_row_may_move_to_a_shard_that_is_published_first() -> None:
    """It waits for the publish that takes the row away, and is then shown with it, or after it."""
    model = lake(a={1}, b={2})
    assert model.publish("b", {1, 2}) is not None
    assert model.publish("a", set()) is None
    model.assert_unique()
    assert model.show("b") is None
    assert model.shown == {"a": NONE, "b": {1, 2}}


def test_rows_may_change_places_and_go_round() -> None:
    """No single shard could be shown alone: one commit shows all of them."""
    model = lake(a={1}, b={2}, c={3})
    assert model.publish("a", {2}) is not None
    assert model.publish("b", {1}) is None
    assert model.shown == {"a": {2}, "b": {1}, "c": {3}}
    assert model.publish("a", {3}) is not None
    assert model.publish("b", {2}) is not None  # a has left it for a key that c still has
    assert model.publish("c", {1}) is None
    assert model.shown == model.published == {"a": {3}, "b": {2}, "c": {1}}


def test_a_shard_that_is_shown_with_another_must_have_no_double_itself() -> None:
    """Neither with a third one, nor with the first."""
    model = lake(a={1}, b={2}, c={3})
    model.published["a"] = frozenset({3})
    assert model.publish("b", {1, 2}) == Double("a", "c", "3", has_left=False)
    model = lake(a={1}, b={2})
    model.published["a"] = frozenset({5})
    assert model.publish("b", {1, 2, 5}) == Double("a", "b", "5", has_left=False)
    assert model.shown == {"a": {1}, "b": {2}}


def change(source: dict[str, set[int]], what: str, one: str, other: str, choose: random.Random) -> None:
    """Change rows of two shards at the source."""
    mine, theirs = ({choose.choice(sorted(source[name]))} if source[name] else set[int]() for name in (one, other))
    if what == "new":
        source[one].add(choose.randrange(100, 120))
    if what in {"move", "swap", "delete"}:
        source[one] -= mine
    if what == "swap":
        source[other] -= theirs
        source[one] |= theirs
    if what in {"move", "swap", "double"}:
        source[other] |= mine


@pytest.mark.parametrize("seed", range(100))
def test_in_any_order_readers_see_no_double_and_at_last_every_row(seed: int) -> None:
    """Rows move, in one transaction or in two, and doubles come and go; publishes are late, or killed before they show.

    A shard is kept from readers only by a key that two shards have. With the last double the last stop is gone, too.
    """
    choose = random.Random(seed)
    names = ["a", "b", "c", "d"]
    source: dict[str, set[int]] = {name: {10 * number, 10 * number + 1} for number, name in enumerate(names)}
    model = Lake()
    for _ in range(60):
        one, other = choose.sample(names, 2)
        what = choose.choice(("move", "swap", "new", "delete", "double", "publish", "publish", "killed"))
        if what == "publish":
            double = model.publish(one, source[one])
            if double is not None:
                assert int(double.key) in model.published[double.shard] & model.published[double.other]
        elif what == "killed":
            model.published[one] = frozenset(source[one])
        else:
            change(source, what, one, other, choose)
        model.assert_unique()
    for name in names:  # the application mends its doubles: each key stays in one shard
        for other in names[: names.index(name)]:
            source[name] -= source[other]
    for name in choose.sample(names, len(names)):
        model.publish(name, source[name])
        model.assert_unique()
    assert [model.show(name) for name in names] == [None] * len(names)
    assert model.shown == {name: frozenset(keys) for name, keys in source.items()}
