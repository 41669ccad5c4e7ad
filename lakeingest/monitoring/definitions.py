"""Every metric: its name, type, unit, labels and meaning. The reference page, rules and dashboards go by this table."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "summary"]
PREFIX = "lakeingest_"


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. `labels`: its labels but `pipeline`, which each metric has. A counter begins at 0 with each run."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its series, as queries use them."""
        return (f"{self.name}_sum", f"{self.name}_count") if self.kind == "summary" else (self.name,)


def _gauge(name: str, unit: str, labels: str, meaning: str) -> Definition:
    return Definition(f"{PREFIX}{name}", "gauge", unit, tuple(labels.split()), meaning)


def _counter(name: str, unit: str, labels: str, meaning: str) -> Definition:
    return Definition(f"{PREFIX}{name}_total", "counter", unit, tuple(labels.split()), meaning)


_SECONDS, _TIMESTAMP, _FLAG, _TABLE = "seconds", "seconds since 1970", "0 or 1", "table"
_PUBLISHES = "How long publishes took, with their gates. `_count` is the number of publishes."
_FRESHNESS = (
    "The age of what readers see, when this was written: the time that has passed since"
    " `lakeingest_fresh_as_of_timestamp_seconds`. Between runs it stands still in a text file and in a push gateway, so"
    " alerts go by the timestamp."
)
_LAG_BYTES = "The length of the binlog after what readers see, up to what the source has written. Absent if unknown."
_LAG_SECONDS = (
    "How much later than the last change that readers see the last spooled change was committed. 0 if the table has no"
    " change in between. Absent if a commit time is unknown."
)
_FAILED = (
    "1: the table has stopped; `error` names the error and its runbook, `exit_code` says who acts: 75 means that the"
    " next run tries again. 0, with both labels empty: it goes on."
)
_COMPANION_FAILED = (
    "1: a companion of the copy does not go on, such as its history: `companion` is the key of pipeline.yml, `error`"
    " and `exit_code` are as above. The copy itself goes on. 0: it goes on. Absent without companions."
)
_EXIT_CODE = (
    "The exit code of the last run; `error` names the error and its runbook, and is empty without one. Absent while a"
    " run is at work."
)
_QUARANTINED = "Keys that have no row in the copy because their rows failed the gate. Absent without a copy."
_PROVEN = (
    "The age of the proof that source = target, when this was written: the time that has passed since"
    " `lakeingest_proven_as_of_timestamp_seconds`."
)
_PROVEN_AS_OF = (
    "`quality.verify` has found every row equal to the source's at this time or later. Absent without that key, and"
    " while a range of the table is not proven."
)
_SEEN = "When a run was last at work: the time when this was written, or of the request."
_KEPT = (
    "The retention that is left: how long the source will still keep the binlog that the next run needs, when this was"
    " written. Absent if the source keeps its binlog for ever, or if that is unknown."
)
_KEPT_UNTIL = "The source keeps the binlog that the next run needs until then, at least. Absent as above."

_ALL = (
    _gauge("freshness_seconds", _SECONDS, _TABLE, _FRESHNESS),
    _gauge("fresh_as_of_timestamp_seconds", _TIMESTAMP, _TABLE, "Readers see every change from before this time."),
    _gauge(
        "max_staleness_seconds", _SECONDS, _TABLE, "The objective for the age, `max_staleness`. Absent without one."
    ),
    _gauge("lag_bytes", "bytes", _TABLE, _LAG_BYTES),
    _gauge("lag_seconds", _SECONDS, _TABLE, _LAG_SECONDS),
    _gauge("rows", "rows", _TABLE, "The rows that readers see. Absent before the first publish."),
    _gauge("table_failed", _FLAG, "table error exit_code", _FAILED),
    _gauge("companion_failed", _FLAG, "table companion error exit_code", _COMPANION_FAILED),
    _gauge("table_paused", _FLAG, _TABLE, "1: someone has paused the table."),
    _gauge("quarantined_keys", "keys", _TABLE, _QUARANTINED),
    _gauge("proven_age_seconds", _SECONDS, _TABLE, _PROVEN),
    _gauge("proven_as_of_timestamp_seconds", _TIMESTAMP, _TABLE, _PROVEN_AS_OF),
    _gauge("gate_expectations", "expectations", "table result", "Of the last gate: `passed`, `failed`, `warning`."),
    _counter("copied_rows", "rows", _TABLE, "Rows of chunks that were committed."),
    _counter("waves", "commits", _TABLE, "Committed waves of chunks, and of rows that were read again."),
    _counter("merges", "commits", _TABLE, "Batches of changes that were merged."),
    _counter("merged_keys", "keys", "table kind", "Keys that merges have `inserted`, `updated` and `deleted`."),
    Definition(f"{PREFIX}publish_seconds", "summary", _SECONDS, (_TABLE,), _PUBLISHES),
    _gauge("run_started_timestamp_seconds", _TIMESTAMP, "", "When the last run began."),
    _gauge("run_seen_timestamp_seconds", _TIMESTAMP, "", _SEEN),
    _gauge("run_active", _FLAG, "", "1: the run was at work when this was written. 0: it has ended."),
    _gauge("run_exit_code", "exit code", "error", _EXIT_CODE),
    _gauge("run_seconds", _SECONDS, "", "How long the run took, or takes so far."),
    _gauge("run_caught_up", _FLAG, "", "1: the run has caught up with the source."),
    _gauge("run_stage_seconds", _SECONDS, "stage", "The wall time of a stage of the last run, once it has ended."),
    _gauge("run_stage_cpu_seconds", _SECONDS, "stage", "The CPU time of a stage of the last run, once it has ended."),
    _gauge("binlog_kept_seconds", _SECONDS, "", _KEPT),
    _gauge("binlog_kept_until_timestamp_seconds", _TIMESTAMP, "", _KEPT_UNTIL),
    _counter("spooled_transactions", "transactions", "", "Transactions of the binlog that were spooled."),
    _counter("spooled_rows", "change rows", "", "Change rows that were spooled."),
    _counter("source_lost", "times", "", "How often the source, the catalog or Spark was away."),
    _gauge("source_threads_running", "threads", "", "As `throttle.threads_running` measured it last, or absent."),
    _gauge(
        "source_history_list_length",
        "transactions",
        "",
        "As `throttle.history_list_length` measured it last, or absent.",
    ),
    _gauge("source_replica_lag_seconds", _SECONDS, "", "As `throttle.replica_lag` measured it last, or absent."),
    _counter("undelivered", "times", "", "How often metrics or notices could not be delivered."),
)
DEFINITIONS = {definition.name: definition for definition in _ALL}
SAMPLES = frozenset(sample for definition in _ALL for sample in definition.samples)
