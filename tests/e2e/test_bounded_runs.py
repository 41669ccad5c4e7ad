"""A bounded run ends, whatever comes in the source meanwhile."""

import pytest

from lakeingest.pipeline.events import Event, Published
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.any_format]


@pytest.mark.long("whole runs")
def test_a_run_ends_while_ddl_keeps_coming(pipe: Pipe) -> None:
    """DDL after what was written when it began is left to the next run; no table has stopped because of it."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    pipe.run()
    altered = 0

    def alter(event: Event) -> None:
        nonlocal altered
        if isinstance(event, Published) and altered < 9:
            altered += 1
            pipe.sql(f"ALTER TABLE t ADD x{altered} INT DEFAULT (1 + 1)")

    pipe.sql("ALTER TABLE t ADD x INT DEFAULT (1 + 1)")
    result = pipe.run(observe=alter)
    assert result.caught_up
    assert result.stopped == ()
    assert altered < 4
    pipe.run()
    pipe.assert_equal()


@pytest.mark.local("tables take turns only in a folder")
def test_runs_that_die_too_early_take_turns_with_the_tables(pipe: Pipe) -> None:
    """Each begins with the table that lags most, so that none waits for ever."""
    pipe.sql(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in "abc"))
    pipe.run()
    published = list[str]()

    def die(event: Event) -> None:
        if isinstance(event, Published):
            published.append(event.table.name)
            raise KeyboardInterrupt

    for number in range(6):
        pipe.sql(*(f"INSERT INTO {name} VALUES ({number})" for name in "abc"))
        with pytest.raises(KeyboardInterrupt):
            pipe.run(observe=die)
    assert published[:3] == published[3:]
    assert sorted(published[:3]) == ["a", "b", "c"]
