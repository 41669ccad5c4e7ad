"""A receiver of OpenTelemetry's protocol over HTTP: it decodes requests by the classes of the protocol itself."""

import gzip
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.servers.answering import answering

SILENT_SECONDS = 2.0


@dataclass(frozen=True)
class Point:
    """A value of a metric: its name, unit and kind, with the attributes of the value."""

    name: str
    unit: str
    kind: str
    value: float
    attributes: Mapping[str, Any]


class Collector(ThreadingHTTPServer):
    """Answers with `status`; -1: with silence. What it has taken is in `spans` and `points`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.asked: list[tuple[str, Mapping[str, str]]] = []  # path and headers of each request
        self.spans: list[Span] = []
        self.points: list[Point] = []  # of the last request
        self.resource: dict[str, Any] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str) -> list[Span]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def values(self, name: str) -> dict[str, float]:
        """The values of a metric, by the attribute `table`."""
        return {point.attributes.get("table", ""): point.value for point in self.points if point.name == name}


@contextmanager
def collector() -> Iterator[Collector]:
    """A receiver on a port of its own."""
    with answering(Collector()) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take a request, and answer."""
        server = self.server
        assert isinstance(server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.asked.append((self.path, dict(self.headers)))
        if server.status < 0:
            time.sleep(SILENT_SECONDS)
            return
        if server.status == 200:
            self._take(server, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
        self.send_response(server.status)
        self.send_header("Location", f"{server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _take(self, server: Collector, body: bytes) -> None:
        if self.path == "/v1/traces":
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                server.resource = attributes_of(part.resource)
                server.spans += [span for scope in part.scope_spans for span in scope.spans]
            return
        assert self.path == "/v1/metrics"
        [part] = ExportMetricsServiceRequest.FromString(body).resource_metrics
        server.resource = attributes_of(part.resource)
        server.points = [point for scope in part.scope_metrics for metric in scope.metrics for point in _points(metric)]

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a resource, a span, an event or a value."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in message.attributes}


def _points(metric: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    data: Message = getattr(metric, kind)
    if kind == "sum":
        assert data.is_monotonic
        kind = "counter"
    for each in data.data_points:
        value = float(getattr(each, each.WhichOneof("value")))
        yield Point(metric.name, metric.unit, kind, value, attributes_of(each))
