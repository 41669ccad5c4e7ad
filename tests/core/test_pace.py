"""The pause after a round: so long that the run computes half of the time."""

import pytest

from lakeingest.core.figures.pace import LEAST, MOST_SECONDS, SHARE, TIMES, Round, pause


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
    usual = Round(wall, cpu)
    assert pause(usual, usual) == usual.pause == pytest.approx(seconds)
    if seconds < MOST_SECONDS and wall:
        assert cpu / (wall + usual.pause) <= SHARE + 1e-9


def test_a_long_round_is_not_followed_by_a_pause_as_long_as_itself() -> None:
    """The rounds after it pay for it: over all of them the run computes half of the time."""
    usual, computed, passed = Round(0.3, 0.3), 0.0, 0.0
    for number in range(320):
        seconds = 1.2 if number % 16 == 15 else 0.3
        last = Round(seconds, seconds)
        usual = usual.then(last)
        assert pause(usual, last) < 0.5
        computed, passed = computed + seconds, passed + seconds + pause(usual, last)
    assert computed / passed == pytest.approx(SHARE, rel=0.02)


def test_short_rounds_hardly_pay_for_a_long_beginning() -> None:
    """Such as a first round that has much to catch up with."""
    last = Round(0.3, 0.3)
    assert pause(Round(60.0, 60.0).then(last), last) == TIMES * 0.3
