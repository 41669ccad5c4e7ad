"""The pause after a round: so long that the run computes half of the time."""

import pytest

from lakeingest.core.pace import LEAST, MOST_SECONDS, SHARE, pause


@pytest.mark.parametrize(
    ("wall", "cpu", "seconds"),
    [
        (1.0, 1.0, 1.0),  # it only computed
        (1.0, 0.75, 0.5),
        (1.0, 0.5, LEAST),  # it waited for half of its time
        (1.0, 0.0, LEAST),
        (0.2, 0.4, 0.6),  # its threads computed side by side
        (8.0, 8.0, MOST_SECONDS),
        (60.0, 1.0, MOST_SECONDS),
        (0.0, 0.0, 0.0),
    ],
)
def test_a_round_and_its_pause_are_as_long_as_the_share_asks(wall: float, cpu: float, seconds: float) -> None:
    """Never longer than MOST_SECONDS, and never shorter than a part of the round."""
    assert pause(wall, cpu) == pytest.approx(seconds)
    if seconds < MOST_SECONDS and wall:
        assert cpu / (wall + pause(wall, cpu)) <= SHARE + 1e-9
