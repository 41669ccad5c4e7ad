"""Histories of tables (`history: scd2`), where another server takes over."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pymysql.converters import decoders

from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.e2e.pipe import Pipe
from tests.e2e.test_histories import begun, versions
from tests.servers.replication import Pair, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.mark.long("publishes of both formats")
def test_after_a_failover_all_versions_begin_anew(
    pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """As of each position before it, and from the first publish on the new server on, the history is the table."""
    pipe = pipe_on(mysql_server_with(server_id="73"), chunk_rows=10)
    pipe.config = pipe.config.model_copy(update={"source": pair.source.model_copy(update={"replica": None})})
    recorder = begun(pipe, 9)
    recorder.change()
    pipe.run()
    known = len(recorder.states)
    pair.level()
    source = pair.promote()
    query(pair.replica, f"USE {pipe.database}")
    over = replace(pipe, config=pipe.config.model_copy(update={"source": source}), connection=pair.replica, events=[])
    pair.replica.decoders = {**decoders}  # lakeingest's own connections read texts
    recorder.connection, recorder.epoch = pair.replica, 2
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
