"""Real servers of Iceberg catalogs: the reference server of Iceberg's REST protocol, and PostgreSQL.

The jars of the first are fetched from Maven Central by the Ivy that comes with PySpark. The second is the machine's.
If a server is not available, its tests are skipped with the reason.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Target
from lakeingest.demo import debian
from lakeingest.demo.s3 import LocalS3, local_s3
from lakeingest.demo.server import HOST, child, reserved_port
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.session import java_home

SECONDS, START_SECONDS = 900, 60
ICEBERG, FIXTURES = "1.12.0", "1.11.0"  # the reference server is among the fixtures, which later versions lack
_MODULES = (
    ("org.apache.iceberg", "iceberg-core", ICEBERG),
    ("org.apache.iceberg", "iceberg-aws", ICEBERG),
    ("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.14"),
    ("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.14"),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.14"),
    ("org.apache.hadoop", "hadoop-client-api", "3.3.4"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.3.4"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
_CLASSIFIED = (("iceberg-core", "tests"), ("iceberg-open-api", "test-fixtures"))
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="tests" module="{name}"/><configurations><conf name="default"/></configurations>
<dependencies defaultconfmapping="default->master,runtime(*),compile(*)">{dependencies}</dependencies></ivy-module>"""


@contextmanager
def rest_server(folder: Path, port: int | None = None, store: LocalS3 | None = None) -> Iterator[str]:
    """The URI of a REST catalog on any port or on this one; its files are in the folder, or in an object store."""
    jars = _jars(folder)
    with reserved_port(port) as chosen:
        settings = {
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'rest.db'}",
            "CATALOG_WAREHOUSE": (folder / "rest").as_uri() if store is None else f"s3://{store.bucket}/rest",
            "CATALOG_REST_PORT": str(chosen),
            "REST_PORT": str(chosen),
        }
        if store is not None:
            settings |= {
                **store.environment,
                "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
                "CATALOG_S3_ENDPOINT": store.endpoint,
                "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            }
        java = [_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        command = [*java, "org.apache.iceberg.rest.RESTCatalogServer"]
        log = folder / "rest.log"
        with child(command, log, environment=settings) as process:
            uri = f"http://{HOST}:{chosen}"
            _await(process, log, lambda: urllib.request.urlopen(f"{uri}/v1/config", timeout=5).close())  # noqa: S310
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
                _await(process, log, lambda: psycopg.connect(uri, connect_timeout=5).close())
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
def glue_server(folder: Path) -> Iterator[str]:
    """The URI of a Glue."""
    with reserved_port(None) as port:
        log = folder / "glue.log"
        command = [sys.executable, "-m", "tests.strict_glue", str(port)]
        with child(command, log, environment={"PYTHONPATH": str(Path(__file__).parents[1])}) as process:
            uri = f"http://{HOST}:{port}"
            _await(process, log, lambda: urllib.request.urlopen(f"{uri}/moto-api/data.json", timeout=5).close())  # noqa: S310
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
def sql(folder: Path) -> Iterator[dict[str, Any]]:
    """PostgreSQL, for tables in a folder."""
    with postgresql(folder) as uri:
        yield {"catalog": {"type": "sql", "uri": uri}, "warehouse": str(folder / "warehouse")}


# what `target` of a pipeline.yml says of each, but for the name of the catalog
TARGETS: Mapping[str, Callable[[Path], AbstractContextManager[dict[str, Any]]]] = {
    "rest on s3": rest_on_s3,
    "glue on s3": glue_on_s3,
    "rest": rest,
    "sql": sql,
}


@contextmanager
def object_store(folder: Path) -> Iterator[LocalS3]:
    """An S3 server with an empty bucket."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(local_s3(folder / "s3"))
        except OperatorNeeded as error:
            pytest.skip(f"there is no S3 server: {error}")
        yield store


def add_catalog(spark: SparkSession, target: Target) -> None:
    """Give the running session the target's catalog, whose name it must not have used yet.

    Glue's client in Java takes no keys from the catalog's properties; those of the JVM are for it alone.
    """
    if target.catalog.type == "glue":
        system: Any = spark._jvm.System  # type: ignore[union-attr] # noqa: SLF001 - PySpark has no public way
        for name in ("aws.accessKeyId", "aws.secretAccessKey"):
            system.setProperty(name, "any")
    for key, value in target.spark_properties().items():
        if key.startswith("spark.sql.catalog."):
            spark.conf.set(key, value)


def _await(process: "subprocess.Popen[bytes]", log: Path, ask: Callable[[], object]) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ask()
        except Exception:
            assert process.poll() is None, log.read_text()[-2000:]
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _java() -> str:
    home = java_home()
    return str(home / "bin" / "java") if home else str(shutil.which("java"))


def _jars(folder: Path) -> Path:
    """The folder of the REST server's jars, in the cache; it has all of them or is not there."""
    [cache, *_] = debian.caches(folder)
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"iceberg-rest-s3-{ICEBERG}"
    with debian.locked(cache / "iceberg-rest.lock"):
        if not place.exists():
            partial = place.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            modules = [f'<dependency org="{org}" name="{name}" rev="{rev}"/>' for org, name, rev in _MODULES]
            classified = [
                f'<dependency org="org.apache.iceberg" name="{name}" rev="{FIXTURES}" transitive="false">'
                f'<artifact name="{name}" type="jar" ext="jar" m:classifier="{kind}"/></dependency>'
                for name, kind in _CLASSIFIED
            ]
            for number, dependencies in enumerate((modules, classified)):
                _fetch(f"rest{number}", dependencies, folder, partial)
            partial.rename(place)
    return place


def _fetch(name: str, dependencies: list[str], folder: Path, into: Path) -> None:
    [ivy] = (Path(pyspark.__path__[0]) / "jars").glob("ivy-*.jar")
    wanted = folder / f"{name}.xml"
    wanted.write_text(_IVY.format(name=name, dependencies="".join(dependencies)))
    pattern = str(into / "[artifact]-[revision](-[classifier]).[ext]")
    command = [_java(), "-jar", str(ivy), "-ivy", str(wanted), "-cache", str(folder / "ivy"), "-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        pytest.skip(f"the jars of the REST catalog cannot be fetched: {done.stdout[-2000:]}")
