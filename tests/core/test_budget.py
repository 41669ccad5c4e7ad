"""The budget of metrics: a share of the run's CPU seconds, beside what cannot wait."""

import pytest

from lakeingest.core.figures.budget import MOST_SECONDS, NEWS_SHARE, SHARE, is_due


@pytest.mark.parametrize("processors", [0.1, 1.0, 3.5])
def test_deliveries_take_their_share_of_a_run_that_works(processors: float) -> None:
    """However often somebody asks whether one is due; and they use what they may."""
    cost, delivered, last = 0.002, 0, 0.0
    for tick in range(1, 360_000):
        now = tick / 100
        spent, run = cost + 0.0001 * (now - last), processors * (now - last)  # what is collected counts, too
        if is_due(cost=cost, spent=spent, run=run, waited=now - last, is_news=False):
            delivered, last = delivered + 1, now
    assert 0.8 * SHARE < (delivered * cost + 0.36) / (3_600 * processors) <= SHARE


def test_a_run_that_does_nothing_delivers_each_minute() -> None:
    """Although that is more than its share."""
    spent = {"cost": 0.002, "spent": 1.0, "run": 2.0}
    assert not is_due(waited=MOST_SECONDS - 0.1, is_news=False, **spent)
    assert is_due(waited=MOST_SECONDS, is_news=False, **spent)


@pytest.mark.parametrize(("cost", "seconds"), [(0.0, 0.0), (0.002, 0.2), (0.2, 20.0)])
def test_news_wait_for_no_budget(cost: float, seconds: float) -> None:
    """Only if they come again and again, and with very many tables, a second one waits for a while."""
    assert cost / NEWS_SHARE == pytest.approx(seconds)
    spent = {"cost": cost, "spent": 1.0, "run": 2.0}
    assert is_due(waited=seconds + 1e-6, is_news=True, **spent)
    assert not seconds or not is_due(waited=seconds * 0.9, is_news=True, **spent)
