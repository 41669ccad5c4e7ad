"""Another server takes over while XA transactions are prepared, and ends them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import StartedOver, WaveCommitted
from lakeingest.spool.spool import Spool
from tests.e2e.pipe import Pipe
from tests.e2e.test_failover import TABLES, fail_over
from tests.e2e.test_signals_killed_anywhere import Dead, mortal
from tests.e2e.test_xa import end, prepare, roll_back_all
from tests.servers.replication import Pair, addressed, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.fixture
def pipe(pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pipe]:
    """A pipeline on the source; nothing is prepared at the end on any server, so that databases can be dropped."""
    made = pipe_on(mysql_server_with(server_id="73"), chunk_rows=10)
    first = made.connection
    made.config = made.config.model_copy(update={"source": pair.source.model_copy(update={"replica": None})})
    yield made
    pair.part()
    for connection in (pair.primary, pair.replica):
        roll_back_all(replace(made, connection=connection))
    made.connection = first


@pytest.mark.parametrize("is_read", [True, False], ids=["read before", "not read before"])
@pytest.mark.long("publishes of both formats")
def test_what_is_prepared_is_ended_on_the_server_that_took_over(pair: Pair, pipe: Pipe, *, is_read: bool) -> None:
    """One is committed there, one is rolled back, one was committed before that. Nothing is copied again."""
    pipe.sql(*TABLES)
    pipe.run()
    prepare(pipe, "kept", "UPDATE orders SET v = 50 WHERE id = 1", "INSERT INTO items VALUES (9, 9)")
    prepare(pipe, "gone", "DELETE FROM orders WHERE id = 2", "DELETE FROM items WHERE id = 2")
    prepare(pipe, "before", "INSERT INTO orders VALUES (7, 7)")
    pipe.sql("UPDATE orders SET v = 30 WHERE id = 3")
    if is_read:
        pipe.run()
    end(pipe, "XA COMMIT 'before'")
    pair.level()
    over = fail_over(pair, pipe)
    assert over.run().stopped == ()
    over.assert_equal()
    assert over.rows("orders") == [(1, 1), (2, 2), (3, 30), (7, 7)]
    end(over, "XA COMMIT 'kept'", "XA ROLLBACK 'gone'")
    over.sql("INSERT INTO orders VALUES (8, 8)")
    assert over.run().stopped == ()
    over.assert_equal()
    assert over.rows("orders") == [(1, 50), (2, 2), (3, 30), (7, 7), (8, 8)]
    assert not over.seen(WaveCommitted)


@pytest.mark.long("a run for each step of a run")
def test_a_run_that_fails_over_may_die_at_any_step_while_rows_are_prepared(
    pair: Pair, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were prepared on the server of before, and read there, and are committed by the one that took over."""
    pipe.sql(*TABLES)
    pipe.run()
    now, step, died = pair, 0, True
    with addressed(pair.source) as address:
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})
        while died:
            step += 1
            insert = f"INSERT INTO items VALUES ({100 + step}, {step})"
            prepare(pipe, "kept", f"UPDATE orders SET v = {step} WHERE id = 1", insert)
            prepare(pipe, "gone", "DELETE FROM items WHERE id = 2", "DELETE FROM orders WHERE id = 2")
            pipe.run()
            now = now.swap(address)
            pipe.connection = now.primary
            query(now.primary, f"USE {pipe.database}")
            end(pipe, "XA COMMIT 'kept'", "XA ROLLBACK 'gone'")
            with mortal(pipe, step) as mortality:
                monkeypatch.setattr(Spool, "open", mortality.after(Spool.open))
                with suppress(Dead):
                    pipe.run()
                died = mortality.dead
                monkeypatch.undo()
            assert pipe.run().stopped == ()
            pipe.assert_equal()
        now.part()
    assert step > 10
    assert not pipe.seen(StartedOver)
