"""A round publishes its tables at once: whoever polls them finds all as of one place, and only whole points."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakeingest.api import Pipeline
from lakeingest.core.points import Point
from lakeingest.core.schema import TableId
from lakeingest.errors import AuditFailed
from lakeingest.lake.iceberg.catalogs import open_catalog
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.mysql.connection import connect
from lakeingest.pipeline.events import Published, TableStopped
from lakeingest.pipeline.publishing import publish
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while
from tests.e2e.test_points import opened

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

POLLS = int(environ.get("LAKEINGEST_POLLS", "300"))
ACCOUNTS, COINS = 20, 100


@pytest.fixture
def bank(pipe: Pipe) -> Pipe:
    """Accounts with coins, in two tables, and a journal whose rows refer to both: copied, and seen by readers."""
    pipe.sql("CREATE TABLE left_side (id INT PRIMARY KEY, coins INT NOT NULL)")
    pipe.sql("CREATE TABLE right_side (id INT PRIMARY KEY, coins INT NOT NULL)")
    pipe.sql(
        "CREATE TABLE journal (id INT PRIMARY KEY AUTO_INCREMENT, here INT NOT NULL, there INT NOT NULL,"
        " FOREIGN KEY (here) REFERENCES left_side (id), FOREIGN KEY (there) REFERENCES right_side (id))"
    )
    rows = ", ".join(f"({number}, {COINS})" for number in range(ACCOUNTS))
    for side in ("left_side", "right_side"):
        pipe.sql(f"INSERT INTO {side} VALUES {rows}")
    pipe.sql("INSERT INTO journal (here, there) VALUES (0, 0)")
    pipe.run()
    return pipe


TABLES = ("left_side", "right_side", "journal")
Rows = dict[str, list[dict[str, int]]]


def move(pipe: Pipe, chance: random.Random, number: int) -> None:
    """Coins move from one side to the other, to a new account now and then, and the journal has it."""
    here, there = chance.randrange(ACCOUNTS), ACCOUNTS + number if number % 5 == 0 else chance.randrange(ACCOUNTS)
    pipe.sql(
        "BEGIN",
        f"UPDATE left_side SET coins = coins - 7 WHERE id = {here}",
        f"INSERT INTO right_side VALUES ({there}, 7) ON DUPLICATE KEY UPDATE coins = coins + 7",
        f"INSERT INTO journal (here, there) VALUES ({here}, {there})",
        "COMMIT",
    )


def assert_whole(rows: Rows) -> None:
    """The coins and the journal are those of one moment: no coin is lost, each entry has its accounts and moved 7."""
    coins = {side: sum(row["coins"] for row in rows[side]) for side in ("left_side", "right_side")}
    assert sum(coins.values()) == 2 * ACCOUNTS * COINS
    assert coins["right_side"] == ACCOUNTS * COINS + 7 * (len(rows["journal"]) - 1)
    for side, column in (("left_side", "here"), ("right_side", "there")):
        assert {row[column] for row in rows["journal"]} <= {row["id"] for row in rows[side]}


@contextmanager
def moving(pipe: Pipe) -> Iterator[Callable[[], int]]:
    """Coins move all the time. Gives what says how many transactions there were."""
    ended, moved = threading.Event(), 0

    def write() -> None:
        nonlocal moved
        chance = random.Random(49)
        with connect(pipe.administrator) as connection:
            writer = Pipe(pipe.config, pipe.database, connection, pipe.spark, [])
            writer.sql("SET autocommit = 1", f"USE {pipe.database}")
            while not ended.is_set():
                move(writer, chance, moved := moved + 1)
                time.sleep(0.01)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield lambda: moved
    finally:
        ended.set()
        writing.join()


@dataclass
class Reader:
    """Another process that polls the copies by PyIceberg. `halves`: polls that have found two places of the binlog."""

    pipe: Pipe
    polls: int = 0
    halves: int = 0
    positions: set[str] = field(default_factory=set)
    _read: dict[tuple[str, int], list[dict[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog: Catalog = open_catalog(self.pipe.config.target)

    def rows(self, table: str, version: int) -> list[dict[str, int]]:
        """The rows of a version, which is read once and at every tenth poll."""
        if self.polls % 10 == 0 or (table, version) not in self._read:
            self._read[table, version] = self._load(table).scan(snapshot_id=version).to_arrow().to_pylist()
        return self._read[table, version]

    def _load(self, table: str) -> Table:
        return self.catalog.load_table(self.pipe.config.target.identifier(TableId(self.pipe.database, table)))

    def poll(self) -> None:
        """Look at all tables. Counts only if the first is the same before and after the others were loaded."""
        loaded = {table: self._load(table) for table in TABLES}
        again = self._load(TABLES[0])
        versions = {table: one.metadata.refs["main"].snapshot_id for table, one in loaded.items()}
        if again.metadata.refs["main"].snapshot_id != versions[TABLES[0]]:
            return
        self.polls += 1
        found = {one.properties["lakeingest.position"] for one in loaded.values()}
        self.positions |= found
        if len(found) > 1:
            self.halves += 1
            return
        assert_whole({table: self.rows(table, version) for table, version in versions.items()})

    def poll_point(self, point: Point) -> None:
        """Read all tables as of a point, by its tags."""
        self.polls += 1
        rows = Rows()
        for table, kept in point.tables.items():
            snapshot = self._load(table.name).snapshot_by_name(point.name)
            assert snapshot is not None
            assert snapshot.snapshot_id == kept.version
            rows[table.name] = self.rows(table.name, kept.version)
        assert set(rows) == set(TABLES)
        assert_whole(rows)


@pytest.mark.long("follows while it is polled")
def test_no_poll_finds_half_a_round(bank: Pipe) -> None:
    """Beside a run that follows: whatever is read together is of one place, and whole."""
    reader = Reader(bank)

    def work() -> None:
        while reader.polls < POLLS or len(reader.positions) < 5:
            reader.poll()

    with moving(bank) as moved:
        follow_while(bank, work)
    assert not bank.seen(TableStopped)
    assert (reader.halves, moved() > 5) == (0, True)


@pytest.mark.long("follows while it is polled")
def test_polls_find_halves_if_tables_are_published_one_after_the_other(
    bank: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a catalog that cannot commit several tables at once: so the test before can fail."""
    monkeypatch.setattr(IcebergTarget, "joint", None)
    reader = Reader(bank)

    def work() -> None:
        ends = time.monotonic() + 60
        while not reader.halves and time.monotonic() < ends:
            reader.poll()

    with moving(bank):
        follow_while(bank, work)
    assert reader.halves


@pytest.mark.long("follows while it is polled")
def test_no_poll_finds_half_a_point(bank: Pipe) -> None:
    """The newest point is read again and again while new ones are made, and old ones are dropped."""
    reader, ended, made = Reader(bank), threading.Event(), 0

    def make() -> None:
        nonlocal made
        while not ended.is_set():
            opened(bank).create_point(f"point-{made}")
            made += 1

    def work() -> None:
        making, pipeline = threading.Thread(target=make), Pipeline(bank.config, bank.spark)
        making.start()
        try:
            while reader.polls < POLLS or made < 5:
                if points := pipeline.points():
                    reader.poll_point(max(points, key=lambda point: point.made_at))
        finally:
            ended.set()
            making.join()

    with moving(bank) as moved:
        follow_while(bank, work)
    assert moved() > 5
    assert reader.polls >= POLLS


def test_elsewhere_parents_are_published_before_their_children(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a catalog that cannot commit several tables at once; foreign keys of all kinds count."""
    monkeypatch.setattr(IcebergTarget, "joint", None)
    move(bank, random.Random(1), 1)
    bank.events.clear()
    bank.run()
    order = [event.table.name for event in bank.events if isinstance(event, Published)]
    assert (set(order), order[-1]) == (set(TABLES), "journal")


def test_a_table_that_fails_leaves_the_others_to_their_publish(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its audit stops it alone; the next run publishes it, too."""
    move(bank, random.Random(1), 1)
    check = publish.audit

    def fails(edges: object, spool: object, table: object, held: object, *, in_full: bool) -> None:
        if getattr(table, "id").name == "right_side":  # noqa: B009 - of any object
            raise AuditFailed("a fault")
        check(edges, spool, table, held, in_full=in_full)  # type: ignore[arg-type]

    bank.events.clear()
    with monkeypatch.context() as patch:
        patch.setattr(publish, "audit", fails)
        with pytest.raises(AuditFailed):
            bank.run()
    assert [event.table.name for event in bank.events if isinstance(event, TableStopped)] == ["right_side"]
    assert {event.table.name for event in bank.events if isinstance(event, Published)} == {"left_side", "journal"}
    bank.run()
    bank.assert_equal()
