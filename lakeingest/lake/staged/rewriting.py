"""Rewrites all rows of a copy with the columns of its next definition, into files of staging.

At each commit, all rows of a table have the same schema, and readers find a column by its name. So a lift rewrites all
rows, and the next publish replaces the rows that readers see.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.change import DELETED
from lakeingest.files.file import File
from lakeingest.lake.errors import storage_errors
from lakeingest.lake.staged.changes import groups_of_size, last_changes, read_all_rows
from lakeingest.lake.staged.staging import StagingFolder
from lakeingest.lake.target import Written
from lakeingest.rows import constants, lake_schema

_BYTES = 32 << 20  # the size of the files that one task reads
_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class StagedRewriter:
    """A `lake.target.Rewriter` of the rows in `files`, or of the changed rows.

    With `files`, it rewrites those rows of the files whose keys have no change in `merges`. Without files, it rewrites
    the rows that the changes of `merges` insert or update. With neither, it writes a file without rows.
    """

    folder: StagingFolder
    lift: Lift
    files: tuple[File, ...]
    merges: tuple[tuple[File, ...], ...]
    added: frozenset[str]  # the format's own columns in the files that readers see
    keeps_dropped: bool

    def rewrite(self) -> Written:
        """Write this rewriter's part of the rows to a file of staging. Returns its name.

        With `files`, the part is their rows whose keys have no change in `merges`. Without `files`, the part is the
        last change of each key; a delete belongs to it only if the table keeps deleted rows. So each key is in one
        part.
        """
        with storage_errors(str(self.folder.path)):
            rows = lifted_rows(self._old_rows(), self.lift, self.added, keeps_dropped=self.keeps_dropped)
            name = self.folder.write(rows)
        return Written(name.encode())

    def _old_rows(self) -> pa.Table:
        """The rows of this rewriter's part, with the columns before the lift."""
        before = self.lift.before
        changes = last_changes(self.merges, before.key)  # None: there are no merges
        if self.files:
            rows = read_all_rows(self.files)
            return rows if changes is None else _rows_without_changes(rows, changes, before.key)
        if changes is None:
            return lake_schema(before).empty_table()
        return changes if before.keeps_deleted else changes.filter(pc.invert(changes[DELETED]))


def rewriters(
    folder: StagingFolder,
    lift: Lift,
    rows: Sequence[File],
    merges: Sequence[Sequence[File]],
    added: frozenset[str],
    *,
    keeps_dropped: bool,
) -> list[StagedRewriter]:
    """The rewriters that together write all rows: those of the files `rows`, with the changes of `merges` applied.

    There is at least one rewriter. `added` are the format's own columns in the files.
    """
    all_merges = tuple(map(tuple, merges))
    groups: list[Sequence[File]] = [*groups_of_size(rows, _BYTES)]
    if all_merges or not groups:
        groups.append(())  # for the rewriter without files, which writes the changed rows, or a file without rows
    return [StagedRewriter(folder, lift, tuple(group), all_merges, added, keeps_dropped) for group in groups]


def lifted_rows(rows: pa.Table, lift: Lift, added: frozenset[str], *, keeps_dropped: bool = True) -> pa.Table:
    """The rows with the columns of the next definition. `added` are the format's own columns, which are removed.

    With `keeps_dropped`, a column that the source has dropped stays with NULL in all rows, unless the next definition
    has another column of the same name. Without `keeps_dropped`, a column that the lift drops is removed.
    """
    origins = dict(zip(lift.after.names, lift.origins, strict=True))
    fills = constants(lift.after, lift.fills)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for field in lake_schema(lift.after):
        origin = origins.get(field.name, field.name)  # metadata columns have no origin, and keep their names
        if origin is not None:
            columns[field.name] = rows[origin].cast(field.type)
        else:  # a new column: its fill value, or NULL
            columns[field.name] = pa.repeat(fills.get(field.name, pa.scalar(None, field.type)), len(rows))
    # left out below: the format's own columns, and those that `columns` already has, under the old or the new name
    left_out = {*added, DELETED, *lift.origins, *columns}
    if not keeps_dropped:
        left_out |= {*lift.dropped}
    for name in rows.column_names:
        if name not in left_out:  # the source has dropped the column
            columns[name] = pa.nulls(len(rows), rows.schema.field(name).type)
    return pa.table(columns)


def _rows_without_changes(rows: pa.Table, changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key has no change."""
    key_schema = pa.schema([changes.schema.field(name) for name in key])  # a join needs the same types on both sides
    numbered = rows.select(list(key)).cast(key_schema).append_column(_NUMBER, pa.array(np.arange(len(rows))))
    unchanged = numbered.join(changes.select(list(key)), keys=list(key), join_type="left anti")
    return rows.take(unchanged[_NUMBER])
