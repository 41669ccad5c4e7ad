"""Shards with a global key, in an Iceberg catalog: no commit of their table ever shows a key twice."""

import random
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from lakeingest.core.tables.change import DATABASE
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import KeyDoubled, StaleWriter, UnsupportedTable
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.iceberg.test_shards import Shard, shard_of, unique_shard_of
from tests.lake.steps import PLAIN, Crash, Row

__all__ = ["shard_of", "unique_shard_of"]  # fixtures

Shards = Callable[..., Shard]


def seen(shard: Shard) -> dict[Any, str]:
    """The database of each key that readers see. No key is there twice."""
    rows = shard.all_seen()
    found = {row["id"]: row[DATABASE] for row in rows}
    assert len(found) == len(rows)
    return found


def change(shard: Shard, staged: Staged, *rows: Row, pos: int = 30) -> Staged:
    """Merge changes and publish them."""
    return shard.publish(shard.merge(staged, *rows, pos=pos))


def test_the_key_of_the_table_is_that_of_its_shards(unique_shard_of: Shards) -> None:
    """Without database and table, which are columns like others."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    one.published((1, "a"))
    other.published((2, "b"))
    with one.shared() as table:
        key = [table.schema().find_column_name(number) for number in table.schema().identifier_field_ids]
        assert key == ["id"]
        assert table.properties["lakeingest.global_key"] == "true"
    assert seen(one) == {1: "a", 2: "b"}


def test_a_first_copy_with_a_key_of_another_shard_is_kept_from_readers(unique_shard_of: Shards) -> None:
    """The error has both shards and the key. Once the row is gone, it is shown, also by a run that changes nothing."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    staged = one.published((1, "a"), (2, "a"))
    with pytest.raises(KeyDoubled, match=r"^b\.t: its key id = 2 is a key of a\.t, too, and target\.global_key says"):
        other.published((2, "b"), (3, "b"))
    assert seen(other) == {1: "a", 2: "a"}
    kept = other.loaded()
    assert not kept.visible
    assert kept.published is None
    with pytest.raises(KeyDoubled, match="id = 2"):
        other.publish(kept)
    staged = change(one, staged, (1, "new", False), pos=31)  # the other shard goes on
    change(one, staged, (2, "", True), pos=32)
    assert other.loaded().visible
    assert seen(other) == {1: "a", 2: "b", 3: "b"}


def test_a_first_copy_that_is_kept_from_readers_can_begin_anew(unique_shard_of: Shards) -> None:
    """DDL may ask for that; so may a first copy that has not even been published. A shard that is seen stays."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    one.published((1, "a"))
    with pytest.raises(KeyDoubled):
        other.published((1, "b"))
    other.open().discard(other.table)
    assert other.open().recover(other.table) is None
    other.created()
    other.open().discard(other.table)
    other.published((2, "b"))
    with pytest.raises(StaleWriter):
        other.open().discard(other.table)
    assert seen(one) == {1: "a", 2: "b"}


def test_a_double_goes_away_in_the_shard_that_is_kept(unique_shard_of: Shards) -> None:
    """It goes on to be changed and published. Readers see it as before, and `look` says so, until it is unique."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    one.published((1, "a"))
    staged = other.published((2, "b"))
    with pytest.raises(KeyDoubled, match=r"b\.t: its key id = 1 is a key of a\.t"):
        change(other, staged, (1, "b", False), pos=30)
    looked = other.open().look(other.table)
    assert looked is not None
    assert looked.staged.published == staged.version != looked.staged.version
    kept = other.loaded()
    with pytest.raises(KeyDoubled, match="id = 1"):
        change(other, kept, (5, "b", False), pos=31)
    assert seen(other) == {1: "a", 2: "b"}
    change(other, other.loaded(), (1, "", True), pos=32)
    assert other.loaded().visible
    assert seen(other) == {1: "a", 2: "b", 5: "b"}


def test_rows_move_between_shards(unique_shard_of: Shards) -> None:
    """To a shard that is published later, or first: then it waits. Two may change places: one commit shows both."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    first, second = one.published((1, "a"), (2, "a")), other.published((3, "b"))
    first = change(one, first, (1, "", True), pos=30)
    second = change(other, second, (1, "moved", False), pos=30)
    assert seen(one) == {1: "b", 2: "a", 3: "b"}
    with pytest.raises(KeyDoubled):
        change(other, second, (2, "moved", False), pos=31)
    first = change(one, first, (2, "", True), (7, "a", False), pos=31)
    other.publish(other.merge(other.loaded(), pos=32))
    assert seen(one) == {1: "b", 2: "b", 3: "b", 7: "a"}
    with one.shared() as table:
        before = len(table.metadata.snapshots)
    second = other.loaded()
    with pytest.raises(KeyDoubled):
        change(other, second, (7, "swapped", False), (3, "", True), pos=33)
    change(one, first, (3, "swapped", False), (7, "", True), pos=33)
    assert seen(one) == {1: "b", 2: "b", 3: "a", 7: "b"}
    with one.shared() as table:
        assert len(table.metadata.snapshots) == before + 1
    assert other.loaded().visible


def test_a_publish_that_was_killed_before_it_was_shown_counts(unique_shard_of: Shards) -> None:
    """Of two shards that publish one key, one is shown. Of a kept shard no run is needed for the other one to go on."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    first, second = one.published((1, "a")), other.published((2, "b"))
    with pytest.raises(Crash):
        one.publish(one.merge(first, (9, "a", False), pos=30), one.dying_before("show"))
    second = change(other, second, (9, "b", False), pos=30)
    assert seen(one) == {1: "a", 2: "b", 9: "b"}
    kept = one.loaded()
    assert kept.published == first.version
    with pytest.raises(KeyDoubled, match=r"a\.t: its key id = 9 is a key of b\.t"):
        one.publish(kept)
    change(other, second, (9, "", True), pos=31)
    one.publish(kept)
    assert seen(one) == {1: "a", 2: "b", 9: "a"}


def test_a_row_that_comes_back_by_an_older_commit_is_found(unique_shard_of: Shards) -> None:
    """Its file is not new; the file of deletes that applied to it is gone."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    before = one.published((1, "a"), (2, "a"))
    deleted = change(one, before, (2, "", True), pos=30)
    other.published((2, "b"))
    back = one.open().go_back(deleted, before.version, before.progress)
    with pytest.raises(KeyDoubled, match=r"a\.t: its key id = 2 is a key of b\.t"):
        one.publish(one.open().mark(back, one.leveled(back, 40)))
    assert seen(one) == {1: "a", 2: "b"}


LONG = Column("ID", Kind.INT64, source_type("bigint"), nullable=False)
TEXT = Column("id", Kind.STRING, source_type("varchar(9)"), nullable=False, charset="utf8mb4", collation="utf8mb4_bin")
DAY = Column("id", Kind.DATE, source_type("date"), nullable=False)
NUMBER = Column("n", Kind.INT32, source_type("int"), nullable=False)


def test_keys_of_two_types_and_spellings_are_compared(unique_shard_of: Shards) -> None:
    """INT and BIGINT, `id` and `ID`, in either order."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t", (LONG, PLAIN[1]), ("ID",))
    staged = one.published((1, "a"))
    with pytest.raises(KeyDoubled, match=r"b\.t: its key ID = 1 is a key of a\.t"):
        other.published((1, "b"), (2**40, "b"))
    change(one, staged, (1, "", True), pos=30)
    assert other.loaded().visible
    with pytest.raises(KeyDoubled, match=r"a\.t: its key id = 1 is a key of b\.t"):
        change(one, one.loaded(), (1, "again", False), pos=31)


@pytest.mark.parametrize(
    ("columns", "key", "rows"),
    [
        ((TEXT, PLAIN[1]), ("id",), [("k", ""), ("K", ""), ("l", "")]),
        ((DAY, PLAIN[1]), ("id",), [(date(2026, 1, day), "") for day in (1, 2, 3)]),
        ((PLAIN[0], NUMBER, PLAIN[1]), ("id", "n"), [(1, 1, ""), (1, 2, ""), (2, 1, "")]),
    ],
    ids=["text", "date", "two columns"],
)
def test_keys_of_other_kinds_are_compared(
    unique_shard_of: Shards, columns: tuple[Column, ...], key: tuple[str, ...], rows: list[Row]
) -> None:
    """By all of their columns."""
    one, other = unique_shard_of("a.t", columns, key), unique_shard_of("b.t", columns, key)
    one.published(rows[0])
    staged = other.published(rows[1], rows[2])
    with pytest.raises(KeyDoubled, match=r"b\.t: its key .* is a key of a\.t"):
        change(other, staged, (*rows[0], False), pos=30)
    assert len(one.all_seen()) == 3


def test_a_table_cannot_get_or_lose_its_global_key(unique_shard_of: Shards, shard_of: Shards) -> None:
    """It might have doubles already."""
    unique_shard_of("a.t").published((1, "a"))
    with pytest.raises(UnsupportedTable, match=r"b\.t: lake\.all was made with another target\.global_key"):
        shard_of("b.t").created()


def test_compactions_and_old_commits_stay_exact(unique_shard_of: Shards) -> None:
    """A compacted shard has new files with old keys; they are no doubles."""
    one, other = unique_shard_of("a.t"), unique_shard_of("b.t")
    staged = one.published((1, "a"), (2, "a"))
    other.published((3, "b"))
    for number in range(4):
        staged = change(one, staged, (1, f"n{number}", False), pos=40 + number)
    staged = one.open().maintain(staged)
    one.publish(one.open().mark(staged, one.leveled(staged, 50)))
    assert seen(one) == {1: "a", 2: "a", 3: "b"}
    with pytest.raises(KeyDoubled):
        change(other, other.loaded(), (2, "b", False), pos=60)


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_readers_see_no_double(unique_shard_of: Shards, seed: int) -> None:
    """As the model says (tests/core/test_doubles.py), with merges and publishes of the lake."""
    choose = random.Random(seed)
    shards = {name: unique_shard_of(f"{name}.t") for name in "abc"}
    source = {name: {10 * number + one for one in range(3)} for number, name in enumerate(shards)}
    copied = {name: set(keys) for name, keys in source.items()}
    for name, shard in shards.items():
        shard.published(*((key, name) for key in source[name]))
    pos = 100

    def publish(name: str) -> bool:
        shard = shards[name]
        gone, new = copied[name] - source[name], source[name] - copied[name]
        merged = shard.merge(
            shard.loaded(), *((key, "", True) for key in gone), *((key, name, False) for key in new), pos=pos
        )
        copied[name] = set(source[name])
        try:
            shard.publish(merged)
        except KeyDoubled:
            return False
        return True

    for _ in range(12):
        pos += 1
        one, other = choose.sample(sorted(shards), 2)
        key = choose.choice(sorted(source[one]) or [choose.randrange(100, 105)])
        what = choose.choice(("move", "double", "delete", "new"))
        if what in {"move", "delete"}:
            source[one].discard(key)
        if what in {"move", "double"}:
            source[other].add(key)
        if what == "new":
            source[one].add(choose.randrange(100, 105))
        publish(choose.choice((one, other)))
        seen(shards["a"])
    for name in shards:
        for other in sorted(shards)[: sorted(shards).index(name)]:
            source[name] -= source[other]
    pos += 1
    waiting = [name for name in choose.sample(sorted(shards), 3) if not publish(name)]
    pos += 1
    assert all(publish(name) for name in waiting)
    assert seen(shards["a"]) == {key: name for name, keys in source.items() for key in keys}
