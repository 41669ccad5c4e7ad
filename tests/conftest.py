"""Fixtures that many suites share. A server that cannot be had fails its tests, it never skips them."""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeingest.config import FORMATS, Config, Target, parse_config
from lakeingest.config.catalog_kinds import POSTGRESQL_JAR
from lakeingest.config.storage import S3A_JARS
from lakeingest.config.stores import S3_JAR
from lakeingest.demo.flavor import MYSQL, Flavor
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import LocalServer
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.spark.session import open_session
from tests.plugins import lanes, platforms, profiles
from tests.plugins.processes import pytest_xdist_make_scheduler
from tests.plugins.slices import pytest_addoption, pytest_collection_modifyitems, pytest_sessionfinish
from tests.security.certificates import Authority
from tests.servers import lakes, stores
from tests.servers.catalog_servers import available, object_store
from tests.servers.google import local_gcs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [  # hooks that pytest finds here, and profiles that Hypothesis finds
    "profiles",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
    "pytest_xdist_make_scheduler",
]

SPECIAL_SERVERS = 5
# What servers write of columns in the binlog, unless a test says: minimal, or default: as they come, NO_LOG on MariaDB
METADATA = os.environ.get("LAKEINGEST_METADATA", "full")
# Settings of each MySQL, unless a test has others: none, or no GTIDs
GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if os.environ.get("LAKEINGEST_GTIDS") == "off" else {}


def pytest_configure(config: pytest.Config) -> None:
    """Record on which platforms tests pass where a variable names the file for it."""
    if os.environ.get(platforms.VARIABLE) and not config.pluginmanager.is_registered(platforms):
        config.pluginmanager.register(platforms)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_not_ignored() -> None:
    """A script that runs the tests in the background ignores SIGINT, for them and for what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def metadata_of(flavor: Flavor, chosen: str = METADATA) -> str:
    """The value of binlog_row_metadata on a server of the flavor."""
    return "NO_LOG" if chosen == "default" and flavor.is_mariadb else "FULL" if chosen == "full" else "MINIMAL"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first server of a program leaves its tables as they were set up: later ones begin with a copy.

    All processes of `pytest -n 2` share it.
    """
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "prepared"


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory, prepared: Path) -> Iterator[Callable[..., LocalServer]]:
    """Call it with a flavor and settings: a server with them, shared by all who ask for the same.

    Servers with default settings run until the end. Of the others the last few that were asked for run: a server has
    some 300 MB.
    """
    servers: dict[tuple[Flavor, frozenset[tuple[str, str]]], tuple[LocalServer, ExitStack]] = {}

    def start(flavor: Flavor, **settings: str) -> LocalServer:
        wanted = flavor, frozenset(settings.items())
        if wanted not in servers:
            special = [server for server in servers if server[1]]
            if settings and len(special) >= SPECIAL_SERVERS:
                servers.pop(special[0])[1].close()
            running, folder = ExitStack(), tmp_path_factory.mktemp("server")
            lean = {} if flavor.is_mariadb else {"performance_schema": "OFF"}  # 250 MB of memory
            # a killed server loses nothing by that, only a machine does; images may be of versions without the setting
            quick = {} if lanes.IMAGE else {"innodb_flush_method": "nosync"}
            if quick and flavor in lanes.WITH_OWN_KEY:
                key = Authority.new(folder).server("server", "127.0.0.1")
                quick |= {"ssl_cert": str(key), "ssl_key": str(key)}
            # a test whose DDL waits for a transaction that never ends fails; by default it would wait for a year
            chosen = {"binlog_row_metadata": metadata_of(flavor), "lock_wait_timeout": "300"}
            options = lean | quick | chosen | ({} if flavor.is_mariadb else GTIDS) | settings
            server = lanes.server(folder, options, flavor, prepared)
            servers[wanted] = running.enter_context(server), running
        servers[wanted] = servers.pop(wanted)  # the last one is the one that was asked for last
        return servers[wanted][0]

    yield start
    for _, running in servers.values():
        running.close()


@pytest.fixture(scope="session")
def mysql_server_with(server_of: Callable[..., LocalServer]) -> Callable[..., LocalServer]:
    """Call it with settings (`gtid_mode="OFF"`): a MySQL with them."""
    return partial(server_of, MYSQL)


@pytest.fixture(scope="session")
def any_server(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> LocalServer:
    """A server of each flavor that `lanes` names, one after the other, with default settings."""
    return server_of(request.param)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    """A running S3 server."""
    with object_store(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running store with Google's protocol."""
    with available(local_gcs(tmp_path_factory.mktemp("gcs"))) as url:
        yield url


@pytest.fixture(params=stores.KINDS)
def any_folder(request: pytest.FixtureRequest) -> File:
    """A new folder of each kind of place that a state can be in, and of a store in memory."""
    return stores.new_folder(request)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Local:
    """A new folder of this machine, as the product knows folders."""
    return Local(tmp_path)


@pytest.fixture(params=stores.SHARED)
def shared_folder(request: pytest.FixtureRequest) -> File:
    """A new folder of each kind of place that processes can share."""
    return stores.new_folder(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Servers that move block only where the pinned one fails, too."""
    report = yield
    lanes.judge(item, report)
    return report


@pytest.fixture(scope="session")
def mysql_server(mysql_server_with: Callable[..., LocalServer]) -> LocalServer:
    """The server with default settings, one for the whole session: each test makes a database of its own."""
    return mysql_server_with()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that use a lake run on Iceberg; those marked `formats` on the formats it names, or on each.

    Those marked `any_format` depend little on it: they run on each where LAKEINGEST_FORMATS is `all`.
    """
    lanes.parametrize(metafunc)
    if "lake_format" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("formats")
        each = os.environ.get("LAKEINGEST_FORMATS") == "all" and metafunc.definition.get_closest_marker("any_format")
        formats = marker.args or FORMATS if marker else FORMATS if each else ("iceberg",)
        metafunc.parametrize("lake_format", formats, scope="session")


@pytest.fixture(scope="session")
def lake_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The servers that LAKEINGEST_LAKE names are running."""
    with lakes.opened(tmp_path_factory.mktemp("servers")):
        yield


@pytest.fixture(scope="session")
def lake_config(lake_format: str, lake_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A config whose warehouse all suites share, since Spark has one catalog; its source answers nowhere.

    Its session has the jars for PostgreSQL and S3, too, for tests that bring a catalog or a store of their own.
    """
    target = Target.model_validate({"format": lake_format, **lakes.target_of(lake_format)})
    soon = {"history": {"readers": "0s"}}  # what a test of the lake removes goes at once
    others = (POSTGRESQL_JAR, S3_JAR) if target.format == "iceberg" else S3A_JARS
    jars = ",".join((*FORMATS[target.format].jars(target), *others))
    doc: dict[str, Any] = {
        "name": "tests",
        "source": {"host": "127.0.0.1", "user": "nobody"},
        "tables": {"include": ["none.*"]},
        "target": {"format": lake_format, **soon, **lakes.target_of(lake_format)},
        "spark": {"conf": {**lakes.spark_conf(), "spark.jars.packages": jars}},
    }
    if lakes.ON_CLUSTER:
        doc["state"] = lakes.new_state(lake_format)
    return parse_config(doc, tmp_path_factory.mktemp("lake"), {})


@pytest.fixture(scope="session")
def spark(lake_config: Config) -> Iterator["SparkSession"]:
    """The one Spark session of a format, on the catalog of `lake_config`."""
    from pyspark import SparkContext

    session = open_session(lake_config)
    yield session
    session.stop()
    # jars are given to a JVM when it starts: the next format needs another one
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark keeps it for ever
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
