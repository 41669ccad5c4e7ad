"""Tables to which runs only add rows: the changelogs of copies, and the list of transactions.

A commit adds rows, and readers see them with it. Its progress has the position up to which the rows go. The definition
of the table is a property that the same commit sets.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import begun, read_to_of, written
from lakeingest.core.companions.log_columns import LOGGED_AT, NUMBER
from lakeingest.core.copies.counted import count_of
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable
from lakeingest.lake.formats import logs_of, open_companions
from lakeingest.lake.logs import Logs
from lakeingest.lake.target import Staged, Target, Written
from lakeingest.pipeline.run.edges import Edges
from lakeingest.rows import INSTANT
from lakeingest.state.definition import as_property, from_property

DEFINITION, READ_TO = "lakeingest.definition", "lakeingest.read_to"  # properties of each of these tables
COLUMNS, BEGINS = "lakeingest.columns", "lakeingest.begins"  # `Log.columns` as JSON, and `Log.begins`
TIDY_EVERY = 16  # of so many writes of a table, one looks whether files are to be combined or removed


@dataclass(slots=True)
class Log:
    """A table to which runs only add rows: its last commit, its definition, and how often this run has written it.

    `columns`: the column of the log for each column of the table whose changes it has, as of its last row.
    `begins`: the place of its last RESET, as a text that sorts; '' if it has none.
    """

    staged: Staged
    schema: TableSchema
    columns: Mapping[str, str] = field(default_factory=dict)
    begins: str = ""
    writes: int = 0

    @property
    def name(self) -> TableId:
        """The name of the table."""
        return self.schema.table


class LogTables:
    """Opens, makes and writes tables to which runs only add rows. Each commit asserts that the lease is held."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._target: Target = open_companions(edges.config)
        logs = logs_of(edges.config, self._target)
        assert logs is not None  # noqa: S101 - pipeline.yml is refused otherwise
        self._logs: Logs = logs

    def open(self, name: TableId) -> Log | None:
        """The table at its last commit; None if there is none. A table that was never published is dropped.

        Raises NotOurTable if the table is not as this version writes it.
        """
        staged = self._committing.recover(name)
        if staged is not None and staged.published is None:
            self._committing.discard(name)
            return None
        if staged is None:
            return None
        properties = self._target.properties(name)
        schema = from_property(properties.get(DEFINITION, ""))
        is_ours = schema is not None and schema.fingerprint == staged.progress.fingerprint
        is_ours = is_ours and COLUMNS in properties and BEGINS in properties
        if schema is None or not is_ours or read_to_of(staged.progress) is None:
            raise NotOurTable(f"{name} is not as this version of lakeingest writes it; rename or drop it")
        return Log(staged, schema, json.loads(properties[COLUMNS]), properties[BEGINS])

    def make(self, schema: TableSchema) -> Log:
        """Make the table. Readers see it with its first rows. Raises UnsupportedTable if the name is refused."""
        self._target.types(schema)  # raises UnsupportedTable if the catalog cannot have the name
        return Log(self._committing.create(schema, begun(schema)), schema)

    def write(self, log: Log, rows: pa.Table, first: int, lift: Lift | None = None) -> Written:
        """Write a file of these rows, for `commit`, and number them.

        `first`: how many rows were written between the last commit and these rows; the numbers go on after them.
        """
        count = rows.num_rows
        number = count_of(log.staged.progress) + 1 + first
        rows = rows.append_column(NUMBER, pa.array(np.arange(number, number + count)))
        rows = rows.append_column(LOGGED_AT, pa.repeat(pa.scalar(dt.datetime.now(dt.UTC), INSTANT), count))
        is_new = log.staged.published is None  # then it has its columns from its creation, and no lift waits
        return (self._target.writer(log.name) if is_new else self._logs.writer(log.staged, lift)).write(rows)

    def commit(self, log: Log, files: Sequence[Written], count: int, read_to: ReadTo, lift: Lift | None = None) -> None:
        """Commit these files with so many rows, up to this position, and let readers see them."""
        progress = written(log.staged.progress, read_to, inserted=count, steps=count)
        progress = replace(progress, fingerprint=log.schema.fingerprint)
        columns = json.dumps(dict(log.columns), ensure_ascii=False)
        properties = {READ_TO: str(read_to), COLUMNS: columns, BEGINS: log.begins}
        is_new = log.staged.published is None
        if lift is not None or is_new:  # else the table has the property
            properties[DEFINITION] = as_property(log.schema)
        target = self._committing
        if is_new:
            staged = target.commit_wave(log.staged, files, progress)
            audited = replace(staged, progress=staged.progress.audited())
            published = target.publish(audited, log.schema, properties)
            log.staged = replace(published, progress=audited.progress.published())
        else:
            log.staged = self._logs.append(log.staged, files, progress, properties, lift)
        log.writes += 1

    def tidy(self, log: Log, *, now: bool = False) -> None:
        """Remove rows that are too old, and combine small files.

        It is called after each write. Without `now`, it does this only once in TIDY_EVERY writes.
        """
        if not now and log.writes % TIDY_EVERY != 1:  # 1: so the first write of each run is one of those
            return
        settings, progress = self._edges.config.changelog, log.staged.progress
        read_to = read_to_of(progress)
        assert read_to is not None  # noqa: S101 - it was written
        oldest = dt.datetime.now(dt.UTC) - settings.kept_in_table
        self._edges.lease.assert_held()
        log.staged = self._logs.remove_before(
            log.staged, LOGGED_AT, oldest.date(), lambda rows: written(progress, read_to, inserted=0, deleted=rows)
        )
        log.staged = self._logs.combine(log.staged)

    @property
    def _committing(self) -> Target:
        """The target, for a commit that is made right now. Raises LeaseLost if another run took over."""
        self._edges.lease.assert_held()
        return self._target
