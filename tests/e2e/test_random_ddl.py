"""Random DDL and DML, and runs in between: each copy equals its source, whether it followed or was read again.

`LAKEINGEST_DDL=500` tries so many sequences, from the seed LAKEINGEST_DDL_FIRST on. A sequence is a table with a
generator of its own; many share a run. A failure names the seed, and the shortest statements that show it.
"""

import os
from collections.abc import Callable

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, Retryable, SchemaChanged, UnsupportedEvent
from tests.beside import beside
from tests.e2e.ddl_histories import Drawn, Writer, differences, play, prepared, shown, shrunk
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

FIRST = int(os.environ.get("LAKEINGEST_DDL_FIRST", "0"))
SEQUENCES = int(os.environ.get("LAKEINGEST_DDL", "5"))
TABLES = 50  # that share their runs
SHRUNK = 2  # failures of which the shortest statements are looked for
AWAY = "no such table", "changed in between"  # errors of a run that began while a table was dropped and made again
SERVERS = {
    f"{flavor.name}, {metadata}": (flavor, metadata)
    for flavor in (MYSQL, MARIADB_11_4)
    for metadata in ("FULL", "MINIMAL")
}


@pytest.fixture(params=SERVERS)
def pipe(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a server of each flavor, whose rows in the binlog name their columns, or do not."""
    flavor, metadata = SERVERS[request.param]
    settings = {} if metadata == "FULL" else {"binlog_row_metadata": metadata}
    return prepared(pipe_on(server_of(flavor, **settings), chunk_rows=10))


def batches() -> list[range]:
    """The seeds of the sequences, by the tables that share their runs."""
    last = FIRST + SEQUENCES
    return [range(first, min(first + TABLES, last)) for first in range(FIRST, last, TABLES)]


@pytest.mark.parametrize("seeds", batches(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
@pytest.mark.long("some hundred statements of each of several tables")
def test_random_ddl_is_followed(pipe: Pipe, seeds: range) -> None:
    """Each table is equal after each round, and after a last one whose statements come beside a run."""
    writer, tables = Writer(pipe), [Drawn(seed) for seed in seeds]
    try:
        found = play(pipe, writer, tables)
        told = {one.name: tuple(map(tuple, one.rounds)) for one in tables if one.name in found}
        for name in [*found][:SHRUNK]:
            told[name], found[name] = shrunk(pipe, writer, name, told[name], found[name])
        left = [one for one in tables if one.is_there]
        with beside(lambda _number, _is_over: writer.write(left), 1):
            interfered(pipe)
        late = {name: words for name, words in differences(pipe, left).items() if words}
        told |= {one.name: tuple(map(tuple, one.rounds)) for one in left if one.name in late}
        reports = [f"seed {name[1:]}: {words}\n{shown(told[name], name)}" for name, words in (found | late).items()]
        assert not reports, "\n\n".join(reports)
    finally:
        writer.close()


def interfered(pipe: Pipe) -> None:
    """A run beside DDL: a table that is altered all the time stops, and one that is away at the wrong moment."""
    try:
        pipe.run()
    except LakeIngestError as error:
        is_away = any(words in str(error) for words in AWAY)
        if not is_away and not isinstance(error, SchemaChanged | Retryable | UnsupportedEvent):
            raise
