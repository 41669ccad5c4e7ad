"""What is unusual about a table is a warning with the numbers, and stops nothing."""

import time

import pytest

from lakeingest.config import Quality
from lakeingest.core.proofs.usual import LEAST_COUNTS, Counts, Usual, Written
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.events import Published, Unusual
from lakeingest.state.usual import read_usual, store_usual
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

HOUR = 3_600.0


@pytest.fixture
def warned(pipe: Pipe) -> Pipe:
    """A published table with 100 rows, into which 30 keys an hour were written so far, with a NULL at times."""
    pipe.config = pipe.config.model_copy(update={"quality": Quality(unusual="warn")})
    rows = ", ".join(f"({number}, 'c')" for number in range(100))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(10), n INT NOT NULL DEFAULT 0)")
    pipe.sql(f"INSERT INTO t (id, c) VALUES {rows}")
    pipe.run()
    assert not pipe.seen(Unusual)
    usual, now = Usual(), time.time()
    for number in range(LEAST_COUNTS + 1, 0, -1):
        written = Written(30 + number % 2, 30, {"c": int(number % 3 == 0)})
        usual = usual.after(Counts(now - (number + 1) * HOUR, now - number * HOUR, 100, written))
    store_usual(pipe.state, TableId(pipe.database, "t"), usual)
    pipe.events.clear()
    return pipe


def findings(pipe: Pipe) -> list[str]:
    """What was reported."""
    return [event.finding for event in pipe.seen(Unusual) if isinstance(event, Unusual)]


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_usual_changes_are_not_reported(warned: Pipe) -> None:
    """They are counted for the next runs."""
    warned.sql("UPDATE t SET n = 1 WHERE id < 25", "DELETE FROM t WHERE id = 99")
    assert warned.run().unusual == ()
    assert not findings(warned)
    last = read_usual(warned.state, TableId(warned.database, "t")).last
    assert last is not None
    assert (last.rows, last.written) == (99, Written(26, 25, {"c": 0}))


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_unusual_changes_are_reported_with_the_numbers(warned: Pipe) -> None:
    """The table is published all the same."""
    warned.sql("UPDATE t SET c = NULL WHERE id >= 60", "DELETE FROM t WHERE id BETWEEN 10 AND 59")
    result = warned.run()
    [finding] = findings(warned)
    assert "it has 50 rows, and had 100, -50.0%; usual is +0.0%" in finding
    assert "column c: 100.0% of 40 written values are NULL; usual are 0.0%, 0.0% to 3.3% in the last 9 spans" in finding
    assert result.unusual == ((TableId(warned.database, "t"), finding),)
    assert f"{warned.database}.t: unusual: {finding}" in result.notes
    assert warned.seen(Published)
    warned.assert_equal()


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_long_pause_is_reported(warned: Pipe) -> None:
    """No key of the table has changed for longer than before."""
    table = TableId(warned.database, "t")
    known = read_usual(warned.state, table)
    earlier = [Counts(each.since - 9 * HOUR, each.until - 9 * HOUR, each.rows, each.written) for each in known.counts]
    store_usual(warned.state, table, Usual(tuple(earlier)))
    warned.run()
    [finding] = findings(warned)
    assert finding.startswith("no key has changed for 10.0 hours, since ")
    warned.config = warned.config.model_copy(update={"quality": Quality()})
    warned.events.clear()
    warned.run()
    assert not findings(warned)
