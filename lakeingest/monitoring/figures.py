"""The values of the metrics, collected from the events of a run. Another thread may read them during the run."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from lakeingest.core.figures.freshness import Measure, age
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import named
from lakeingest.monitoring.definitions import PREFIX
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Published,
    RowsReread,
    SourceLost,
    Spooled,
    Undelivered,
    WaveCommitted,
)

Labels = tuple[str, ...]  # the values of a definition's labels, in their order
Values = dict[str, dict[Labels, float]]  # by the name of a series


class Figures:
    """The values so far. A value that is not known has no entry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began, self._started_at = time.monotonic(), time.time()
        self._as_of: dict[Labels, float] = {}  # by table, the time up to which readers see every change
        self._proven_since: dict[Labels, float] = {}  # by table: each row was found equal at this time or later
        self._kept_until: float | None = None
        self._counts: Values = {}
        self._states: Values = {}  # replaced as a whole by each `Measured`, or at the end
        self._ended: Values = {}
        self._seconds: float | None = None  # how long the run took
        self._version = 0  # of all values but those that change by themselves

    @property
    def is_measured(self) -> bool:
        """Whether the tables were measured."""
        return bool(self._states)

    def observe(self, event: Event) -> None:
        """Collect the figures of an event."""
        with self._lock:
            self._version += not isinstance(event, Measured)  # a measurement counts only if it changes a state
            match event:
                case Measured():
                    self._measured(event)
                case WaveCommitted():
                    self._count("copied_rows_total", event.table, event.rows)
                    self._count("waves_total", event.table)
                case RowsReread():
                    self._count("waves_total", event.table)
                case Merged():
                    self._count("merges_total", event.table)
                    for kind in ("inserted", "updated", "deleted"):
                        self._count("merged_keys_total", event.table, getattr(event, kind), kind)
                case Published():
                    self._count("publish_seconds_sum", event.table, event.seconds)
                    self._count("publish_seconds_count", event.table)
                case GateRun():
                    passed = event.evaluated - event.failed - event.warnings
                    results = {"passed": passed, "failed": event.failed, "warning": event.warnings}
                    for result, number in results.items():
                        self._counts.setdefault("gate_expectations", {})[str(event.table), result] = number
                case _:
                    self._observe_run(event)

    def _observe_run(self, event: Event) -> None:
        """Collect the figures of an event that is not about a table."""
        match event:
            case Spooled():
                self._count("spooled_transactions_total", None, event.transactions)
                self._count("spooled_rows_total", None, event.rows)
            case SourceLost():
                self._count("source_lost_total", None)
            case Undelivered():
                self._count("undelivered_total", None)
            case Following():
                self._counts["run_caught_up"] = {(): 1.0}

    def know(self, measures: Iterable[Measure], kept_until: float | None) -> None:
        """Take over what an earlier run has measured. `kept_until`: the source keeps the binlog until this time."""
        with self._lock:
            self._kept_until = kept_until
            self._set_states(self._of_tables(tuple(measures)))

    def know_fresh(self, as_of: Mapping[TableId, float], objectives: Mapping[TableId, timedelta | None]) -> None:
        """Take over, by table, the time up to which readers see every change, and the greatest age that is allowed."""
        known: dict[Labels, float] = {
            (str(table),): most.total_seconds() for table, most in objectives.items() if most is not None
        }
        with self._lock:
            self._as_of = {(str(table),): moment for table, moment in as_of.items()}
            self._set_states({"max_staleness_seconds": known})

    def end(self, exit_code: int, *, caught_up: bool, stages: Iterable[Any] = (), error: str = "") -> None:
        """Note how the run has ended. `stages` are its `StageCost`s, and `error` is the name of its error."""
        with self._lock:
            self._seconds = time.monotonic() - self._began
            costs = {(stage.stage,): stage for stage in stages}
            self._ended = {
                "run_exit_code": {(error,): exit_code},
                "run_stage_seconds": {labels: cost.wall for labels, cost in costs.items()},
                "run_stage_cpu_seconds": {labels: cost.cpu for labels, cost in costs.items()},
            }
            self._counts["run_caught_up"] = {(): float(caught_up)}
            self._version += 1

    def values(self) -> Values:
        """Each series with its values now."""
        _, moving, still = self.since(-1)
        return {**moving, **still}

    def since(self, version: int) -> tuple[int, Values, Values]:
        """The present version, the series that change as time passes, and the others.

        The others are empty if the present version is `version`: then they are as the caller knows them.
        """
        with self._lock:
            still = {} if version == self._version else self._still()
            return self._version, self._moving(time.time()), still

    def _still(self) -> Values:
        """The series that do not change as time passes."""
        parts = (self._states, self._counts, self._ended)
        return {f"{PREFIX}{name}": dict(values) for part in parts for name, values in part.items()}

    def _moving(self, now: float) -> Values:
        """The series that change as time passes."""
        is_active = self._seconds is None
        seconds = time.monotonic() - self._began if self._seconds is None else self._seconds
        values: Values = {  # `()` are the labels of a value without labels
            "run_started_timestamp_seconds": {(): self._started_at},
            "run_seen_timestamp_seconds": {(): now if is_active else self._started_at + seconds},
            "run_active": {(): float(is_active)},
            "run_seconds": {(): seconds},
            "fresh_as_of_timestamp_seconds": self._as_of,
            "freshness_seconds": _ages(self._as_of, now),
            "proven_as_of_timestamp_seconds": self._proven_since,
            "proven_age_seconds": _ages(self._proven_since, now),
        }
        if self._kept_until is not None:
            values["binlog_kept_until_timestamp_seconds"] = {(): self._kept_until}
            values["binlog_kept_seconds"] = {(): max(0.0, self._kept_until - now)}
        return {f"{PREFIX}{name}": by_labels for name, by_labels in values.items()}

    def _measured(self, event: Measured) -> None:
        """Put the values of this measurement in the place of those of the last one."""
        self._kept_until = None if event.binlog_seconds is None else time.time() + event.binlog_seconds
        self._set_states(_of_load(event.load) | self._of_tables(event.tables))

    def _set_states(self, states: Values) -> None:
        """Put these values in the place of the last states, if they differ."""
        if states != self._states:
            self._states = states
            self._version += 1

    def _of_tables(self, tables: Sequence[Measure]) -> Values:
        """The values of measures. Their times are not among them, but stored here: `_moving` makes ages of them."""
        with_names = [(str(table.table), table) for table in tables]
        self._as_of = _known(with_names, "as_of")
        self._proven_since = _known(with_names, "proven_since")
        return {
            "table_failed": {
                (name, table.error, _exit_code(table.error)): float(bool(table.error)) for name, table in with_names
            },
            "companion_failed": {
                (name, key, error, _exit_code(error)): float(bool(error))
                for name, table in with_names
                for key, error in table.companions.items()
            },
            "table_paused": {(name,): float(table.paused) for name, table in with_names},
            "rows": _known(with_names, "rows"),
            "lag_bytes": _known(with_names, "lag_bytes"),
            "lag_seconds": _known(with_names, "lag_seconds"),
            "max_staleness_seconds": _known(with_names, "max_staleness"),
            "quarantined_keys": _known(with_names, "quarantined"),
        }

    def _count(self, name: str, table: TableId | None, number: float = 1, *labels: str) -> None:
        """Add `number` to a count of the table; without a table, to a count of the run."""
        key = labels if table is None else (str(table), *labels)
        counts = self._counts.setdefault(name, {})
        counts[key] = counts.get(key, 0) + number


def _exit_code(error: str) -> str:
    """The exit code of the error of this name; '' if the name is empty, or if this version has no such error."""
    kind = named(error)
    return "" if kind is None else str(kind.exit_code)


def _ages(moments: Mapping[Labels, float], now: float) -> dict[Labels, float]:
    """How many seconds ago each moment was; 0 for a moment that is still to come, by a clock that is ahead."""
    return {labels: age(moment, now) or 0.0 for labels, moment in moments.items()}


def _known(tables: Iterable[tuple[str, Measure]], field: str) -> dict[Labels, float]:
    """The values of this field that are known, by the name of the table."""
    return {(name,): value for name, table in tables if (value := getattr(table, field)) is not None}


def _of_load(load: Load) -> Values:
    """The values that `throttle` has measured at the source."""
    measured = {
        "source_threads_running": load.threads_running,
        "source_history_list_length": load.history_list_length,
        "source_replica_lag_seconds": load.replica_lag,
    }
    return {name: {(): value} for name, value in measured.items() if value is not None}
