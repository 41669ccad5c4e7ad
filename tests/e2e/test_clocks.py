"""Clocks that are wrong, from run to run: every copy is exact, and the clock is named."""

from datetime import timedelta

import pytest

from lakeingest.commands.check import check
from lakeingest.mysql.source import Source
from lakeingest.pipeline.events import ClockWrong
from lakeingest.pipeline.run.clocks import with_longer_keeps
from tests.e2e.pipe import Pipe
from tests.faults.clocks import clock_ahead

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

SOURCE, COPY = "the clock of the source", "behind the last commit of"
JUMPS = (  # what the clock is ahead by, and what is said of it
    (timedelta(minutes=30), f"minutes ahead of {SOURCE}"),
    (timedelta(0), COPY),
    (timedelta(days=-2), COPY),
    (timedelta(days=40), f"40.0 days ahead of {SOURCE}"),
    (timedelta(0), COPY),
)


def warnings(pipe: Pipe) -> list[str]:
    """What `check` says of clocks."""
    return [str(one.finding) for one in check(pipe.config).warnings if one.name == "clocks"]


@pytest.mark.long("whole runs")
@pytest.mark.any_format
def test_clocks_that_jump_lose_nothing(pipe: Pipe) -> None:
    """Minutes and days, back and forth."""
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 0), (2, 0)")
    pipe.run()
    assert warnings(pipe) == []
    for number, (by, said) in enumerate(JUMPS):
        pipe.sql(f"UPDATE orders SET v = {number} + 1 WHERE id = 1")
        with clock_ahead(by):
            pipe.run()
        assert pipe.rows("orders") == [(1, number + 1), (2, 0)]
        event = pipe.seen(ClockWrong)[-1]
        assert isinstance(event, ClockWrong)
        assert said in event.finding
    assert len(pipe.seen(ClockWrong)) == len(JUMPS)
    pipe.assert_equal()
    [warning] = warnings(pipe)
    assert COPY in warning


def test_history_is_kept_for_longer_while_the_clock_is_ahead(pipe: Pipe) -> None:
    """The source's clock says that it is not yet as old."""
    history = pipe.config.target.history
    with Source.open(pipe.config.source) as source:
        assert with_longer_keeps(pipe.config, source) is pipe.config
        with clock_ahead(timedelta(days=-40)):
            assert with_longer_keeps(pipe.config, source) is pipe.config
        with clock_ahead(timedelta(days=40)):
            longer = with_longer_keeps(pipe.config, source)
    assert longer.target.history.keep.days - history.keep.days in {39, 40}
    assert longer.changelog.keep.days - pipe.config.changelog.keep.days in {39, 40}
    assert longer.target.history.least == history.least
