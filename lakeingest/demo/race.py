"""The race of a snapshot, on a real server: a commit is in the binlog before read views contain it.

A reader that takes File and Position before it opens its read view counts every commit before this position as
contained. A commit that is written and not visible yet is missing in the view, and is never read again: its row is
lost. lakeingest takes the executed GTIDs, which the view surely contains, and applies later changes from the binlog.
Both low watermarks are read here for the same read views, and are judged by the binlog.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lakeingest.commands.report import Report
from lakeingest.core.binlog.position import FilePosition, GtidSet, Low, Position, file_name, is_before
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.sample import SampleSource
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.chunk_reader import Hooks, read_chunk
from lakeingest.mysql.connection import connect, written_position

SNAPSHOTS = 2_000
_AT_ONCE = 100  # snapshots that are taken before the binlog is read
_WRITERS = 4
_PAUSE = 0.002  # of a writer, so that the table stays small
_BREATH = 0.003  # between two snapshots, for the writers
_EPOCH = 1
_DATABASE, _TABLE = "lakeingest_race", "inserts"


@dataclass(frozen=True, slots=True)
class Lost:
    """A row that a snapshot has lost by File and Position. `end`: the end of its transaction in the binlog."""

    snapshot: int
    row: int
    end: FilePosition
    position: FilePosition
    gtid: str


@dataclass(frozen=True, slots=True, repr=False)
class Race(Report):
    """What became of the rows that were inserted while the snapshots were taken.

    `by_position` are the rows that File and Position loses. `by_gtids` is the number of rows that executed GTIDs lose.
    """

    snapshots: int
    rows: int
    by_position: tuple[Lost, ...]
    by_gtids: int

    headers = ("low watermark", "snapshots", "that lost rows", "lost rows")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each kind of low watermark."""
        losers = len({lost.snapshot for lost in self.by_position})
        yield "File and Position", self.snapshots, losers, len(self.by_position)
        # snapshots that lost rows by executed GTIDs are not counted one by one, because none is expected
        yield "executed GTIDs (lakeingest)", self.snapshots, min(self.by_gtids, 1), self.by_gtids

    @property
    def notes(self) -> Sequence[str]:
        """The first lost row, and why only one of the two low watermarks loses it."""
        if not self.by_position:
            return (f"no snapshot met the race while {self.rows:,} rows were inserted; run it again",)
        lost = self.by_position[0]
        return (
            f"row {lost.row}: its transaction ends at {lost.end}, and snapshot {lost.snapshot} read the position"
            f" {lost.position} before its view opened, so the row counts as contained; but the view does not have it",
            f"its transaction {lost.gtid} was not executed yet: lakeingest applies it from the binlog",
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The keys of a read view, and the two low watermarks that were read before it opened."""

    number: int
    keys: frozenset[int]
    position: FilePosition
    executed: Low


def race(sample: SampleSource, most: int = SNAPSHOTS) -> Race:
    """Take at most `most` snapshots of a table while writers insert into it. End when File and Position has lost a row.

    The table is in a database of its own. Raises OperatorNeeded if the server has no GTIDs.
    """
    sample.sql(
        f"CREATE DATABASE IF NOT EXISTS {_DATABASE}",
        f"CREATE TABLE IF NOT EXISTS {_DATABASE}.{_TABLE} (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)",
        f"TRUNCATE {_DATABASE}.{_TABLE}",
    )
    taken, lost, by_gtids, rows = 0, list[Lost](), 0, 0
    with BinlogSource.open(sample.source) as source:
        schema = source.schema(TableId(_DATABASE, _TABLE))
        state = source.state()
        if state.executed is None:
            raise OperatorNeeded("the race is shown with GTIDs; start the server with gtid_mode = ON")
        while taken < most and not lost:
            start = Position(state.uuid, _EPOCH, source.written(), state.executed, None)  # None: no history
            with _inserting(sample):
                snapshots = list(_snapshots(source, schema, state.uuid, taken))
            taken += len(snapshots)
            inserted = _inserted(source, schema, start)
            rows += len(inserted)
            for snapshot in snapshots:
                # executed transactions end before the position, so it loses each row that executed GTIDs lose, too
                missing = _missing(snapshot, inserted)
                lost += missing
                executed = snapshot.executed
                assert isinstance(executed, GtidSet)  # noqa: S101 - the server has GTIDs
                by_gtids += sum(GtidSet.parse(one.gtid) <= executed for one in missing)
    return Race(taken, rows, tuple(lost), by_gtids)


def _snapshots(source: BinlogSource, schema: TableSchema, uuid: str, taken: int) -> Iterator[_Snapshot]:
    """Snapshots as a run takes them; File and Position are read as well, just before the view opens."""
    positions: list[FilePosition] = []
    with connect(source.settings) as beside:
        hooks = Hooks(after_low=lambda: positions.append(written_position(beside)))
        for number in range(taken + 1, taken + _AT_ONCE + 1):
            read = read_chunk(source.settings, schema, Chunk(schema.table, KeyRange()), uuid, _EPOCH, hooks)
            low = read.split.low
            assert low is not None  # noqa: S101 - a split that is not merged yet has its low watermark
            yield _Snapshot(number, frozenset(read.rows["id"].to_pylist()), positions[-1], low)
            time.sleep(_BREATH)


def _inserted(source: BinlogSource, schema: TableSchema, start: Position) -> dict[int, tuple[FilePosition, str]]:
    """The inserted rows that the binlog has after `start`: by key, the end of the transaction, and its GTID."""
    segment = Segment.after(start, source.written())
    found = {}
    for table, batch in source.changes(segment, {schema.table: schema}):
        rows = batch.to_pylist() if table is not None else []  # None: rows of TRANSACTIONS
        for row in rows:
            end = FilePosition(file_name(row[change.FILE], start.at), row[change.POS])
            found[row["id"]] = end, row[change.GTID]
    return found


def _missing(snapshot: _Snapshot, inserted: dict[int, tuple[FilePosition, str]]) -> list[Lost]:
    """The rows whose transactions end at or before the snapshot's File and Position, and that its view lacks."""
    at = snapshot.position
    return [
        Lost(snapshot.number, key, end, at, gtid)
        for key, (end, gtid) in inserted.items()
        if key not in snapshot.keys and not is_before(at, end)
    ]


@contextmanager
def _inserting(sample: SampleSource) -> Iterator[None]:
    """Within the block, writers insert rows, each row in a transaction of its own."""
    is_over = threading.Event()

    def write() -> None:
        with sample.server.connect() as connection, connection.cursor() as cursor:
            while not is_over.wait(_PAUSE):
                cursor.execute(f"INSERT INTO {_DATABASE}.{_TABLE} (v) VALUES (1)")

    writers = [threading.Thread(target=write) for _ in range(_WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        is_over.set()
        for writer in writers:
            writer.join()
