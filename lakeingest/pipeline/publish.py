"""Write, audit, publish: the gates look at one staging commit, and exactly that commit becomes visible."""

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeingest.core.schema import TableId
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Published
from lakeingest.pipeline.gate import gate
from lakeingest.quality.suites import user_suites
from lakeingest.state.definition import keep_first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GATE = "lakeingest.gate"  # table property: what the gate asked at the last publish


def publish(context: Context, table: TableId) -> None:
    """Run the gate on the table's level staging commit, then move main to it.

    GateFailed leaves main where it was, MainMoved where someone's compaction moved it. Nothing to do when readers see
    this commit already.
    """
    began = time.monotonic()
    staged = context.tables[table]
    if staged.visible:
        return
    expected_rows = staged.progress.rows
    suites = user_suites(context.config.quality.suites, table)
    known = context.is_sound(table) and context.target.count(table, staged.version) == expected_rows

    def rows() -> "DataFrame":
        return context.target.read(table, staged.version, context.open_spark())

    report = gate(context, table, "before publish", rows, expected_rows, suites, known=known)
    asked = {
        "success": True,
        "rows": expected_rows,
        "evaluated": len(report.outcomes),
        "warnings": len(report.warnings),
        "suites": sorted({one.suite for one in report.outcomes}),
    }
    audited = replace(staged, progress=staged.progress.audited())
    context.lease.assert_held()
    if staged.published is None:  # before it: then it is known of every published copy
        keep_first(context.config.state, context.schemas[table], staged.progress.position)
    with context.profile.stage("publishes"):
        published = context.target.publish(audited, context.open_spark, {GATE: json.dumps(asked)})
    published = replace(published, progress=audited.progress.published())
    context.advance(published)
    position = published.progress.position
    context.observe(
        Published(table, expected_rows, "" if position is None else str(position.at), time.monotonic() - began)
    )
