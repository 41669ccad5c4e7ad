"""A catalog behind a proxy that loses and falsifies answers: every step takes effect once, or is refused."""

import http.client
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg import rest
from tests.catalog_servers import TARGETS, add_catalog, rest_server
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake

pytestmark = [pytest.mark.spark]

_numbers = itertools.count(1)
SILENCE_SECONDS, LATE_SECONDS = 3.0, 0.6
AFTER = [f"{code} after it" for code in (401, 500, 502, 503, 504)]
BEFORE = [f"{code} before it" for code in (500, 502, 503, 504)]
QUICK = ["closed after it", "twice"]
LONG = ["closed before it", "late", "silence after it", *AFTER, *BEFORE]


class Proxy:
    """Hands requests on to a catalog; one that changes something meets the fault, after `passing` others."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.fault, self.passing = upstream, "", 0
        self.late: list[threading.Thread] = []

    def meets(self) -> str:
        """The fault of the next changing request."""
        if self.passing:
            self.passing -= 1
            return ""
        fault, self.fault = self.fault, ""
        return fault

    def hand_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """The catalog's answer."""
        host = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def hand_on_late(self, *request: Any) -> None:
        """Hand it on when nobody waits for the answer any more."""

        def work() -> None:
            time.sleep(LATE_SECONDS)
            self.hand_on(*request)

        self.late.append(threading.Thread(target=work))
        self.late[-1].start()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_request(self) -> None:
        """Hand it on, with its fault."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        dropped = {"connection", "accept-encoding", "host"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        request = self.command, self.path, headers, body
        fault = self.proxy.meets() if self.changes() else ""
        if fault == "late":
            self.proxy.hand_on_late(*request)
        if fault in {"late", "closed before it"}:
            self.close()
            return
        if fault.endswith(" before it"):
            self.answer(int(fault[:3]), b"{}")
            return
        status, answer = [self.proxy.hand_on(*request) for _ in range(2 if fault == "twice" else 1)][-1]
        if fault == "silence after it":
            time.sleep(SILENCE_SECONDS)
        if fault in {"closed after it", "silence after it"}:
            self.close()
        elif fault.endswith(" after it"):
            self.answer(int(fault[:3]), b"{}")
        else:
            self.answer(status, answer)

    def changes(self) -> bool:
        """Whether the request changes something, or prepares that; Glue's requests name their action in a header."""
        if action := self.headers.get("X-Amz-Target"):
            return action.endswith((".CreateTable", ".UpdateTable", ".DeleteTable"))
        return self.command == "POST" and "/tables" in self.path and "/metrics" not in self.path

    do_GET = do_DELETE = do_HEAD = do_POST = handle_request  # noqa: N815 - the names that its base calls

    def answer(self, status: int, body: bytes) -> None:
        """Send an answer; a client that has disconnected gets none."""
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

    def close(self) -> None:
        """End the connection without an answer."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(2)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


# The proxy, a config whose catalog is behind it, and the target as the session reads it, past the proxy.
Spoiled = tuple[Proxy, Config, Target]


@contextmanager
def proxied(upstream: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and its URI."""
    proxy = Proxy(upstream)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"proxy": proxy}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy, f"http://127.0.0.1:{server.server_port}"
    finally:
        for thread in proxy.late:
            thread.join()
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def on_rest(lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """A REST catalog behind a proxy."""
    folder = tmp_path_factory.mktemp("spoiled")
    with rest_server(folder) as straight, proxied(straight) as (proxy, uri):
        catalogs = [{"type": "rest", "name": "spoiled", "uri": one} for one in (uri, straight)]
        found = [Target.model_validate({"catalog": one, "warehouse": folder / "warehouse"}) for one in catalogs]
        add_catalog(spark, found[1])
        yield proxy, lake_config.model_copy(update={"target": found[0]}), found[1]


@pytest.fixture(scope="module")
def on_glue(lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """Glue behind a proxy."""
    with TARGETS["glue on s3"](tmp_path_factory.mktemp("spoiled")) as doc:
        doc["catalog"]["name"] = "spoiled_glue"
        straight, properties = Target.model_validate(doc), doc["catalog"]["properties"]
        add_catalog(spark, straight)
        with proxied(properties["glue.endpoint"]) as (proxy, uri):
            properties["glue.endpoint"] = uri
            yield proxy, lake_config.model_copy(update={"target": Target.model_validate(doc)}), straight


def new_table(config: Config, straight: Target, spark: SparkSession) -> Lake:
    """A table that does not exist yet; the catalog is open."""
    schema = TableSchema(TableId("lost", f"t{next(_numbers)}"), PLAIN, ("id",))
    target = open_target(config)
    assert target.recover(schema.table) is None
    return Lake(straight, lambda: target, spark, schema, BOUNDARIES)


def spoil_every_step(spoiled: Spoiled, spark: SparkSession, fault: str, preparing: int, naming: int) -> None:
    """The creation, a wave, a merge, the first publish, which names the table, and the last two once more.

    `preparing` requests come before the creation. `naming` is the request of the first publish that is spoiled.
    """
    proxy, config, straight = spoiled
    lake = new_table(config, straight, spark)

    def spoil(passing: int = 0) -> None:
        assert proxy.fault == "", "no request has met the last fault"
        proxy.fault, proxy.passing = fault, passing

    spoil(passing=preparing)
    staged = lake.created()
    spoil()
    staged = lake.wave(staged, [(1, "a"), (2, "b")])
    for number, value in enumerate(("c", "d"), 1):
        spoil()
        staged = lake.merge(staged, (2, value, False), (10 + number, "new", False), pos=20 * number)
        spoil(passing=naming if number == 1 else 0)
        staged = lake.publish(staged)
        loaded = lake.loaded()
        assert (loaded.version, loaded.published) == (staged.version, staged.version)
        assert (2, value) in lake.seen()
    assert lake.seen() == [(1, "a"), (2, "d"), (11, "new"), (12, "new")]


@pytest.mark.long("another fault of what every run has", only=tuple(LONG))
@pytest.mark.parametrize("fault", [*QUICK, *LONG])
def test_a_step_takes_effect_once_whatever_rest_answers(
    on_rest: Spoiled, spark: SparkSession, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first publish moves main, then renames the table."""
    monkeypatch.setattr(rest, "_SECONDS", (SILENCE_SECONDS / 3, SILENCE_SECONDS / 3))
    spoil_every_step(on_rest, spark, fault, preparing=1, naming=1)


@pytest.mark.long("another catalog of what runs on REST")
@pytest.mark.parametrize("naming", [0, 1, 2])
@pytest.mark.parametrize("fault", [*QUICK, *LONG])
def test_a_step_takes_effect_once_whatever_glue_answers(
    on_glue: Spoiled, spark: SparkSession, fault: str, naming: int
) -> None:
    """The first publish moves main, registers the final name and drops the other one."""
    spoil_every_step(on_glue, spark, fault, preparing=0, naming=naming)


def test_a_creation_is_prepared_once_more(on_rest: Spoiled, spark: SparkSession) -> None:
    """The request that prepares it changes nothing: after an error it is sent again."""
    proxy, config, straight = on_rest
    lake = new_table(config, straight, spark)
    proxy.fault = "503 before it"
    assert lake.created() == lake.loaded()
