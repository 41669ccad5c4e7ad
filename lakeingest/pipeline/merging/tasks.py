"""The tasks of executors in a merge: collapse changes and remove the rows that they replace; write the new rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.binlog.position import Place
from lakeingest.core.proofs import usual
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.wave import Mark
from lakeingest.files.file import File
from lakeingest.lake.target import Merger, MergesBy, Written
from lakeingest.pipeline.merging.row_numbers import RowNumbers, row_numbers
from lakeingest.pipeline.run.profile import Profile
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spool.collapse import Slice, collapsed, take

_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class Replaced:
    """The result of a slice.

    `written`: the files that remove old rows. `new`: the numbers of the new rows in files of the spool. `reread`: the
    numbers of the patch rows that have no later change, including those that delete a key. `read` and `applied` are
    numbers of change rows. `freed`: the numbers of those keys in quarantine that have an applied change.
    """

    written: Written
    new: RowNumbers
    reread: RowNumbers
    read: int
    applied: int
    profile: Profile
    freed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """The task of one executor: collapse the changes of a slice, and remove the rows that they replace.

    With `keeps_deleted`, a delete replaces the row by the row's last values, marked as deleted. `patches`: the place of
    each patch's low watermark. `files` begins with the file of each patch, in the same order. `quarantine`: the keys in
    quarantine; None if there are none.
    """

    files: tuple[File, ...]
    key: tuple[str, ...]
    keeps_deleted: bool
    marks: tuple[Mark, ...]
    stop: Place
    slice: Slice
    merger: Merger
    merges_by: MergesBy
    patches: tuple[Place, ...] = ()
    quarantine: pa.Table | None = None

    def run(self) -> Replaced:
        """Write the files that remove old rows. Nothing refers to them before the commit."""
        profile = Profile()
        with profile.stage("merges: collapse"):
            last = collapsed(self.files, self.key, self.marks, self.stop, self.slice, self.patches)
        changes = _without_deletes(last.changes) if self.keeps_deleted else last.changes
        # with `keeps_deleted`, deletes have lost their mark, and are written like other rows; else a delete is written
        # as a row only in a format that merges by changes
        is_written = ~changes[DELETED].to_numpy() | (self.merges_by == "changes")
        new = row_numbers(self.files, last.files[is_written], last.rows[is_written])
        is_reread = last.files < len(self.patches)  # the first files are those of the patches
        reread = row_numbers(self.files, last.files[is_reread], last.rows[is_reread])
        with profile.stage("merges: replace"):
            written = self.merger.replace(changes)
        freed = _numbers_among(self.quarantine, last.changes, self.key)
        return Replaced(written, new, reread, last.read, last.applied, profile, freed)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The files of new rows. `sound`: the rows were checked and agree with the table's definition.

    `counts`: the numbers of rows, and of NULLs in each column that can have some; zeros if nobody wants to know.
    """

    files: Written
    sound: bool
    profile: Profile
    counts: usual.Written


@dataclass(frozen=True, slots=True)
class WriteRows:
    """The task of one executor: read rows from files of the spool, and write them to a file of the target.

    `counts`: whether the rows and their NULLs are counted.
    """

    rows: "Sequence[tuple[File, np.ndarray]]"
    schema: TableSchema
    stop: Place
    merger: Merger
    merges_by: MergesBy
    counts: bool = False

    def run(self) -> WrittenRows:
        """Write the rows. Nothing refers to their files before the commit."""
        profile = Profile()
        with profile.stage("merges: take"):
            # with `keeps_deleted`, the column DELETED is among the metadata columns
            adds_deleted = self.merges_by == "changes" and not self.schema.keeps_deleted
            rows = pa.concat_tables(
                take(file, numbers, self.stop, deleted=adds_deleted, schema=self.schema) for file, numbers in self.rows
            )
        with profile.stage("merges: look"):
            sound = is_sound(default_suite(self.schema, len(rows)), rows)
        with profile.stage("merges: write"):
            files = self.merger.write(rows)
        return WrittenRows(files, sound, profile, self._counted(rows) if self.counts else usual.Written())

    def _counted(self, rows: pa.Table) -> usual.Written:
        """The numbers of rows that are not deleted, and of their NULLs."""
        if DELETED in rows.column_names and pc.any(rows[DELETED]).as_py():  # rows that the copy lacks, or only marks
            rows = rows.filter(pc.invert(rows[DELETED]))
        nulls = {column.name: rows[column.name].null_count for column in self.schema.columns if column.nullable}
        return usual.Written(rows=rows.num_rows, nulls=nulls)


def _numbers_among(keys: pa.Table | None, changes: pa.Table, key: Sequence[str]) -> tuple[int, ...]:
    """The number of each row of `keys` whose key has a change; none if `keys` is None."""
    if keys is None:
        return ()
    numbered = keys.append_column(_NUMBER, pa.array(range(keys.num_rows)))
    found = numbered.join(changes.select(list(key)), keys=list(key), join_type="left semi", use_threads=False)
    return tuple(found[_NUMBER].to_pylist())


def _without_deletes(changes: pa.Table) -> pa.Table:
    """The changes, with no row marked as a delete, because deleted rows stay in this copy."""
    return changes.drop_columns(DELETED).append_column(DELETED, pa.repeat(pa.scalar(value=False), changes.num_rows))
