"""Real servers of Iceberg catalogs and of S3.

PostgreSQL is the machine's, all others are fetched from package registries. If a server is not available, its tests are
skipped with the reason.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lakeingest.config import Target
from lakeingest.config.formats import spark_properties
from lakeingest.demo.rest_catalog import local_rest_catalog
from lakeingest.demo.s3 import LocalS3, local_s3
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from lakeingest.errors import OperatorNeeded
from tests.faults.proxy import proxied
from tests.servers.hive_server import hive_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS, START_SECONDS = 900, 60.0
Server = TypeVar("Server")


@contextmanager
def rest_server(folder: Path, port: int | None = None, store: LocalS3 | None = None) -> Iterator[str]:
    """The URI of a REST catalog on any port or on this one; its files are in the folder, or in an object store."""
    with available(local_rest_catalog(folder, port, store)) as uri:
        yield uri


@contextmanager
def postgresql(_: Path) -> Iterator[str]:
    """The URI of an empty database of a PostgreSQL that runs as another user than root, which it refuses."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("this machine has no PostgreSQL (apt-get install postgresql)")
    import psycopg

    data = Path(tempfile.mkdtemp(prefix="postgresql-"))  # not below pytest's folder, which only we may enter
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    if user is not None:
        os.chown(data, user.pw_uid, user.pw_gid)
    as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
    prefix = [str(shutil.which("setpriv")), *as_user] if as_user else []
    try:
        setup = [
            *prefix,
            str(programs[-1] / "initdb"),
            "-D",
            str(data / "db"),
            "-A",
            "trust",
            "-U",
            "lake",
            "--no-sync",
        ]
        subprocess.run(setup, check=True, capture_output=True, timeout=SECONDS, cwd="/")
        with reserved_port(None) as port:
            options = ["-p", str(port), "-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories=", "-F"]
            command = [*prefix, str(programs[-1] / "postgres"), "-D", str(data / "db"), *options]
            uri, log = f"postgresql://lake@{HOST}:{port}/postgres", data / "postgresql.log"
            with child(command, log) as process:
                await_start(process, log, lambda: psycopg.connect(uri, connect_timeout=5).close(), START_SECONDS)
                yield uri
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def rest_on_s3(folder: Path) -> Iterator[dict[str, Any]]:
    """A REST catalog, with its files and the tables in S3."""
    with object_store(folder) as store, rest_server(folder, store=store) as uri:
        keys = {"s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key}
        yield {
            "catalog": {"type": "rest", "uri": uri},
            "warehouse": f"s3://{store.bucket}/warehouse",
            "storage": {**store.storage, "properties": keys},
        }


@contextmanager
def hudi_on_s3(folder: Path) -> Iterator[dict[str, Any]]:
    """Tables of Hudi in S3."""
    with object_store(folder) as store:
        keys = {"s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key}
        yield {"warehouse": f"s3://{store.bucket}/warehouse", "storage": {**store.storage, "properties": keys}}


@contextmanager
def glue_server(folder: Path) -> Iterator[str]:
    """The URI of a Glue."""
    with reserved_port(None) as port:
        log = folder / "glue.log"
        command = [sys.executable, "-m", "tests.servers.strict_glue", str(port)]
        with child(command, log, environment={"PYTHONPATH": str(Path(__file__).parents[2])}) as process:
            uri = f"http://{HOST}:{port}"
            page = f"{uri}/moto-api/data.json"
            await_start(process, log, lambda: urllib.request.urlopen(page, timeout=5).close(), START_SECONDS)  # noqa: S310
            yield uri


@contextmanager
def glue_on_s3(folder: Path) -> Iterator[dict[str, Any]]:
    """Glue, with the tables in S3; processes find the keys in the environment."""
    with object_store(folder) as store, glue_server(folder) as uri, pytest.MonkeyPatch.context() as environment:
        for name, value in store.environment.items():
            environment.setenv(name, value)
        keys = {"s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key}
        amazon = {"glue.access-key-id": "any", "glue.secret-access-key": "any"}
        yield {
            "catalog": {"type": "glue", "properties": {"glue.endpoint": uri, **amazon}},
            "warehouse": f"s3://{store.bucket}/warehouse",
            "storage": {**store.storage, "properties": keys},
        }


@contextmanager
def rest(folder: Path) -> Iterator[dict[str, Any]]:
    """A REST catalog of tables in a folder."""
    with rest_server(folder) as uri:
        yield {"catalog": {"type": "rest", "uri": uri}, "warehouse": str(folder / "warehouse")}


@contextmanager
def rest_without_names(folder: Path) -> Iterator[dict[str, Any]]:
    """A REST catalog that neither renames nor registers tables, and makes none in two steps."""
    with rest_server(folder) as upstream, proxied(upstream) as (proxy, uri):
        proxy.without = ("rename", "register", "stage-create", "transactions/commit")
        yield {"catalog": {"type": "rest", "uri": uri}, "warehouse": str(folder / "warehouse")}


@contextmanager
def sql(folder: Path) -> Iterator[dict[str, Any]]:
    """PostgreSQL, for tables in a folder."""
    with postgresql(folder) as uri:
        yield {"catalog": {"type": "sql", "uri": uri}, "warehouse": str(folder / "warehouse")}


@contextmanager
def hive(folder: Path) -> Iterator[dict[str, Any]]:
    """A metastore of Hive 2, for tables in a folder."""
    with hive_server(folder / "metastore") as uri:
        catalog = {"type": "hive", "uri": uri, "properties": {"hive.hive2-compatible": "true"}}
        yield {"catalog": catalog, "warehouse": str(folder / "warehouse")}


# `target` of a pipeline.yml for each, without the catalog's name
TARGETS: Mapping[str, Callable[[Path], AbstractContextManager[dict[str, Any]]]] = {
    "rest on s3": rest_on_s3,
    "glue on s3": glue_on_s3,
    "rest": rest,
    "sql": sql,
    "hive": hive,
    "rest without names": rest_without_names,
}


@contextmanager
def object_store(folder: Path) -> Iterator[LocalS3]:
    """An S3 server with an empty bucket."""
    with available(local_s3(folder / "s3")) as store:
        yield store


@contextmanager
def available(server: AbstractContextManager[Server]) -> Iterator[Server]:
    """A server; its tests are skipped with the reason if it cannot be fetched, built or started."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server)
        except OperatorNeeded as error:
            pytest.skip(str(error))
        yield found


def add_catalog(spark: "SparkSession", target: Target) -> None:
    """Give the running session the target's catalog, whose name it must not have used yet.

    Glue's client in Java takes no keys from the catalog's properties; those of the JVM are for it alone.
    """
    if target.catalog.type == "glue":
        system: Any = spark._jvm.System  # type: ignore[union-attr] # noqa: SLF001 - PySpark has no public way
        for name in ("aws.accessKeyId", "aws.secretAccessKey"):
            system.setProperty(name, "any")
    for key, value in spark_properties(target).items():
        if key.startswith("spark.sql.catalog."):
            spark.conf.set(key, value)
