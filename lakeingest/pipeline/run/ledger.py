"""What a run notes for the table of quality results (`core.proofs.ledger`). `rounds/ledger.py` writes the table."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from string import digits

from lakeingest.core.binlog.position import Position
from lakeingest.core.proofs.ledger import KEY, Result, Row, result_id
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.quality.gates import GateReport, Outcome
from lakeingest.quality.suites import SCHEMA
from lakeingest.state.ledger import note_results

_OF_DEFINITION = "all expectations of the definition"


class Results:
    """Notes the results of a run's gates in the state folder.

    A result that is the same as the last one of this run is noted again only after an hour (`Result.covers`). If all
    expectations of a table's definition pass, they are one result.
    """

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._last: dict[tuple[TableId, str, str], Result] = {}  # by table, stage and expectation

    def note(
        self, state: File, table: TableId, stage: str, rows: int, position: Position | None, report: GateReport
    ) -> None:
        """Note the results of a gate on so many `rows`. Raises StorageFailed if the state folder cannot be written."""
        now = datetime.now(UTC)
        new = [outcome for outcome in _results(report) if self._is_new(table, stage, outcome, now)]
        shared = {
            "checked_at": _micros(now),
            "run_began": _micros(self._began),
            "source_table": str(table),
            "stage": stage,
            "row_count": rows,
            "position": None if position is None else str(position.at),
        }
        noted = [
            {KEY: result_id(now, f"{table} {number:04d}"), **shared, **_columns(outcome)}
            for number, outcome in enumerate(new)
        ]
        if noted:
            note_results(state, result_id(now).strip(), noted)  # an id without `rest` ends with a space

    def _is_new(self, table: TableId, stage: str, outcome: Outcome, now: datetime) -> bool:
        """Whether the result is to be noted. If so, later results are compared with this one."""
        expectation = outcome.suite + json.dumps(outcome.document, sort_keys=True, default=str)
        key = (table, stage.rstrip(digits), expectation)  # the waves of a copy, which are numbered, are one stage
        result = Result(outcome.success, outcome.unexpected, now.timestamp())
        if (last := self._last.get(key)) is not None and last.covers(result):
            return False
        self._last[key] = result
        return True


def _results(report: GateReport) -> Iterator[Outcome]:
    """The outcomes of a gate; if all outcomes of the definition's suite have passed, one outcome in their place."""
    of_definition = [outcome for outcome in report.outcomes if outcome.suite == SCHEMA]
    if of_definition and all(outcome.success for outcome in of_definition):
        yield Outcome(SCHEMA, {"type": _OF_DEFINITION, "kwargs": {}}, success=True)
    else:
        yield from of_definition
    yield from (outcome for outcome in report.outcomes if outcome.suite != SCHEMA)


def _columns(outcome: Outcome) -> Row:
    """The columns whose values differ by outcome. Of rows that fail, they have the keys, and no other value."""
    return {
        "suite": outcome.suite,
        "expectation": outcome.expectation,
        "severity": str(outcome.document.get("severity", "critical")),
        "success": outcome.success,
        "evaluated": outcome.error is None,
        "failing_rows": None if outcome.unexpected is None else int(outcome.unexpected),
        "failing_keys": "; ".join(outcome.keys) or None,
    }


def _micros(moment: datetime) -> int:
    """The moment in µs since 1970."""
    return round(moment.timestamp() * 1_000_000)
