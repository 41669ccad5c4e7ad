"""A gate of the pipeline: it checks staged rows against suites, stores the report, and raises an error for failures."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakeingest.errors import GateFailed
from lakeingest.pipeline.events import GateRun
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


def gate(
    edges: Edges,
    table: TableRun,
    stage: str,
    rows: "Callable[[], DataFrame]",
    expected_rows: int,
    suites: Sequence[Suite] = (),
    *,
    sound: bool,
) -> GateReport:
    """Check staged rows against the suite of the table's definition and the given suites.

    `expected_rows`: the number of rows that the definition's suite expects, including rows that are marked as deleted.
    The given suites get no rows that are marked as deleted. `sound`: the rows are known to pass the definition's suite,
    so only the given suites are evaluated. Raises GateFailed with the first failures.
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
        elif table.schema.keeps_deleted and suites:  # each suite gets other rows
            all_rows = rows()
            report = evaluate(all_rows, [definition_suite])
            report = joined_reports(report, evaluate(live_rows(all_rows, table.schema), suites))
        else:
            report = evaluate(rows(), [definition_suite, *suites])
        page = save_report(edges.state, table.id, stage, expected_rows, report)
    failures = report.failures
    seconds = time.monotonic() - began
    edges.observe(GateRun(table.id, stage, len(report.outcomes), len(failures), len(report.warnings), seconds))
    if failures:
        is_cut = len(failures) > FAILURES_IN_MESSAGE
        more = f"; and {len(failures) - FAILURES_IN_MESSAGE} more" if is_cut else ""
        raise GateFailed(
            f"{table.id} was not published, it failed the gate {stage}:"
            f" {'; '.join(map(str, failures[:FAILURES_IN_MESSAGE]))}{more};"
            f" readers keep the last good commit; all of it is in {page}"
        )
    return report
