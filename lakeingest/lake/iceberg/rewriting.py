"""Rewriting: old rows get their values in new columns, because version 2 of Iceberg has no defaults.

Executors write the rows with the future schema, which the table does not have before the commit. So the commit makes
sure that it gives the columns the same field ids as the files have.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction

from lakeingest.core.lift import Lift
from lakeingest.core.origins import Origins
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
from lakeingest.lake.iceberg.compaction import files_of
from lakeingest.lake.iceberg.data_files import drop_deleted, read_deletes, read_rows, write_rows
from lakeingest.lake.iceberg.errors import storage_errors
from lakeingest.lake.iceberg.marks import mark
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.iceberg.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.staged_schema import add_lifted, as_staged, lifted_schema, restarted_schema
from lakeingest.lake.refusals import stale
from lakeingest.lake.target import Written
from lakeingest.rows import constants

_ROWS = 1_000_000  # a task rewrites files of about as many rows


@dataclass(frozen=True, slots=True)
class IcebergRewriter:
    """`lake.target.Rewriter` on some files of one snapshot. `table` has the future schema."""

    table: TableFiles
    fills: Mapping[str, pa.Scalar]
    files: tuple[FileScanTask, ...]

    def rewrite(self) -> Written:
        """Write the rows. The result are pickled DataFiles, and the field ids that they have."""
        schema = self.table.metadata.schema()
        names = [field.name for field in schema.fields if field.name not in self.fills]
        with storage_errors(self.table.location):
            deletes = {file.file_path: file for task in self.files for file in task.delete_files}
            dead = read_deletes(self.table, deletes.values())
            rows = pa.concat_tables(
                drop_deleted(read_rows(self.table, task.file, names), task.file, dead) for task in self.files
            )
            for name, value in self.fills.items():
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
            return Written(pickle.dumps((_ids(schema), write_rows(self.table, rows))))


def rewriters(loaded: Table, version: int, lift: Lift, *, keeps_dropped: bool) -> list[IcebergRewriter]:
    """Rewriters that together write all rows of a snapshot; none where no column has a value to fill in."""
    if not lift.fills:
        return []
    seen = as_staged(loaded, version)
    new = lifted_schema(loaded.metadata, version, lift, keeps_dropped=keeps_dropped)
    update = {"schemas": [*loaded.metadata.schemas, new], "current_schema_id": new.schema_id}
    of_future = TableFiles.of(loaded)
    table = TableFiles(of_future.metadata.model_copy(update=update), of_future.io)
    groups: list[list[FileScanTask]] = []
    rows = _ROWS
    for task in seen.scan(snapshot_id=version).plan_files():
        if rows >= _ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(task)
        rows += task.file.record_count
    fills = constants(lift.after, lift.fills)
    return [IcebergRewriter(table, fills, tuple(group)) for group in groups]


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
    """Write the marked commit of a lift, with the rewritten files in place of all others."""
    parts = [pickle.loads(written) for written in rewritten]  # noqa: S301 - written by our own executors
    new = lifted_schema(transaction.table_metadata, version, lift, keeps_dropped=keeps_dropped)
    if any(ids != _ids(new) for ids, _ in parts):  # someone has added a column since the files were written
        raise stale(progress.table)
    added: list[DataFile] = [file for _, files in parts for file in files]
    changes = FileChanges(tuple(added), files_of(loaded, version)) if parts else NO_FILES
    mark(transaction, progress, version, changes, schema=add_lifted(transaction, new))


def write_beginning(
    transaction: Transaction,
    loaded: Table,
    version: int,
    schema: TableSchema,
    origins: Origins | None,
    progress: Progress,
    *,
    keeps_dropped: bool,
) -> None:
    """Write a marked commit without any row. Rows of later commits have this definition."""
    new = restarted_schema(transaction.table_metadata, version, schema, origins, keeps_dropped=keeps_dropped)
    all_files = FileChanges(gone=files_of(loaded, version))
    mark(transaction, progress, version, all_files, schema=add_lifted(transaction, new))


def _ids(schema: Schema) -> tuple[int, ...]:
    return tuple(field.field_id for field in schema.fields)
