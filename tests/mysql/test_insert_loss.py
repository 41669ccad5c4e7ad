"""The race that decides what a low watermark may be, run against a real server.

A commit is written before it is visible. A snapshot whose low watermark is the *written* position misses what stood
between the two, and no later change brings it back: in a table of inserts such a row is lost for good.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pymysql
import pytest

from lakeingest.config import Tls
from lakeingest.core.binlog.position import Gtid, GtidSet, Low, Place, file_start
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.binlog.transactions import TransactionLog
from lakeingest.core.tables import change
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.core.waves.collapse import collapse
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import plan_merge
from lakeingest.demo.server import LocalServer
from lakeingest.mysql import chunk_reader
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect, free_server_id, query, written_position
from lakeingest.mysql.xa_list import settled_now
from tests.core.logged import log_of
from tests.faults.beside import beside
from tests.mysql.database import Db, database_on

pytestmark = pytest.mark.mysql

SNAPSHOTS = int(os.environ.get("LAKEINGEST_SNAPSHOTS", "200"))
FEW = 60  # snapshots of the quick test: the mutant below loses rows in several of them
ROTATE_EVERY = 50  # snapshots: without GTIDs the low watermark is the start of a file, so files have to change
PAUSE = 0.002  # of a writer between two inserts: the table stays small
BREATH = 0.005  # between two snapshots, for the writers
EPOCH = 1
MODES = {"ON": {}, "OFF": {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}}
Rows = dict[Key, int]
Insert = Callable[[Db, pymysql.Connection, int], None]  # of a value, in a transaction


@dataclass(frozen=True)
class Outcome:
    """What became of the snapshots: rows of the final table, rows that were lost, and snapshots that lost some."""

    snapshots: int
    rows: int
    lost: int
    losers: int
    wrong: int  # rows that are in the copy but not, or not so, in the table
    seconds: float


@pytest.mark.parametrize("writers", [1, 4])
@pytest.mark.parametrize("gtid_mode", MODES)
@pytest.mark.long("thousands of snapshots")
def test_no_snapshot_loses_an_insert(
    mysql_server_with: Callable[..., LocalServer], gtid_mode: str, writers: int
) -> None:
    """Rows of a snapshot, and the changes that its merge applies, are the table as it is in the end."""
    with database_on(mysql_server_with(**MODES[gtid_mode])) as db:
        outcome = race(db, writers)
    tell("low as read_low", gtid_mode, writers, outcome)
    assert outcome.rows > SNAPSHOTS // 4  # the writers did write
    assert (outcome.lost, outcome.wrong) == (0, 0)


def test_no_early_snapshot_loses_an_insert(mysql_server: LocalServer) -> None:
    """The same with fewer snapshots, in every run."""
    with database_on(mysql_server) as db:
        outcome = race(db, 4, snapshots=FEW)
    assert (outcome.snapshots, outcome.lost, outcome.wrong) == (FEW, 0, 0)
    assert outcome.rows > FEW // 4


@pytest.mark.parametrize("gtid_mode", MODES)
@pytest.mark.long("thousands of snapshots")
def test_the_written_position_as_low_watermark_loses_inserts(
    mysql_server_with: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch, gtid_mode: str
) -> None:
    """The mutant: File and Position as the low watermark. That it fails shows that the test above can."""

    def written(connection: pymysql.Connection, server_uuid: str, epoch: int) -> Low:
        return written_position(connection).place(epoch)

    monkeypatch.setattr(chunk_reader, "read_low", written)
    with database_on(mysql_server_with(**MODES[gtid_mode])) as db:
        outcome = race(db, 4)
    tell("low = File/Position", gtid_mode, 4, outcome)
    assert outcome.lost > 0


def race(db: Db, writers: int, insert: Insert | None = None, snapshots: int = SNAPSHOTS) -> Outcome:
    """Take snapshots of the whole table while it is written to, then judge each by the binlog."""
    began = time.monotonic()
    plain_text = db.source.model_copy(update={"tls": Tls(mode="disabled")})  # a handshake takes longer than a chunk
    db = replace(db, source=plain_text)
    schema = db.table("t", "id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT")
    db.run("FLUSH BINARY LOGS")
    start = file_start(written_position(db.connection).file)
    state = server_state(db.connection)
    taken = []
    with writing(db, writers, insert or plainly):
        for number in range(1, snapshots + 1):
            if number % ROTATE_EVERY == 0:
                db.run("FLUSH BINARY LOGS")
            settled = settled_now(db.source, db.connection, state.uuid)
            chunk = Chunk(schema.table, KeyRange())
            read = read_chunk(db.source, schema, chunk, state.uuid, EPOCH, settled=settled)
            rows: Rows = {(row["id"],): row["v"] for row in read.rows.to_pylist()}
            taken.append((rows, read.split))
            time.sleep(BREATH)
    segment = Segment(state.uuid, EPOCH, start, written_position(db.connection), GtidSet())
    changes, log = spooled(db, segment, schema, state.executed or GtidSet())
    final: Rows = {(int(key),): int(value) for key, value in query(db.connection, "SELECT id, v FROM t")}
    lost = losers = wrong = 0
    for rows, split in taken:
        copy = merged(rows, split, changes, log, segment)
        missing = len(final.keys() - copy.keys())
        lost, losers = lost + missing, losers + (missing > 0)
        wrong += sum(final.get(key) != value for key, value in copy.items())
    return Outcome(len(taken), len(final), lost, losers, wrong, time.monotonic() - began)


def merged(rows: Rows, split: Split, changes: list[ChangeRow], log: TransactionLog, segment: Segment) -> Rows:
    """The copy after a merge of this one split to the end of the binlog."""
    plan = plan_merge(Splits((split,)), segment.stop.place(EPOCH), log, segment.start.place(EPOCH))
    copy = dict(rows)
    for key, last in collapse(one for one in changes if plan.should_apply(one.place, one.key)).items():
        if last.kind.is_delete:
            copy.pop(key, None)
        else:
            copy[key] = last.values["v"]
    return copy


def spooled(db: Db, segment: Segment, schema: TableSchema, before: GtidSet) -> tuple[list[ChangeRow], TransactionLog]:
    """All changes of the table in the segment, and its transactions."""
    changes: list[ChangeRow] = []
    transactions: list[tuple[Gtid, Place]] = []
    with connect(db.source) as connection:
        server_id = free_server_id(db.connection, db.source)
        for table, batch in read_segment(connection, segment, {schema.table: schema}, server_id):
            rows = batch.to_pylist()
            if table is not None:
                changes += map(change_row, rows)
                continue
            for row in rows:
                if row["uuid"] is not None:
                    gtid = Gtid(row["uuid"], row["number"], row["tag"] or "")
                    transactions.append((gtid, Place(row["epoch"], row["file"], row["pos"])))
    return changes, log_of(transactions, before)


def change_row(row: dict[str, Any]) -> ChangeRow:
    """A row of the spool as a value."""
    place = Place(*(row[name] for name in change.PLACE))
    return ChangeRow(RowKind(row[change.KIND]), (row["id"],), place, row[change.ORDINAL], {"v": row["v"]})


def plainly(_: Db, connection: pymysql.Connection, value: int) -> None:
    """Insert a row in a usual transaction."""
    query(connection, f"INSERT INTO t (v) VALUES ({value})")


def writing(db: Db, writers: int, insert: Insert) -> AbstractContextManager[None]:
    """Writers that insert, each on a connection of its own, one row a transaction; they have ended at the end."""

    def write(value: int, is_over: Callable[[], bool]) -> None:
        with db.session() as connection:
            while not is_over():
                insert(db, connection, value)
                time.sleep(PAUSE)

    return beside(write, writers)


def tell(low: str, gtid_mode: str, writers: int, outcome: Outcome) -> None:
    """A line of figures; `pytest -rA` or `-s` shows it."""
    print(  # noqa: T201 - the figures are the result
        f"\n{low:>20} gtid_mode={gtid_mode:<3} writers={writers}: {outcome.snapshots} snapshots, {outcome.rows} rows,"
        f" {outcome.lost} lost in {outcome.losers} snapshots, {outcome.seconds:.1f} s"
    )
