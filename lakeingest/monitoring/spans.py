"""The spans of a run for OpenTelemetry: what it did, when, and how long that took, from its events.

A bounded run is one trace. A run that follows does not end. Once it has caught up, each measurement ends a trace of its
own: a round, which is linked to the run. Spans have the counts of events and names of tables, but no message of an
error, which could have values of rows.
"""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, set_span_in_context

from lakeingest.exits import EXIT_INTERRUPTED
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Opened,
    Published,
    RowsReread,
    SourceLost,
    Spooled,
    TableStopped,
    WaveCommitted,
)

# The work that an event ends: the name of its span, and the fields of the event that become attributes.
WORK: Mapping[type[Any], tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        Opened: ("open", ("tables",)),
        WaveCommitted: ("copy", ("table", "wave", "chunks", "rows")),
        RowsReread: ("reread", ("table", "patches", "rows")),
        Spooled: ("spool", ("stop", "transactions", "rows")),
        Merged: ("merge", ("table", "read", "applied", "inserted", "updated", "deleted")),
        GateRun: ("gate", ("table", "stage", "evaluated", "failed", "warnings")),
        Published: ("publish", ("table", "rows", "position")),
    }
)
_NANOSECONDS = 1_000_000_000
_PREFIX = "lakeingest."  # of the names of attributes


class Spans:
    """The spans of one run. `began`: when the run began, in seconds since 1970."""

    def __init__(self, tracer: Tracer, pipeline: str, began: float) -> None:
        self._tracer, self._pipeline = tracer, pipeline
        self._run = self._begun("run", began, None)
        self._round: Span | None = None
        self._follows = False

    def observe(self, event: Event) -> None:
        """Add the span of the work that an event ends. A failure is noted on the span of the run, or of the round."""
        match event:
            case Following():
                self._follows = True
            case Measured():
                self._end_round()
            case TableStopped():
                attributes = {f"{_PREFIX}table": str(event.table), f"{_PREFIX}error": event.error.runbook}
                self._around(time.time()).add_event("table stopped", attributes)
            case SourceLost():
                self._around(time.time()).add_event("source lost")
            case _ if type(event) in WORK:
                self._add_work(event)

    def end(self, exit_code: int, error: str) -> None:
        """End the span of the run, with its exit code and the name of the error that ended it; '' if none did."""
        self._end_round()
        self._run.set_attribute(f"{_PREFIX}exit_code", exit_code)
        if exit_code not in {0, EXIT_INTERRUPTED}:
            self._run.set_status(Status(StatusCode.ERROR, error))
        self._run.end()

    def _add_work(self, event: Any) -> None:
        """Add the span of the work that ends with this event. The work began `event.seconds` ago."""
        name, fields = WORK[type(event)]
        began = time.time() - event.seconds
        values = {field: getattr(event, field) for field in fields}
        span = self._begun(name, began, self._around(began))
        for field, value in values.items():
            span.set_attribute(f"{_PREFIX}{field}", str(value) if field == "table" else value)
        if values.get("failed"):  # only gates have this count
            span.set_status(Status(StatusCode.ERROR, "GateFailed"))
        span.end()

    def _around(self, began: float) -> Span:
        """The span around work that began at `began`: the run's, or if the run follows, that of the current round.

        Begins a round if there is no current round.
        """
        if not self._follows:
            return self._run
        if self._round is None:
            self._round = self._begun("round", began, None, Link(self._run.get_span_context()))
        return self._round

    def _end_round(self) -> None:
        """End the span of the current round, if there is one."""
        if self._round is not None:
            self._round.end()
            self._round = None

    def _begun(self, name: str, began: float, around: Span | None, *links: Link) -> Span:
        """A new span that began at `began`, within the span `around`; None: the span begins a trace of its own."""
        context = Context() if around is None else set_span_in_context(around, Context())
        attributes = {f"{_PREFIX}pipeline": self._pipeline}
        start = int(began * _NANOSECONDS)
        return self._tracer.start_span(name, context, attributes=attributes, links=links, start_time=start)
