"""What OpenTelemetry gets of a run, on a receiver of its protocol: every metric, spans in their order, no secret."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.monitoring import export
from lakeingest.monitoring.definitions import DEFINITIONS, SAMPLES
from lakeingest.monitoring.export import Export
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Opened,
    Published,
    SourceLost,
    Spooled,
    TableStopped,
    Undelivered,
    WaveCommitted,
)
from lakeingest.pipeline.run.profile import StageCost
from tests.monitoring.test_exposition import NAMES, figures_of_all_events

pytest.importorskip("opentelemetry.sdk", reason="without the extra otel")

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lakeingest.monitoring import telemetry
from lakeingest.monitoring.telemetry import Telemetry
from tests.servers.collector import Collector, attributes_of, collector

TABLE = TableId("shop", "orders")
HEALTHY = Measure(TABLE, 7, "binlog.000001:4", None, None, None, "", paused=False, max_staleness=None)
MEASURED = Measured((HEALTHY,), Load(), None)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A receiver that the variables name."""
    with collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        yield server


def config(folder: Path) -> Config:
    """A pipeline with OpenTelemetry alone."""
    doc = {"name": "nightly", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    return parse_config(doc | {"state": str(folder), "metrics": {"opentelemetry": True}}, folder, {})


def told(folder: Path, *events: Event, follow: bool = False, code: int = 0, error: str = "") -> list[Event]:
    """What a run with these events tells its observer."""
    seen = list[Event]()
    exporting = Export(config(folder), seen.append, follow=follow)
    for event in events:
        exporting.observe(event)
    exporting.end(code, caught_up=True, stages=[StageCost("merges", 2, 1.5, 1.0)], error=error)
    exporting.close()
    return seen


def undelivered(events: list[Event]) -> list[str]:
    """The reasons why something was not delivered."""
    found = [event for event in events if isinstance(event, Undelivered)]
    assert {event.what for event in found} <= {"metrics.opentelemetry"}
    return [event.reason for event in found]


def test_every_metric_arrives_with_its_unit_and_labels(receiver: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tables are called; the variables decide on headers, compression and resource."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=se%20cret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    figures = figures_of_all_events(time.time())
    figures.end(3, caught_up=True, stages=[StageCost("merges", 2, 1.5, 1.0)])
    sent = Telemetry("nightly", figures, time.time())
    sent.send()
    by_sample = {sample: one for one in DEFINITIONS.values() for sample in one.samples}
    assert {point.name for point in receiver.points} == SAMPLES
    for point in receiver.points:
        definition = by_sample[point.name]
        assert point.kind == ("gauge" if definition.kind == "gauge" else "counter")
        assert set(point.attributes) == {"pipeline", *definition.labels}
        assert point.attributes["pipeline"] == "nightly"
        assert (point.unit == "s") == (definition.unit.startswith("seconds") and not point.name.endswith("_count"))
    assert receiver.values("lakeingest_rows") == {str(TableId("shop", name)): 7 for name in NAMES}
    assert receiver.values("lakeingest_run_exit_code") == {"": 3}
    known = {"service.name": "lakeingest", "deployment.environment": "test"}
    assert known.items() <= receiver.resource.items()
    [(path, headers)] = receiver.asked
    assert (path, headers["api-key"], headers["Content-Encoding"]) == ("/v1/metrics", "se cret", "gzip")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Otel")]


def parent(span: Span, spans: list[Span]) -> str:
    """The name of the span around a span; '' for none."""
    [name] = [one.name for one in spans if one.span_id == span.parent_span_id] or [""]
    return name


def test_a_bounded_run_is_one_trace(receiver: Collector, tmp_path: Path) -> None:
    """Its work is below it, as long as it took, with counts and names; what stopped is said, without a message."""
    seen = told(
        tmp_path,
        Opened(2, 0.5),
        WaveCommitted(TABLE, 1, 2, 10, 3.0, complete=True),
        Spooled("binlog.000001:4", 5, 60, 0.1),
        Merged(TABLE, 9, 6, 3, 2, 1, 0.5),
        GateRun(TABLE, "before publish", 10, 1, 0, 0.1),
        TableStopped(TABLE, GateFailed("row 17 has se-cret")),
        Published(TABLE, 7, "binlog.000001:4", 0.25),
        MEASURED,
        code=1,
        error="GateFailed",
    )
    assert undelivered(seen) == []
    [run] = receiver.named("run")
    assert {span.trace_id for span in receiver.spans} == {run.trace_id}
    around = {span.name: parent(span, receiver.spans) for span in receiver.spans}
    assert around == {"run": "", **dict.fromkeys(["open", "copy", "spool", "merge", "gate", "publish"], "run")}
    [copy] = receiver.named("copy")
    assert copy.end_time_unix_nano - copy.start_time_unix_nano == pytest.approx(3e9, rel=0.01)
    attributes = attributes_of(copy)
    assert (attributes["lakeingest.table"], attributes["lakeingest.rows"]) == ("shop.orders", 10)
    assert attributes["lakeingest.pipeline"] == "nightly"
    assert attributes_of(run)["lakeingest.exit_code"] == 1
    assert (run.status.code, run.status.message) == (Status.STATUS_CODE_ERROR, "GateFailed")
    assert receiver.named("gate")[0].status.code == Status.STATUS_CODE_ERROR
    [event] = run.events
    assert (event.name, attributes_of(event)["lakeingest.error"]) == ("table stopped", "GateFailed")
    assert "se-cret" not in str(receiver.spans)
    assert receiver.values("lakeingest_run_exit_code") == {"": 1}


def test_rounds_of_a_run_that_follows_are_traces_that_name_the_run(receiver: Collector, tmp_path: Path) -> None:
    """They arrive while it follows, and a round without work has none."""
    seen = list[Event]()
    exporting = Export(config(tmp_path), seen.append, follow=True)
    for event in (Opened(1, 0.5), WaveCommitted(TABLE, 1, 2, 10, 3.0, complete=True), Following(4.0)):
        exporting.observe(event)
    for number in range(2):
        exporting.observe(Merged(TABLE, 9, 6, 3, 2, 1, 0.5))
        exporting.observe(Published(TABLE, 7 + number, "binlog.000001:4", 0.25))
        exporting.observe(MEASURED)
        exporting.observe(MEASURED)
    exporting.observe(SourceLost("away: row 17 has se-cret", 1.0))
    began = time.monotonic()
    while len(receiver.named("round")) < 2:
        time.sleep(0.15)
        exporting.observe(MEASURED)
        assert time.monotonic() - began < 20
    assert receiver.named("run") == []
    exporting.end(0, caught_up=True, stages=())
    [run] = receiver.named("run")
    rounds = receiver.named("round")
    assert len({span.trace_id for span in (run, *rounds)}) == 4
    for one, names in zip(rounds, (["merge", "publish"], ["merge", "publish"], []), strict=True):
        assert [link.span_id for link in one.links] == [run.span_id]
        inside = [span for span in receiver.spans if span.parent_span_id == one.span_id]
        assert [span.name for span in inside] == names
        assert all(span.trace_id == one.trace_id for span in inside)
        assert all(one.start_time_unix_nano <= span.start_time_unix_nano for span in inside[:1])
    assert [event.name for event in rounds[2].events] == ["source lost"]
    assert "se-cret" not in str(receiver.spans)
    assert parent(receiver.named("copy")[0], receiver.spans) == "run"


@pytest.mark.parametrize(
    ("variables", "metrics", "spans", "reason"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, False, False, None),
        ({"OTEL_TRACES_EXPORTER": "none"}, True, False, None),
        ({"OTEL_METRICS_EXPORTER": "none"}, False, True, None),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, True, False, None),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, False, False, "ValueError: OTEL_TRACES_EXPORTER: only otlp and none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, False, "only http/protobuf is there, not grpc"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, False, False, "could not convert string to float"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel.example", "OTEL_EXPORTER_OTLP_HEADERS": "key=se-cret"},
            False,
            False,
            "sent in plain text",
        ),
    ],
)
def test_variables_decide(
    receiver: Collector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    metrics: bool,  # noqa: FBT001 - a parameter of a test
    spans: bool,  # noqa: FBT001
    reason: str | None,
) -> None:
    """On what is sent; what they ask for and is not there is a warning, never an end of the run."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = undelivered(told(tmp_path, Opened(1, 0.1), MEASURED))
    assert (bool(receiver.points), bool(receiver.spans)) == (metrics, spans)
    assert len(found) == (0 if reason is None else 1)
    assert (reason or "") in "".join(found)
    assert "se-cret" not in "".join(found)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(-1, "OSError: the collector does not answer"), (401, "OSError: the collector answers 401"), (307, "answers 307")],
)
def test_a_collector_that_is_no_help_holds_no_run_up(
    receiver: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    """It is silent, refuses, or sends elsewhere: there is one warning without the URL, and spans arrive later."""
    monkeypatch.setattr(export, "LAST_SECONDS", 1.0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=se-cret")
    receiver.status = status
    seen = list[Event]()
    exporting = Export(config(tmp_path), seen.append, follow=True)
    exporting.observe(Opened(1, 0.1))
    began = time.monotonic()
    while not undelivered(seen):
        exporting.observe(MEASURED)
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    began = time.monotonic()
    exporting.end(0, caught_up=True, stages=())
    assert time.monotonic() - began < 3
    [said] = undelivered(seen)
    assert reason in said
    assert not {"se-cret", "127.0.0.1", "/v1/"} & set(said.split())
    assert {path for path, _ in receiver.asked} <= {"/v1/metrics", "/v1/traces"}
    assert receiver.spans == []


def test_spans_wait_for_a_collector_that_comes_back(receiver: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, as many as there is room for."""
    monkeypatch.setattr(telemetry, "MOST_SPANS", 5)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    receiver.status = 400
    sent = Telemetry("nightly", figures_of_all_events(time.time()), time.time())
    for wave in range(7):
        sent.observe(WaveCommitted(TABLE, wave, 1, 1, 0.1, complete=False))
        if wave == 3:
            with pytest.raises(OSError, match="the collector answers 400"):
                sent.send()
    receiver.status = 200
    sent.send()
    assert [attributes_of(span)["lakeingest.wave"] for span in receiver.named("copy")] == [2, 3, 4, 5, 6]


def test_an_event_that_has_no_span_fails_no_run(receiver: Collector, tmp_path: Path) -> None:
    """Whatever the reason is: it is said once, and the other spans arrive."""
    broken = WaveCommitted(TABLE, 1, 2, 10, float("nan"), complete=True)
    [said] = undelivered(told(tmp_path, Opened(1, 0.1), broken, broken, Published(TABLE, 7, "binlog.000001:4", 0.25)))
    assert said.startswith("ValueError: cannot convert float NaN")
    assert {span.name for span in receiver.spans} == {"run", "open", "publish"}


def test_without_the_extra_a_run_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    monkeypatch.delitem(sys.modules, "lakeingest.monitoring.telemetry")
    [said] = undelivered(told(tmp_path, Opened(1, 0.1), MEASURED))
    assert said.endswith("pip install 'lakeingest[otel]'")
