"""Rewriting: old rows get their values in new columns, because version 2 of Iceberg has no default values.

Executors write the rows with the lifted schema, which the table gets only by the commit. Someone else may add a column
before the commit. So the commit first checks that its columns get the same field ids as the files have.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction

from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.schema import TableSchema
from lakeingest.lake.iceberg.files.data_files import drop_deleted, read_deletes, write_rows
from lakeingest.lake.iceberg.files.partitions import assert_outlived
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.files.row_ids import rows_with_ids, with_row_ids
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.merges.compaction import files_of
from lakeingest.lake.iceberg.merges.marks import mark
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.staged_schema import (
    add_lifted,
    as_staged,
    field_ids_of,
    lifted_schema,
    restarted_schema,
)
from lakeingest.lake.refusals import stale
from lakeingest.lake.target import Written
from lakeingest.rows import constants

_ROWS = 1_000_000  # a task rewrites files of about as many rows


@dataclass(frozen=True, slots=True)
class IcebergRewriter:
    """`lake.target.Rewriter` on some files of one snapshot.

    `table` has the lifted schema. `fills` has the values that old rows get in new columns, without columns in which
    old rows get NULL. `by_name`: the table before the lift, if its columns have ids by their names; only with it,
    `origins` has the old name of each column that is not new.
    """

    table: TableFiles
    fills: Mapping[str, pa.Scalar]
    files: tuple[FileScanTask, ...]
    by_name: TableFiles | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def rewrite(self) -> Written:
        """Write the rows to new files. Returns pickled DataFiles, and the field ids of their columns."""
        schema = self.table.metadata.schema()
        names = [field.name for field in schema.fields if field.name not in self.fills]
        old_names = names
        if self.by_name is not None:  # old files have other ids: they are read by the old definition
            names = [name for name in names if name in self.origins]
            old_names = [self.origins[name] for name in names]
        with storage_errors(self.table.location):
            deletes = {identity(file): file for task in self.files for file in task.delete_files}  # each file once
            dead = read_deletes(self.table, deletes.values())
            table = with_row_ids(self.table)
            present = table if self.by_name is None else self.by_name
            # added_at=None: the commit of the lift counts as the last change of the rows
            rows = pa.concat_tables(
                drop_deleted(rows_with_ids(present, task.file, old_names, added_at=None), task.file, dead)
                for task in self.files
            )
            if self.by_name is not None:
                rows = rows.rename_columns(names)
            for name, value in self.fills.items():
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
            return Written(pickle.dumps((_field_ids(schema), write_rows(table, rows))))


def rewriters(loaded: Table, version: int, lift: Lift, *, keeps_dropped: bool) -> list[IcebergRewriter]:
    """Rewriters that together write all rows of a snapshot; none if old rows have NULL in every new column.

    If columns have ids by their names, rows are also rewritten for a lift that drops or renames a column.

    Raises PartitionsDiffer as `assert_outlived`.
    """
    new = lifted_schema(loaded.metadata, version, lift, keeps_dropped=keeps_dropped)
    assert_outlived(lift.after.table, loaded.metadata, new)
    by_name = field_ids_of(loaded.metadata).are_by_name
    origins = {name: old for name, old in zip(lift.after.names, lift.origins, strict=True) if old is not None}
    drops_or_renames = bool(lift.dropped) or any(name != old for name, old in origins.items())
    if not lift.fills and not (by_name and drops_or_renames):
        return []
    # the table as the lift will make it: its current schema is the new one
    new_schema_is_current = {"schemas": [*loaded.metadata.schemas, new], "current_schema_id": new.schema_id}
    present = TableFiles.of(loaded)
    lifted = TableFiles(present.metadata.model_copy(update=new_schema_is_current), present.io)
    # one rewriter for each group of files
    groups: list[list[FileScanTask]] = []
    group_rows = _ROWS  # so that the first file begins a group
    staged = as_staged(loaded, version)
    any_column = staged.schema().fields[0].name  # without bounds, the column does not matter
    for task in files_with(staged, version, any_column, bounds=None):
        if group_rows >= _ROWS:
            groups.append([])
            group_rows = 0
        groups[-1].append(task)
        group_rows += task.file.record_count
    fills = constants(lift.after, lift.fills)
    if by_name:  # files lose the columns that the lift drops: a later column of the same name would have the same id
        origins |= {column.name: column.name for column in lift.after.metadata}  # metadata columns keep their names
        return [IcebergRewriter(lifted, fills, tuple(group), TableFiles.of(staged), origins) for group in groups]
    return [IcebergRewriter(lifted, fills, tuple(group)) for group in groups]


def write_lift(
    transaction: Transaction,
    loaded: Table,
    version: int,
    lift: Lift,
    progress: Progress,
    rewritten: Sequence[Written],
    *,
    keeps_dropped: bool,
) -> None:
    """Add the marked commit of a lift to the transaction. Rewritten files, if there are any, replace all files.

    Raises StaleWriter if the rewritten files have other field ids than the lifted schema, because someone has added a
    column since; PartitionsDiffer as `assert_outlived`.
    """
    # for each task, the field ids of its files, and the files
    parts = [pickle.loads(written) for written in rewritten]  # noqa: S301 - written by our own executors
    new = lifted_schema(transaction.table_metadata, version, lift, keeps_dropped=keeps_dropped)
    assert_outlived(progress.table, transaction.table_metadata, new)
    if any(ids != _field_ids(new) for ids, _ in parts):
        raise stale(progress.table)
    added: list[DataFile] = [file for _, files in parts for file in files]
    changes = FileChanges(tuple(added), files_of(loaded, version)) if parts else NO_FILES
    mark(transaction, progress, version, changes, schema=add_lifted(transaction, new))


def write_start_over(
    transaction: Transaction,
    loaded: Table,
    version: int,
    schema: TableSchema,
    origins: Origins | None,
    progress: Progress,
    *,
    keeps_dropped: bool,
) -> None:
    """Add to the transaction a marked commit that removes all files. Later commits have the columns of `schema`.

    Raises PartitionsDiffer as `assert_outlived`.
    """
    new = restarted_schema(transaction.table_metadata, version, schema, origins, keeps_dropped=keeps_dropped)
    assert_outlived(progress.table, transaction.table_metadata, new)
    all_files = FileChanges(removed=files_of(loaded, version))
    mark(transaction, progress, version, all_files, schema=add_lifted(transaction, new))


def _field_ids(schema: Schema) -> tuple[int, ...]:
    return tuple(field.field_id for field in schema.fields)
