"""The changelog as a table: `<table>__changelog` beside each copy, to which rows are only added.

`core.companions.log_columns` says which columns it has.

Each commit goes up to a position of the changelog, and ends where a transaction ends. DDL that needs other columns
begins a new commit, which gives the table these columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakeingest.config.companions import CHANGELOG_KEY
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import Standing, companion_of, read_to_of
from lakeingest.core.companions.log_columns import columns_of, followed, lift_of, new_log
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.target import Written
from lakeingest.pipeline.changelog.reading import Changed, Copied
from lakeingest.pipeline.companions import log_rows
from lakeingest.pipeline.companions.companion import Reading
from lakeingest.pipeline.companions.log_tables import Log, LogTables
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.followed import Altered

SUFFIX = "changelog"
FILE_BYTES = 64 << 20  # a file of rows is written when so many bytes wait in memory
COMMIT_ROWS = 1_000_000  # a commit is made, where a transaction ends, after so many rows


class ChangelogTable:
    """`companions.companion.Companion` for `changelog.table`."""

    key, tidies = CHANGELOG_KEY, True

    def __init__(self, edges: Edges) -> None:
        self._tables = LogTables(edges)
        self._open: dict[TableId, Log] = {}
        self._begins: dict[TableId, str] = {}

    def is_wanted(self, table: TableRun) -> bool:  # noqa: ARG002 - each table has one
        """Whether the table is to have a log."""
        return True

    def table_of(self, table: TableId) -> TableId:
        """The name of the log."""
        return companion_of(table, SUFFIX)

    def standing(self, table: TableRun) -> Standing | None:
        """The version and the position of the log's last commit; None if there is no log."""
        self._open.pop(table.id, None)
        log = self._tables.open(self.table_of(table.id))
        if log is None:
            return None
        self._open[table.id], self._begins[table.id] = log, log.begins
        read_to = read_to_of(log.staged.progress)
        assert read_to is not None  # noqa: S101 - `open` has looked
        return Standing(log.staged.version, read_to)

    def write(self, table: TableRun, reading: Reading) -> Standing:
        """Write all parts. The rows of a copy are one commit with the RESET before them."""
        self._begins.pop(table.id, None)
        writing = _Writing(self._tables, self.table_of(table.id), reading, self._open.pop(table.id, None))
        for part in reading.parts():
            writing.take(part)
        log = self._open[table.id] = writing.end()
        self._begins[table.id] = log.begins
        return Standing(log.staged.version, reading.reached)

    def begin_of(self, table: TableId) -> str:
        """A place, as a text that sorts: the log has the rows of a copy as of this place, and all later changes.

        Call this only if the log is there, and if this run has written it or its table is quiet.
        """
        if table not in self._begins:
            log = self._tables.open(self.table_of(table))
            self._begins[table] = "" if log is None else log.begins
        return self._begins[table]

    def tidy(self, table: TableRun, *, now: bool = False) -> int | None:
        """Remove the rows of days that are too old, and combine small files. Returns the new version, if any."""
        log = self._open[table.id]
        version = log.staged.version
        self._tables.tidy(log, now=now)
        return None if log.staged.version == version else log.staged.version


@dataclass(slots=True)
class _Writing:
    """One write of a log, from its last commit on. `given`: the log; None if there is none yet."""

    tables: LogTables
    name: TableId
    reading: Reading
    given: Log | None
    _lift: Lift | None = field(default=None, init=False)  # from the columns of the last commit; the next one takes it
    _read_to: ReadTo | None = field(default=None, init=False)  # after the last row
    _began: bool = field(default=False, init=False)  # whether the RESET of a log that begins anew is written
    # the rows of parts that are alike (`_is_alike`), not yet in the log's columns, and the first of these parts
    _waiting: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _of: Copied | Changed | None = field(default=None, init=False)
    _rows: list[pa.Table] = field(default_factory=list, init=False)  # in the log's columns, but in no file yet
    _bytes: int = field(default=0, init=False)  # of the rows that are in no file yet
    _files: list[Written] = field(default_factory=list, init=False)  # those of no commit yet
    _count: int = field(default=0, init=False)  # the rows since the last commit

    @property
    def _log(self) -> Log:
        """The log. A new log was made for the first part of its reading, which is a part of a copy (`_begin`)."""
        assert self.given is not None  # noqa: S101 - as the docstring says
        return self.given

    def take(self, part: Copied | Changed | Altered) -> None:
        """Take the next part of the changelog. Its rows are written and committed now, or with later parts."""
        if isinstance(part, Altered):
            ddl = part.followed
            self._follow(ddl.before)  # perhaps no earlier part had this definition
            was = self._log.columns
            # TRUNCATE leaves all columns as they are
            origins = None if part.alteration.empties else dict(zip(ddl.after.names, ddl.origins, strict=True))
            self._follow(ddl.after, origins)
            self._collect()  # the rows before the DDL come first
            self._add(log_rows.ddl_row(part, self._log.schema, was, self._log.columns))
            self._read_to = ReadTo(part.followed.place, log=self.reading.name)
            return
        if isinstance(part, Copied) and not self._began:
            self._begin(part)
        if not part.rows.num_rows:
            return
        is_change = isinstance(part, Changed) and self._read_to is not None  # a copy is one commit, however large
        if is_change and self._count >= COMMIT_ROWS and self._is_boundary(part):
            self._commit()
        self._follow(part.schema)
        if self._of is None or not _is_alike(self._of, part):
            self._collect()
            self._of = part
        self._waiting.append(part.rows)
        self._bytes += part.rows.nbytes
        self._count += part.rows.num_rows
        self._read_to = log_rows.position_after(part, self.reading.name)
        if self._bytes >= FILE_BYTES:
            self._flush()

    def end(self) -> Log:
        """Commit the rows that are not committed yet, if there are any. Returns the log."""
        if self._count:
            self._read_to = self.reading.reached
            self._commit()
        return self._log

    def _is_boundary(self, part: Copied | Changed) -> bool:
        """Whether the first row of the part is of another transaction than the last row before it."""
        return self._read_to is not None and self._read_to.place != log_rows.place_of_first(part)

    def _begin(self, part: Copied) -> None:
        """Make the log, or go on with the given one, and add a RESET: no earlier row counts any more."""
        self._began = True
        if self.given is None:
            schema, names = new_log(self.name, part.schema), part.schema.names
            self.given = self.tables.make(schema)
            self.given.columns = dict(zip(names, schema.names[-len(names) :], strict=True))  # the log's own come first
        else:
            self._follow(part.schema)
        self._log.begins = str(part.place)
        self._add(log_rows.reset_row(part.place, part.schema, self._log.columns, self.reading.why))
        self._read_to = ReadTo(part.place, log=self.reading.name)

    def _follow(self, definition: TableSchema, origins: Mapping[str, str | None] | None = None) -> None:
        """Let the log have columns for this definition. Before a new column is added, waiting rows are committed.

        `origins`: as in `core.companions.log_columns.columns_of`.
        """
        log = self._log
        columns = columns_of(log.schema, definition, log.columns, origins)
        if columns != log.columns:
            self._collect()  # the waiting rows belong in the columns of the earlier definition
        after = followed(log.schema, definition, columns)
        if after is not log.schema:
            if self._count:
                self._commit()
            self._lift = lift_of(log.schema if self._lift is None else self._lift.before, after)
            log.schema = after
        log.columns = columns

    def _add(self, rows: pa.Table) -> None:
        """Let these rows wait for the next file. They have the log's columns."""
        self._rows.append(rows)
        self._count += rows.num_rows

    def _collect(self) -> None:
        """Make rows of the log from the rows that wait."""
        part, waiting, log = self._of, self._waiting, self._log
        self._of, self._waiting = None, []
        if part is None:
            return
        rows = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in waiting])
        if isinstance(part, Copied):
            self._rows.append(log_rows.copied_rows(rows, part.schema, part.place, log))
        else:
            reread = log_rows.is_reread(part)
            self._rows.append(log_rows.changed_rows(rows, part.schema, log, reread=reread))

    def _flush(self) -> None:
        """Write a file of all rows in memory."""
        self._collect()
        if self._rows:
            rows = log_rows.sum_of(self._rows)
            in_earlier_files = self._count - rows.num_rows  # rows since the last commit
            self._files.append(self.tables.write(self._log, rows, in_earlier_files, self._lift))
            self._rows, self._bytes = [], 0

    def _commit(self) -> None:
        """Commit all rows that were taken since the last commit, and let readers see them."""
        self._flush()
        assert self._read_to is not None  # noqa: S101 - there are rows
        self.tables.commit(self._log, self._files, self._count, self._read_to, self._lift)
        self._lift, self._files, self._count = None, [], 0


def _is_alike(one: Copied | Changed, other: Copied | Changed) -> bool:
    """Whether two parts have rows of one kind and one definition, so that `_collect` can take their rows together."""
    if type(one) is not type(other) or one.schema.fingerprint != other.schema.fingerprint:
        return False
    if isinstance(one, Changed) and isinstance(other, Changed):
        return log_rows.is_reread(one) == log_rows.is_reread(other)
    return True
