import pytest

from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.figures.shown import Shown

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(history: History | None) -> Position:
    """A position with a history."""
    return Position(UUID, 1, FilePosition("binlog.000007", 1234), GtidSet(), history)


LAST = Committed("binlog.000007", 1000, None, 1_769_860_800_123_456)


@pytest.mark.parametrize(
    "shown",
    [
        Shown(None, 0),
        Shown(position(None), 7, "2026-01-31T12:00:01+00:00"),
        Shown(position(History(5, last=LAST)), 7),
    ],
)
def test_a_text_is_read_back(shown: Shown) -> None:
    """Whatever is known of it."""
    assert Shown.of_text(shown.to_text()) == shown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"position": {}, "rows": 1, "at": null}'])
def test_another_text_says_nothing(text: str) -> None:
    """Somebody changed it."""
    assert Shown.of_text(text) is None


def test_the_time_is_that_of_the_last_transaction() -> None:
    """None where it is not known."""
    assert Shown(position(History(5, last=LAST)), 7).source_time == "2026-01-31T12:00:00+00:00"
    assert Shown(position(History(5)), 7).source_time is None
    assert Shown(position(None), 7).source_time is None
    assert Shown(None, 7).source_time is None
