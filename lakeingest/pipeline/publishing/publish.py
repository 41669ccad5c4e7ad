"""Write, audit, publish: the gates check a staging commit, and exactly that commit becomes visible."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeingest.core.figures.shown import SHOWN, Shown
from lakeingest.lake.held import Auditing, Held
from lakeingest.lake.target import Staged
from lakeingest.pipeline.events import Published, TookBack
from lakeingest.pipeline.publishing.audit import audit, must_be_full, note_publish
from lakeingest.pipeline.publishing.gate import Checked, gate
from lakeingest.pipeline.publishing.quarantine import close_evidence, move_failing
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.profile import PUBLISHES
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.quality.gates import GateReport
from lakeingest.quality.suites import user_suites
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import as_property, keep_audit, keep_first_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GATE = "lakeingest.gate"  # table property: what the gate checked at the last publish
DEFINITION = "lakeingest.definition"  # table property: the source's definition of the published rows


@dataclass(frozen=True, slots=True)
class Ready:
    """A staged commit that has passed its gate, and what its publish shows. `seconds`: how long the gate took.

    `read_back` is the audit, which the target calls before readers see the commit.
    """

    table: TableRun
    staged: Staged
    rows: int
    properties: Mapping[str, str]
    read_back: Auditing
    seconds: float


def publish(edges: Edges, spool: Spool, table: TableRun, *, after_maintenance: bool = False) -> None:
    """Run the gate on the table's staging commit, audit the commit, then move main to it.

    All splits must be at one position. Does nothing if readers see this commit already, if the copy has a gap, or if
    the copy lacks changes by foreign keys (`cascades`). The audit is in full after maintenance, and if `must_be_full`.

    Raises:
        GateFailed: the gate fails. Main does not move.
        AuditFailed: the audit fails. Main does not move.
        MainMoved: someone's compaction has moved main.

    """
    ready = make_ready(edges, spool, table, after_maintenance=after_maintenance)
    if ready is None:
        return
    began = time.monotonic()
    with edges.profile.stage(PUBLISHES):
        published = edges.target.publish(ready.staged, table.schema, ready.properties, ready.read_back)
    note_published(edges, ready, published, ready.seconds + time.monotonic() - began)


def make_ready(edges: Edges, spool: Spool, table: TableRun, *, after_maintenance: bool = False) -> Ready | None:
    """Run the gate on the table's staging commit. None if there is nothing to publish, as `publish` says.

    Rows that fail may move to the quarantine. If the publish is the first one of the copy, its position is stored in
    the state folder. Raises GateFailed if the gate fails.
    """
    began = time.monotonic()
    if table.staged.visible:
        close_evidence(edges, table)
        return None
    if table.progress.gap or not table.has_cascades:
        return None
    # Step 1: the gate, on exactly this commit. Rows that fail may move to the quarantine: then the rest is a new commit
    report, expected_rows = _passed(edges, spool, table)
    staged = table.staged
    checked = {
        "success": True,
        "rows": expected_rows,
        "evaluated": len(report.outcomes),
        "warnings": len(report.warnings),
        "suites": sorted({outcome.suite for outcome in report.outcomes}),
    }
    # the gates were passed; `read_back` below audits the files
    audited = replace(staged, progress=staged.progress.audited(expected_rows))
    # Step 2: store the position of a first publish before the publish: so it is known for every published copy
    definition = keep_first_position(edges.writing, table.schema, staged.published, staged.progress.position)
    # Step 3: main is to move to the commit that the gate has checked, together with its position. Just before that, the
    # commit is audited
    shown = Shown(staged.progress.position, expected_rows, datetime.now(UTC).isoformat(timespec="seconds"))
    properties = {GATE: json.dumps(checked), SHOWN: shown.to_text(), DEFINITION: as_property(table.schema)}
    in_full = after_maintenance or must_be_full(edges, table, definition)

    def read_back(held: Held) -> None:
        """Audit the files of the commit. After an audit in full, store its time."""
        audit(edges, spool, table, held, in_full=in_full)
        if in_full and definition is not None:  # here, because some publishes of Hudi are not audited
            keep_audit(edges.writing, definition)

    return Ready(table, audited, expected_rows, properties, read_back, time.monotonic() - began)


def note_published(edges: Edges, ready: Ready, published: Staged, seconds: float) -> None:
    """Let the table go on from a commit that readers see now, and report the publish.

    `seconds`: what the publish took, with gate and audit.
    """
    table = ready.table
    published = replace(published, progress=ready.staged.progress.published())
    table.advance(published)
    if published.taken_back:
        edges.observe(TookBack(table.id, published.taken_back))
    note_publish(edges, table, seconds)
    position = published.progress.position
    edges.observe(Published(table.id, ready.rows, "" if position is None else str(position.at), seconds))
    close_evidence(edges, table)


def _passed(edges: Edges, spool: Spool, table: TableRun) -> tuple[GateReport, int]:
    """The report of the gate that the staged commit has passed, and the number of its rows.

    Rows that fail are moved to the quarantine. Then the gate checks the remaining rows. Raises GateFailed if rows that
    fail may not move, or if remaining rows fail.
    """
    checked, count, rows = _checked(edges, table)
    if checked.report.failures:
        reason = move_failing(edges, spool, table, checked.report, count, rows)
        if reason is not None:
            raise checked.error(reason)
        checked, count, _ = _checked(edges, table)
    if checked.report.failures:
        raise checked.error()
    return checked.report, count


def _checked(edges: Edges, table: TableRun) -> "tuple[Checked, int, Callable[[], DataFrame]]":
    """Let the gate check the staged commit. Also returns the number of the commit's rows, and what reads them."""
    staged = table.staged
    expected_rows = _count_rows(edges, table) if staged.progress.uncounted else staged.progress.rows
    suites = user_suites(edges.config.quality, table.id)
    # for sound rows, the gate leaves out the definition's suite, which also counts the rows: so count them here
    sound = table.sound and edges.target.count(table.id, staged.version, expected_rows) == expected_rows

    def rows() -> "DataFrame":
        return edges.target.read(table.id, staged.version)

    return gate(edges, table, "before publish", rows, expected_rows, suites, sound=sound), expected_rows, rows


def _count_rows(edges: Edges, table: TableRun) -> int:
    """Count the rows of the staged commit, because rows that were read again may have replaced lost or doubled rows."""
    version = table.staged.version
    count = edges.target.count(table.id, version)
    return edges.target.read(table.id, version).count() if count is None else count
