"""With `publish_together`, rows that foreign keys change outside the binlog are seen with the rest of a round."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from pyiceberg.catalog import Catalog

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.pipeline.events import Event, RowsReread, ShownApart
from tests.e2e.newest_versions import newest
from tests.e2e.pipe import Pipe
from tests.e2e.test_at_once import at_once, position

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

# servers that do not log what foreign keys change
SILENT = {"MySQL": (MYSQL, {"server_id": "97", "innodb_native_foreign_keys": "ON"}), "MariaDB": (MARIADB_11_4, {})}
ROUNDS, CHILDREN = 5, 3
TABLES = ("parents", "children", "totals")


@pytest.fixture(params=SILENT)
def silent_server(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> LocalServer:
    """A server of each flavor that does not log what foreign keys change."""
    flavor, settings = SILENT[request.param]
    return server_of(flavor, **settings)


@pytest.mark.long("another kind of server")
def test_what_foreign_keys_change_meanwhile_is_seen_with_the_rest(
    pipe_on: Callable[..., Pipe], silent_server: LocalServer
) -> None:
    """A transaction that comes while rows are read again is seen in all its tables at once, or in none."""
    pipe = pipe_on(silent_server)
    pipe.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE going (id INT PRIMARY KEY, p INT, v INT,"
        " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE)",
        "CREATE TABLE apart (id INT PRIMARY KEY)",
        "INSERT INTO parents VALUES (1), (2)",
        "INSERT INTO going VALUES (1, 1, 0), (2, 2, 0)",
        "INSERT INTO apart VALUES (1)",
    )
    at_once(pipe)
    pipe.run()
    pipe.events.clear()
    pipe.sql("DELETE FROM parents WHERE id = 1")

    def meanwhile(event: Event) -> None:
        if isinstance(event, RowsReread):
            pipe.sql("BEGIN", "UPDATE going SET v = 7 WHERE id = 2", "INSERT INTO apart VALUES (2)", "COMMIT")

    pipe.run(observe=meanwhile)
    assert (pipe.rows("going"), pipe.rows("apart")) == ([(2, 2, 7)], [(1,), (2,)])
    assert position(pipe, "going") == position(pipe, "apart")


def family(pipe: Pipe, parents: int) -> None:
    """Parents with children, and a table of one row that has the number of parents: copied, and seen by readers."""
    pipe.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE children (id INT PRIMARY KEY AUTO_INCREMENT, p INT NOT NULL,"
        " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE)",
        "CREATE TABLE totals (id INT PRIMARY KEY, parents INT NOT NULL)",
        "INSERT INTO totals VALUES (1, 0)",
    )
    for number in range(parents):
        come(pipe, number)


def come(pipe: Pipe, number: int) -> None:
    """A parent comes, with its children, in one transaction."""
    children = ", ".join([f"({number})"] * CHILDREN)
    pipe.sql(
        "BEGIN",
        f"INSERT INTO parents VALUES ({number})",
        f"INSERT INTO children (p) VALUES {children}",
        "UPDATE totals SET parents = parents + 1",
        "COMMIT",
    )


def go(pipe: Pipe, number: int) -> None:
    """A parent goes; its children go with it, and the binlog does not have that."""
    pipe.sql("BEGIN", f"DELETE FROM parents WHERE id = {number}", "UPDATE totals SET parents = parents - 1", "COMMIT")


@dataclass
class Reader:
    """Another process that polls the copies by PyIceberg. `seen`: the numbers of parents that polls have found."""

    pipe: Pipe
    polls: int = 0
    halves: int = 0
    seen: set[int] = field(default_factory=set)
    last: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog: Catalog = open_catalog(self.pipe.config.target)

    def poll(self) -> None:
        """Look at all tables. Counts only if all are the same when they are looked at again, as `points.md` says."""
        looked = newest(self.pipe, self.catalog, TABLES)
        if looked is None:
            return
        tables, versions = looked
        self.polls += 1
        if versions == self.last:
            return
        rows = {name: table.scan(snapshot_id=versions[name]).to_arrow().to_pylist() for name, table in tables.items()}
        [total] = rows["totals"]
        parents, refers = {row["id"] for row in rows["parents"]}, [row["p"] for row in rows["children"]]
        is_whole = len(parents) == total["parents"] and sorted(refers) == sorted([*parents] * CHILDREN)
        self.halves += not is_whole
        self.seen.add(total["parents"])
        self.last = versions


@pytest.mark.long("another kind of server, runs that are polled")
@pytest.mark.parametrize("together", [True, False])
def test_no_poll_finds_a_parent_without_its_children(
    pipe_on: Callable[..., Pipe], silent_server: LocalServer, *, together: bool
) -> None:
    """In each round parents go and come, also while children are read again. Without the key, polls find halves."""
    pipe = pipe_on(silent_server)
    family(pipe, 4 * ROUNDS)
    at_once(pipe, together=together)
    pipe.run()
    reader, ended, gone = Reader(pipe), threading.Event(), iter(range(4 * ROUNDS))

    def read() -> None:
        while not ended.is_set():
            reader.poll()

    reading = threading.Thread(target=read)
    reading.start()
    try:
        for number in range(ROUNDS):
            go(pipe, next(gone))
            come(pipe, 100 + number)
            later = iter([next(gone), next(gone)])

            def meanwhile(event: Event, later: Iterator[int] = later) -> None:
                if isinstance(event, RowsReread) and (another := next(later, None)) is not None:
                    go(pipe, another)

            pipe.run(observe=meanwhile)
    finally:
        ended.set()
        reading.join()
    pipe.run()
    pipe.assert_equal()
    assert len(reader.seen) > ROUNDS // 2
    if together:
        assert (reader.halves, pipe.seen(ShownApart)) == (0, [])
    else:
        assert reader.halves
