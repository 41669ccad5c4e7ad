"""Maintenance that a person asks for: small files are joined, old snapshots expire, files of killed tasks are removed.

The rows stay the same. One commit on staging joins the files, and passes the gates like any other commit.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.inventory import Inventory
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.publishing.publish import publish
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.clocks import lead
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun

LEFTOVER_AGE = timedelta(days=3)  # as in Iceberg's own procedure; files that a task still writes are younger


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The result of a table's maintenance. `left_out`: the reason if the table was not maintained."""

    table: TableId
    before: Inventory | None = None
    after: Inventory | None = None
    leftovers: int = 0
    leftover_bytes: int = 0
    left_out: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON document: the numbers before and after; only the reason `left_out`, if there was no maintenance."""
        if self.before is None or self.after is None:
            return {"table": str(self.table), "left_out": self.left_out}
        counts = {
            name: {"before": getattr(self.before, name), "after": getattr(self.after, name)}
            for name in ("files", "deletes", "bytes", "snapshots")
        }
        removed = {"files": self.leftovers, "bytes": self.leftover_bytes}
        return {"table": str(self.table), **counts, "leftovers_removed": removed}

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.table}: left out, {self.left_out}"
        before, after = self.before, self.after
        return (
            f"{self.table}: {before.files:,} → {after.files:,} files of rows, {before.deletes:,} → {after.deletes:,} of"
            f" deletes, {before.snapshots:,} → {after.snapshots:,} snapshots, {self.leftovers:,} leftovers removed"
        )


def maintain(edges: Edges, binlog: BinlogRun, table: TableRun) -> Upkeep:
    """Bring the table up to the spool's end, then publish the same rows in fewer files.

    If the maintenance is interrupted after its commit on staging, the next publish shows that commit.
    """
    target = edges.target
    merge_and_publish(edges, binlog, table)
    # load the table again: the new commit must carry on the progress of the last commit, not a noted position
    staged = edges.committing.recover(table.id)
    assert staged is not None  # noqa: S101 - it was published right now
    table.advance(staged)
    before = target.inventory(table.id)
    with edges.profile.stage("maintenance"):
        table.advance(edges.committing.maintain(staged), sound=True)
    publish(edges, binlog.spool, table, after_maintenance=True)
    removed, freed = target.remove_leftovers(table.id, LEFTOVER_AGE + lead(edges.source))
    return Upkeep(table.id, before, target.inventory(table.id), removed, freed)
