"""Going on over a gap: changes of a table are lost, or cannot be replayed, but most of its copy's rows are still right.

The rows on staging are taken for current ones. Then all rows of the source are read, wave by wave, each chunk under its
own watermarks, and compared with them: those that differ are written, as a re-snapshot does it (`resnapshot`). Readers
keep the old rows until the last one is compared and the gates have passed.

    a swap of tables, a purged binlog -> current position, one staging commit -> waves -> gates -> publish

Where DDL was lost, the rows are lifted first: each column to the one that the known DDL says, else to the one
of its name. That is a guess: a wrong one costs time alone, because the values are compared. A copy that is not complete
goes on like that, too, if that costs less than to begin it again: its rows are compared, and those that it lacks are
written like those that differ.
"""

from collections.abc import Collection

from lakeingest.config import Config
from lakeingest.core.lift import Lift, NotLiftable
from lakeingest.core.origins import Origins, origins
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
from lakeingest.errors import of_table
from lakeingest.files.file import state_of
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.source import Source
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.commit_progress import commit_progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import commit_lift
from lakeingest.spool.halts import halts
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import definition_of


def definition_before(config: Config, staged: Staged, schema: TableSchema) -> TableSchema | None:
    """The definition that the copy's rows have, where `schema` is the current one; None: nobody knows it any more."""
    fingerprint = staged.progress.fingerprint
    before = definition_of(state_of(config), schema.table, fingerprint)
    return schema if before is None and fingerprint == schema.fingerprint else before


def origins_of(before: TableSchema, spool: Spool, staged: Staged, schema: TableSchema) -> Origins:
    """Which columns of the copy became the current ones: by the DDL of the table in the spool after its position.

    By their names where the spool begins later.
    """
    since = staged.progress.needed_from
    known = halts(spool, schema.table, since) if spool.start <= since else []
    return origins(before, [halt.alteration for halt in known], schema)


def lift_over_gap(
    config: Config, source: BinlogSource, spool: Spool, staged: Staged, schema: TableSchema
) -> Lift | None:
    """How the rows of a copy are lifted to the current definition, to be compared by it.

    None where they have to be copied again: there are none, patches of them wait, nobody knows their definition, or a
    column became one that does not hold every old value. Nor is anything gained where only the server knows the
    order of the keys, because no range can be compared then; except for deleted rows that stay.
    """
    progress = staged.progress
    if progress.patches or not progress.splits.all or not (schema.ordered or schema.keeps_deleted):
        return None
    before = definition_before(config, staged, schema)
    if before is None:
        return None
    known = origins_of(before, spool, staged, schema)
    with of_table():
        schema = source.with_default_values(schema, {name for name, was in known.items() if was is None})
    try:
        return Lift(before, schema, tuple(known[name] for name in schema.names), is_guess=True)
    except NotLiftable:
        return None


def is_worth_comparing(source: Source, staged: Staged, schema: TableSchema) -> bool:
    """Whether a copy that is not complete has at least half of the source's rows."""
    return schema.ordered and 0 < source.estimated_rows(schema) <= 2 * staged.progress.rows


def go_on_over_gap(
    edges: Edges, binlog: BinlogRun, table: TableRun, lift: Lift, new: Progress, signals: Collection[int]
) -> None:
    """Give the copy the position of the spool's end. `new` is the progress that an empty copy would have there."""
    position, fingerprint, since = binlog.spool.position, new.fingerprint, new.covered_from
    progress = table.progress.over_gap(position, fingerprint, since, signals=signals, cascades=new.cascades)
    if lift.before.fingerprint != lift.after.fingerprint or lift.origins != lift.before.names:
        commit_lift(edges, table, lift, progress)
        return
    commit_progress(edges, table, progress)
