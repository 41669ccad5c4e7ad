"""The versions of a table's rows whose foreign keys have given values: in the copy, in its patches, in the spool."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.config import Source as Settings
from lakeingest.core.cascades.cascades import ForeignKey, Row
from lakeingest.core.cascades.comparison import collations
from lakeingest.core.tables.schema import INTEGERS, TableSchema
from lakeingest.lake.target import Bounds, RowReader
from lakeingest.mysql.source import Source
from lakeingest.pipeline.rereads.patches import patch_folder
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.rows import arrow_type
from lakeingest.spark.scatter import scatter
from lakeingest.spool.row_versions import rows_of, versions

_CLASS = "class of "  # before the name of a column


@dataclass(frozen=True, slots=True)
class WithValues:
    """A filter that keeps the rows whose `columns` have values of one of the `classes`.

    `types`: the columns of the result, with the types of the source. `collations`: by name, the collation of each of
    `columns` that is a text. `classes`: a row for each class, with a column for each of `columns`, in their order.
    """

    source: Settings
    types: pa.Schema
    columns: tuple[str, ...]
    collations: Mapping[str, str]
    classes: pa.Table

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows that the filter keeps, with the columns of `types`."""
        cast = rows.select(self.types.names).cast(self.types)
        for name, collation in self.collations.items():
            cast = cast.append_column(_CLASS + name, self._classes(collation, cast[name]))
        # texts are compared by their classes, other values as they are
        names = [_CLASS + name if name in self.collations else name for name in self.columns]
        matching = cast.join(self.classes, names, self.classes.column_names, join_type="left semi", use_threads=False)
        return matching.select(self.types.names)

    def _classes(self, collation: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        """The class of each text; NULL for NULL. The source is asked once, for all different texts."""
        different = pc.unique(texts.drop_null())
        if not len(different):  # all texts are NULL
            return pa.nulls(len(texts), pa.string())
        with Source.open(self.source) as source:
            class_of = source.text_classes(collation, different.to_pylist())
        indices = pc.index_in(texts, pa.array(class_of, pa.string()))  # of the texts among the keys of `class_of`
        return pa.array(class_of.values(), pa.string()).take(indices)


@dataclass(frozen=True, slots=True)
class FindVersions:
    """The task of one executor: find the `wanted` rows in a part of the copy."""

    reader: RowReader
    wanted: WithValues

    def run(self) -> pa.Table:
        """The rows that match."""
        return self.wanted(self.reader.read())


def classes_of(edges: Edges, key: ForeignKey, values: Collection[Row]) -> dict[Row, Row]:
    """The class of each of these values of a foreign key (`core.cascades.cascades.Classes`).

    The source tells the classes of texts. In other types, each value is a class of its own.
    """
    # for each column of texts, by its index in the foreign key: its collation, and the class of each of its values
    collation_of = {key.columns.index(name): collation for name, collation in collations(key).items()}
    class_of = {
        column: edges.source.text_classes(collation, {row[column] for row in values})
        for column, collation in collation_of.items()
    }
    return {
        row: tuple(class_of[column][value] if column in class_of else value for column, value in enumerate(row))
        for row in values
    }


def rows_with(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    columns: Sequence[str],
    sought: Mapping[ForeignKey, Collection[Row]],
) -> set[Row]:
    """The versions of rows in which a foreign key has values of its `sought` classes, each with these `columns`."""
    spool, progress, patches = binlog.spool, table.progress, patch_folder(edges, table)
    files = [patches.file(patch.name) for patch in progress.patches]
    files += spool.files(table.id, progress.needed_from, spool.position.place)
    rows: set[Row] = set()
    for key, classes in sought.items():
        matches = _filter_for_classes(edges, table.schema, columns, key, classes)
        rows |= versions(files, columns, matches) | _rows_in_copy(edges, table, columns, matches)
    return rows


def _rows_in_copy(edges: Edges, table: TableRun, columns: Sequence[str], matches: WithValues) -> set[Row]:
    """The matching rows of the copy, found by tasks of executors."""
    first = matches.columns[0]
    names = [first, *(name for name in columns if name != first)]  # `first` leads: the bounds are of the first column
    executors = edges.executors
    [readers] = edges.target.readers(table.staged, names, [_bounds(table.schema, matches)])
    tasks = [FindVersions(reader, matches) for reader in readers]
    parts = scatter(executors.for_tasks(small=len(tasks) <= 1), FindVersions.run, tasks, executors.at_once)
    return {row for part in parts for row in rows_of(part, columns)}


def _bounds(schema: TableSchema, matches: WithValues) -> Bounds | None:
    """The least and the greatest value of the filter's first column.

    None if it has other values than integers, because a format may order these differently.
    """
    first = matches.columns[0]
    if schema.column(first).kind not in INTEGERS:
        return None
    ends = pc.min_max(matches.classes[first]).as_py()
    return ends["min"], ends["max"]


def _types(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(schema.column(name))) for name in columns])


def _filter_for_classes(
    edges: Edges, schema: TableSchema, columns: Sequence[str], key: ForeignKey, classes: Collection[Row]
) -> WithValues:
    """The filter for rows whose foreign key has values of one of these classes."""
    collation_of = collations(key)  # by name, for the columns that are texts
    fields = [
        pa.field(_CLASS + name, pa.string())
        if name in collation_of
        else pa.field(name, arrow_type(schema.column(name)))
        for name in key.columns
    ]
    values_by_column = zip(*classes, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(values_by_column, fields, strict=True)]
    table = pa.table(arrays, schema=pa.schema(fields))
    return WithValues(edges.source.settings, _types(schema, columns), key.columns, collation_of, table)
