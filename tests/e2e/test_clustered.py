"""Someone's clustering of a Hudi copy, between runs and in mid-run, on a real server: no run stops or is inexact."""

import pytest

from lakeingest.commands.status import status
from lakeingest.monitoring.event_lines import level, line_maker
from lakeingest.pipeline.events import Event, Merged, TookBack, WaveCommitted
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.formats("hudi")]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40))"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i})' for i in range(40))}"
CHANGES = ("UPDATE orders SET v = CONCAT(v, '+') WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 1")


def cluster(pipe: Pipe, operation: str = "scheduleAndExecute") -> None:
    """Someone's clustering of what readers see, or only its plan."""
    folder = pipe.config.target.warehouse.path / pipe.database / "orders"
    pipe.spark.sql(f"CALL run_clustering(path => '{folder}', op => '{operation}')").collect()


@pytest.mark.long("whole runs and clusterings by Spark")
@pytest.mark.parametrize("operation", ["scheduleAndExecute", "schedule"])
def test_runs_go_on_after_a_clustering(pipe: Pipe, operation: str) -> None:
    """Of a table that stands still, of one with changes, and while a run is at work; nothing is copied again."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    cluster(pipe, operation)
    pipe.assert_equal()
    assert [table.state for table in status(pipe.config)] == ["published"]
    pipe.run()
    pipe.assert_equal()
    assert not pipe.seen(TookBack)  # nothing was published
    pipe.sql(*CHANGES)

    def beside(event: Event) -> None:
        if isinstance(event, Merged):
            cluster(pipe, operation)

    pipe.run(observe=beside)
    pipe.assert_equal()
    told = [line_maker()(event) or "" for event in pipe.seen(TookBack)]
    assert len(told) == 1
    assert "took back a clustering of someone else (20" in told[0]
    assert {level(event) for event in pipe.seen(TookBack)} == {"warning"}
    cluster(pipe, operation)
    pipe.sql("INSERT INTO orders VALUES (100, 'later')")
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(TookBack)) == 2  # each once: a later publish finds nothing to take back
    pipe.sql("DELETE FROM orders WHERE id = 100")
    pipe.run()
    assert len(pipe.seen(TookBack)) == 2
    assert (100, "later") not in pipe.rows("orders")
    assert len(pipe.seen(WaveCommitted)) == waves
