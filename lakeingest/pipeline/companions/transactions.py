"""Writes the list of transactions (`core.companions.transaction_list`), from the change rows that the spool holds."""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.config.companions import TRANSACTIONS_KEY
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import Standing, read_to_of
from lakeingest.core.companions.transaction_list import GAP, ROWS, TABLES, transactions_table
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.pipeline.companions.log_tables import Log, LogTables
from lakeingest.pipeline.run.edges import Edges
from lakeingest.rows import INSTANT, place_texts
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.held import Held
from lakeingest.spool.manifest import Manifest

COMMIT_ROWS = 200_000  # rows of a commit, about
# Of a table in a transaction: its number of change rows, and its entry in the JSON text of the column TABLES
_COUNT, _FRAGMENT = "_lakeingest_count", "_lakeingest_fragment"
_GROUP = (*change.PLACE, change.COMMITTED_AT, change.GTID)
_FIELDS = pa.schema(
    [
        (change.EPOCH, pa.int32()),
        (change.FILE, pa.int64()),
        (change.POS, pa.int64()),
        (change.COMMITTED_AT, INSTANT),
        (change.GTID, pa.string()),
        (_FRAGMENT, pa.string()),
        (_COUNT, pa.int64()),
    ]
)


class _Lost(Exception):
    """A file with change rows is not there any more."""


@dataclass(slots=True)
class Transactions:
    """The list of transactions of a run's tables, in this database.

    `begin_of`: a place, as a text that sorts. After this place, the changelog of a table has all changes as rows.
    """

    edges: Edges
    database: str
    begin_of: Callable[[TableId], str]
    _tables: LogTables = field(init=False)
    _log: Log | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tables = LogTables(self.edges)

    @property
    def key(self) -> str:
        """The key of pipeline.yml that asks for the list."""
        return TRANSACTIONS_KEY

    @property
    def name(self) -> TableId:
        """The name of the list as a table."""
        return transactions_table(self.database).table

    def standing(self) -> Standing | None:
        """The position of the last commit; None if there is no list yet."""
        self._log = self._tables.open(self.name)
        read_to = None if self._log is None else read_to_of(self._log.staged.progress)
        return None if self._log is None or read_to is None else Standing(self._log.staged.version, read_to)

    def write(self, since: ReadTo | None, to: Place, tables: Collection[TableId]) -> Standing:
        """Write the transactions of these tables after `since` and up to the place `to`.

        If these transactions are not stored any more, if a file of their rows is lost, or if there is no list yet, a
        row says that they are not in the list. Raises StateUnreadable if a file of their rows is damaged.
        """
        changelog = StoredChangelog(self.edges.state / "spool")
        held = changelog.held()
        if held is None:
            raise StateUnreadable("there is no spool")
        reached = ReadTo(to, log=held.name)
        log = self._log or self._tables.make(transactions_table(self.database))
        if since is None or since.log != held.name or since.place < held.start:
            self._add(log, _gap(to), reached)
        else:
            waiting: list[pa.Table] = []
            try:
                for rows, stop in self._transactions(held, since.place, to, tables):
                    waiting.append(rows)
                    if sum(part.num_rows for part in waiting) >= COMMIT_ROWS:
                        self._add(log, pa.concat_tables(waiting), ReadTo(min(stop, to), log=held.name))
                        waiting = []
            except _Lost:
                waiting.append(_gap(to))
            if waiting:
                # with `promote_options`, because the row of a gap has fewer columns
                self._add(log, pa.concat_tables(waiting, promote_options="default"), reached)
        self._log = log
        self._tables.tidy(log)
        return Standing(log.staged.version, reached)

    def tidy(self) -> int | None:
        """Remove the rows of days that are too old, and combine small files. Returns the new version, if any."""
        if self._log is None:
            return None
        version = self._log.staged.version
        self._tables.tidy(self._log, now=True)
        return None if self._log.staged.version == version else self._log.staged.version

    def _add(self, log: Log, rows: pa.Table, read_to: ReadTo) -> None:
        """Commit these rows of the list, up to this position."""
        file = self._tables.write(log, rows, 0)  # 0: the commit has no rows before these
        self._tables.commit(log, [file], rows.num_rows, read_to)

    def _transactions(
        self, held: Held, since: Place, to: Place, tables: Collection[TableId]
    ) -> Iterator[tuple[pa.Table, Place]]:
        """The rows of the list for each segment that has some, and the end of the segment."""
        for segment in held.segments:
            stop = segment.stop.place(held.opened.epoch)
            if stop <= since or segment.start.place(held.opened.epoch) >= to:
                continue
            groups = [*self._changed(segment, tables), *self._altered(segment, tables)]
            rows = _listed(pa.concat_tables(groups), since, to) if groups else None
            if rows is not None and rows.num_rows:
                yield rows, stop

    def _changed(self, segment: Manifest, tables: Collection[TableId]) -> Iterator[pa.Table]:
        """For each table with changes in the segment: its transactions, with the number of its change rows in each."""
        for table in tables:
            entry = segment.tables.get(table)
            if entry is None:
                continue
            file_name, _ = entry
            path = self.edges.state / "spool" / file_name
            try:
                with files.parquet(path) as opened:
                    rows = opened.read(columns=list(_GROUP))
            except FileNotFoundError as error:
                raise _Lost from error
            except (OSError, pa.ArrowException) as error:
                raise StateUnreadable(
                    f"{path} of the spool cannot be read: {error}; if it stays so, rename or drop {self.name}, and the"
                    " next run begins the list anew, with a gap"
                ) from error
            counted = rows.group_by(list(_GROUP), use_threads=False).aggregate([([], "count_all")])
            # earlier transactions are in the copy with which the changelog begins
            counted = counted.filter(pc.greater(place_texts(counted), self.begin_of(table)))
            counts = counted["count_all"].cast(pa.int64())
            names = pa.repeat(json.dumps(str(table), ensure_ascii=False), counted.num_rows)
            fragments = pc.binary_join_element_wise(names, counts.cast(pa.string()), ": ")
            columns = [*(counted[name] for name in _GROUP), fragments, counts]
            yield pa.table(dict(zip(_FIELDS.names, columns, strict=True))).cast(_FIELDS)

    def _altered(self, segment: Manifest, tables: Collection[TableId]) -> Iterator[pa.Table]:
        """The DDL of these tables in the segment. Each DDL counts as one row, as in the changelog of its table."""
        for table, followed in segment.followed.items():
            place = followed.place
            if table in tables and str(place) > self.begin_of(table):
                fragment = f"{json.dumps(str(table), ensure_ascii=False)}: 1"
                values = (place.epoch, place.file, place.pos, followed.committed_at, followed.gtid, fragment, 1)
                yield pa.Table.from_pylist([dict(zip(_FIELDS.names, values, strict=True))], _FIELDS)


def _listed(groups: pa.Table, since: Place, to: Place) -> pa.Table:
    """One row for each transaction after `since` and up to `to`, in the order of their places."""
    by_place = groups.group_by(list(_GROUP), use_threads=False).aggregate([(_FRAGMENT, "list"), (_COUNT, "sum")])
    places = place_texts(by_place)
    is_new = pc.and_(pc.greater(places, str(since)), pc.less_equal(places, str(to)))
    joined = pc.binary_join(by_place[f"{_FRAGMENT}_list"], ", ")
    rows = pa.table(
        {
            change.POSITION: places,
            change.GTID: by_place[change.GTID],
            change.COMMITTED_AT: by_place[change.COMMITTED_AT],
            TABLES: pc.binary_join_element_wise("{", joined, "}", ""),
            ROWS: by_place[f"{_COUNT}_sum"],
            GAP: pa.repeat(pa.scalar(False), by_place.num_rows),
        }
    )
    return rows.filter(is_new).sort_by(change.POSITION)


def _gap(place: Place) -> pa.Table:
    """The row of a gap: the list lacks the transactions that come after its earlier rows, up to this place."""
    return pa.table({change.POSITION: [str(place)], GAP: [True]})
