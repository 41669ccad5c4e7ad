"""With `publish_together`, a round publishes its tables at once: whoever polls them finds all as of one place.

And whole points, whatever the key says.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import NoReturn

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from lakeingest.api import Pipeline
from lakeingest.commands.check import check
from lakeingest.commands.run import run
from lakeingest.config import Target
from lakeingest.core.copies.joint import REFUSALS
from lakeingest.core.copies.points import Point
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.errors import AuditFailed, PreflightFailed, SparkLost
from lakeingest.lake.held import Held
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.commits.publishing import IcebergJoint
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.joint_answer import JointAnswer
from lakeingest.monitoring.event_lines import line
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import connect
from lakeingest.pipeline import joint_round
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.events import Event, Following, Published, ShownApart, TableStopped
from lakeingest.pipeline.publishing import at_once as at_once_module
from lakeingest.pipeline.publishing import publish
from lakeingest.pipeline.publishing.audit import audit
from lakeingest.pipeline.run import lake_only
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import merge_over_halts
from lakeingest.spool.spool import Spool
from tests.e2e.newest_versions import loaded, newest
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while
from tests.e2e.test_points import opened
from tests.servers.catalog_servers import TARGETS

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

POLLS = int(environ.get("LAKEINGEST_POLLS", "300"))
ACCOUNTS, COINS = 20, 100
POSITION = "lakeingest.position"
SERVERS = [MYSQL, MARIADB_11_4]
BOTH = pytest.mark.parametrize("any_server", SERVERS, ids=[flavor.name for flavor in SERVERS], indirect=True)


@pytest.fixture
def bank(pipe: Pipe) -> Pipe:
    """The bank on MySQL."""
    return opened_bank(pipe)


@pytest.fixture
def any_bank(any_pipe: Pipe) -> Pipe:
    """The bank on a server of each flavor of a test."""
    return opened_bank(any_pipe)


def opened_bank(pipe: Pipe) -> Pipe:
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
    at_once(pipe)
    pipe.run()
    pipe.events.clear()
    return pipe


def at_once(pipe: Pipe, *, together: bool = True) -> None:
    """Let the pipeline publish its tables at once from now on, or not."""
    target = pipe.config.target.model_copy(update={"publish_together": together})
    pipe.config = pipe.config.model_copy(update={"target": target})


def published(pipe: Pipe) -> list[str]:
    """The tables that were published, in this order."""
    return [event.table.name for event in pipe.events if isinstance(event, Published)]


def position(pipe: Pipe, table: str) -> str:
    """As of which place of the binlog readers see a table."""
    return loaded(pipe, open_catalog(pipe.config.target), table).properties[POSITION]


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
            scan = loaded(self.pipe, self.catalog, table).scan(snapshot_id=version)
            self._read[table, version] = scan.to_arrow().to_pylist()
        return self._read[table, version]

    def poll(self) -> None:
        """Look at all tables. Counts only if all are the same when they are looked at again, as `points.md` says."""
        looked = newest(self.pipe, self.catalog, TABLES)
        if looked is None:
            return
        tables, versions = looked
        self.polls += 1
        found = {one.properties[POSITION] for one in tables.values()}  # each transaction changes all three
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
            snapshot = loaded(self.pipe, self.catalog, table.name).snapshot_by_name(point.name)
            assert snapshot is not None
            assert snapshot.snapshot_id == kept.version
            rows[table.name] = self.rows(table.name, kept.version)
        assert set(rows) == set(TABLES)
        assert_whole(rows)


@BOTH
@pytest.mark.long("follows while it is polled")
def test_no_poll_finds_half_a_round(any_bank: Pipe) -> None:
    """Beside a run that follows: whatever is read together is of one place, and whole."""
    reader = Reader(any_bank)

    def work() -> None:
        while reader.polls < POLLS or len(reader.positions) < 5:
            reader.poll()

    with moving(any_bank) as moved:
        follow_while(any_bank, work)
    assert not any_bank.seen(TableStopped)
    assert (reader.halves, moved() > 5) == (0, True)


@pytest.mark.long("follows while it is polled")
def test_polls_find_halves_without_the_key(bank: Pipe) -> None:
    """Tables are published one after the other then: so the test before can fail."""
    at_once(bank, together=False)
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


def test_without_the_key_nobody_asks_whether_the_catalog_can(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for parents: the order, the requests and the costs are those of tables that are published by themselves."""

    def asked(*_: object) -> NoReturn:
        raise AssertionError("nobody asks")

    monkeypatch.setattr(IcebergTarget, "joint", property(asked))
    monkeypatch.setattr(BinlogSource, "parents", asked)
    at_once(bank, together=False)
    move(bank, random.Random(1), 1)
    bank.run()
    assert set(published(bank)) == set(TABLES)
    bank.assert_equal()


@pytest.mark.long("starts servers")
def test_a_rest_server_that_does_not_offer_it_refuses_the_key(pipe: Pipe, tmp_path: Path) -> None:
    """By name, before anything is copied; without the key the pipeline is ready."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with TARGETS["rest without names"](tmp_path) as doc:
        pipe.config = pipe.config.model_copy(update={"target": Target.model_validate(doc)})
        assert check(pipe.config).problems == ()
        at_once(pipe)
        [problem] = check(pipe.config).problems
        assert str(problem.finding).startswith("target.publish_together: the server of the catalog does not offer")
        with pytest.raises(PreflightFailed, match=r"target\.publish_together"):
            pipe.run()


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Let the catalog refuse all commits of several tables. The list gets the number of tables of each."""
    asked = list[int]()

    def refused(_: object, commits: Sequence[object]) -> None:
        asked.append(len(commits))
        raise error

    monkeypatch.setattr(EmbeddedCatalog, "commit_tables", refused)
    return asked


@BOTH
@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4",))
def test_after_a_refusal_parents_are_published_before_their_children(
    any_bank: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Foreign keys of all kinds count; and the run says that the tables were not published at once."""
    asked = refuse(monkeypatch, CommitFailedException("the request is too long"))
    move(any_bank, random.Random(1), 1)
    any_bank.run()
    assert (asked, set(published(any_bank)), published(any_bank)[-1]) == ([3], set(TABLES), "journal")
    [event] = any_bank.seen(ShownApart)
    assert "the request is too long; this run goes on" in str(line(event))
    any_bank.assert_equal()


def test_tables_that_are_published_apart_for_another_reason_are_said(
    bank: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a compaction of one of them at that moment. The next round is published at once again."""
    move(bank, random.Random(1), 1)
    with monkeypatch.context() as patch:
        patch.setattr(IcebergJoint, "show", lambda _, prepared: JointAnswer([False] * len(prepared)))
        bank.run()
    [event] = bank.seen(ShownApart)
    assert "3 tables are not published at once, as of one place: someone has changed one of them" in str(line(event))
    assert set(published(bank)) == set(TABLES)
    move(bank, random.Random(2), 2)
    bank.run()
    assert bank.seen(ShownApart) == [event]
    bank.assert_equal()


@pytest.mark.long("waits for a catalog that refuses")
def test_a_catalog_that_always_refuses_is_not_asked_for_ever(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one run that follows; the tables are published by themselves, in each round."""
    asked, moved, ended = refuse(monkeypatch, CommitFailedException("forbidden")), 0, False

    def watch(event: Event) -> None:
        nonlocal moved, ended
        bank.events.append(event)
        is_last = isinstance(event, Published) and event.table.name == "journal"
        if isinstance(event, Following) or is_last:
            ended = moved == REFUSALS + 2
            moved += not ended
            if not ended:
                move(bank, random.Random(moved), moved)

    run(bank.config, (), None, watch, bank.spark, follow=True, stopping=lambda: ended)
    assert len(asked) == REFUSALS
    assert "from now on, this run publishes each table by itself" in str(line(bank.seen(ShownApart)[-1]))
    bank.assert_equal()


def test_sigterm_ends_a_publish_of_many_tables_after_the_next_one(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose commit was refused. The next run publishes the others."""
    refuse(monkeypatch, CommitFailedException("forbidden"))
    ended = False

    def watch(event: Event) -> None:
        nonlocal ended
        bank.events.append(event)
        if isinstance(event, Following):
            move(bank, random.Random(1), 1)
        ended |= isinstance(event, Published)

    run(bank.config, (), None, watch, bank.spark, follow=True, stopping=lambda: ended)
    assert len(published(bank)) == 1
    bank.run()
    bank.assert_equal()


@pytest.mark.parametrize("step", ["merge_over_halts", "make_ready"])
@pytest.mark.long("one of the steps in turn", turn="step")
def test_a_table_that_ends_the_run_does_not_keep_the_others_from_readers(
    bank: Pipe, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its merge, or its gate, loses Spark, in each run again: what needs only the lake is merged and shown first."""
    module = {"merge_over_halts": joint_round, "make_ready": at_once_module}[step]
    work = getattr(module, step)

    def lost(edges: Edges, binlog: object, table: TableRun) -> object:
        if table.id.name == "right_side":
            raise SparkLost("out of memory")
        return work(edges, binlog, table)

    monkeypatch.setattr(lake_only, "FEW_ROWS", 5)  # so that the table needs more than the lake
    bank.sql(f"UPDATE right_side SET coins = coins + 0, id = id + {10 * ACCOUNTS} WHERE id > 10")
    bank.sql(f"UPDATE right_side SET id = id - {10 * ACCOUNTS} WHERE id > {10 * ACCOUNTS}")
    move(bank, random.Random(1), 1)
    with monkeypatch.context() as patch:
        patch.setattr(module, step, lost)
        with pytest.raises(SparkLost):
            bank.run()
    assert set(published(bank)) == {"left_side", "journal"}
    bank.run()
    bank.assert_equal()


def test_tables_that_get_changes_while_a_merge_spools_on_come_along(
    bank: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where rows are read again after changes by foreign keys: then no reader sees a half of what came meanwhile."""
    spooled_on = False

    def merge_and_spool_on(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
        nonlocal spooled_on
        if table.id.name == "right_side" and not spooled_on:
            spooled_on = True
            move(bank, random.Random(2), 2)
            spool_to_now(edges, binlog)
        merge_over_halts(edges, binlog, table)

    monkeypatch.setattr(joint_round, "merge_over_halts", merge_and_spool_on)
    bank.sql(
        "UPDATE right_side SET coins = coins + 1 WHERE id = 0", "UPDATE left_side SET coins = coins - 1 WHERE id = 0"
    )
    bank.run()
    assert {position(bank, table) for table in TABLES} == {position(bank, "right_side")}
    assert sorted(published(bank)) == sorted(TABLES)  # each once
    bank.assert_equal()


def test_a_table_that_fails_leaves_the_others_to_their_publish(bank: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its audit stops it alone; the next run publishes it, too."""
    move(bank, random.Random(1), 1)

    def fails(edges: Edges, spool: Spool, table: TableRun, held: Held, *, in_full: bool) -> None:
        if table.id.name == "right_side":
            raise AuditFailed("a fault")
        audit(edges, spool, table, held, in_full=in_full)

    bank.events.clear()
    with monkeypatch.context() as patch:
        patch.setattr(publish, "audit", fails)
        with pytest.raises(AuditFailed):
            bank.run()
    assert [event.table.name for event in bank.events if isinstance(event, TableStopped)] == ["right_side"]
    assert set(published(bank)) == {"left_side", "journal"}
    bank.run()
    bank.assert_equal()
