"""Pipelines of a test's own."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pymysql
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer, local_server
from tests.conftest import metadata_of
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.e2e.semi_sync import SemiSyncPair, semi_sync_pair
from tests.lake.shown import catalog_of
from tests.servers import lakes
from tests.servers.accounts import copier_of
from tests.servers.replication import Address, addressed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded with `record_property`: a section of each name, a line of each value."""
    sections: dict[str, list[object]] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for name, line in report.user_properties:
                sections.setdefault(name, []).append(line)
    for name, lines in sections.items():
        terminalreporter.section(name)
        terminalreporter.write_line("\n".join(map(str, lines)))


@pytest.fixture(scope="session", autouse=True)
def _the_lake_is_there(lake_servers: None) -> None:
    """For tests that only start processes, too."""


@pytest.fixture
def pipe_on(
    request: pytest.FixtureRequest, lake_config: Config, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[..., Pipe]]:
    """Call it with a server, and options for all tables: a pipeline on an empty database there.

    It runs as a user with the documented rights; only `Pipe.sql` is an administrator's.
    """
    opened: list[Pipe] = []

    def make(server: LocalServer, **options: object) -> Pipe:
        name = f"e2e_{abs(hash(request.node.nodeid)) % 10**9}_{len(opened)}"
        config = lake_config.model_copy(
            update={
                "source": copier_of(server),
                "tables": Tables(include=(f"{name}.*",), options={"*.*": TableOptions.model_validate(options)}),
                "state": Place.of(lakes.new_state(lake_config.target.format) or tmp_path / name),
            }
        )
        connection = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )
        pipe = Pipe(config, name, connection, spark, [])
        pipe.sql(f"CREATE DATABASE {name}", f"USE {name}")
        opened.append(pipe)
        return pipe

    yield make
    for pipe in opened:
        pipe.sql(f"DROP DATABASE IF EXISTS {pipe.database}")  # a replica may not have it yet
        pipe.connection.close()
    if lakes.NAME is None and lake_config.target.format == "iceberg":
        forget(lake_config, [pipe.database for pipe in opened])


def forget(config: Config, databases: Iterable[str]) -> None:
    """Take the copies of databases out of the shared catalog, of whose namespaces each run asks for all."""
    if not config.target.warehouse.path.is_dir():  # no test has copied anything yet
        return
    with catalog_of(config.target) as catalog:
        for database in databases:
            with suppress(NoSuchNamespaceError):  # nothing was copied
                for name in catalog.list_tables(database):
                    catalog.drop_table(name)
                catalog.drop_namespace(database)


@pytest.fixture
def any_pipe(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> Pipe:
    """A pipeline on a server of each flavor; chunks of 10 rows."""
    return pipe_on(any_server, chunk_rows=10)


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline on the shared server; chunks of 10 rows, so that few rows make several waves."""
    return pipe_on(mysql_server, chunk_rows=10)


@pytest.fixture
def mortal(tmp_path: Path, prepared: Path) -> Iterator[Mortal]:
    """A server of the test's own, which can be killed and started again."""
    with local_server(tmp_path / "server", prepared=prepared) as server:
        mortal = Mortal(server)
        yield mortal
        mortal.end()


@pytest.fixture
def silent(mysql_server_with: Callable[..., LocalServer]) -> LocalServer:
    """A server that does not log what foreign keys change."""
    return mysql_server_with(server_id="97", innodb_native_foreign_keys="ON")


@pytest.fixture
def semi_sync(tmp_path: Path, prepared: Path) -> Iterator[SemiSyncPair]:
    """Two servers of the test's own that take over from each other."""
    with semi_sync_pair(tmp_path / "servers", prepared, binlog_row_metadata=metadata_of(MYSQL)) as pair:
        yield pair


@pytest.fixture
def address(semi_sync: SemiSyncPair) -> Iterator[Address]:
    """Leads to the one of them that is the source."""
    with addressed(semi_sync.source) as address:
        yield address


@pytest.fixture
def pipe_there(semi_sync: SemiSyncPair, address: Address, pipe_on: Callable[..., Pipe]) -> Iterator[Pipe]:
    """A pipeline on that address; chunks of 20 rows."""
    first = semi_sync.servers[semi_sync.source.port]
    pipe = pipe_on(first.server, chunk_rows=20)
    pipe.config = pipe.config.model_copy(update={"source": address.of(semi_sync.source)})
    yield pipe
    pipe.connection = first.connect()  # it was killed since, and is the source or its replica
