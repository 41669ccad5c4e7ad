"""Metrics and spans of a run for OpenTelemetry, by its SDK. The SDK's variables OTEL_* say where they go.

The SDK starts no thread here: a thread of the SDK would begin again in each worker that is forked from this process,
and would send everything twice. Instead, the caller of `Telemetry` calls `send`, in the background.
"""

import logging
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from requests import Response, Session

from lakeingest.config.endpoints import is_plain_text
from lakeingest.monitoring.definitions import DEFINITIONS, Definition
from lakeingest.monitoring.figures import Figures, Values
from lakeingest.monitoring.spans import Spans
from lakeingest.pipeline.events import Event
from lakeingest.version import VERSION

SCOPE = "lakeingest"
MOST_SPANS = 10_000  # that wait to be sent; older ones are given up
_SPANS_AT_ONCE = 512  # in one request
_MILLISECONDS = 1_000
_UNITS = {"seconds": "s", "seconds since 1970": "s", "bytes": "By", "0 or 1": ""}


class Telemetry:
    """The metrics and spans of one run. Raises ValueError if a variable asks for something that is not supported."""

    def __init__(self, pipeline: str, figures: Figures, began: float) -> None:
        """`began`: when the run began, in seconds since 1970."""
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # the warning of the run says the same
        self._pipeline, self._figures, self._values = pipeline, figures, Values()
        self.every = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60 * _MILLISECONDS) / _MILLISECONDS
        named = {"service.name": SCOPE, "service.version": VERSION}
        resource = Resource.create({**named, **OTELResourceDetector().detect().attributes})
        self._session = _Session()
        self._reader: PeriodicExportingMetricReader | None = None
        if _is_wanted("METRICS"):
            self._exporter = _MetricExporter(session=self._session)
            # the reader never collects by a clock: `send` lets it collect
            self._reader = PeriodicExportingMetricReader(self._exporter, export_interval_millis=math.inf)
            provider = MeterProvider([self._reader], resource, shutdown_on_exit=False)
            self._add_instruments(provider.get_meter(SCOPE, VERSION))
        self._spans: Spans | None = None
        self._ended = _Ended()
        if _is_wanted("TRACES"):
            self._span_exporter = OTLPSpanExporter(session=self._session)
            tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
            tracers.add_span_processor(self._ended)
            self._spans = Spans(tracers.get_tracer(SCOPE, VERSION), pipeline, began)

    def observe(self, event: Event) -> None:
        """Add the spans of an event."""
        if self._spans is not None:
            self._spans.observe(event)

    def end(self, exit_code: int, error: str) -> None:
        """End the span of the run. `error` names what ended the run."""
        if self._spans is not None:
            self._spans.end(exit_code, error)

    def send(self) -> None:
        """Send the metrics as they are now, and the spans that have ended. Raises OSError if they do not arrive."""
        if self._reader is not None:
            self._values = self._figures.values()
            self._exporter.has_arrived = False
            self._reader.collect()
            self._session.assert_arrived(self._exporter.has_arrived)
        while batch := self._ended.taken(_SPANS_AT_ONCE):
            arrived = self._span_exporter.export(batch) is SpanExportResult.SUCCESS
            if not arrived:
                self._ended.put_back(batch)
            self._session.assert_arrived(arrived)

    def _add_instruments(self, meter: Meter) -> None:
        """Add an instrument for each series. At each `send`, the reader asks the instruments for their values."""
        for definition in DEFINITIONS.values():
            add = meter.create_observable_gauge if definition.kind == "gauge" else meter.create_observable_counter
            for sample in definition.samples:
                unit = "" if sample.endswith("_count") else _unit(definition.unit)
                add(sample, [partial(self._observed, sample, definition)], unit, definition.meaning)

    def _observed(self, sample: str, definition: Definition, _: CallbackOptions) -> Iterator[Observation]:
        """The values of the series `sample`, as they were when `send` began."""
        for labels, value in self._values.get(sample, {}).items():
            attributes = {"pipeline": self._pipeline, **dict(zip(definition.labels, labels, strict=True))}
            yield Observation(value, attributes)


def _unit(unit: str) -> str:
    """The unit in UCUM. Counted things are in braces, so that Prometheus does not add them to the metric's name."""
    return _UNITS.get(unit, f"{{{unit.replace(' ', '_')}}}")


def _is_wanted(signal: str) -> bool:
    """Whether to send the signal METRICS or TRACES. Raises ValueError if a variable asks for something unsupported."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER") or "otlp"
    if exporter == "none":
        return False
    if exporter != "otlp":
        raise ValueError(f"OTEL_{signal}_EXPORTER: only otlp and none are there")
    protocol = _of_signal(signal, "PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is there, not {protocol}")
    if _of_signal(signal, "HEADERS") and is_plain_text(_of_signal(signal, "ENDPOINT")):
        raise ValueError("OTEL_EXPORTER_OTLP_HEADERS would be sent in plain text: let the endpoint be an https:// URL")
    return True


def _of_signal(signal: str, name: str) -> str:
    """The value of the variable `name` for METRICS or TRACES, or else that for all signals; '' if neither is set."""
    of_all = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or of_all


class _MetricExporter(OTLPMetricExporter):
    """Knows whether the last metrics have arrived, because the reader that calls it does not tell."""

    has_arrived = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        """Send the metrics, and note whether they have arrived."""
        result = super().export(metrics_data, timeout_millis, **kwargs)
        self.has_arrived = result is MetricExportResult.SUCCESS
        return result


class _Session(Session):
    """A client that knows the last answer, and follows no redirect, so that no other server can read the headers."""

    def __init__(self) -> None:
        super().__init__()
        self.max_redirects = 0
        self._status: int | None = None
        self.hooks["response"].append(self._note)

    def _note(self, response: Response, *_: object, **__: object) -> None:
        """Note the status of an answer: the client calls this for each one."""
        self._status = response.status_code

    def assert_arrived(self, arrived: bool) -> None:  # noqa: FBT001 - an assertion
        """Raise OSError, with the status of the last answer, unless `arrived`. The error has no part of the URL."""
        status, self._status = self._status, None
        if not arrived:
            raise OSError("the collector does not answer" if status is None else f"the collector answers {status}")


class _Ended(SpanProcessor):
    """The spans that have ended and were not sent. Another thread sends them."""

    def __init__(self) -> None:
        self._spans = deque[ReadableSpan](maxlen=MOST_SPANS)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span that has ended, if it is sampled."""
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)

    def taken(self, most: int) -> list[ReadableSpan]:
        """Take out and return the oldest spans, at most `most`."""
        return [self._spans.popleft() for _ in range(min(most, len(self._spans)))]

    def put_back(self, spans: Iterable[ReadableSpan]) -> None:
        """Keep these spans again, in front of all others, as far as there is room for them."""
        room = MOST_SPANS - len(self._spans)
        kept = list(spans)[-room:] if room > 0 else []  # `[-0:]` would be all
        self._spans.extendleft(reversed(kept))
