"""Going on over a gap: changes of a table are lost, or cannot be replayed, but most rows of its copy are still right.

One commit gives the rows on staging the current position. Then all rows of the source are read, wave by wave, each
chunk under its own watermarks, and compared with the staged rows. Rows that differ are written as a re-snapshot writes
rows (`resnapshot`). Readers keep the old rows until all rows are compared and the gates have passed.

    a swap of tables, a purged binlog -> current position, one staging commit -> waves -> gates -> publish

If DDL was lost, the rows are lifted first: each column of the copy becomes the column that the known DDL names, or else
the column of the same name. This is a guess. A wrong guess only costs time, because the values are compared. An
incomplete copy also goes on over a gap, if that costs less than a new copy: rows that it does not have are written like
rows that differ.
"""

from collections.abc import Collection

from lakeingest.config import Config
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.ddl.origins import Origins, origins
from lakeingest.core.tables.schema import TableSchema
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


def definition_of_rows(config: Config, staged: Staged, schema: TableSchema) -> TableSchema | None:
    """The definition that the copy's rows have; None if nobody knows it. `schema` is the current definition."""
    fingerprint = staged.progress.fingerprint
    stored = definition_of(state_of(config), schema.table, fingerprint)
    return schema if stored is None and fingerprint == schema.fingerprint else stored


def origins_of(before: TableSchema, spool: Spool, staged: Staged, schema: TableSchema) -> Origins:
    """For each column of `schema`, the column of the copy from which it comes. `before`: the definition of the copy.

    The table's DDL in the spool tells these columns. If the spool begins after the copy's position, columns are matched
    by name.
    """
    since = staged.progress.needed_from
    ddl = halts(spool, schema.table, since) if spool.start <= since else []
    return origins(before, [halt.alteration for halt in ddl], schema)


def lift_over_gap(
    config: Config, source: BinlogSource, spool: Spool, staged: Staged, schema: TableSchema
) -> Lift | None:
    """The lift of a copy's rows to the current definition, in which they are compared; None: copy all rows again.

    None in each of these cases:

    - The copy has no chunk, or patches wait for a merge.
    - Only the server knows the order of the keys, so that no range of keys can be compared. But if the copy keeps
      deleted rows, it is lifted, because a new copy would not have these rows.
    - Nobody knows the definition of the rows, or a column's new definition does not hold every old value.
    """
    progress = staged.progress
    may_keep_rows = schema.ordered or schema.keeps_deleted
    if progress.patches or not progress.splits.all or not may_keep_rows:
        return None
    old_schema = definition_of_rows(config, staged, schema)
    if old_schema is None:
        return None
    origin_of = origins_of(old_schema, spool, staged, schema)
    with of_table():
        schema = source.with_default_values(schema, {name for name, origin in origin_of.items() if origin is None})
    try:
        return Lift(old_schema, schema, tuple(origin_of[name] for name in schema.names), is_guess=True)
    except NotLiftable:
        return None


def is_worth_comparing(source: Source, staged: Staged, schema: TableSchema) -> bool:
    """Whether an incomplete copy has at least half of the source's estimated rows, and the order of its keys is known.

    If the copy has fewer rows, it costs less to copy the table again. False for an estimate of 0 rows.
    """
    return schema.ordered and 0 < source.estimated_rows(schema) <= 2 * staged.progress.rows


def go_on_over_gap(
    edges: Edges, binlog: BinlogRun, table: TableRun, lift: Lift, new: Progress, signals: Collection[int]
) -> None:
    """Give the copy's rows the position of the spool's end, in one commit. If columns have changed, it lifts the rows.

    `new` is the progress that an empty copy would have at that position.
    """
    position, fingerprint, since = binlog.spool.position, new.fingerprint, new.covered_from
    progress = table.progress.over_gap(position, fingerprint, since, signals=signals, cascades=new.cascades)
    are_columns_changed = lift.before.fingerprint != lift.after.fingerprint or lift.origins != lift.before.names
    if are_columns_changed:
        commit_lift(edges, table, lift, progress, edges.target.rewriters(table.staged, lift))
    else:
        commit_progress(edges, table, progress)
