"""The rules, the dashboard and the pushes on real servers of Prometheus, with what a run tells them."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from lakeingest.config import Config, parse_config
from lakeingest.config.metrics import Metrics
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.tables.schema import TableId
from lakeingest.monitoring import export
from lakeingest.monitoring.endpoint import Endpoint
from lakeingest.monitoring.export import Export
from lakeingest.monitoring.exposition import CONTENT_TYPE, Exposition
from lakeingest.monitoring.figures import Figures
from lakeingest.monitoring.gateway import push, registry_of
from lakeingest.pipeline.events import Event, Measured, Undelivered
from lakeingest.pipeline.run.profile import StageCost
from tests.infra.test_monitoring import DASHBOARD, FOLDER, RULES
from tests.monitoring.test_exposition import LOAD, NAMES, figures_of_all_events, measure
from tests.servers.prometheus import prometheus, push_gateway, query, read

SECONDS = 60.0


def soon(look: Callable[[], bool]) -> None:
    """Wait until it is so."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < SECONDS
        time.sleep(0.2)


def ended(now: float) -> Figures:
    """The figures of a run that has ended, in which one table failed its gate long ago."""
    figures = figures_of_all_events(now)
    measures = [measure(name, now) for name in NAMES]
    measures[0] = replace(measures[0], error="GateFailed", as_of=now - 5_000)
    figures.observe(Measured(tuple(measures), LOAD, 3600))
    figures.end(1, caught_up=True, stages=[StageCost("merges", 2, 1.5, 1.0)])
    return figures


@contextmanager
def answering(exposition: Exposition) -> Iterator[str]:
    """Host and port at which the metrics can be asked for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = Endpoint("127.0.0.1", port, exposition.text, CONTENT_TYPE, lambda _: None)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        endpoint.close()


@pytest.mark.long("a Prometheus for a while; promtool tries each rule in every run")
def test_prometheus_fires_the_rules_and_fills_each_panel(tmp_path: Path) -> None:
    """No panel is empty for a run that has had every event, and what fails or is stale is told within seconds."""
    figures = ended(time.time())
    with (
        answering(Exposition("nightly", figures)) as target,
        prometheus(tmp_path / "prometheus", target, FOLDER / "alerts.yml") as url,
    ):
        # two seconds of samples are enough for rates
        soon(lambda: len(query(url, "count_over_time(lakeingest:stale[1m]) > 2")) == len(NAMES))
        for panel in DASHBOARD["panels"]:
            for target_of_panel in panel["targets"]:
                expr = target_of_panel["expr"].replace("$pipeline", ".*").replace("$table", ".*")
                assert query(url, expr), panel["title"]
        names = {label["metric"]["table"] for label in query(url, "lakeingest_rows")}
        assert names == {str(TableId("shop", name)) for name in NAMES}
        rules = json.loads(read(f"{url}/api/v1/rules"))["data"]["groups"][0]["rules"]
        assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == {rule["alert"] for rule in RULES}
        assert {(rule["health"], rule.get("lastError")) for rule in rules} == {("ok", None)}

        def firing() -> set[tuple[str, str]]:
            alerts = json.loads(read(f"{url}/api/v1/alerts"))["data"]["alerts"]
            return {
                (one["labels"]["alertname"], one["labels"].get("table", "")) for one in alerts if "f" in one["state"]
            }

        stopped = str(TableId("shop", NAMES[0]))
        expected = {("LakeingestGateFailed", stopped), ("LakeingestRunFailed", "")}
        soon(lambda: expected <= firing())
        assert ("LakeingestBudgetBurnsFast", stopped) not in firing()  # Prometheus has known the table for seconds
        assert ("LakeingestTableFailed", stopped) not in firing()


def test_a_push_replaces_what_the_gateway_has(tmp_path: Path) -> None:
    """Every name arrives as it is, a table that is gone leaves nothing, and another pipeline keeps its metrics."""
    with push_gateway(tmp_path) as url:
        settings, now = Metrics(push=url), time.time()
        push(settings, "nightly", registry_of("nightly", ended(now)))
        push(settings, "of others / ü", registry_of("of others / ü", ended(now)))

        def tables(pipeline: str) -> set[str]:
            families = text_string_to_metric_families(read(f"{url}/metrics"))
            samples = [sample for family in families for sample in family.samples]
            assert {one.labels["job"] for one in samples if one.name == "lakeingest_rows"} == {"lakeingest"}
            return {
                one.labels["table"]
                for one in samples
                if one.name == "lakeingest_rows" and one.labels["pipeline"] == pipeline
            }

        everything = {str(TableId("shop", name)) for name in NAMES}
        assert tables("nightly") == tables("of others / ü") == everything
        figures = Figures()
        figures.observe(Measured((measure("orders", now),), LOAD, None))
        push(settings, "nightly", registry_of("nightly", figures))
        assert tables("nightly") == {"shop.orders"}
        assert tables("of others / ü") == everything


def config_with(url: str, folder: Path) -> Config:
    """A pipeline that pushes there."""
    doc = {"name": "shop", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    config = parse_config(doc | {"state": str(folder)}, folder, {})
    settings = Metrics(push=url, push_user="us", push_password=SecretStr("pass-word"))
    return config.model_copy(update={"metrics": settings})


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 401 Unauthorized\r\n\r\n", b"what?\r\n"])
def test_a_gateway_that_is_no_help_holds_no_run_up(
    answer: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is silent, refuses, or is something else: the run ends, and one warning names neither token nor password."""
    monkeypatch.setattr(export, "LAST_SECONDS", 0.4)
    monkeypatch.setattr("lakeingest.monitoring.gateway.PUSH_SECONDS", 0.2)
    events = list[Event]()
    healthy = Measure(TableId("shop", "t"), 1, None, None, None, None, "", paused=False, max_staleness=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if answer is not None:
            _answer_with(listener, answer)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/T0/se-cret"
        exporting = Export(config_with(url, tmp_path), events.append, follow=True)
        began = time.monotonic()
        for _ in range(50):
            exporting.observe(Measured((healthy,), LOAD, None))
        assert time.monotonic() - began < 0.5
        exporting.end(0, caught_up=True, stages=())
        assert time.monotonic() - began < 2
    [told] = [event for event in events if isinstance(event, Undelivered)]
    assert told.what == "metrics.push"
    assert not {"se-cret", "pass-word", "T0"} & set(told.reason.replace("/", " ").split())


def _answer_with(listener: socket.socket, answer: bytes) -> None:
    """Give each connection this answer, in a thread that ends with the listener."""

    def work() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

    threading.Thread(target=work, daemon=True).start()
