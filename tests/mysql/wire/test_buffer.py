import random

import pytest

from lakeingest.mysql.wire.buffer import Buffer
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import Damaged


def test_unused_bytes_stay_in_order() -> None:
    """Whatever arrives and is used, and however often room is made."""
    chance = random.Random(1)
    sent = chance.randbytes(100_000)
    found = Buffer(100)
    arrived = used = 0
    while used < len(sent):
        room = found.free_space()
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
            assert len(found.free_space()) > 0
            assert found.data[found.at : found.end].tobytes() == sent[used:arrived]
    assert len(found.data) - SLACK <= 1000


def test_the_buffer_grows_only_when_most_of_it_is_unused() -> None:
    """Else the unused bytes are moved to the front."""
    found = Buffer(100)
    found.end, found.at = 100, 50
    found.make_room()
    assert (len(found.data) - SLACK, found.at, found.end) == (100, 0, 50)
    found.end = 100
    found.at = 49
    found.make_room()
    assert (len(found.data) - SLACK, found.at, found.end) == (200, 0, 51)


def test_slack_always_follows_the_received_bytes() -> None:
    """The free space never includes the bytes that kernels may read beyond the end."""
    found = Buffer(10)
    assert len(found.free_space()) == 10
    found.end = 10
    assert found.is_full
    assert len(found.data) == 10 + SLACK


def test_a_buffer_at_its_limit_makes_room_as_long_as_bytes_were_used() -> None:
    """Also if more than half of it is unused: an event of the greatest size may come after a small one."""
    found = Buffer(100, most=100)
    found.end, found.at = 100, 1
    found.make_room()
    assert (len(found.data) - SLACK, found.at, found.end) == (100, 0, 99)


def test_a_buffer_above_its_limit_is_an_error() -> None:
    """It grows up to the limit, and no further: no server sends so much, so it is broken or hostile."""
    found = Buffer(100, most=150)
    found.end = 100
    found.make_room()
    assert len(found.free_space()) == 50
    found.end = 150
    with pytest.raises(Damaged, match="more than 150 bytes"):
        found.make_room()
