"""Publishes of several tables at once: no reader sees some of them, and not yet the others.

Each table passes its gate and its audit first. A table that fails there stops, and the others go on without it. Then
one commit of the catalog shows them all. If the catalog refuses that commit, or if it is not known whether it took
effect, each table that readers are not known to see is published by itself, in the given order.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakeingest.core.schema import TableId
from lakeingest.errors import MainMoved
from lakeingest.lake.target import Joint, Prepared
from lakeingest.pipeline.publishing.publish import Ready, make_ready, note_published
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.profile import PUBLISHES
from lakeingest.pipeline.run.stopping import clear_failure, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.side_by_side import side_by_side
from lakeingest.spool.spool import Spool

MOST = 200  # tables in one commit: until then the metadata of each is in memory


@dataclass(slots=True)
class _Part:
    """The part of a table in the commit of all. `seconds`: what its publish took so far."""

    ready: Ready
    prepared: Prepared
    seconds: float
    is_seen: bool = False


def publish_at_once(
    edges: Edges, spool: Spool, joint: Joint, tables: Sequence[TableRun], may_beside: Callable[[TableRun], bool]
) -> set[TableId]:
    """Publish merged tables, of each MOST all at once. Returns those that someone compacts at the same time.

    Readers must see an earlier commit of each table. `may_beside`: whether a thread may check and audit the table.
    """
    moved = set[TableId]()
    for first in range(0, len(tables), MOST):
        batch = tables[first : first + MOST]
        parts = _prepare_all(edges, spool, joint, batch, may_beside, moved)
        _show_all(edges, joint, parts)
        _finish_all(edges, parts, may_beside, moved)
    return moved


def _prepare_all(
    edges: Edges,
    spool: Spool,
    joint: Joint,
    tables: Sequence[TableRun],
    may_beside: Callable[[TableRun], bool],
    moved: set[TableId],
) -> list[_Part]:
    """The parts of the tables that pass gate and audit, in the order of the tables. Compacted ones go to `moved`."""
    parts = dict[int, _Part]()  # by the number of the table

    def prepare(number: int) -> None:
        table, began = tables[number], time.monotonic()
        with working_on(edges, table):
            ready = make_ready(edges, spool, table)
            if ready is None:
                clear_failure(edges, table)
                return
            try:
                prepared = joint.prepare(ready.staged, table.schema, ready.properties, ready.read_back)
            except MainMoved:
                moved.add(table.id)
                return
            parts[number] = _Part(ready, prepared, time.monotonic() - began)

    for number, table in enumerate(tables):
        if not may_beside(table):
            prepare(number)
    beside = [number for number, table in enumerate(tables) if may_beside(table)]
    side_by_side(prepare, beside, edges.config.target.tables_at_once)
    return [part for _, part in sorted(parts.items())]


def _show_all(edges: Edges, joint: Joint, parts: Sequence[_Part]) -> None:
    """Let readers see all of the parts in one commit. A single one is left to a commit of its own."""
    if len(parts) < 2:  # noqa: PLR2004 - two are the fewest that can be at once
        return
    began = time.monotonic()
    edges.lease.assert_held()
    with edges.profile.stage("publishes at once"):
        are_seen = joint.show([part.prepared for part in parts])
    seconds = (time.monotonic() - began) / len(parts)
    for part, is_seen in zip(parts, are_seen, strict=True):
        part.is_seen = is_seen
        part.seconds += seconds


def _finish_all(
    edges: Edges, parts: Sequence[_Part], may_beside: Callable[[TableRun], bool], moved: set[TableId]
) -> None:
    """Go on from the parts that readers see, and publish each other one by itself. Compacted ones go to `moved`."""

    def finish(part: _Part) -> None:
        table, began = part.ready.table, time.monotonic()
        with working_on(edges, table):
            edges.lease.assert_held()
            try:
                with edges.profile.stage(PUBLISHES):
                    published = part.prepared.finish() if part.is_seen else part.prepared.show()
            except MainMoved:
                moved.add(table.id)
                return
            note_published(edges, part.ready, published, part.seconds + time.monotonic() - began)
            clear_failure(edges, table)

    def is_beside(part: _Part) -> bool:
        return part.is_seen and may_beside(part.ready.table)

    for part in parts:
        if not is_beside(part):
            finish(part)
    side_by_side(finish, filter(is_beside, parts), edges.config.target.tables_at_once)
