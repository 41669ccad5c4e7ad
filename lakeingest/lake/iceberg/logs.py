"""Logs of Iceberg: a commit adds files to staging and moves main to it, so that readers see the rows at once.

Readers of a stream get each row once: commits that add rows are of Iceberg's kind `append`, those that combine files of
the kind `replace`, those that remove old days of the kind `delete`.
"""

import datetime as dt
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.lake.iceberg.files.data_files import bounds_of, write_rows
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.files.partitions import assert_outlived
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.merges.compaction import files_of, full_compaction, needs_compaction
from lakeingest.lake.iceberg.merges.marks import mark
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.history import STAGING, assert_unmoved
from lakeingest.lake.iceberg.tables.staged_schema import add_lifted, as_staged, lifted_schema, show_schema
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.refusals import stale
from lakeingest.lake.target import Staged, Written

MANY = 32  # as soon as there are so many small files, in all partitions together, they are combined
_EPOCH = dt.date(1970, 1, 1)
_Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _LogWriter:
    """`lake.target.Writer` for a table that may get other columns with the commit of these files."""

    table: TableFiles

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to new files. Returns pickled field ids and DataFiles."""
        return Written(pickle.dumps((_field_ids(self.table.metadata.schema()), write_rows(self.table, rows))))


class IcebergLogs:
    """`lake.logs.Logs` on an IcebergTarget."""

    def __init__(self, target: IcebergTarget) -> None:
        self._target = target
        self._opened: dict[int, Table] = {}  # the table that `writer` has loaded, by version, for the next `append`

    def writer(self, staged: Staged, lift: Lift | None) -> _LogWriter:
        """A writer with the field ids that the columns have after the lift, or without a lift, in `staged`."""
        with self._target.storage_errors():
            loaded = self._loaded(staged)
            self._opened = {staged.version: loaded}
            if lift is None:
                return _LogWriter(TableFiles.of(as_staged(loaded, staged.version)))
            new = lifted_schema(loaded.metadata, staged.version, lift, keeps_dropped=True)
            files = TableFiles.of(loaded)
            new_is_current = {"schemas": [*files.metadata.schemas, new], "current_schema_id": new.schema_id}
            return _LogWriter(replace(files, metadata=files.metadata.model_copy(update=new_is_current)))

    def append(
        self, staged: Staged, files: Sequence[Written], progress: Progress, properties: _Properties, lift: Lift | None
    ) -> Staged:
        """Make one marked commit on staging and on main."""
        parts = [pickle.loads(written) for written in files]  # noqa: S301 - written by this run
        added: list[DataFile] = [file for _, written in parts for file in written]

        def schema(transaction: Transaction) -> int | None:
            """Add the schema after the lift to the transaction, and return its id; None without a lift."""
            if lift is None:
                return None
            new = lifted_schema(transaction.table_metadata, staged.version, lift, keeps_dropped=True)
            assert_outlived(progress.table, transaction.table_metadata, new)
            if any(ids != _field_ids(new) for ids, _ in parts):  # someone has added a column since
                raise stale(progress.table)
            return add_lifted(transaction, new)

        return self._commit(staged, progress, FileChanges(tuple(added)), Operation.APPEND, properties, schema)

    def remove_before(self, staged: Staged, name: str, day: dt.date, progress_of: Callable[[int], Progress]) -> Staged:
        """Remove each file whose values of the column `name` are all before the day; the file's statistics tell this.

        `progress_of` returns the new progress for the number of removed rows. Without such files, nothing is committed.
        """
        with self._target.storage_errors():
            loaded = self._loaded(staged)
            field = loaded.schema().find_field(name)
            bounds = ((file, bounds_of(file, field)) for file in files_of(loaded, staged.version))
            # ends[1]: a bound that is not less than the greatest value in the file
            old = [file for file, ends in bounds if ends is not None and ends[1] < _micros(day)]
        if not old:
            return staged
        progress = progress_of(sum(file.record_count for file in old))
        return self._commit(staged, progress, FileChanges(removed=tuple(old)), Operation.DELETE)

    def combine(self, staged: Staged) -> Staged:
        """Combine small files if there are MANY."""
        with self._target.storage_errors():
            loaded = self._loaded(staged)
            snapshot = loaded.metadata.snapshot_by_id(staged.version)
            assert snapshot is not None  # noqa: S101 - the table was loaded with it
            if not needs_compaction(manifests_of(snapshot, loaded.io), MANY):
                return staged
            changes = full_compaction(as_staged(loaded, staged.version), staged.version)
        return staged if changes == NO_FILES else self._commit(staged, staged.progress, changes, Operation.REPLACE)

    def _commit(
        self,
        staged: Staged,
        progress: Progress,
        changes: FileChanges,
        kind: Operation,
        properties: _Properties | None = None,
        schema: Callable[[Transaction], int | None] = lambda _: None,
    ) -> Staged:
        """Make one marked commit on staging and on main.

        `schema` may add a schema to the transaction, and returns its id; None: the commit has the schema of `staged`.
        """

        def write(transaction: Transaction) -> None:
            """Put the commit into the transaction: first on staging, and then main moves to it."""
            assert_unmoved(transaction._table, staged)  # noqa: SLF001 - the table that the transaction is built on
            mark(transaction, progress, staged.version, changes, schema(transaction), kind=kind)
            version = transaction.table_metadata.refs[STAGING].snapshot_id
            if properties:
                transaction.set_properties(dict(properties))
            show_schema(transaction, version)
            # this `commit` only adds to the transaction
            ManageSnapshots(transaction=transaction).set_current_snapshot(snapshot_id=version).commit()

        with self._target.storage_errors():
            # a table loaded earlier will do: if someone has committed since, the commit is refused and prepared anew
            loaded = self._opened.pop(staged.version, None) or self._loaded(staged)
            committed = self._target._commit(loaded, staged, progress, write)  # noqa: SLF001 - as below
        return replace(committed, progress=_shown(progress), published=committed.version)

    def _loaded(self, staged: Staged) -> Table:
        """The table. Raises StaleWriter if it lacks the commit `staged.version`."""
        return self._target._table_with(staged.progress.table, staged.version)  # noqa: SLF001 - of the same package


def _shown(progress: Progress) -> Progress:
    """The progress of a commit that readers see."""
    return progress if progress.phase.value == "published" else progress.audited().published()


def _micros(day: dt.date) -> int:
    """The start of the day, in microseconds since 1970 as in statistics."""
    return (day - _EPOCH).days * 86_400_000_000


def _field_ids(schema: Schema) -> tuple[int, ...]:
    return tuple(field.field_id for field in schema.fields)
