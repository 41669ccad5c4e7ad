"""Write, audit, publish: the gates look at one staging commit, and exactly that commit becomes visible."""

import json
import time
from dataclasses import asdict, replace

from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Published
from lakeingest.quality.gates import check_rows

GATE = "lakeingest.gate"  # table property: what the gate counted at the last publish


def publish(context: Context, table: TableId) -> None:
    """Run the gate on the table's level staging commit, then move main to it.

    GateFailed leaves main where it was, MainMoved where someone's compaction moved it. Nothing to do when readers see
    this commit already.
    """
    began = time.monotonic()
    staged = context.tables[table]
    if staged.visible:
        return
    rows = context.target.read(table, staged.version, context.spark)
    report = check_rows(rows, context.schemas[table].key, staged.progress.rows)
    if report.failures:
        raise GateFailed(f"{table} was not published: {'; '.join(report.failures)}; readers keep the last good commit")
    audited = replace(staged, progress=staged.progress.audited())
    context.lease.assert_held()
    published = context.target.publish(audited, context.spark, {GATE: json.dumps(asdict(report))})
    published = replace(published, progress=audited.progress.published())
    context.advance(published)
    position = published.progress.position
    context.observe(
        Published(table, report.rows, "" if position is None else str(position.at), time.monotonic() - began)
    )
