"""Histories of tables (`history: scd2`) and their changes as a table, where another server takes over."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from pymysql.converters import decoders

from lakeingest.config.changelog import Changelog
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.e2e.logged_rows import assert_log_is_right, log_of, replayed
from tests.e2e.pipe import Pipe
from tests.e2e.recorded import Recorder, rows_of
from tests.e2e.test_histories import begun, versions
from tests.e2e.test_signals_killed_anywhere import Dead, mortal
from tests.servers.replication import DomainPair, Pair, replicating, replicating_domains

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


IDS = ("73", "74")  # of two servers of MySQL


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, IDS) as both:
        yield both


def failed_over(pair: Pair, pipe: Pipe, recorder: Recorder) -> Pipe:
    """The pipeline on the replica, which has all changes and takes writes from now on, as `recorder` does."""
    pair.level()
    source = pair.promote()
    query(pair.replica, f"USE {pipe.database}")
    pair.replica.decoders = {**decoders}  # lakeingest's own connections read texts
    recorder.connection, recorder.epoch = pair.replica, recorder.epoch + 1
    return replace(pipe, config=pipe.config.model_copy(update={"source": source}), connection=pair.replica, events=[])


@pytest.mark.long("publishes of both formats")
def test_after_a_failover_all_versions_begin_anew(
    pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """As of each position before it, and from the first publish on the new server on, the history is the table."""
    pipe = pipe_on(mysql_server_with(server_id=IDS[0]), chunk_rows=10)
    pipe.config = pipe.config.model_copy(update={"source": pair.source.model_copy(update={"replica": None})})
    recorder = begun(pipe, 9)
    recorder.change()
    pipe.run()
    known = len(recorder.states)
    over = failed_over(pair, pipe, recorder)
    for _ in range(3):
        recorder.change()
    over.run()
    shown = len(recorder.states) - 1  # what the first run on the new server has published
    for _ in range(3):
        recorder.change()
    over.run()
    found = versions(over)
    recorder.assert_same_as(found, shown)
    assert {row["ended_by"] for row in found} >= {"gap"}
    del recorder.states[known:]
    for state in recorder.states:
        assert recorder.as_of_position(found, state.place, state.columns) == sorted(state.rows)


STATES, CHANGES, LONGEST = 100, 13, 40  # states that are compared; transactions beside each DDL; steps of a run


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"])
def shop(
    request: pytest.FixtureRequest, server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> Iterator[tuple[Pair, Pipe]]:
    """Two servers of a kind, and a pipeline on the first one, on Iceberg with the changes as a table, too."""
    flavor: Flavor = request.param
    settings = {"log_slave_updates": "ON", "gtid_strict_mode": "ON"} if flavor.is_mariadb else {}
    first = server_of(flavor, server_id="83" if flavor.is_mariadb else IDS[0], **settings)
    pairs = (
        replicating_domains(server_of, flavor) if flavor.is_mariadb else replicating(partial(server_of, flavor), IDS)
    )
    with pairs as pair:
        pipe = pipe_on(first, chunk_rows=10)
        update: dict[str, object] = {"source": pair.source.model_copy(update={"replica": None})}
        if pipe.config.target.format == "iceberg":
            update["changelog"] = Changelog(table=True)
        pipe.config = pipe.config.model_copy(update=update)
        yield pair, pipe


def worked(pipe: Pipe, recorder: Recorder, name: str) -> None:
    """Changes, DDL and TRUNCATE; the run after them dies, now and then twice, and the next one goes on."""
    for _ in range(CHANGES):
        recorder.change()
    recorder.ddl(f"ALTER TABLE t ADD {name} INT DEFAULT 7")
    for _ in range(CHANGES):
        recorder.change()
    if recorder.chance.random() < 0.5:
        recorder.ddl("TRUNCATE t")
        recorder.change()
    died(pipe, recorder.chance)
    pipe.run()


def died(pipe: Pipe, chance: Random) -> None:
    """Runs that die at a step by chance, if they have so many."""
    for _ in range(chance.randrange(1, 3)):
        with mortal(pipe, chance.randrange(1, LONGEST)):
            try:
                pipe.run()
            except Dead:
                continue
            return


@pytest.mark.long("many runs on both sides of a failover")
def test_companions_of_a_busy_shop_are_exact_on_both_sides_of_a_failover(shop: tuple[Pair, Pipe]) -> None:
    """At each state that the source had, but those up to the first publish from the new server."""
    pair, pipe = shop
    recorder = begun(pipe, 11)
    for number in range(2):
        worked(pipe, recorder, f"a{number}")
    known = len(recorder.states)
    over = failed_over(pair, pipe, recorder)
    recorder.change()
    died(over, recorder.chance)
    over.run()
    shown = len(recorder.states) - 1
    for number in range(2):
        worked(over, recorder, f"b{number}")
    found = versions(over)
    is_mariadb = isinstance(pair, DomainPair)
    recorder.assert_same_as(found, shown, whole_seconds=is_mariadb)
    assert {row["ended_by"] for row in found} >= {"gap"}
    states = [*recorder.states[:known], *recorder.states[shown:]]
    assert len(states) > STATES
    for state in states:
        assert recorder.as_of_position(found, state.place, state.columns) == sorted(state.rows), state.place
    if over.config.target.format == "iceberg":
        table = TableId(over.database, "t")
        log = log_of(over.config.target, table)
        for state in states:
            assert rows_of(replayed(log, state.place)) == sorted(state.rows), state.place
        assert assert_log_is_right(over.config.target, table) > 4
