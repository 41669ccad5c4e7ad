"""Pipelines of a test's own."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pymysql
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeingest.config import Config, Source
from lakeingest.demo.server import LocalServer
from lakeingest.tables import TableOptions, Tables
from tests.e2e.pipe import Pipe

ARRIVED: dict[tuple[str, int], dict[str, int]] = {}  # of this session: by type and its values, what came by each way
FAULTS: list[tuple[str, int, str]] = []  # of this session: what was done to a run, its exit code and its line


@pytest.fixture(scope="session")
def record() -> Callable[[str, int, str], None]:
    """Call it with a fault, the exit code and the line that users saw: a row of the table that the session prints."""
    return lambda fault, code, line: FAULTS.append((fault, code, line))


@pytest.fixture(scope="session")
def record_values() -> Callable[[str, int, Mapping[str, int]], None]:
    """Call it with a type, how many values of it there are, and how many arrived by some path and reader: a row."""

    def note(source_type: str, values: int, arrived: Mapping[str, int]) -> None:
        ARRIVED.setdefault((source_type, values), {}).update(arrived)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables of faults and of values."""
    if ARRIVED:
        cases = sum(values * len(arrived) for (_, values), arrived in ARRIVED.items())
        terminalreporter.section(f"values that arrived exactly, of {cases} by path and reader")
    for (source_type, values), arrived in ARRIVED.items():
        ways = sum(count == values for count in arrived.values())
        exact = sum(arrived.values())
        terminalreporter.write_line(
            f"{source_type:<45} {values:>2} values, {ways:>2} of {len(arrived)} ways, {exact:>3} cases"
        )
    if FAULTS:
        terminalreporter.section("faults: exit code, and the one line that users see")
    for fault, code, line in FAULTS:
        terminalreporter.write_line(f"{fault:<40} {code:>4}  {line}")


@pytest.fixture
def pipe_on(
    request: pytest.FixtureRequest, lake_config: Config, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[..., Pipe]]:
    """Call it with a server, and options for all tables: a pipeline on an empty database there."""
    opened: list[Pipe] = []

    def make(server: LocalServer, **options: int) -> Pipe:
        name = f"e2e_{abs(hash(request.node.nodeid)) % 10**9}_{len(opened)}"
        config = lake_config.model_copy(
            update={
                "source": Source(
                    host=server.host, port=server.port, user=server.user, password=SecretStr(server.password)
                ),
                "tables": Tables(include=(f"{name}.*",), options={"*.*": TableOptions.model_validate(options)}),
                "state": tmp_path / name,
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
        pipe.sql(f"DROP DATABASE {pipe.database}")
        pipe.connection.close()


@pytest.fixture
def any_pipe(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> Pipe:
    """A pipeline on a server of each flavor; chunks of 10 rows."""
    return pipe_on(any_server, chunk_rows=10)


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline on the shared server; chunks of 10 rows, so that few rows make several waves."""
    return pipe_on(mysql_server, chunk_rows=10)
