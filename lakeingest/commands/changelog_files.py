"""The changelog of a table as Parquet files in a folder, for readers that have no Iceberg.

The rows are those of `changelog_arrow`, with the line of each DDL in a column. A file has rows of one definition of the
table. It is finished once it has enough rows, once its first row has waited long enough, or before DDL.
"""

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from lakeingest.commands.changelog import changelog_of, since_of
from lakeingest.commands.changelog_arrow import DDL_LINE, ORIGIN, batch_of
from lakeingest.commands.changelog_folder import ChangelogFolder, StagedCopy
from lakeingest.config import Config
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.change_files import rows_at_end, rows_of_file
from lakeingest.core.companions.log_columns import DDL_JSON
from lakeingest.core.tables.change import OP, POSITION
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import Retryable, UsageError
from lakeingest.files.file import File
from lakeingest.lake.formats import open_versions
from lakeingest.pipeline.changelog.reading import Copied, Part
from lakeingest.spool.followed import Altered

KEY, TABLE = b"lakeingest.key", b"lakeingest.table"  # in the metadata of a file: the table's key, as JSON, and its name
_COLUMNS = len(ORIGIN)  # from this index on, a batch has the columns of the table
_NOTE_SECONDS = 60.0  # how often the progress of a table without changes is noted


@dataclass(frozen=True, slots=True)
class Limits:
    """When a file is finished: it has so many `rows`, or its first row has waited for so many `seconds`."""

    rows: int = 100_000
    seconds: float = 60.0

    @classmethod
    def of(cls, rows: int | None, seconds: float | None) -> Self:
        """The limits with these numbers. None stands for the usual number."""
        usual = cls()
        return cls(usual.rows if rows is None else rows, usual.seconds if seconds is None else seconds)


@dataclass(slots=True)
class ChangelogFiles:
    """Writes parts of the changelog named `name` into files.

    `end` returns the position of a reader that has read all changes that are stored now. `said` is called with each
    new file, once readers can see it.
    """

    folder: ChangelogFolder
    name: str
    limits: Limits
    end: Callable[[], ReadTo]
    said: Callable[[File], None]
    _batches: list[pa.RecordBatch] = field(default_factory=list, init=False)  # rows that wait for a file
    _began: float = field(default=0.0, init=False)  # when the first of them came, or when the last file was written
    _copy: StagedCopy | None = field(default=None, init=False)  # a copy that is not complete yet
    _read_to: ReadTo | None = field(default=None, init=False)  # what `end` gave at an earlier `pause`, to be noted
    _noted: float = field(default=0.0, init=False)  # when the progress was noted last

    def add(self, part: Part) -> None:
        """Take the rows of a part. Files that are finished are written."""
        rows = _in_file(batch_of(part, self.name), part.followed.after if isinstance(part, Altered) else part.schema)
        copy = self._copy
        is_of_copy = copy is not None and isinstance(part, Copied) and part.place == copy.copying.place
        if copy is not None and not is_of_copy:
            self._give_up_copy()  # its last row never came: the reader has begun another copy, or goes on with changes
        begins_copy = isinstance(part, Copied) and self._copy is None
        begins_definition = bool(self._batches) and not self._batches[0].schema.equals(rows.schema, check_metadata=True)
        if begins_copy or begins_definition:  # a file has rows of one definition, and no rows of a copy with changes
            self._write_all()
        if isinstance(part, Copied) and self._copy is None:
            self._copy = self.folder.copy(part.place, self.name)
        if not self._batches:
            self._began = time.monotonic()
        self._batches.append(rows)
        if isinstance(part, Copied):
            self._add_to_copy(is_last=part.last)
        elif self._is_full or self._is_due:
            self._write(lambda positions, ops: rows_of_file(positions, ops, is_full=self._is_full))

    def close(self) -> None:
        """Write the rows that wait. A copy that is not complete is given up."""
        self._write_all() if self._copy is None else self._give_up_copy()

    def pause(self) -> None:
        """Write a file of rows that have waited long enough, and note the progress of a table without changes.

        The reader calls this again and again while there is nothing to read. So at each call, it has read all changes
        that were stored at the previous call. These changes end with a transaction, so all waiting rows can be written.
        """
        if self._copy is None and self._batches and self._is_due:
            self._write_all()
        if time.monotonic() - self._noted < _NOTE_SECONDS:
            return
        if self._read_to is None:
            self._read_to = self.end()
        elif not self._batches:
            self.note(self._read_to)
            self._read_to = None

    def note(self, read_to: ReadTo) -> None:
        """Note that the files have all changes of the table up to this position."""
        self.folder.note(read_to)
        self._noted = time.monotonic()

    @property
    def _is_full(self) -> bool:
        """Whether the rows that wait are enough for a file."""
        return bool(sum(batch.num_rows for batch in self._batches) >= self.limits.rows)

    @property
    def _is_due(self) -> bool:
        """Whether `limits.seconds` have passed since `_began`."""
        return time.monotonic() - self._began >= self.limits.seconds

    def _add_to_copy(self, *, is_last: bool) -> None:
        """Stage the rows of a copy once they are enough for a file, and commit the copy after its last row."""
        if self._copy is None or not (is_last or self._is_full):
            return
        rows = pa.Table.from_batches(self._batches)
        self._copy.add(rows, rows[POSITION][-1].as_py())
        self._batches = []
        if is_last:
            for file in self.folder.commit(self._copy):
                self.said(file)
            self._copy = None

    def _give_up_copy(self) -> None:
        """Remove the files of a copy whose last row never came, and forget its rows."""
        if self._copy is not None:
            self._copy.drop()
        self._copy, self._batches = None, []

    def _write_all(self) -> None:
        """Write a file of all rows that wait."""
        self._write(lambda _, ops: rows_at_end(ops))

    def _write(self, count_of: Callable[[list[str], list[str]], int]) -> None:
        """Write a file of the first rows that wait.

        `count_of` gives the number of these rows, from the positions and the kinds of all rows that wait.
        """
        if not self._batches:
            return
        waiting = pa.Table.from_batches(self._batches)
        positions, ops = waiting[POSITION].to_pylist(), waiting[OP].to_pylist()
        count = count_of(positions, ops)
        if count:
            self.said(self.folder.add(waiting.slice(0, count), positions[0], positions[count - 1]))
            self._batches = [batch for batch in waiting.slice(count).to_batches() if batch.num_rows]
            self._began = time.monotonic()


def write_files(
    config: Config,
    table: str,
    to: str,
    said: Callable[[File], None],
    since: str | None = None,
    *,
    limits: Limits,
    follow: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the changelog of a table into the folder `to`, or go on after the last file that the folder has.

    `since` is where the first file begins; None: with all rows of the table. The function returns at the end of the
    spool, or earlier once `stopping` returns True; with `follow`, only once `stopping` returns True. Before it returns,
    it writes the rows that still wait for a file. `said` is called with each new file.

    Raises:
        UsageError: the folder has files already and `since` is not None, or it has Parquet files of others.
        Retryable: the table is not published yet, or another process writes into the folder.
        ChangelogGone: changes after the last file are not kept any more.
        StateUnreadable: the last file is gone or damaged, or the document of progress is damaged.

    """
    changelog = changelog_of(config, table)
    folder = ChangelogFolder.of(config, to, changelog.table)
    staged = open_versions(config).last(changelog.table)
    if staged is None or staged.published is None:
        raise Retryable(f"{changelog.table} is not published yet; run the same command again once it is")
    folder.open()
    if folder.read_to is not None and since is not None:
        raise UsageError(f"--since: {folder.folder} goes on after {folder.read_to}; leave --since out")
    read_to_end = changelog.read_to_end()
    files = ChangelogFiles(folder, changelog.name, limits, changelog.read_to_end, said)

    def is_ending() -> bool:
        """Let `files` write what has waited, because there is nothing to read now. Returns whether to stop."""
        files.pause()
        return stopping()

    with closing(changelog.read(folder.read_to or since_of(since), follow=follow, stopping=is_ending)) as parts:
        for part in parts:
            files.add(part)
            if stopping():
                files.close()
                return
    files.close()
    if not follow:  # all changes are read that were stored when the reading began
        files.note(read_to_end)


def _in_file(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The rows as they are in a file: each column of the table may be NULL, and the line of DDL has a column."""
    line = (batch.schema.metadata or {}).get(DDL_LINE)
    ddl = pa.array([None if line is None else line.decode()] * batch.num_rows, pa.string())
    fields = [
        *ORIGIN,
        pa.field(DDL_JSON, pa.string()),
        *(one.with_nullable(True) for one in list(batch.schema)[_COLUMNS:]),
    ]
    metadata = {TABLE: str(schema.table), KEY: json.dumps(schema.key, ensure_ascii=False)}
    arrays = [*batch.columns[:_COLUMNS], ddl, *batch.columns[_COLUMNS:]]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))
