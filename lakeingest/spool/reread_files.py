"""Reread rows, for readers of the changelog: the rows that a merge has put from patches into a copy.

rereads/<database>.<table>/<position of the first row>.json   names the files of one merge; readers ignore other files
rereads/<database>.<table>/<name>.parquet                     the rows

Reread rows are not in the binlog. Each of them is the row of its key as of the merge's stop. So a reader gets it after
all changes up to the stop, and before all changes after the stop. The rows of each stop are numbered from 0 on.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.file_names import file_name, inside
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import DAMAGED, StaleWriter, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.rows import INSTANT, reread_schema, with_definition
from lakeingest.spool.collapse import rows_at
from lakeingest.spool.errors import spool_errors
from lakeingest.state import store

FOLDER = "rereads"

Rows = Sequence[tuple[File, "np.ndarray"]]  # files of patches, each with ascending numbers of its rows


@dataclass(frozen=True, slots=True)
class RereadRows:
    """A file of reread rows, with the positions of its first row and its last row."""

    path: File
    first: ReadTo
    last: ReadTo


@dataclass(frozen=True, slots=True)
class RereadFolder:
    """The reread rows of one table. It is pickled, so that executors can write them."""

    path: File

    @classmethod
    def of(cls, spool: File, table: TableId) -> "RereadFolder":
        """The folder of the table in a spool's folder."""
        return cls(spool / FOLDER / file_name(str(table)))

    def write(self, rows: Rows, schema: TableSchema, stop: Place, first: int) -> tuple[str, int]:
        """Write rows of patches as reread rows as of `stop`, numbered from `first`.

        Returns the name and the row count of the file, which is durable. Readers see it after `add`.
        """
        fields = with_definition(reread_schema(schema), schema)
        name = f"{uuid.uuid4().hex}.parquet"
        patch_rows = pa.concat_tables(rows_at(file, numbers, [change.KIND]) for file, numbers in rows)
        with spool_errors(self.path):
            self.path.make_folder()
            with files.written(self.path / name) as local:
                pq.write_table(_as_of(patch_rows, schema, stop, first).cast(fields), local, compression="zstd")
            self.path.sync()
        return name, patch_rows.num_rows

    def next_number(self, stop: Place, log: str) -> int:
        """The number that the next row as of `stop` gets in the changelog `log`; the first row as of a place gets 0."""
        with spool_errors(self.path):
            written = self.files_after(ReadTo(stop, log=log), stop)
        if not written:
            return 0
        return (written[-1].last.reread or 0) + 1  # one more than the number of the last row

    def add(self, first: ReadTo, written: Sequence[tuple[str, int]]) -> None:
        """Let readers see the rows of these files, as `write` returned them. `first` is the position of the first row.

        Raises StaleWriter if another run has added rows at this position.
        """
        path = self.path / f"{first}.json"
        if not store.create(path, {"files": [list(file) for file in written]}):
            raise StaleWriter(f"another run wrote {path}; run the same command again")

    def files_after(self, since: ReadTo, end: Place) -> list[RereadRows]:
        """The files with rows that are after the position `since` and as of places up to `end`, in order.

        These are files of the changelog that `since` names. Raises FileNotFoundError if the folder changes in between,
        and StateUnreadable if a document is damaged.
        """
        named_files: list[RereadRows] = []  # the files that the documents name, in order
        documents = self.path.listed("*.json")
        positions = sorted((ReadTo.parse(file.stem) for file in documents), key=lambda position: position.order)
        wanted = [first for first in positions if first.log == since.log and since.place <= first.place <= end]
        for first in wanted:
            # the rows as of each place are numbered from 0 on, without a gap
            expected = replace(first, reread=0)
            if named_files and named_files[-1].last.place == first.place:
                expected = _advanced(named_files[-1].last, 1)
            # if two documents are added while the folder is listed, the listing may have only the later document
            if first != expected:
                raise FileNotFoundError(f"{self.path / str(expected)}.json")
            named_files += self._files(first)
        return [file for file in named_files if file.last.order > since.order]

    def _files(self, first: ReadTo) -> Iterator[RereadRows]:
        """The files that one document names. `first` is the position of the first row in them."""
        file_first = first  # the position of the first row of each file
        for name, count in _read(self.path / f"{first}.json"):
            yield RereadRows(self.path / name, file_first, _advanced(file_first, count - 1))
            file_first = _advanced(file_first, count)


def is_empty(spool: File) -> bool:
    """Whether readers see no reread row of any table."""
    return not (spool / FOLDER).listed("*/*.json")


def trim(spool: File, start: Place, log: str) -> None:
    """Remove the reread rows that no reader of the changelog `log` can reach.

    These rows are as of places before `start`, or belong to another changelog.
    """
    with spool_errors(spool / FOLDER):
        documents = ((file, ReadTo.parse(file.stem)) for file in (spool / FOLDER).listed("*/*.json"))
        _remove([file for file, first in documents if first.log != log or first.place < start])


def clear(spool: File) -> None:
    """Remove all reread rows, because another changelog begins."""
    with spool_errors(spool / FOLDER):
        _remove((spool / FOLDER).listed("*/*.json"))


def leftovers(spool: File) -> Iterator[File]:
    """The files that no document names. A merge at work may name such a file later, so the caller spares new files.

    Folders with a damaged document are passed over.
    """
    for _, group in groupby((spool / FOLDER).listed("*/*"), key=lambda file: file.parent):
        paths = list(group)
        try:
            documents = [file for file in paths if file.suffix == ".json"]
            needed = {name for file in documents for name, _ in _read(file)}
        except StateUnreadable:  # nobody knows which files the damaged document names
            continue
        yield from (file for file in paths if file.suffix != ".json" and file.name not in needed)


def _remove(documents: Iterable[File]) -> None:
    """Delete documents, then the files that they name. So no document names a missing file."""
    for file in documents:
        try:
            names = [name for name, _ in _read(file)]
        except StateUnreadable:  # the files that it named become leftovers
            names = []
        file.delete()
        file.parent.sync()
        for name in names:
            (file.parent / name).delete()


def _read(file: File) -> list[tuple[str, int]]:
    """The files that a document names, each with its row count.

    Raises FileNotFoundError if the document was removed, and StateUnreadable if it is damaged.
    """
    try:
        return [(inside(str(name)), int(rows)) for name, rows in store.read(file)["files"]]
    except FileNotFoundError:  # the document was removed, and is not damaged
        raise
    except (OSError, *DAMAGED) as error:
        raise rereads_unreadable(file, error) from error


def rereads_unreadable(file: File, error: Exception) -> StateUnreadable:
    """The error for a damaged document or file of reread rows."""
    return StateUnreadable(
        f"{file}, which holds rows that were read again, cannot be read: {error}; remove its folder, and read the table"
        " again (lakeingest resnapshot)"
    )


def _advanced(position: ReadTo, rows: int) -> ReadTo:
    """The position of the reread row that comes `rows` rows after the row at `position`."""
    return replace(position, reread=(position.reread or 0) + rows)


def _as_of(rows: pa.Table, schema: TableSchema, stop: Place, first: int) -> pa.Table:
    """Rows of patches as reread rows as of `stop`, numbered from `first`. Unknown values are NULL."""
    count = rows.num_rows
    row_numbers = pa.array(np.arange(count))
    if not schema.keeps_deleted:
        # of a deleted row, the patch has only the key: `take` makes the other columns NULL where the row number is NULL
        row_numbers = pc.if_else(pc.equal(rows[change.KIND], RowKind.DELETE.value), None, row_numbers)
    columns = {
        change.KIND: rows[change.KIND],
        change.EPOCH: pa.array(np.full(count, stop.epoch)),
        change.FILE: pa.array(np.full(count, stop.file)),
        change.POS: pa.array(np.full(count, stop.pos)),
        change.ORDINAL: pa.array(np.arange(first, first + count)),
        change.COMMITTED_AT: pa.nulls(count, INSTANT),
        change.GTID: pa.nulls(count, pa.string()),
        **{name: rows[name] if name in schema.key else rows[name].take(row_numbers) for name in schema.names},
    }
    return pa.table(columns)
