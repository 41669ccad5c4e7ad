"""Publishes of several tables at once: no reader sees some of them, and not yet the others.

Each table passes its gate and its audit first. A table that fails there stops, and the others go on without it. Then
one commit of the catalog shows them all. If the catalog refuses this commit, or if nobody knows whether it took effect,
each table that readers may not see yet as of this commit is published by itself, parents before their children.

An error that stops the whole run, such as a gate that loses Spark, is raised after the other tables are shown.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakeingest.core.copies.joint import LEAST, MOST, first_batch, generations
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, MainMoved
from lakeingest.lake.joint_answer import JointAnswer
from lakeingest.lake.target import Joint, Prepared
from lakeingest.pipeline.events import ShownApart
from lakeingest.pipeline.publishing.publish import Ready, make_ready, note_published
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import parents_of
from lakeingest.pipeline.run.profile import PUBLISHES
from lakeingest.pipeline.run.stopping import clear_failure, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.side_by_side import side_by_side


def publish_at_once(
    edges: Edges,
    binlog: BinlogRun,
    joint: Joint,
    tables: Sequence[TableRun],
    may_beside: Callable[[TableRun], bool],
    stopping: Callable[[], bool] = lambda: False,
) -> set[TableId]:
    """Publish merged tables, as many at once as the catalog takes. Returns the tables that someone has compacted.

    Readers must see an earlier commit of each table. `tables`: parents before their children. `may_beside`: whether a
    thread may check and audit the table. Once `stopping` says so, no further commit is begun.
    """
    moved, rest, error = set[TableId](), list(tables), None
    while rest and not stopping():
        # if the limit is over, the tables of a batch are only prepared together, and shown one by one
        most = MOST if edges.joint.limit.ends_joint else edges.joint.limit.most
        names = first_batch([table.id for table in rest], parents_of(binlog), most)
        batch = _Batch(edges, binlog, joint, [table for table in rest if table.id in names], may_beside, stopping)
        rest = [table for table in rest if table.id not in names]
        failed = batch.publish(moved)
        error = error or failed  # the first one is raised, after all batches
    if error is not None:
        raise error
    return moved


@dataclass(slots=True)
class _Part:
    """The part of one table in the joint publish. `seconds`: what its publish took up to now.

    `is_seen`: the joint publish has shown the table to readers.
    """

    ready: Ready
    prepared: Prepared
    seconds: float
    is_seen: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    """The tables of one commit, and how they are published."""

    edges: Edges
    binlog: BinlogRun
    joint: Joint
    tables: Sequence[TableRun]
    may_beside: Callable[[TableRun], bool]
    stopping: Callable[[], bool]

    def publish(self, moved: set[TableId]) -> LakeIngestError | None:
        """Publish the tables. Adds the compacted ones to `moved`. Returns the error of a check that stops the run.

        An error after the checks, such as CatalogAway, is not returned, but raised. If `stopping` says so before all
        tables are checked, none of them is shown, so that readers do not see only some of them.
        """
        parts = dict[TableId, _Part]()
        error = self._prepare_all(parts, moved)
        if self.stopping():
            return error
        in_order = [parts[table.id] for table in self.tables if table.id in parts]
        self._show_all(in_order)
        self._finish_all(in_order, moved)
        return error

    def _prepare_all(self, parts: dict[TableId, _Part], moved: set[TableId]) -> LakeIngestError | None:
        """Make the parts of the tables that pass gate and audit, until an error stops the run. Returns that error."""

        def prepare(table: TableRun) -> None:
            """Add the table's part to `parts`. A compacted table, or one with nothing to publish, gets no part."""
            began = time.monotonic()
            if self.stopping():
                return
            with working_on(self.edges, table):
                ready = make_ready(self.edges, self.binlog.spool, table)
                if ready is None:
                    clear_failure(self.edges, table)
                    return
                try:
                    prepared = self.joint.prepare(ready.staged, table.schema, ready.properties, ready.read_back)
                except MainMoved:
                    moved.add(table.id)
                    return
                parts[table.id] = _Part(ready, prepared, time.monotonic() - began)

        beside = list(filter(self.may_beside, self.tables))
        alone = [table for table in self.tables if not self.may_beside(table)]
        try:
            side_by_side(prepare, beside, self.edges.config.target.tables_at_once)
            for table in alone:
                prepare(table)
        except LakeIngestError as error:
            return error
        return None

    def _show_all(self, parts: Sequence[_Part]) -> None:
        """Let readers see all of the parts in one commit. A single part is left to `_finish_all`."""
        if len(parts) < LEAST or self.edges.joint.limit.ends_joint:
            return
        began = time.monotonic()
        self.edges.lease.assert_held()
        with self.edges.profile.stage("publishes at once"):
            answer = self.joint.show([part.prepared for part in parts])
        share = (time.monotonic() - began) / len(parts)  # of each part in the time of the commit
        for part, is_seen in zip(parts, answer.are_seen, strict=True):
            part.is_seen = is_seen
            part.seconds += share
        _note_answer(self.edges, answer)

    def _finish_all(self, parts: Sequence[_Part], moved: set[TableId]) -> None:
        """Finish the parts that readers see already. Then publish each remaining part by itself, parents first."""

        def complete(part: _Part) -> None:
            """Finish a part that readers see. Publish any other part, but not after `stopping`."""
            table, began = part.ready.table, time.monotonic()
            if not part.is_seen and self.stopping():
                return
            with working_on(self.edges, table):
                self.edges.lease.assert_held()
                try:
                    with self.edges.profile.stage(PUBLISHES):
                        published = part.prepared.finish() if part.is_seen else part.prepared.show()
                except MainMoved:
                    moved.add(table.id)
                    return
                note_published(self.edges, part.ready, published, part.seconds + time.monotonic() - began)
                clear_failure(self.edges, table)

        def complete_all(some: Sequence[_Part]) -> None:
            """Complete these parts side by side; then those that no thread may check, one after the other."""
            beside = [part for part in some if self.may_beside(part.ready.table)]
            side_by_side(complete, beside, self.edges.config.target.tables_at_once)
            for part in some:
                if not self.may_beside(part.ready.table):
                    complete(part)

        complete_all([part for part in parts if part.is_seen])
        unseen = {part.ready.table.id: part for part in parts if not part.is_seen}
        for group in generations(list(unseen), parents_of(self.binlog)):
            complete_all([unseen[table] for table in group])


def _note_answer(edges: Edges, answer: JointAnswer) -> None:
    """Note whether the catalog takes a commit of so many tables. Tell the observer if readers may not see them all."""
    tables, unseen = len(answer.are_seen), len([is_seen for is_seen in answer.are_seen if not is_seen])
    if not unseen:
        edges.joint.limit = edges.joint.limit.taken()
        return
    if not answer.refusal:
        why = "someone has changed one of them, or the catalog is away; each is published by itself now"
        edges.observe(ShownApart(unseen, why))
        return
    edges.joint.limit = limit = edges.joint.limit.refused(tables, for_good=answer.is_final)
    follows = (
        "from now on, this run publishes each table by itself"
        if limit.ends_joint
        else f"this run goes on to publish up to {limit.most:,} at once"
    )
    edges.observe(ShownApart(unseen, f"{' '.join(answer.refusal.split())}; {follows}"))
