"""A gate of the pipeline: suites asked of staged rows, the result kept and told, a failure raised."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import GateRun
from lakeingest.quality.gates import GateReport, run_gate
from lakeingest.quality.reports import save_report
from lakeingest.quality.row_checks import passed
from lakeingest.quality.suites import Suite, default_suite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMED = 3  # failures in the line; the report has all


def gate(
    context: Context,
    table: TableId,
    stage: str,
    rows: "Callable[[], DataFrame]",
    expected_rows: int,
    suites: Sequence[Suite] = (),
    *,
    known: bool,
) -> GateReport:
    """Ask the suite of the table's definition and the given ones of its staged rows; GateFailed says what fails.

    `known`: that of the definition holds, and is not asked.
    """
    began = time.monotonic()
    schema, named = context.schemas[table], f"{table} {stage}"
    of_definition = default_suite(schema, expected_rows)
    with context.profile.stage("gates"):
        if known:
            report = passed(of_definition, run_gate(named, rows(), schema.key, suites) if suites else None)
        else:
            report = run_gate(named, rows(), schema.key, [of_definition, *suites])
        page = save_report(context.config.state, table, stage, expected_rows, report)
    failures = report.failures
    seconds = time.monotonic() - began
    context.observe(GateRun(table, stage, len(report.outcomes), len(failures), len(report.warnings), seconds))
    if failures:
        more = f"; and {len(failures) - NAMED} more" if len(failures) > NAMED else ""
        raise GateFailed(
            f"{table} was not published, it failed the gate {stage}: {'; '.join(map(str, failures[:NAMED]))}{more};"
            f" readers keep the last good commit; all of it is in {page}"
        )
    return report
