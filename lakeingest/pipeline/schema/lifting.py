"""Lifting: no merge of a table crosses its DDL. At the DDL, the rows are lifted to the table's next definition.

    merge up to the DDL -> lift, one staging commit -> read the changes after the DDL -> merge up to the next DDL -> …

Then the table is published as of the end of the spool. The definition after the last DDL is the server's current
definition. To know from which place of the binlog on this definition is in force, the run reads the spool's end, then
the definition, then spools to the written position: this is a bracket. If the spool has no DDL of the table within the
bracket, the definition is in force from the start of the bracket on. `core.ddl.alteration` derives earlier definitions.
"""

from collections.abc import Sequence

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.alteration import Alteration, added, lifts
from lakeingest.core.ddl.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import (
    ApprovalNeeded,
    BinlogGone,
    LakeIngestError,
    Retryable,
    SchemaChanged,
    Scope,
    SplitUnstable,
    of_pipeline,
    of_table,
)
from lakeingest.lake.target import Rewriter, Staged, Written
from lakeingest.pipeline.binlog.ingest import are_small, segment_bytes, spool_to_now
from lakeingest.pipeline.binlog.looks import note_looks
from lakeingest.pipeline.binlog.segment_task import SpoolSegment
from lakeingest.pipeline.events import Lifted
from lakeingest.pipeline.merging.merge import merge
from lakeingest.pipeline.publishing.publish import publish
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.run.watch import Watch
from lakeingest.pipeline.schema.unseen_ddl import assert_not_suspect, stop_at_unseen_ddl, suspect_unnamed
from lakeingest.rows import constants
from lakeingest.spark.scatter import scatter
from lakeingest.spool.halts import Halt, halts, note_followed, unwatched_segments
from lakeingest.state.definition import definition_of, keep_next

BRACKETS = 10  # tries to read a definition within a bracket that has no DDL of the table


def merge_over_halts(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Bring the table to the end of the spool, in commits on staging: merges, and a lift at each DDL of the table.

    Raises SchemaChanged if the rows cannot be lifted: then all rows must be read again (`recopying`). Raises
    ApprovalNeeded at DDL that waits for approval. Before an error, the table is published as of the DDL, if possible.
    """
    assert_not_suspect(table)
    while ahead := halts(binlog.spool, table.id, table.progress.needed_from):
        table.reached_ddl()
        halt = ahead[0]
        if table.progress.least_stop > halt.before.place:  # its rows may have changes from after the DDL
            _assert_approved(edges, binlog, table, ahead)
            raise _barrier_error(f"{table.id}: its rows were read after DDL at {halt.before.at}")
        # Step 1: merge up to the DDL; after an earlier DDL, the spool may not have all changes of the table yet
        _spool_missing(edges, binlog, table, halt.before.place)
        merge(edges, binlog.spool, table, halt.before)
        # Step 2: lift the rows over the DDL
        _assert_approved(edges, binlog, table, [halt])
        _lift(edges, binlog, table, halt)
    # Step 3: no DDL is ahead: merge up to the end of the spool
    if table.trust is Trust.ALTERED_UNSEEN:  # no DDL in the spool has explained the source's definition
        stop_at_unseen_ddl(edges, table)
    if table.watch is Watch.AT_DDL:
        _spool_missing(edges, binlog, table, binlog.spool.position.place)
        table.passed_ddl()
    merge(edges, binlog.spool, table)


def reload(edges: Edges, table: TableRun, staged: Staged) -> None:
    """Use the staged state that the lake has.

    If its rows have an earlier definition, the table is before its DDL again, and `merge_over_halts` lifts the rows
    once more. Raises SchemaChanged if that definition is not stored any more.
    """
    table.reload(staged)
    is_before_ddl = staged.progress.fingerprint != table.schema.fingerprint
    if is_before_ddl and not table.is_joining:  # a table that joins gets other rows, or is lifted when it joins
        earlier = definition_of(edges.state, table.id, staged.progress.fingerprint)
        if earlier is None:
            raise SchemaChanged(f"{table.id}: the definition of its rows is not kept any more; copy the table again")
        table.reached_ddl(earlier)


def _lift(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> None:
    """Lift the rows, which are merged up to the DDL, over this DDL.

    If the DDL cannot be followed, an error is raised. Before that, the rows are published as of the DDL, but not if
    they may have been read by a wrong definition.
    """
    # Step 1: find the lift
    try:
        lift = _lift_over(edges, binlog, table, halt)
        tasks = edges.target.rewriters(table.staged, lift)  # raises an error if the copy cannot have the definition
    except NotLiftable as error:
        # if the configuration asks, a person approves all DDL ahead before the rows are read again
        _assert_approved(edges, binlog, table, halts(binlog.spool, table.id, halt.before.place))
        if isinstance(error, Unexplained):  # rows may have been read by a wrong definition
            suspect_unnamed(edges, table)
        else:
            publish(edges, binlog.spool, table)
        raise _barrier_error(f"{error}; its DDL at {halt.before.at} cannot be followed") from error
    except LakeIngestError as error:
        if error.scope is Scope.TABLE and not isinstance(error, Retryable):  # the table stops here
            publish(edges, binlog.spool, table)
        raise
    table.cancel_reading()  # the background read reads rows by the old definition
    # Step 2: note the lift in the spool before the commit, so that readers of the changelog always find it
    note_followed(binlog.spool, halt, lift, constants(lift.after, lift.fills))
    # Step 3: commit
    empties = halt.alteration.empties
    next_progress = table.progress.emptied if empties else table.progress.lifted
    progress = next_progress(halt.after, lift.after.fingerprint)
    commit_lift(edges, table, lift, progress, None if empties else tasks)
    know_foreign_keys(edges, binlog)  # columns of foreign keys may have other names now
    edges.observe(Lifted(table.id, str(halt.after.at)))


def commit_lift(
    edges: Edges, table: TableRun, lift: Lift, progress: Progress, tasks: Sequence[Rewriter] | None
) -> None:
    """Lift the staged rows in one commit, which carries this progress.

    `tasks` are the target's rewriters for the lift; None if the DDL empties the table: then all rows are removed.

    The definition is stored before the commit, so that the definition of committed rows is always known.
    """
    keep_next(edges.writing, lift.before, lift.after)
    with edges.profile.stage("lifts"):
        if tasks is None:
            # None: the columns keep their names
            staged = edges.committing.start_over(table.staged, lift.after, progress, None)
        else:
            workers = edges.executors.for_tasks(small=len(tasks) <= 1)
            rewritten = scatter(workers, _rewrite, tasks, edges.executors.at_once)
            staged = edges.committing.lift(table.staged, lift, progress, rewritten)
    table.lift(staged, lift.after)


def _assert_approved(edges: Edges, binlog: BinlogRun, table: TableRun, ahead: Sequence[Halt]) -> None:
    """Raise ApprovalNeeded for the first DDL of `ahead` that nobody has approved.

    Before that, the table is published, if all its rows are at one place. Does nothing if the configuration needs no
    approval, or if readers do not see the table yet.
    """
    if not edges.config.asks or table.staged.published is None:
        return
    waiting = next((halt for halt in ahead if halt.ddl not in table.approved), None)
    if waiting is None:
        return
    are_rows_at_one_place = table.progress.stop is not None
    if are_rows_at_one_place:
        publish(edges, binlog.spool, table)
    way_out = f"`lakeingest approve {table.id}` lets it go on after that"
    error = ApprovalNeeded(f"{table.id} waits before {waiting}; {way_out}")
    error.ddl = waiting.ddl
    raise error


def _barrier_error(reason: str) -> SchemaChanged:
    """The error for a table whose rows have to be read again after DDL."""
    error = SchemaChanged(f"{reason}; copy the table again")
    error.by_ddl = True
    return error


def _rewrite(task: Rewriter) -> Written:
    return task.rewrite()


def _lift_over(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> Lift:
    """The lift of the rows over this DDL. Raises NotLiftable if the DDL cannot be followed."""
    if not edges.config.evolves:
        raise NotLiftable(f"{table.id}: the configuration has schema.changes: freeze")
    if halt.alteration.empties and table.schema.keeps_deleted:
        raise NotLiftable(f"{table.id}: TRUNCATE deletes rows that are to stay as deleted")
    current = _current_definition(edges, binlog, table, halt)
    this_lift, *_ = lifts(table.schema, _alterations_from(binlog, table, halt), current)  # one for each later DDL, too
    return this_lift


def _alterations_from(binlog: BinlogRun, table: TableRun, halt: Halt) -> list[Alteration]:
    """The alterations by the table's DDL in the spool, from this DDL on."""
    return [ddl.alteration for ddl in halts(binlog.spool, table.id, halt.before.place)]


def _current_definition(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> TableSchema:
    """The definition after all DDL of the table in the spool, with the values of defaults of new columns.

    Raises SplitUnstable if the definition changes all the time. Raises the table's failure if the binlog turns out to
    have a change that cannot be replayed.
    """
    earlier_failure = table.failure  # a table that is tried again still has its failure
    for _ in range(BRACKETS):
        # the bracket: from the spool's end before the definition is read to the spool's end after that
        since = binlog.spool.position.place
        with of_table():
            current = edges.source.stable_schema(table.id, table.options.choices)
            new_names = added(table.schema, _alterations_from(binlog, table, halt), current)
            current = edges.source.with_default_values(current, new_names)
        with of_pipeline():
            spool_to_now(edges, binlog)
        if table.failure is not None and table.failure is not earlier_failure:
            raise table.failure.error
        if not halts(binlog.spool, table.id, since):  # the bracket has no DDL of the table
            return current
    raise SplitUnstable(f"{table.id}: its definition changes all the time; run the same command again")


def _spool_missing(edges: Edges, binlog: BinlogRun, table: TableRun, stop: Place) -> None:
    """Read the table's changes up to `stop` into the segments of the spool that do not have them yet."""
    spool, since = binlog.spool, table.progress.needed_from
    missing = unwatched_segments(spool, table.id, since, stop)  # by the numbers of the segments
    if not missing:
        return
    sizes, schemas, source = edges.source.files(), {table.id: table.schema}, edges.source.settings
    looks = edges.witness.looks(edges.source.greeting, schemas, edges.stopped, len(missing))
    tasks = [
        SpoolSegment(source, part, schemas, spool.folder, segment_bytes(part, sizes), look=look)
        for part, look in zip(missing.values(), looks, strict=True)
    ]
    workers = edges.executors.for_tasks(small=are_small(tasks))
    try:
        decoded = scatter(workers, SpoolSegment.run, tasks, edges.executors.readers)
    except BinlogGone as error:  # only this table stops, because the spool has these segments for the other tables
        error.scope = Scope.TABLE
        raise
    for segment in decoded:
        if table.id in segment.stopped:
            raise segment.stopped[table.id]
        edges.profile.add(segment.profile)
    note_looks(edges, {table.id: table}, decoded)
    for number, segment in zip(missing, decoded, strict=True):
        spool.put_table(number, table.id, segment.manifest)
