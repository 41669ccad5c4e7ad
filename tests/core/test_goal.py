"""Goals: when readers see what someone waits for, by times, GTIDs and positions of the server that wrote them."""

import pytest

from lakeingest.core.binlog.goal import Before, Goal, Written, is_seen
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position

UUID = "00000000-0000-0000-0000-00000000000a"


def gtids(last: int) -> GtidSet:
    """The transactions from 1 to the last one."""
    return GtidSet.parse(f"{UUID}:1-{last}")


def at(pos: int, executed: GtidSet | None = None, server: str = "a") -> Position:
    """A position in a file of a server's binlog."""
    return Position(server, 1, FilePosition("binlog.000001", pos), executed)


PLACE = FilePosition("binlog.000001", 100)


@pytest.mark.parametrize(
    ("goal", "complete_to", "as_of", "seen"),
    [
        (Before(50.0), at(4), None, False),
        (Before(50.0), at(4), 49.9, False),
        (Before(50.0), None, 50.0, True),
        (gtids(7), None, 99.0, False),
        (gtids(7), at(200), 99.0, False),  # the position has no GTIDs
        (gtids(7), at(4, gtids(6)), None, False),
        (gtids(7), at(4, gtids(7)), None, True),
        (Written("a", PLACE, None), None, 99.0, False),
        (Written("a", PLACE, None), at(99), None, False),
        (Written("a", PLACE, None), at(100), None, True),
        (Written("a", PLACE, gtids(7)), at(99, gtids(8)), None, False),
        (Written("a", PLACE, None), at(200, server="b"), None, False),  # the bytes of another server
        (Written("a", PLACE, gtids(7)), at(4, gtids(6), "b"), None, False),
        (Written("a", PLACE, gtids(7)), at(4, gtids(8), "b"), None, True),  # after a failover
    ],
)
def test_a_goal_is_seen_only_if_that_is_known(
    goal: Goal,
    complete_to: Position | None,
    as_of: float | None,
    seen: bool,  # noqa: FBT001 - of a case
) -> None:
    """What cannot be compared is not seen."""
    assert is_seen(goal, complete_to, as_of) is seen
