"""The changelog as a table: `<table>__changelog` beside each copy, to which rows are only added (`core.log_columns`).

Each commit adds the rows up to a position of the changelog, and readers see them with that position at once. A commit
ends where a transaction ends. DDL that needs other columns begins a new commit, which gives the table these columns.
"""

import datetime as dt
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakeingest.config.tables import TableOptions
from lakeingest.core.companion import Standing, begun, companion_of, count_of, read_to_of, written
from lakeingest.core.lift import Lift
from lakeingest.core.log_columns import LOGGED_AT, followed, lift_of, new_log
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable
from lakeingest.lake.formats import logs_of, open_companions
from lakeingest.lake.logs import PARTITION_BY, Logs
from lakeingest.lake.target import Staged, Target, Written
from lakeingest.pipeline.changelog.reading import Changed, Copied
from lakeingest.pipeline.companions import log_rows
from lakeingest.pipeline.companions.companion import Reading
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.followed import Altered
from lakeingest.state.definition import as_property, from_property

KEY, SUFFIX = "changelog.table", "changelog"
DEFINITION, READ_TO = "lakeingest.definition", "lakeingest.read_to"  # properties of the table
FILE_BYTES = 64 << 20  # a file of rows is written when so many bytes wait in memory
COMMIT_ROWS = 1_000_000  # a commit is made, where a transaction ends, after so many change rows
TIDY_EVERY = 16  # of so many writes of a table, one looks whether files are to be combined or removed
_OPTIONS = TableOptions(partition_by=(PARTITION_BY.format(LOGGED_AT),))


@dataclass(slots=True)
class _Log:
    """The table beside one copy: its last commit, its definition, and how often this run has written it."""

    staged: Staged
    schema: TableSchema
    writes: int = 0


class ChangelogTable:
    """`companions.companion.Companion` for `changelog.table`."""

    key = KEY

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._target: Target = open_companions(edges.config, lambda _: _OPTIONS)
        logs = logs_of(edges.config, self._target)
        assert logs is not None  # noqa: S101 - pipeline.yml is refused otherwise
        self._logs: Logs = logs
        self._open: dict[TableId, _Log] = {}

    def is_wanted(self, table: TableRun) -> bool:  # noqa: ARG002 - each table has one
        """Whether the table is to have a log."""
        return True

    def table_of(self, table: TableId) -> TableId:
        """The name of the log."""
        return companion_of(table, SUFFIX)

    def standing(self, table: TableRun) -> Standing | None:
        """The position of the last commit. A log that was never published is dropped."""
        name = self.table_of(table.id)
        self._open.pop(table.id, None)
        staged = _committing(self._edges, self._target).recover(name)
        if staged is not None and staged.published is None:
            _committing(self._edges, self._target).discard(name)
            return None
        if staged is None:
            return None
        schema = from_property(self._target.properties(name).get(DEFINITION, ""))
        read_to = read_to_of(staged.progress)
        if schema is None or read_to is None or schema.fingerprint != staged.progress.fingerprint:
            raise NotOurTable(f"{name} is not as this version of lakeingest writes it; rename or drop it")
        self._open[table.id] = _Log(staged, schema)
        return Standing(staged.version, read_to)

    def write(self, table: TableRun, reading: Reading) -> Standing:
        """Write all parts. The rows of a copy are one commit with the RESET before them."""
        writing = _Writing(self._edges, self._target, self._logs, self._open.get(table.id), self.table_of(table.id))
        for part in reading.parts():
            writing.take(part, reading)
        log = writing.end(reading.reached)
        self._open[table.id] = log
        return Standing(log.staged.version, reading.reached)

    def tidy(self, table: TableRun) -> None:
        """Remove days that are older than `changelog.keep`, and combine small files."""
        log = self._open[table.id]
        if log.writes % TIDY_EVERY != 1:
            return
        keep, today = self._edges.config.changelog.keep, dt.datetime.now(dt.UTC)
        progress = log.staged.progress
        read_to = read_to_of(progress)
        assert read_to is not None  # noqa: S101 - it was written
        self._edges.lease.assert_held()
        log.staged = self._logs.remove_before(
            log.staged, (today - keep).date(), lambda rows: written(progress, read_to, inserted=0, deleted=rows)
        )
        log.staged = self._logs.combine(log.staged)


def _committing(edges: Edges, target: Target) -> Target:
    """The target, for a commit that is made right now. Raises LeaseLost if another run took over."""
    edges.lease.assert_held()
    return target


@dataclass(slots=True)
class _Writing:
    """One write of a log, from its last commit on. `log`: None if there is none yet."""

    edges: Edges
    target: Target
    logs: Logs
    log: _Log | None
    name: TableId
    lift: Lift | None = field(default=None, init=False)
    read_to: ReadTo | None = field(default=None, init=False)  # after the last row
    began: bool = field(default=False, init=False)  # whether the RESET of a log that begins anew is written
    _waiting: list[pa.RecordBatch] = field(default_factory=list, init=False)  # parts alike, that are no rows yet
    _of: Copied | Changed | None = field(default=None, init=False)  # what they are alike to
    _rows: list[pa.Table] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _files: list[Written] = field(default_factory=list, init=False)
    _count: int = field(default=0, init=False)  # the rows since the last commit

    def take(self, part: Copied | Changed | Altered, reading: Reading) -> None:
        """Write the next part of the changelog, sooner or later."""
        if isinstance(part, Altered):
            self._follow(part.followed.after)
            self._collect()
            assert self.log is not None  # noqa: S101 - a log begins with a copy
            self._add(log_rows.ddl_row(part, self.log.schema))
            self.read_to = ReadTo(part.followed.place, log=reading.name)
            return
        if isinstance(part, Copied) and not self.began:
            self._begin(part, reading)
        if not part.rows.num_rows:
            return
        first = log_rows.place_of_first(part)
        is_boundary = isinstance(part, Changed) and self.read_to is not None and self.read_to.place != first
        if is_boundary and self._count >= COMMIT_ROWS:
            self._commit()
        self._follow(part.schema)
        if self._of is None or not _is_alike(self._of, part):
            self._collect()
            self._of = part
        self._waiting.append(part.rows)
        self._bytes += part.rows.nbytes
        self._count += part.rows.num_rows
        self.read_to = log_rows.position_after(part, reading.name)
        if self._bytes >= FILE_BYTES:
            self._flush()

    def end(self, reached: ReadTo) -> _Log:
        """Commit what is not committed. Without rows there is no commit."""
        if self._count:
            self.read_to = reached
            self._commit()
        assert self.log is not None  # noqa: S101 - a log begins with a copy, which has a row of its own
        return self.log

    def _begin(self, part: Copied, reading: Reading) -> None:
        """Make the log, or go on with it behind rows that do not count any more."""
        self.began = True
        if self.log is None:
            schema = new_log(self.name, part.schema)
            self.target.types(schema)  # raises UnsupportedTable if the catalog cannot have the name
            self.log = _Log(_committing(self.edges, self.target).create(schema, begun(schema)), schema)
        else:
            self._lift_to(followed(self.log.schema, part.schema))
        self._add(log_rows.reset_row(part.place, part.schema, self.log.schema, reading.why))
        self.read_to = ReadTo(part.place, log=reading.name)

    def _follow(self, definition: TableSchema) -> None:
        """Let the log have columns for this definition. Rows that wait are committed before, without them."""
        assert self.log is not None  # noqa: S101 - a log begins with a copy
        after = followed(self.log.schema, definition)
        if after is not self.log.schema:
            if self._count:
                self._commit()
            self._lift_to(after)

    def _lift_to(self, after: TableSchema) -> None:
        assert self.log is not None  # noqa: S101 - the caller has one
        if after is not self.log.schema:
            self.lift = lift_of(self.log.schema, after)
            self.log.schema = after

    def _add(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._count += rows.num_rows

    def _collect(self) -> None:
        """Make rows of the parts that wait."""
        part, waiting = self._of, self._waiting
        self._of, self._waiting = None, []
        if part is None or self.log is None:
            return
        rows = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in waiting])
        if isinstance(part, Copied):
            self._rows.append(log_rows.copied_rows(rows, part.schema, part.place, self.log.schema))
        else:
            reread = log_rows.is_reread(part)
            self._rows.append(log_rows.changed_rows(rows, part.schema, self.log.schema, reread=reread))

    def _flush(self) -> None:
        """Write a file of all rows in memory."""
        self._collect()
        if not self._rows:
            return
        assert self.log is not None  # noqa: S101 - a log begins with a copy
        rows = log_rows.sum_of(self._rows)
        first = count_of(self.log.staged.progress) + 1 + self._count - rows.num_rows
        rows = log_rows.numbered(rows, first, dt.datetime.now(dt.UTC))
        staged = self.log.staged
        is_new = staged.published is None  # then it has its columns from its creation, and no lift waits
        writer = self.target.writer(self.name) if is_new else self.logs.writer(staged, self.lift)
        self._files.append(writer.write(rows))
        self._rows, self._bytes = [], 0

    def _commit(self) -> None:
        """Commit all rows, up to `read_to`, and let readers see them."""
        self._flush()
        assert self.log is not None and self.read_to is not None  # noqa: S101, PT018 - there are rows
        log, edges = self.log, self.edges
        progress = written(log.staged.progress, self.read_to, inserted=self._count, steps=self._count)
        progress = replace(progress, fingerprint=log.schema.fingerprint)
        properties = {DEFINITION: as_property(log.schema), READ_TO: str(self.read_to)}
        target = _committing(edges, self.target)
        if log.staged.published is None:
            staged = target.commit_wave(log.staged, self._files, progress)
            audited = replace(staged, progress=staged.progress.audited())
            staged = target.publish(audited, log.schema, properties)
            log.staged = replace(staged, progress=audited.progress.published())
        else:
            log.staged = self.logs.append(log.staged, self._files, progress, properties, self.lift)
        log.writes += 1
        self.lift, self._files, self._count = None, [], 0


def _is_alike(one: Copied | Changed, other: Copied | Changed) -> bool:
    """Whether two parts become rows in the same way."""
    if type(one) is not type(other) or one.schema.fingerprint != other.schema.fingerprint:
        return False
    if isinstance(one, Changed) and isinstance(other, Changed):
        return log_rows.is_reread(one) == log_rows.is_reread(other)
    return True
