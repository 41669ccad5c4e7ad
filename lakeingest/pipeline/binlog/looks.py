"""Stores in the state folder how much the second decoder has compared, and the differences that it has found."""

from collections.abc import Mapping, Sequence

from lakeingest.core.schema import TableId
from lakeingest.errors import DecodersDisagree, LakeIngestError, Scope, StorageFailed
from lakeingest.pipeline.binlog.segment_task import Decoded
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.witness import store_difference
from lakeingest.version import VERSION


def note_looks(edges: Edges, tables: Mapping[TableId, TableRun], decoded: Sequence[Decoded]) -> None:
    """Store how many rows of each kind of column the second decoder has compared in these segments."""
    looked = [look for segment in decoded for look in segment.looked]
    in_tasks = [segment.profile for segment in decoded if segment.profile.process != edges.profile.process]
    seconds = sum(cost.cpu for profile in in_tasks for cost in profile.stages)
    compared = {table for look in looked for table in look.rows}
    schemas = {table: tables[table].schema for table in compared}
    edges.witness.note(edges.source.greeting, schemas, looked, seconds)
    edges.witness.store(edges.writing, now=any(look.rows or look.unread for look in looked))


def report_difference(edges: Edges, error: LakeIngestError) -> None:
    """Store the difference of the error, if it has one, for a report.

    If only this document cannot be written, the run goes on: the error's message names the difference, too.
    """
    if not isinstance(error, DecodersDisagree) or error.difference is None:
        return
    edges.witness.suspect(error.difference.table)
    try:
        store_difference(edges.writing, error.difference, VERSION, edges.source.greeting, masked=edges.witness.masked)
    except StorageFailed as failed:
        if failed.scope is not Scope.TABLE:
            raise
