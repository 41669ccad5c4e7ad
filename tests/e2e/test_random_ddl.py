"""Random DDL and DML: each copy equals its source after each round, whether it followed the DDL or was read again.

A sequence is a table with a generator of its own; many are renewed together. `LAKEINGEST_DDL=500` tries so many
sequences on each server in memory, and `LAKEINGEST_DDL_LAKE=50` in a lake by whole runs, from the seed
LAKEINGEST_DDL_FIRST on. A failure names the seed, and the shortest statements that show it.
"""

import os
from collections.abc import Callable, Sequence

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, Retryable, SchemaChanged, UnsupportedEvent
from lakeingest.files.local import Local
from tests.e2e.ddl_copies import CopiesInMemory, in_lake, in_memory
from tests.e2e.ddl_histories import Drawn, Stage, batches, mood_of, shown
from tests.e2e.pipe import Pipe
from tests.faults.beside import beside
from tests.servers.session_variables import imposed

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]

FIRST = int(os.environ.get("LAKEINGEST_DDL_FIRST", "0"))
IN_MEMORY = int(os.environ.get("LAKEINGEST_DDL", "10"))
IN_LAKE = int(os.environ.get("LAKEINGEST_DDL_LAKE", "5"))
TABLES, RUN_TABLES = 10, 50  # that are renewed together, in memory and by a run
SHRUNK = 2  # failures of which the shortest statements are looked for
AWAY = "no such table", "changed in between"  # errors of a run that began while a table was dropped and made again
SERVERS = {
    f"{flavor.name}, {metadata}": (flavor, metadata)
    for flavor in (MYSQL, MARIADB_11_4)
    for metadata in ("FULL", "MINIMAL")
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> LocalServer:
    """A server of each flavor, whose rows in the binlog name their columns, or do not."""
    flavor, metadata = SERVERS[request.param]
    settings = {} if metadata == "FULL" else {"binlog_row_metadata": metadata}
    return server_of(flavor, **settings)


def told(stage: Stage, tables: Sequence[Drawn], found: dict[str, str], shrink: int = SHRUNK) -> list[str]:
    """What differs, with the statements that lead to it: the shortest ones for some of the tables."""
    histories = {one.name: (tuple(map(tuple, one.rounds)), found[one.name]) for one in tables if one.name in found}
    for name in [*histories][: max(0, shrink)]:
        histories[name] = stage.shrunk(name, *histories[name])
    return [f"seed {name[1:]}: {words}\n{shown(rounds, name)}" for name, (rounds, words) in histories.items()]


@pytest.mark.long("the same with other rows in the binlog", only=("MySQL, FULL", "MariaDB 11.4, MINIMAL"))
@pytest.mark.timeout(900 if IN_MEMORY < 100 else 0)
@pytest.mark.long("another server; in memory each server is tried in every run", only=("MariaDB 11.4, FULL",))
def test_what_a_run_makes_of_random_ddl_is_the_source(
    server: LocalServer, tmp_path: Local, record_property: Callable[..., None]
) -> None:
    """In memory, whatever the server imposes on sessions."""
    reports: list[str] = []
    with in_memory(server, tmp_path) as stage:
        for seeds in batches(FIRST, IN_MEMORY, TABLES):
            tables = [Drawn(seed) for seed in seeds]
            with imposed(server, "default", mood_of(seeds)):
                reports += told(stage, tables, stage.play(tables), SHRUNK - len(reports))
            stage.writer.drop(tables)
        assert isinstance(stage.copies, CopiesInMemory)
        followed, again = (stage.copies.outcomes[outcome] for outcome in ("followed", "read again"))
    assert not reports, "\n\n".join(reports)
    assert followed > IN_MEMORY / 3
    record_property(
        "random DDL", f"{server.flavor.name}: {IN_MEMORY} sequences; DDL followed {followed}, read again {again} times"
    )


@pytest.mark.any_format
@pytest.mark.spark
@pytest.mark.parametrize(
    "seeds", batches(FIRST, IN_LAKE, RUN_TABLES), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}"
)
@pytest.mark.long("some hundred statements of each of several tables")
def test_random_ddl_is_followed(pipe_on: Callable[..., Pipe], server: LocalServer, seeds: range) -> None:
    """By whole runs, each table after each round, and after a last one whose statements come beside a run."""
    pipe = pipe_on(server, chunk_rows=10)
    with in_lake(pipe) as stage, imposed(server, "default", mood_of(seeds)):
        tables = [Drawn(seed) for seed in seeds]
        reports = told(stage, tables, stage.play(tables))
        left = [one for one in tables if one.is_there]
        with beside(lambda _number, _is_over: stage.writer.write(left), 1):
            interfered(pipe)
        reports += told(stage, left, stage.differences(left))
        assert not reports, "\n\n".join(reports)


def interfered(pipe: Pipe) -> None:
    """A run beside DDL: a table that is altered all the time stops, and one that is away at the wrong moment."""
    try:
        pipe.run()
    except LakeIngestError as error:
        is_away = any(words in str(error) for words in AWAY)
        if not is_away and not isinstance(error, SchemaChanged | Retryable | UnsupportedEvent):
            raise
