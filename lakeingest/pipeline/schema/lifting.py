"""Lifting: the DDL of a table is a place that no merge of it crosses. Its rows are lifted there to its next definition.

    merge up to the DDL -> lift, one staging commit -> read the changes after the DDL -> merge up to the next DDL -> …

What is published after that is the table as of the end of the spool. The definition after the last DDL is the server's,
bound to a place of the binlog by a bracket: the spool's end, the definition, then the written position. If the spool
has no DDL of the table between the two, the definition is in force from the first on. (`core.alteration` has the rest.)
"""

from collections.abc import Sequence

from lakeingest.core.alteration import Alteration, added, lifts
from lakeingest.core.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.position import Place
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
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
from lakeingest.pipeline.binlog.ingest import are_small, sized, spool_to_now
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
from lakeingest.spool.halts import Halt, halts, note_followed, unread
from lakeingest.state.definition import definition_of, keep_next

BRACKETS = 10  # tries to read a definition while nobody alters the table


def merge_over_halts(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Bring the table to the end of the spool, in commits on staging: merges, and a lift at each DDL of the table.

    SchemaChanged where its rows cannot be lifted: the table as of the DDL is published then, and all rows are to
    be read again (`recopying`). ApprovalNeeded, after the same publish, before DDL that waits for approval.
    """
    assert_not_suspect(table)
    while ahead := halts(binlog.spool, table.id, table.progress.needed_from):
        table.reached_ddl()
        halt = ahead[0]
        floors = [split.floor for split in table.progress.splits.all] + [one.high for one in table.progress.patches]
        late = [floor for floor in floors if floor > halt.before.place]
        if late:
            _await_approval(edges, table, ahead)
            raise _barrier(f"{table.id}: its rows were read after DDL at {halt.before.at}")
        _fill(edges, binlog, table, halt.before.place)
        merge(edges, binlog.spool, table, halt.before)
        _await_approval(edges, table, [halt])
        _lift(edges, binlog, table, halt)
    if table.trust is Trust.ALTERED_UNSEEN:
        stop_at_unseen_ddl(edges, table)
    if table.watch is Watch.AT_DDL:
        _fill(edges, binlog, table, binlog.spool.position.place)
        table.passed_ddl()
    merge(edges, binlog.spool, table)


def reload(edges: Edges, table: TableRun, staged: Staged) -> None:
    """Use the state that the lake has. It may be from before a DDL that this run had already applied.

    SchemaChanged where the definition that its rows have is not known any more.
    """
    table.reload(staged)
    if staged.progress.fingerprint != table.schema.fingerprint and not table.is_joining:
        known = definition_of(edges.state, table.id, staged.progress.fingerprint)
        if known is None:
            raise SchemaChanged(f"{table.id}: the definition of its rows is not kept any more; copy the table again")
        table.reached_ddl(known)


def _lift(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> None:
    """Lift the rows over the DDL, before which they stand."""
    try:
        lift = _lift_at(edges, binlog, table, halt)
    except NotLiftable as error:
        _await_approval(edges, table, halts(binlog.spool, table.id, halt.before.place))
        if isinstance(error, Unexplained):
            suspect_unnamed(edges, table)
        else:
            publish(edges, table)
        raise _barrier(f"{error}; its DDL at {halt.before.at} cannot be followed") from error
    except LakeIngestError as error:
        if error.scope is Scope.TABLE and not isinstance(error, Retryable):
            publish(edges, table)
        raise
    table.cancel_reading()  # by a definition that is over
    edges.lease.assert_held()
    note_followed(binlog.spool, halt, lift, constants(lift.after, lift.fills))  # first: a reader never lacks it
    empties = halt.alteration.empties
    step = table.progress.emptied if empties else table.progress.lifted
    commit_lift(edges, table, lift, step(halt.after, lift.after.fingerprint), empties=empties)
    know_foreign_keys(edges, binlog)  # their columns may have other names
    edges.observe(Lifted(table.id, str(halt.after.at)))


def commit_lift(edges: Edges, table: TableRun, lift: Lift, progress: Progress, *, empties: bool = False) -> None:
    """Lift the staged rows in one commit, which carries this progress; if the DDL `empties` the table, remove them."""
    keep_next(edges.state, lift.before, lift.after)
    with edges.profile.stage("lifts"):
        tasks = [] if empties else edges.target.rewriters(table.staged, lift)
        workers = edges.executors.for_tasks(small=len(tasks) <= 1)
        rewritten = scatter(workers, _rewritten, tasks, edges.executors.at_once)
        if empties:
            staged = edges.committing.start_over(table.staged, lift.after, progress, None)
        else:
            staged = edges.committing.lift(table.staged, lift, progress, rewritten)
    table.lift(staged, lift.after)


def _await_approval(edges: Edges, table: TableRun, ahead: Sequence[Halt]) -> None:
    """ApprovalNeeded for the first DDL that nobody has approved, where that is asked for and readers see the table."""
    waits = next((halt for halt in ahead if halt.ddl not in table.approved), None)
    if not edges.config.asks or table.staged.published is None or waits is None:
        return
    if table.progress.stop is not None:
        publish(edges, table)
    error = ApprovalNeeded(f"{table.id} waits before {waits}; `lakeingest approve {table.id}` lets it go on after that")
    error.ddl = waits.ddl
    raise error


def _barrier(reason: str) -> SchemaChanged:
    """The error for a table whose rows have to be read again after DDL."""
    error = SchemaChanged(f"{reason}; copy the table again")
    error.by_ddl = True
    return error


def _rewritten(task: Rewriter) -> Written:
    return task.rewrite()


def _lift_at(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> Lift:
    """How the rows come over this DDL; NotLiftable."""
    if not edges.config.evolves:
        raise NotLiftable(f"{table.id}: the configuration has schema.changes: freeze")
    if halt.alteration.empties and table.schema.keeps_deleted:
        raise NotLiftable(f"{table.id}: TRUNCATE deletes rows that are to stay as deleted")
    now = _definition(edges, binlog, table, halt)
    return lifts(table.schema, _ahead(binlog, table, halt), now)[0]


def _ahead(binlog: BinlogRun, table: TableRun, halt: Halt) -> list[Alteration]:
    """What the DDL of the table does that the spool has, from this one on."""
    return [one.alteration for one in halts(binlog.spool, table.id, halt.before.place)]


def _definition(edges: Edges, binlog: BinlogRun, table: TableRun, halt: Halt) -> TableSchema:
    """The definition after all DDL of the table that the spool has, with the values of defaults that this DDL needs.

    SplitUnstable where it changes all the time; the error that the table stops with where the binlog has DDL that is
    not known.
    """
    earlier = table.failure  # a table that is tried again has one still
    for _ in range(BRACKETS):
        since = binlog.spool.position.place
        with of_table():
            now = edges.source.stable_schema(table.id, table.options.choices)
            now = edges.source.with_default_values(now, added(table.schema, _ahead(binlog, table, halt), now))
        with of_pipeline():
            spool_to_now(edges, binlog)
        if table.failure is not None and table.failure is not earlier:
            raise table.failure.error
        if not halts(binlog.spool, table.id, since):
            return now
    raise SplitUnstable(f"{table.id}: its definition changes all the time; run the same command again")


def _fill(edges: Edges, binlog: BinlogRun, table: TableRun, stop: Place) -> None:
    """Read the changes between the table's position and this place, where the spool has none of the table yet."""
    spool, since = binlog.spool, table.progress.needed_from
    missing = unread(spool, table.id, since, stop)
    if not missing:
        return
    sizes, schemas, source = edges.source.files(), {table.id: table.schema}, edges.source.settings
    tasks = [SpoolSegment(source, one, schemas, spool.folder, sized(one, sizes)) for one in missing.values()]
    workers = edges.executors.for_tasks(small=are_small(tasks))
    try:
        decoded = scatter(workers, SpoolSegment.run, tasks, edges.executors.readers)
    except BinlogGone as error:  # the other tables have these changes
        error.scope = Scope.TABLE
        raise
    for one in decoded:
        if table.id in one.stopped:
            raise one.stopped[table.id]
        edges.profile.add(one.profile)
    edges.lease.assert_held()
    for number, one in zip(missing, decoded, strict=True):
        spool.put_table(number, table.id, one.manifest)
