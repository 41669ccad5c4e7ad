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
