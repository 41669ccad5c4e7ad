"""Writes the history of a table into the lake, part by part. Readers see each commit as soon as it is made.

Each commit carries the position in the changelog up to which it goes, so a run that dies goes on exactly there. The
commit that follows DDL carries the position after the DDL.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions import companion, history_table
from lakeingest.core.companions.history_table import FROM_POSITION, IS_CURRENT, followed
from lakeingest.core.companions.validity import Ended, Moment
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.change import COMMITTED_AT, DELETED, ORDER, PLACE
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.target import Effects, Staged, Target, Written
from lakeingest.pipeline.changelog.reading import Changed, Copied, Part
from lakeingest.pipeline.companions.history_rows import (
    Changes,
    Folded,
    TimeOf,
    all_ended,
    copied,
    named_in_history,
    rows_with_keys,
    value_fields,
)
from lakeingest.rows import table_schema
from lakeingest.spool.followed import Altered
from lakeingest.state.history_definitions import keep_history, property_of

CHANGES = 100_000  # change rows of one commit, if a transaction ends among them
MOST_CHANGES = 1_000_000  # change rows of one commit, also if a transaction has more
_COPIED = 200_000  # rows of a copy in one file


@dataclass(slots=True)
class HistoryTable:
    """The history of a table in the lake, at its last commit, which readers see.

    `latest`: the greatest time in it, in µs since 1970. `assert_held`: raises LeaseLost if another run took over; it
    is called just before each commit, and before each document is written into the `state` folder.
    """

    target: Target
    state: File
    assert_held: Callable[[], None]
    staged: Staged
    schema: TableSchema
    latest: int

    @property
    def _committing(self) -> Target:
        """The target, for a commit that is made right now. Raises LeaseLost if another run took over."""
        self.assert_held()
        return self.target

    def write(self, folded: Folded, read_to: ReadTo, key: str) -> None:
        """Commit these versions, if there are any. `key`: a column of the table's key.

        `read_to`: the position up to which the history goes with this commit.
        """
        if folded.rows.num_rows:
            files = self.files(folded.rows, folded.ended, key)
            self.commit(files, read_to, folded.begun, folded.latest, folded.ended.num_rows)

    def files(self, rows: pa.Table, ended: pa.Table, key: str = FROM_POSITION) -> list[Written]:
        """Write versions to files, to which nothing refers yet.

        `ended`: those of `rows` that the lake has as current versions. `key`: a column whose least and greatest value
        in the replaced rows limit where the lake is searched for these rows.
        """
        by_changes = self.target.capabilities.merges_by == "changes"
        replaced = rows if by_changes else ended  # a merge by changes itself counts which rows are new
        limits = pc.min_max(replaced[key])
        columns = tuple(dict.fromkeys((key, FROM_POSITION)))
        # all rows in the lake that are replaced are current; a merge by changes looks for the new rows, too
        merger = self.target.merger(self.staged, columns, (limits["min"].as_py(), limits["max"].as_py()), IS_CURRENT)
        files = [merger.replace(replaced.append_column(DELETED, _false(replaced)))] if replaced.num_rows else []
        return [*files, merger.write(rows.append_column(DELETED, _false(rows)) if by_changes else rows)]

    def end_all(self, moment: Moment, by: Ended, read_to: ReadTo) -> None:
        """Let all current versions end at this moment, in one commit; no commit if there are none."""
        ended = [all_ended(rows, moment, by, self.schema) for rows in self.current_rows(None, None)]
        if ended:
            rows = pa.concat_tables(ended)
            self.commit(self.files(rows, rows), read_to, 0, max(self.latest, moment.at), rows.num_rows)

    def commit(self, parts: list[Written], read_to: ReadTo, begun: int, latest: int, ended: int = 0) -> None:
        """Commit files, let readers see them, and note the position and the greatest time.

        `begun`: how many versions the lake does not have yet. `ended`: how many of its versions get an end. Raises
        StateUnreadable if the lake lacks one of the versions that get an end.
        """

        def progress_after(effects: Effects) -> Progress:
            """The progress that the commit carries. Called with the effects, just before the commit is made."""
            if effects.updated != ended:
                raise StateUnreadable(
                    f"{self.schema.table} has {effects.updated} of {ended} versions that have ended now; rename or drop"
                    " it, and the next run begins it anew"
                )
            self.assert_held()
            return history_table.at(companion.written(self.staged.progress, read_to, begun), latest)

        if parts:
            staged, _ = self.target.commit_merge(self.staged, parts, progress_after)
        else:
            staged = self._committing.mark(self.staged, progress_after(Effects(0, 0, 0)))
        self.latest = latest
        self.show(staged)

    def current(self, keys: pa.Table) -> pa.Table:
        """The current versions of these keys, with all columns of the history."""
        bounds = pc.min_max(keys[keys.column_names[0]])
        limits = bounds["min"].as_py(), bounds["max"].as_py()
        found = [rows_with_keys(rows, keys) for rows in self.current_rows(keys.column_names[0], limits)]
        return pa.concat_tables([table_schema(self.schema).empty_table(), *found])

    def current_rows(self, first: str | None, bounds: tuple[Any, Any] | None) -> Iterator[pa.Table]:
        """All current versions, or those whose value of the column `first` may be within the bounds."""
        if self.staged.published is None:
            return
        fields = table_schema(self.schema)
        names = [name for name in fields.names if name != first]
        names = names if first is None else [first, *names]  # `first` leads: the bounds are of the first column
        readers = self.target.batch_readers(self.schema.table, self.staged.published, names, bounds, IS_CURRENT)
        if readers is None:
            raise StateUnreadable(
                f"{self.schema.table} is not as lakeingest wrote it; rename or drop it, and the next run begins it anew"
            )
        for reader in readers:
            for batch in reader.batches():
                rows = batch.filter(batch[IS_CURRENT])
                if rows.num_rows:
                    yield rows.select(fields.names).cast(fields)

    def follow(
        self, after: TableSchema, origins: Mapping[str, str | None], fills: Mapping[str, object], read_to: ReadTo | None
    ) -> None:
        """Bring the columns to those of the table's definition `after`, in one commit; no commit if they are the same.

        The other arguments are those of `core.companions.history_table.followed`. `read_to`: the position after the
        DDL; None: the history stays where it is.
        """
        step = followed(self.schema, after, origins, fills)
        if step is None:
            return
        self.target.types(step.after)  # raises UnsupportedTable before anything is written
        rewritten = [task.rewrite() for task in self.target.rewriters(self.staged, step)]
        self.assert_held()
        keep_history(self.state, step.after)  # before the commit, so that the columns are always known
        progress = companion.with_columns(self.staged.progress, step.after.fingerprint, read_to)
        staged = self._committing.lift(self.staged, step, history_table.at(progress, self.latest), rewritten)
        self.schema = step.after
        self.show(staged)

    def show(self, staged: Staged) -> None:
        """Let readers see a commit of the history."""
        audited = replace(staged, progress=staged.progress.audited())
        published = self._committing.publish(audited, self.schema, property_of(self.schema))
        self.staged = replace(published, progress=published.progress.published())


def _false(rows: pa.Table) -> pa.Array:
    """The column DELETED for these rows: a history deletes no row, so it is False in each."""
    return pa.repeat(pa.scalar(value=False), rows.num_rows)


@dataclass(slots=True)
class HistoryWriting:
    """Takes the parts of a changelog in order, and writes the versions that they begin or end.

    `since`: the position up to which the history goes. If it is None, the history begins anew: its current versions end
    in a gap. `log`: the name of the changelog. `time_of`: the time of a place; it is asked once for each place.
    """

    history: HistoryTable
    log: str
    time_of: TimeOf
    since: ReadTo | None
    _waiting: list[Changed] = field(default_factory=list, init=False)
    _files: list[Written] = field(default_factory=list, init=False)
    _copied: list[Copied] = field(default_factory=list, init=False)
    _copied_rows: int = field(default=0, init=False)
    _has_begun: bool = field(default=False, init=False)
    _begins_anew: bool = field(init=False)
    _before: ReadTo | None = field(init=False)  # the position of the history when this writing began

    def __post_init__(self) -> None:
        self.time_of = cache(self.time_of)
        self._begins_anew = self.since is None
        self._before = companion.read_to_of(self.history.staged.progress)

    def take(self, part: Part) -> None:
        """Take the next part. It may be committed later, by a later part or by `finish`."""
        self._begin(part)
        part = named_in_history(part)
        match part:
            case Copied():
                self._copy(part)
            case Altered():
                self._flush()
                self._alter(part)
            case Changed():
                self._end_copy()
                if self._waiting and self._waiting[0].schema.fingerprint != part.schema.fingerprint:
                    self._flush()
                if not self._waiting:
                    self._know(part.schema)
                self._waiting.append(part)
                self._flush_if_many()

    def finish(self, reached: ReadTo) -> None:
        """Commit what waits. `reached`: the position after all parts."""
        self._begin(None)  # if there was no part
        self._end_copy()
        if self._waiting:
            self._commit(self._waiting, reached)
            self._waiting = []
        committed = companion.read_to_of(self.history.staged.progress)
        # the table has no rows: nothing was committed, but the next run is to go on from here
        has_only_begun = self.history.staged.published is None or (self._begins_anew and committed == self._before)
        if has_only_begun:
            self.history.commit([], reached, 0, self.history.latest)

    def _begin(self, first: Part | None) -> None:
        """Before the first part, if the history begins anew: let all current versions end just after its last position.

        The versions were valid at that position. Nobody knows how the rows were after it. If the new copy is as of the
        same place, the versions end before the copy, so that no row is there twice as of the place.
        """
        before = self._before
        if not self._has_begun and self.since is None and before is not None:
            position = f"{before.place}~{Ended.GAP}"  # `~` sorts after all positions of the place
            if isinstance(first, Copied):
                position = min(position, f"{first.place}.rows")  # before the positions that `_write_copied` gives
            self.history.end_all(Moment(position, self.history.latest + 1), Ended.GAP, before)
        self._has_begun = True

    def _know(self, schema: TableSchema) -> None:
        """Bring the columns of the history to this definition, if no DDL has done that."""
        self.history.follow(schema, {name: name for name in schema.names}, {}, None)

    # a copy

    def _copy(self, part: Copied) -> None:
        """Take rows of a copy: write many rows to a file, and commit all files after the last part of the copy."""
        is_first_part = self.since is None and not self._copied and not self._copied_rows
        if is_first_part:
            self._know(part.schema)
        if part.rows.num_rows:  # a copy without rows is one part without rows
            self._copied.append(part)
        if sum(waiting.rows.num_rows for waiting in self._copied) >= _COPIED:
            self._write_copied()
        if part.last:
            self._end_copy()

    def _write_copied(self) -> None:
        """Write the waiting rows of a copy to a file."""
        schema, place = self._copied[0].schema, self._copied[0].place
        rows = pa.Table.from_batches([part.rows for part in self._copied])
        at = max(self.history.latest, self.time_of(place))
        begins = range(self._copied_rows, self._copied_rows + rows.num_rows)
        moments = [Moment(f"{place}.rows.{number:010d}-{self.log}", at) for number in begins]
        versions = copied(rows, schema, self.history.schema, moments)
        self._files += self.history.files(versions, versions.slice(0, 0))  # no row: a copy ends no version
        self._copied_rows += rows.num_rows
        self.since, self.history.latest = ReadTo(place, log=self.log), at  # for the commit in `_end_copy`
        self._copied = []

    def _end_copy(self) -> None:
        """Commit the copy, if one waits."""
        if self._copied:
            self._write_copied()
        if self._files and self.since is not None:
            self.history.commit(self._files, self.since, self._copied_rows, self.history.latest)
            self._files = []

    # changes

    def _flush(self) -> None:
        """Commit all changes that wait."""
        self._end_copy()
        if self._waiting:
            self._commit(self._waiting, _last(self._waiting, self.log))
            self._waiting = []

    def _flush_if_many(self) -> None:
        """Commit the changes that wait if they are many, up to the end of a transaction if one ends among them."""
        count = sum(part.rows.num_rows for part in self._waiting)
        if count < CHANGES:
            return
        whole, rest = _cut(self._waiting)
        if whole:
            last = _last(whole, self.log)
            # the position is the end of the last transaction of `whole`; a row that was read again has its own position
            self._commit(whole, last if last.reread is not None else ReadTo(last.place, log=self.log))
            self._waiting = rest
        elif count >= MOST_CHANGES:
            self._flush()

    def _commit(self, changed: list[Changed], read_to: ReadTo) -> None:
        """Commit the versions that these changes begin or end; no commit is made if there are none.

        All changes have the same definition of the table. `read_to`: the position after them.
        """
        key = changed[0].schema.key
        own = value_fields(self.history.schema)
        fields = pa.schema([own.field(name) for name in key])
        keys = (
            pa.Table.from_batches([part.rows.select(list(key)).cast(fields) for part in changed])
            .group_by(list(key))
            .aggregate([])  # each key once
        )
        changes = Changes(self.history.schema, self.history.current(keys), changed, self.log, self.time_of)
        self.history.write(changes.folded(self.history.latest), read_to, key[0])
        self.since = read_to

    # DDL

    def _alter(self, part: Altered) -> None:
        """End all current versions at a TRUNCATE. At other DDL, bring the columns of the history to its definition."""
        ddl = part.followed
        read_to = replace(ddl.read_to, log=self.log)
        if part.alteration.empties:
            at = max(self.history.latest, round(ddl.committed_at.timestamp() * 1_000_000))
            self.history.end_all(Moment(str(read_to), at, ddl.gtid), Ended.TRUNCATE, read_to)
        else:
            origins = dict(zip(ddl.after.names, ddl.origins, strict=True))
            fills = {name: value.as_py() for name, value in ddl.fills.items()}
            self.history.follow(ddl.after, origins, fills, read_to)
        self.since = read_to


def _last(changed: list[Changed], log: str) -> ReadTo:
    """The position of the last of these changes."""
    rows = changed[-1].rows
    [row] = rows.select([*ORDER, COMMITTED_AT]).slice(rows.num_rows - 1).to_pylist()
    *place, ordinal = (row[name] for name in ORDER)
    if row[COMMITTED_AT] is None:
        return ReadTo(Place(*place), reread=ordinal, log=log)
    return ReadTo(Place(*place), ordinal, log=log)


def _cut(changed: list[Changed]) -> tuple[list[Changed], list[Changed]]:
    """Two parts of these changes: those before their last transaction, and those of their last transaction."""
    last = _last(changed, "").place
    for index in reversed(range(len(changed))):
        part = changed[index]
        places = zip(*(part.rows[name].to_pylist() for name in PLACE), strict=True)
        begin = next((row for row, place in enumerate(places) if Place(*place) == last), part.rows.num_rows)
        if begin:  # the last transaction begins within this part, or with the next one
            halves = [replace(part, rows=part.rows.slice(0, begin)), replace(part, rows=part.rows.slice(begin))]
            before, after = ([half] if half.rows.num_rows else [] for half in halves)
            return [*changed[:index], *before], [*after, *changed[index + 1 :]]
    return [], changed
