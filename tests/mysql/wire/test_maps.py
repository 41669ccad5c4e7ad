import random

import pytest

from lakeingest.mysql.wire import maps
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.follow import Map, map_index
from lakeingest.mysql.wire.maps import Maps


def known(found: Maps, table_id: int) -> bytes | None:
    """The bytes that are remembered of an id."""
    entry = found.entries[map_index(found.entries, table_id)]
    start = int(entry[Map.START])
    return found.data[start : start + int(entry[Map.SIZE])].tobytes() if entry[Map.SIZE] else None


def test_every_table_id_has_its_own_table() -> None:
    """For any number of ids, also with collisions in the hash table."""
    found = Maps()
    chance = random.Random(1)
    ids = [*range(0, 1 << 20, 1 << 10), *(chance.randrange(1 << 48) for _ in range(4000))]
    for number, table_id in enumerate(ids):
        found.add(table_id, b"%d" % table_id * 5, number, 7)
    for number, table_id in enumerate(ids):
        assert found.table(table_id, 7) == number
        assert known(found, table_id) == b"%d" % table_id * 5
    assert found.table(1, 7) is None


def test_a_map_is_valid_only_in_its_transaction() -> None:
    """−1 is a table that is not copied."""
    found = Maps()
    found.add(5, b"map", -1, 3)
    assert (found.table(5, 3), found.table(5, 4), found.table(6, 3)) == (-1, None, None)
    found.add(5, b"other", 2, 4)
    assert (found.table(5, 3), found.table(5, 4), known(found, 5)) == (None, 2, b"other")


def test_old_table_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maps of earlier transactions and their bytes are removed, so memory does not grow."""
    monkeypatch.setattr(maps, "_IDS_MAX", 50)
    found = Maps()
    for number in range(5000):
        found.add(2 * number, bytes(300), 0, number)
        found.add(2 * number + 1, b"%d" % number * 60, 1, number)
        assert (found.table(2 * number, number), found.table(2 * number + 1, number)) == (0, 1)
        assert known(found, 2 * number + 1) == b"%d" % number * 60
    assert len(found.entries) == 1 << 10
    assert len(found.data) <= (1 << 16) + SLACK


def test_the_maps_of_the_current_transaction_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of tables."""
    monkeypatch.setattr(maps, "_IDS_MAX", 50)
    found = Maps()
    for table_id in range(3000):
        found.add(table_id, b"%d" % table_id, table_id, 9)
    assert [found.table(table_id, 9) for table_id in range(3000)] == list(range(3000))
    assert [known(found, table_id) for table_id in range(3000)] == [b"%d" % table_id for table_id in range(3000)]
