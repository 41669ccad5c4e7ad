"""The versions of a table's rows that have given values: in its copy, in patches, in the spool."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.core.cascades import ForeignKey, Row
from lakeingest.core.schema import TableSchema
from lakeingest.lake.target import RowReader
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.key_rereads import patch_folder
from lakeingest.pipeline.table_run import TableRun
from lakeingest.rows import arrow_type
from lakeingest.spark.scatter import scatter
from lakeingest.spool.row_versions import rows_of, versions


@dataclass(frozen=True, slots=True)
class WithValues:
    """Of rows those whose columns, in the order of `values`, have one of these values; with the types of the source."""

    types: pa.Schema
    values: pa.Table

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows, with the columns of `types`."""
        cast = rows.select(self.types.names).cast(self.types)
        return cast.join(self.values, keys=self.values.column_names, join_type="left semi", use_threads=False)


@dataclass(frozen=True, slots=True)
class FindVersions:
    """The task of one executor: of a part of the copy the rows with these values."""

    reader: RowReader
    wanted: WithValues

    def run(self) -> pa.Table:
        """The columns that were asked for."""
        return self.wanted(self.reader.read())


def rows_with(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    columns: Sequence[str],
    sought: Mapping[ForeignKey, Collection[Row]],
) -> set[Row]:
    """The versions of rows, with these columns, that have the values of a foreign key."""
    spool, progress, patches = binlog.spool, table.progress, patch_folder(edges, table)
    files = [patches.file(patch.name) for patch in progress.patches]
    files += spool.files(table.id, progress.needed_from, spool.position.place)
    found: set[Row] = set()
    for key, values in sought.items():
        wanted = WithValues(_types(table.schema, columns), _values(table.schema, key.columns, values))
        found |= versions(files, columns, wanted) | _in_copy(edges, table, columns, key, wanted)
    return found


def _in_copy(edges: Edges, table: TableRun, columns: Sequence[str], key: ForeignKey, wanted: WithValues) -> set[Row]:
    first = key.columns[0]  # bounds are those of the first column
    ends = sorted(wanted.values[first].to_pylist())
    names = [first, *(name for name in columns if name != first)]
    executors = edges.executors
    [readers] = edges.target.readers(table.staged, executors.open, names, [(ends[0], ends[-1])])
    tasks = [FindVersions(reader, wanted) for reader in readers]
    parts = scatter(executors.for_tasks(small=len(tasks) <= 1), FindVersions.run, tasks, executors.at_once)
    return {row for part in parts for row in rows_of(part, columns)}


def _types(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    by_name = {column.name: column for column in schema.columns}
    return pa.schema([pa.field(name, arrow_type(by_name[name])) for name in columns])


def _values(schema: TableSchema, names: Sequence[str], values: Collection[Row]) -> pa.Table:
    fields = _types(schema, names)
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*values, strict=True), fields.types, strict=True)]
    return pa.table(columns, schema=fields)
