"""A gate of the pipeline: it checks staged rows against suites, and stores the report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, StorageAway, StorageFailed
from lakeingest.files.file import File
from lakeingest.pipeline.events import GateRun, Undelivered
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.quality.gates import GateReport, joined_reports, run_gate
from lakeingest.quality.reports import save_report
from lakeingest.quality.row_checks import with_passed_suite
from lakeingest.quality.suites import Suite, default_suite
from lakeingest.spark.live_rows import live_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAILURES_IN_MESSAGE = 3  # the report has all of them


@dataclass(frozen=True, slots=True)
class Checked:
    """The report of a gate on a table at a stage, and its page."""

    table: TableId
    stage: str
    report: GateReport
    page: File

    def error(self, reason: str = "") -> GateFailed:
        """The error with the first failures. `reason`: why the rows that fail are not moved to the quarantine."""
        failures = self.report.failures
        is_cut = len(failures) > FAILURES_IN_MESSAGE
        more = f"; and {len(failures) - FAILURES_IN_MESSAGE} more" if is_cut else ""
        stay = f"; no row was moved to the quarantine: {reason}" if reason else ""
        return GateFailed(
            f"{self.table} was not published, it failed the gate {self.stage}:"
            f" {'; '.join(map(str, failures[:FAILURES_IN_MESSAGE]))}{more}{stay};"
            f" readers keep the last good commit; all of it is in {self.page}"
        )


def gate(
    edges: Edges,
    table: TableRun,
    stage: str,
    rows: "Callable[[], DataFrame]",
    expected_rows: int,
    suites: Sequence[Suite] = (),
    *,
    sound: bool,
) -> Checked:
    """Check staged rows against the suite of the table's definition and the given suites.

    `expected_rows`: the number of rows that the definition's suite expects, including rows that are marked as deleted.
    The given suites get no rows that are marked as deleted. `sound`: the rows are known to pass the definition's suite,
    so only the given suites are evaluated.
    """
    began = time.monotonic()
    key, title = table.schema.key, f"{table.id} {stage}"

    def evaluate(checked_rows: "DataFrame", checks: Sequence[Suite]) -> GateReport:
        return run_gate(title, checked_rows, key, checks, samples=edges.config.quality.samples)

    definition_suite = default_suite(table.schema, expected_rows)
    with edges.profile.stage("gates"):
        if sound:
            evaluated = evaluate(live_rows(rows(), table.schema), suites) if suites else None
            report = with_passed_suite(definition_suite, evaluated)
        elif table.schema.keeps_deleted and suites:  # the given suites get only live rows
            all_rows = rows()
            report = evaluate(all_rows, [definition_suite])
            report = joined_reports(report, evaluate(live_rows(all_rows, table.schema), suites))
        else:
            report = evaluate(rows(), [definition_suite, *suites])
        page = save_report(edges.state, table.id, stage, expected_rows, report)
        if edges.config.quality.ledger is not None:
            _note(edges, table, stage, expected_rows, report)
    counts = len(report.outcomes), len(report.failures), len(report.warnings)
    edges.observe(GateRun(table.id, stage, *counts, time.monotonic() - began))
    return Checked(table.id, stage, report, page)


def _note(edges: Edges, table: TableRun, stage: str, rows: int, report: GateReport) -> None:
    """Note the results for the ledger. If they cannot be noted, the run goes on without them."""
    position = None if table.has_missing_chunks else table.progress.position  # chunks are not of one position
    try:
        edges.results.note(edges.writing, table.id, stage, rows, position, report)
    except (StorageAway, StorageFailed) as error:
        edges.observe(Undelivered("quality.ledger", error.line))
