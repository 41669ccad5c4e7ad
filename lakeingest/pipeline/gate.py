"""A gate of the pipeline: suites asked of staged rows, the result kept and told, a failure raised."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import GateRun
from lakeingest.quality.gates import GateReport, run_gate
from lakeingest.quality.reports import keep
from lakeingest.quality.suites import Suite, default_suite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMED = 3  # failures in the line; the report has all


def gate(
    context: Context, table: TableId, stage: str, rows: "DataFrame", expected_rows: int, suites: Sequence[Suite] = ()
) -> GateReport:
    """Ask the suite of the table's definition and the given ones of its staged rows; GateFailed says what fails."""
    began = time.monotonic()
    schema = context.schemas[table]
    report = run_gate(f"{table} {stage}", rows, schema.key, [default_suite(schema, expected_rows), *suites])
    page = keep(context.config.state, table, stage, report)
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
