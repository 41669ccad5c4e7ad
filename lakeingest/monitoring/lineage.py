"""Lineage: events of OpenLineage say which table of the source each copy is made from, and how its runs end.

The whole pipeline is a job without datasets. Each of its tables is a job below it, with one input and one output: in
one job for all tables, each copy would seem to be made from all tables. Events are sent in the background, in order. An
event that does not arrive is sent again later. The events that have not arrived at the end of the run are given up.
"""

import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from lakeingest.config import Config
from lakeingest.config.notify import OpenLineage
from lakeingest.config.target import Target
from lakeingest.core.tables.schema import TableId
from lakeingest.exits import EXIT_INTERRUPTED
from lakeingest.monitoring.background import in_background, outcomes
from lakeingest.monitoring.webhook import post
from lakeingest.pipeline.events import (
    Event,
    Merged,
    Observer,
    Opened,
    Published,
    RowsReread,
    TableStopped,
    Undelivered,
    WaveCommitted,
)
from lakeingest.version import VERSION

AT_ONCE = 50  # events in one group
MOST = 10_000  # events that wait; older ones are given up
AGAIN_SECONDS = 60.0  # the pause after an event that has not arrived
END_SECONDS = 30.0  # how long the end of a run waits for events to arrive
Kind = Literal["START", "COMPLETE", "FAIL", "ABORT"]
_SPEC = "https://openlineage.io/spec"
_PRODUCER = f"urn:lakeingest:{VERSION}"


@dataclass(slots=True)
class _Run:
    """A run of a job: of the pipeline, or of one of its tables."""

    job: str
    table: TableId | None = None
    published: bool = False
    number: str = field(default_factory=lambda: str(uuid.uuid4()))


class Lineage:
    """Tells a server of OpenLineage about one run of the pipeline."""

    def __init__(self, config: Config, settings: OpenLineage, observe: Observer, *, follow: bool) -> None:
        self._config, self._settings, self._observe, self._follow = config, settings, observe, follow
        self._run: _Run | None = None
        self._tables: dict[TableId, _Run] = {}  # those whose runs have begun, and have not ended
        self._waiting = deque[dict[str, Any]](maxlen=MOST)
        self._sending: list[dict[str, Any]] = []
        self._sent: Future[list[Exception | None]] | None = None
        self._not_before = 0.0  # the time, by the monotonic clock, before which nothing is sent
        self._reason = ""  # why events did not arrive last

    def observe(self, event: Event) -> None:
        """Pass the event on, and tell what it means for the tables."""
        self._observe(event)
        match event:
            case Opened():
                self._begin()
            case WaveCommitted() | RowsReread() | Merged() | Published():
                self._begun(event.table).published |= isinstance(event, Published)
            case TableStopped() if not event.again:
                self._end(self._begun(event.table), "FAIL", event.error.runbook)
                del self._tables[event.table]
        self._note_arrivals()
        self._send()

    def end(self, exit_code: int, error: str, *, whole: bool) -> None:
        """Tell how the run has ended, and wait until the server has all events, for END_SECONDS at most.

        `error` names what ended the run; '' if nothing did. `whole`: the error has ended all tables at once.
        """
        kind: Kind = "FAIL" if error else "COMPLETE"
        if exit_code == EXIT_INTERRUPTED:
            kind = "ABORT"
        for run in self._tables.values():
            if whole and error:
                self._end(run, kind, error)
            else:  # the table has no error
                self._end(run, "COMPLETE" if run.published else "ABORT", "")
        self._end(self._begin(), kind, error)
        deadline = time.monotonic() + END_SECONDS
        self._not_before = 0.0  # the end of the run waits for no pause
        while self._waiting or self._sent is not None:
            self._note_arrivals(max(0.001, deadline - time.monotonic()))  # with 0, what is on its way is not noted
            self._send()
            if self._sent is None or time.monotonic() >= deadline:  # the server does not take them
                return

    def _begin(self) -> _Run:
        """The run of the pipeline. The first call adds the event of its begin to those that wait."""
        if self._run is None:
            self._run = _Run(self._config.name)
            self._tell("START", self._run)
        return self._run

    def _begun(self, table: TableId) -> _Run:
        """The run of a table. The first call for the table adds the event of its begin to those that wait."""
        if table not in self._tables:
            self._tables[table] = _Run(f"{self._config.name}.{table}", table)
            self._tell("START", self._tables[table])
        return self._tables[table]

    def _end(self, run: _Run, kind: Kind, error: str) -> None:
        """Add the event of the run's end to those that wait."""
        self._tell(kind, run, error if kind == "FAIL" else "")

    def _tell(self, kind: Kind, run: _Run, error: str = "") -> None:
        """Add an event of OpenLineage about a run to those that wait to be sent."""
        facets = {}
        if run.table is not None:
            parent = self._begin()
            job = {"namespace": self._settings.namespace, "name": parent.job}
            facets["parent"] = _facet("1-1-0/ParentRunFacet", run={"runId": parent.number}, job=job)
        if error:
            message = f"{error}: `lakeingest explain {error}` says what to do"
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")
        job_type = _facet(
            "2-0-3/JobTypeJobFacet",
            processingType="STREAMING" if self._follow else "BATCH",
            integration="LAKEINGEST",
            jobType="PIPELINE" if run.table is None else "TABLE",
        )
        self._waiting.append(
            {
                "eventType": kind,
                "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": run.number, "facets": facets},
                "job": {"namespace": self._settings.namespace, "name": run.job, "facets": {"jobType": job_type}},
                "inputs": [] if run.table is None else [source_dataset(self._config, run.table)],
                "outputs": [] if run.table is None else [target_dataset(self._config.target, run.table)],
                "producer": _PRODUCER,
                "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
            }
        )

    def _send(self) -> None:
        """Begin to send the events that wait, unless others are on their way."""
        if self._sent is not None or not self._waiting or time.monotonic() < self._not_before:
            return
        self._sending = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        key = self._settings.api_key.get_secret_value()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._sent = in_background(partial(post, self._settings.url, self._sending, headers))

    def _note_arrivals(self, seconds: float = 0.0) -> None:
        """Note which events have arrived; if some are on their way, wait for so many seconds."""
        if self._sent is None or not (seconds or self._sent.done()):
            return
        results = outcomes(self._sent, len(self._sending), seconds)
        self._sent = None
        left = [doc for doc, result in zip(self._sending, results, strict=True) if result is not None]
        self._waiting.extendleft(reversed(left))
        reason = next((f"{type(result).__name__}: {result}" for result in results if result is not None), "")
        if left:
            self._not_before = time.monotonic() + AGAIN_SECONDS
        if reason and reason != self._reason:
            self._observe(Undelivered("notify.openlineage", reason))
        self._reason = reason


def source_dataset(config: Config, table: TableId) -> dict[str, str]:
    """A table of the source, as OpenLineage names it."""
    return {"namespace": f"mysql://{config.source.host}:{config.source.port}", "name": str(table)}


def target_dataset(target: Target, table: TableId) -> dict[str, str]:
    """The copy of a table in its catalog, as OpenLineage names it; if the catalog has no address, in the warehouse."""
    address = target.catalog.without_secrets.split(",")[0]  # the first of several metastores: all have the same tables
    if target.catalog.type == "hive":
        address = f"hive://{address.partition('://')[2]}"  # in place of thrift://
    return {"namespace": address or target.warehouse.uri, "name": ".".join(target.shown(table))}


def _facet(schema: str, **fields: Any) -> dict[str, Any]:
    """A part of an event, with the version and the name of its schema."""
    name = schema.partition("/")[2]
    return {"_producer": _PRODUCER, "_schemaURL": f"{_SPEC}/facets/{schema}.json#/$defs/{name}", **fields}
