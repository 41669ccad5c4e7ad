"""The history of a table, beside its copy: each version of each row, and where it begins and ends (`history: scd2`)."""

import time
from dataclasses import dataclass, field

from lakeingest.config.companions import HISTORY_KEY
from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.companion import Standing, begun, is_companion, read_to_of
from lakeingest.core.companions.history_table import described, history_id, in_history, latest_of, new_history
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable, StateUnreadable
from lakeingest.lake.formats import open_companions
from lakeingest.lake.target import Staged, Target
from lakeingest.pipeline.companions.companion import Reading
from lakeingest.pipeline.companions.history_writing import HistoryTable, HistoryWriting
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.history_definitions import history_with, keep_history


@dataclass(slots=True)
class Histories:
    """`pipeline.companions.companion.Companion` for histories."""

    edges: Edges
    key: str = field(default=HISTORY_KEY, init=False)
    tidies: bool = field(default=False, init=False)
    _target: Target | None = field(default=None, init=False)
    _known: dict[TableId, HistoryTable] = field(default_factory=dict, init=False)  # by the table of the source

    def is_wanted(self, table: TableRun) -> bool:
        """Whether pipeline.yml asks for a history of the table."""
        config = self.edges.config
        return config.tables.history_of(table.id, config.history) == "scd2"

    def table_of(self, table: TableId) -> TableId:
        """The name of the history."""
        return history_id(table)

    def standing(self, table: TableRun) -> Standing | None:
        """How far the history is; None if there is none. If readers do not see its last commit yet, publishes it."""
        history = self._loaded(table)
        read_to = None if history is None else read_to_of(history.staged.progress)
        return None if history is None or read_to is None else Standing(history.staged.version, read_to)

    def write(self, table: TableRun, reading: Reading) -> Standing:
        """Write all versions that begin or end. If the history begins anew, all current versions end in a gap."""
        # while the history is written, it is not in `_known`: so after an error it is loaded again
        history = self._known.pop(table.id, None) or self._loaded(table) or self._created(table)

        def time_of(place: Place) -> int:
            known = reading.changelog.time_of(place)
            # if nobody knows the time any more, take the present: by now the row certainly has these values
            return round(time.time() * 1_000_000) if known is None else known

        writing = HistoryWriting(history, reading.name, time_of, reading.since)
        for part in reading.parts():
            writing.take(part)
        writing.finish(reading.reached)
        self._known[table.id] = history
        return Standing(history.staged.version, reading.reached)

    def tidy(self, table: TableRun, *, now: bool = False) -> None:
        """Nothing is to be done: no version is ever removed."""

    def _loaded(self, table: TableRun) -> HistoryTable | None:
        """The history at its last commit; None if there is no history yet.

        If a run died before it published that commit, the commit is published here. Raises NotOurTable if the table
        with the history's name is a copy.
        """
        if table.id in self._known:
            return self._known[table.id]
        id_ = history_id(table.id)
        self.edges.lease.assert_held()
        staged = self._lake.recover(id_)
        if staged is None:
            return None
        if not is_companion(staged.progress):
            raise NotOurTable(f"{id_} is a copy of a table, and no history of {table.id}; rename or drop it")
        history = self._with_columns(table.schema, staged)
        # a run died before its publish; a new history has no position, and stays hidden until its first publish
        if not staged.visible and read_to_of(staged.progress) is not None:
            history.show(staged)
        self._known[table.id] = history
        return history

    def _with_columns(self, of: TableSchema, staged: Staged) -> HistoryTable:
        """The history at this commit. `of`: the table's definition. Raises StateUnreadable if the columns are lost."""
        progress = staged.progress
        properties = {} if staged.published is None else self._lake.properties(progress.table)
        schema = history_with(self.edges.state, progress.table, progress.fingerprint, properties)
        if schema is None:
            raise StateUnreadable(
                f"{progress.table}: nobody knows its columns any more; rename or drop it, and the next run makes a new"
                " one"
            )
        return self._at(staged, described(schema, in_history(of)))

    def _created(self, table: TableRun) -> HistoryTable:
        """Make a history without rows in the lake. No reader sees it yet."""
        schema = new_history(in_history(table.schema))
        self._lake.types(schema)  # raises UnsupportedTable if the catalog cannot have the name
        keep_history(self.edges.writing, schema)
        self.edges.lease.assert_held()
        staged = self._lake.create(schema, begun(schema))
        return self._at(staged, schema)

    def _at(self, staged: Staged, schema: TableSchema) -> HistoryTable:
        """The history at this commit, with these columns."""
        edges = self.edges
        return HistoryTable(
            self._lake, edges.state, edges.lease.assert_held, staged, schema, latest_of(staged.progress)
        )

    @property
    def _lake(self) -> Target:
        """The target that the histories are written to. It is opened at the first use."""
        if self._target is None:
            self._target = open_companions(self.edges.config, self.edges.executors.open)
        return self._target
