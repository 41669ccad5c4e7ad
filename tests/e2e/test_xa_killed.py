"""A run dies at any step while XA transactions are prepared, or have just ended: each copy equals its source.

LAKEINGEST_KILL_EVERY=1 lets runs on Hudi die at every step, too; else they die at every fifth.
"""

import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import Event, Observer, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_signals_killed_anywhere import Dead, mortal
from tests.e2e.test_xa import TABLES, end, prepare, roll_back_all

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.formats,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.long("a run for each step of a run"),
]


def dies(pipe: Pipe, at: int, observe: Observer | None = None) -> bool:
    """Whether a run dies at this step."""
    with mortal(pipe, at) as mortality, suppress(Dead):
        pipe.run(observe=observe)
    return mortality.dead


def killed_in_a_copy(pipe: Pipe, at: int) -> bool:
    """Prepared before the first chunk, ended between two waves or after the death."""
    prepare(pipe, "kept", "UPDATE orders SET v = 1 WHERE id IN (3, 33, 53)", "INSERT INTO items VALUES (900, 1)")
    prepare(pipe, "gone", "DELETE FROM orders WHERE id IN (5, 25, 55)", "DELETE FROM items WHERE id IN (1, 21)")
    prepare(pipe, "late", "DELETE FROM orders WHERE id IN (7, 37, 57)", "UPDATE items SET v = 3 WHERE id IN (4, 24)")
    left = ["XA COMMIT 'kept'", "XA ROLLBACK 'gone'"]

    def settle(event: Event) -> None:
        if isinstance(event, WaveCommitted) and left:
            end(pipe, left.pop(0))

    died = dies(pipe, at, settle)
    end(pipe, *left, "XA COMMIT 'late'")
    return died


def killed_in_a_catch_up(pipe: Pipe, at: int) -> bool:
    """One run dies when its rows are prepared, the next one when they are committed; one stays prepared meanwhile."""
    some = at % 20
    if at > 1:
        end(pipe, "XA COMMIT 'long'")
    pipe.sql(f"UPDATE orders SET v = v + 1 WHERE id = {some + 40}")
    prepare(pipe, "kept", f"UPDATE orders SET v = {at} WHERE id = {some}", f"REPLACE INTO items VALUES ({500 + at}, 1)")
    prepare(pipe, "gone", f"UPDATE orders SET v = -1 WHERE id = {some + 20}", "DELETE FROM items WHERE id = 7")
    dies(pipe, at)
    pipe.sql(f"UPDATE orders SET v = v + 2 WHERE id = {some + 40}", "FLUSH BINARY LOGS")
    end(pipe, "XA COMMIT 'kept'", "XA ROLLBACK 'gone'")
    prepare(pipe, "long", f"REPLACE INTO orders VALUES ({200 + at % 3}, {at})")
    return dies(pipe, at)


@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"])
@pytest.mark.parametrize("phase", [killed_in_a_copy, killed_in_a_catch_up])
def test_a_run_that_dies_at_any_step_loses_no_prepared_rows(
    pipe_on: Callable[..., Pipe],
    server_of: Callable[..., LocalServer],
    lake_format: str,
    flavor: Flavor,
    phase: Callable[[Pipe, int], bool],
    record_property: Callable[[str, object], None],
) -> None:
    """Nor has the copy rows that were rolled back, or are still prepared."""
    every = int(os.environ.get("LAKEINGEST_KILL_EVERY", "1" if lake_format == "iceberg" else "5"))
    at, died, server = 1, True, server_of(flavor)
    pipe = pipe_on(server, chunk_rows=10)
    pipe.sql(*TABLES)
    try:
        if phase is killed_in_a_catch_up:
            pipe.run()
        while died:
            if phase is killed_in_a_copy and at > 1:
                pipe = pipe_on(server, chunk_rows=10)
                pipe.sql(*TABLES)
            died = phase(pipe, at)
            assert pipe.run().stopped == ()
            pipe.assert_equal()
            at += every
    finally:
        roll_back_all(pipe)
    assert at > 1 + every
    record_property(
        "runs that died with prepared transactions",
        f"{flavor.name}, {lake_format}, {phase.__name__}: {(at - 1) // every - 1}",
    )
