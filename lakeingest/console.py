"""The output of commands as lines of text; and of a run as progress bars, if the output is a terminal."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from lakeingest.core.figures.bill import priced
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite, LakeIngestError, NotOurCopy
from lakeingest.monitoring.event_lines import level, line_maker
from lakeingest.pipeline.events import Event, Observer, in_turn
from lakeingest.terminal import is_json, log, log_line

if TYPE_CHECKING:
    from lakeingest.commands.adopt import Adopted
    from lakeingest.commands.check import CheckResult
    from lakeingest.commands.plan import CopyPlan, TablePlan
    from lakeingest.commands.quarantine import KeptKeys
    from lakeingest.commands.run import RunResult
    from lakeingest.commands.signal import SignalResult
    from lakeingest.commands.submit import Submission
    from lakeingest.commands.verification import TableVerification
    from lakeingest.config import Config

KEYS_SHOWN = 20
PLANNED_IN_FULL = 5  # so many tables are planned with all details, even if nobody has named them
_WHAT_READERS_SEE = {
    ForeignWrite.__name__: "see the foreign commit",
    NotOurCopy.__name__: "see what its owner publishes",
}
_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "s"))


def signal_lines(results: "Sequence[SignalResult]") -> Iterator[str]:
    """A line with the state of each signal. Only a `cancel` can end without signals."""
    for signal in results:
        tables = ", ".join(map(str, signal.tables)) or "all tables"
        note = f": {signal.note}" if signal.note else ""
        yield f"signal {signal.number}, {signal.action} of {tables}: {signal.state}{note}"
    if not results:
        yield "nothing to cancel: no re-snapshot of these tables has been asked for, or all have ended"


def kept_lines(results: "KeptKeys") -> Iterator[str]:
    """A line for each key in quarantine or row of the evidence; after a row of the evidence, a line with its values."""
    for kept in results:
        fails = "its evidence is lost" if kept.expectations is None else "; ".join(kept.expectations)
        since = "" if kept.position is None else f", as of {kept.position}, at {kept.quarantined_at}"
        until = "" if kept.released_at is None else f", released at {kept.released_at}"
        yield f"{kept.table}: key {kept.key}: {fails}{since}{until}"
        if kept.row is not None:
            yield "  " + ", ".join(f"{name}={value}" for name, value in kept.row.items())
    yield from results.notes if results else ["nothing is in quarantine"]


def adopted_lines(results: "Sequence[Adopted]") -> Iterator[str]:
    """A line for each copy that was handed over."""
    for adopted in results:
        earlier_owner = "" if adopted.before is None else f"; it belonged to {adopted.before}"
        yield f"{adopted.table}: its copy belongs to this pipeline now{earlier_owner}"


@contextmanager
def observer(console: Console) -> Iterator[Observer]:
    """An observer for use within the block. On a terminal it draws progress bars and prints lines, elsewhere it logs.

    If the log is JSON, the observer only logs, even on a terminal.
    """
    line_of = line_maker()
    if not console.is_terminal or is_json():

        def write(event: Event) -> None:
            if text := line_of(event):
                with suppress(BrokenPipeError):  # nobody reads the progress any more; the run goes on
                    log(text, level(event), event=type(event).__name__, **_facts(event))

        yield write
        return
    from rich.progress import Progress

    from lakeingest.bars import COLUMNS, Bars

    with Progress(*COLUMNS, console=console) as progress:
        bars = Bars(progress)

        def draw(event: Event) -> None:
            bars.draw(event)
            if text := line_of(event):
                console.print(Text(log_line(text, level(event))))

        yield in_turn(draw)  # several threads of a run send events, and the bars can take only one at a time


def _facts(event: Event) -> dict[str, str | int | float | bool]:
    """The fields of an event that are names, numbers or texts, for a log that programs read."""
    found: dict[str, str | int | float | bool] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, TableId):
            found[field.name] = str(value)
        elif isinstance(value, LakeIngestError):
            found[field.name] = value.runbook
        elif isinstance(value, str | int | float):
            found[field.name] = value
    return found


def pipeline_line(config: "Config") -> str:
    """A line with the name, the source and the target of the pipeline."""
    source, target = config.source, config.target
    return f"{config.name}: {source.type} at {source.host}:{source.port} → {target.format} at {target.warehouse}"


def run_lines(result: "RunResult") -> Iterator[str]:
    """A line for each table of a run; then how the run ended, and with how many rows in all."""
    errors = {stopped.table: stopped.error for stopped in result.stopped}  # the names of the errors' classes
    for outcome in result.tables:
        table = outcome.table
        if table in errors:
            error = errors[table]
            what_readers_see = _WHAT_READERS_SEE.get(error, "keep the last good commit")
            yield f"{table}: stopped, {error}; readers {what_readers_see}"
            continue
        position = "" if outcome.position is None else f" as of {outcome.position.at}"
        if table in result.paused:
            yield f"{table}: paused{position}; `lakeingest resume {table}` lets it go on"
            continue
        state = f"published{position}" if outcome.published else "not published yet"
        yield f"{table}: {outcome.rows:,} rows, {state}"
    if result.followed:
        yield from result.notes
    elif result.caught_up:
        # the first note says how the run ended
        count, rows = len(result.tables), sum(outcome.rows for outcome in result.tables)
        yield f"{count:,} {'table' if count == 1 else 'tables'} with {rows:,} rows: {result.notes[0]}"
    else:
        yield "the time was up before the end of the binlog; the same command goes on from here"


def stopped_lines(result: "RunResult", raised_error: BaseException) -> Iterator[str]:
    """A line with the error of each stopped table, except the raised error, which is printed when the command ends."""
    raised_message = " ".join(str(raised_error).split())
    for stopped in result.stopped:
        if stopped.message != raised_message:
            yield f"{stopped.message} (runbook: {stopped.error})"


def check_lines(result: "CheckResult") -> Iterator[str]:
    """A line for each condition; warnings come last."""
    for condition in result.checked:
        if condition not in result.warnings:
            runbook = f" (runbook: {condition.runbook})" if condition.runbook else ""
            yield f"{'ok' if condition.finding is None else 'PROBLEM':<8} {condition}{runbook}"
    for condition in result.warnings:
        yield f"{'warning':<8} {condition}"
    if result.ok:
        warnings = (
            f", but look at the {'warnings' if len(result.warnings) > 1 else 'warning'}" if result.warnings else ""
        )
        yield f"ready{warnings}; next: lakeingest plan"


def plan_lines(plans: "Sequence[TablePlan]", *, named: bool = True) -> Iterator[str]:
    """The plan of each table. Many tables that the user has not `named` get a line each, without their details."""
    in_full = named or len(plans) <= PLANNED_IN_FULL
    for plan in plans:
        copy = plan.copy  # None: the table cannot be copied, or no run changes its copy any more
        has_work = copy is not None and copy.chunks
        work = f", about {copy.rows:,} rows, {decimal(copy.bytes)}" if copy and has_work and not in_full else ""
        yield f"{plan.table} → {plan.target}: {plan.state}{work}"
        yield from (f"  reason     {reason}" for reason in plan.reasons)
        yield from (f"  taken over {note}" for note in plan.foreign)
        if copy is not None and in_full:
            yield from _details_of(plan, copy)
        elif plan.lossy:
            yield f"  lossy      {', '.join(plan.lossy)}"
    if not in_full:
        yield "a table's key, chunks, types, time, cost and retention: lakeingest plan TABLE"


def _details_of(plan: "TablePlan", copy: "CopyPlan") -> Iterator[str]:
    """Indented lines with all that is planned for a table that can be copied."""
    retention = "for ever"
    if plan.retention_seconds is not None and plan.margin_seconds is not None:
        retention = f"for {_duration(plan.retention_seconds)}, a margin of {_duration(plan.margin_seconds)}"
    yield f"  key        {', '.join(plan.key)}: {plan.key_path}"
    if plan.partitions:
        yield f"  partitions {', '.join(plan.partitions)}"
    if copy.chunks:
        yield f"  copy       about {copy.rows:,} rows, {decimal(copy.bytes)}"
        yield f"  chunks     about {copy.chunks:,} of {copy.chunk_rows:,} rows, in {copy.waves:,} waves"
        yield f"  time       about {_duration(copy.seconds)}: an estimate from one chunk, {copy.at_once} at a time"
        yield f"  cost       about {copy.cpu_seconds:,.1f} CPU seconds, {priced(copy.dollars)}"
    else:
        yield "  copy       all chunks are copied; only the binlog is applied"
    yield f"  retention  the source keeps its binlog {retention}"
    types = (f"{column.name} {column.source_type} → {column.lake_type}" for column in plan.columns)
    yield f"  types      {', '.join(types)}"
    yield f"  lossy      {', '.join(plan.lossy) or 'none: every value arrives exact, or stops the run'}"


def _duration(seconds: float) -> str:
    """A duration in the largest unit that it fills, such as "2.5 hours". It can be negative, as a margin can."""
    size, unit = next((unit for unit in _UNITS if abs(seconds) >= unit[0]), _UNITS[-1])
    return f"{seconds / size:,.1f} {unit}"


def submission_lines(result: "Submission") -> Iterator[str]:
    """The lines of a dry run: the files, the job's variables with the origin of their values, and the request."""
    yield f"dry run: nothing is sent to {result.service.title}"
    for upload in result.uploads:
        yield f"upload    {upload.path} ({decimal(upload.path.stat().st_size)}) → {upload.uri}"
    for name, secret in result.variables.items():
        origin = f"from the secret {secret}" if secret else "not among the secrets: the service has to set it"
        yield f"variable  {name}: {origin}"
    yield from f"{result.service.operation} {json.dumps(result.request, indent=2)}".splitlines()


def verification_lines(results: "Sequence[TableVerification]") -> Iterator[str]:
    """Lines for each table: its first repaired keys, then the result, then the first keys that still differ."""
    for result in results:
        yield from _difference_lines(result.table, result.repaired, ", repaired")
        if not result.compared_chunks:
            yield f"{result.table}: {result.result}"
        elif result.differs:
            yield (
                f"{result.table}: {result.result}: {result.source.rows:,} rows, checksum {result.source} in the source,"
                f" {result.target.rows:,} rows, checksum {result.target} in the target"
            )
            yield from _difference_lines(result.table, result.differences)
        else:
            yield f"{result.table}: {result.result}, {result.source.rows:,} rows, checksum {result.source}"


def _difference_lines(table: object, differences: Sequence[Any], ending: str = "") -> Iterator[str]:
    """A line for each of the first KEYS_SHOWN differences; if there are more, a line with the number of the others."""
    for difference in differences[:KEYS_SHOWN]:
        yield f"{table}: key {', '.join(map(str, difference.key))} {difference.where}{ending}"
    if len(differences) > KEYS_SHOWN:
        yield f"{table}: and {len(differences) - KEYS_SHOWN} more keys{ending}; --json names all"


def to_document(value: Any) -> Any:
    """A result as a JSON document: by its method `to_json`, if it has one; dataclasses field by field."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [to_document(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: to_document(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
