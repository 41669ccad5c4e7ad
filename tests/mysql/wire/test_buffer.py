import random

import pytest

from lakeingest.mysql.wire import buffer
from lakeingest.mysql.wire.buffer import Buffer
from lakeingest.mysql.wire.compiled import SLACK


def test_bytes_that_were_not_used_stay_in_order() -> None:
    """Whatever arrives and is used, and however often room is made."""
    chance = random.Random(1)
    sent = chance.randbytes(100_000)
    found = Buffer(100)
    arrived = used = 0
    while used < len(sent):
        room = found.room()
        size = min(chance.randint(0, len(room)), len(sent) - arrived)
        room[:size] = sent[arrived : arrived + size]
        found.end += size
        arrived += size
        assert found.data[found.at : found.end].tobytes() == sent[used:arrived]
        size = chance.randint(0, found.end - found.at)
        found.at += size
        used += size
        if found.is_full:
            found.make_room()
            assert len(found.room()) > 0
            assert found.data[found.at : found.end].tobytes() == sent[used:arrived]
    assert len(found.data) - SLACK <= 1000


def test_it_grows_only_when_most_of_it_is_not_used() -> None:
    """Else what was not used is moved to the front."""
    found = Buffer(100)
    found.end, found.at = 100, 50
    found.make_room()
    assert (len(found.data) - SLACK, found.at, found.end) == (100, 0, 50)
    found.end = 100
    found.at = 49
    found.make_room()
    assert (len(found.data) - SLACK, found.at, found.end) == (200, 0, 51)


def test_slack_follows_whatever_arrives() -> None:
    """No room is given out that kernels may read beyond."""
    found = Buffer(10)
    assert len(found.room()) == 10
    found.end = 10
    assert found.is_full
    assert len(found.data) == 10 + SLACK


def test_what_is_larger_than_its_places_can_say_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows up to the most, and no further."""
    monkeypatch.setattr(buffer, "_MOST", 150)
    found = Buffer(100)
    found.end = 100
    found.make_room()
    assert len(found.room()) == 50
    found.end = 150
    with pytest.raises(ValueError, match="more than 2 GiB"):
        found.make_room()
