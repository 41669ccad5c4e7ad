"""Tables that appear in the source while a run follows are copied beside the others, and followed from then on."""

import time
from collections.abc import Callable

import pytest

from lakeingest.commands.run import run
from lakeingest.commands.status import status
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed
from lakeingest.pipeline.events import Event, Published, TableStopped, WaveCommitted
from lakeingest.pipeline.opening.opening import opened
from lakeingest.pipeline.rounds import discovery
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon
from tests.faults.beside import beside

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ON_EACH = pytest.mark.parametrize("shop", ["GTIDs", "no GTIDs", "MariaDB"], indirect=True)

COUNT = 100
ROWS = ", ".join(f"({n}, {n})" for n in range(COUNT))


@pytest.fixture
def shop(
    request: pytest.FixtureRequest,
    pipe_on: Callable[..., Pipe],
    server_of: Callable[..., LocalServer],
    monkeypatch: pytest.MonkeyPatch,
) -> Pipe:
    """A pipeline with a table that is copied; those that cannot be copied are tried again at once.

    The test names the kind of server; otherwise it has GTIDs.
    """
    monkeypatch.setattr(discovery, "AGAIN_SECONDS", 0.5)
    kind = getattr(request, "param", "GTIDs")
    settings = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if kind == "no GTIDs" else {}
    server = server_of(MARIADB_11_4 if kind == "MariaDB" else MYSQL, **settings)
    pipe = pipe_on(server, chunk_rows=10)
    pipe.sql("CREATE TABLE old (id INT PRIMARY KEY, v INT)", "INSERT INTO old VALUES (1, 1), (2, 2)")
    pipe.run()
    pipe.events.clear()
    return pipe


def writing(pipe: Pipe, *statements: str) -> Callable[[int, Callable[[], bool]], None]:
    """Work that runs these statements again and again; {n} counts, and {key} is one of the rows."""

    def write(_: int, is_over: Callable[[], bool]) -> None:
        n = 1000
        while not is_over():
            n += 1
            pipe.sql(*(one.format(n=n, key=n % COUNT) for one in statements))
            time.sleep(0.1)

    return write


def at(pipe: Pipe, kind: type[Event], table: str) -> list[int]:
    """The numbers of a table's events of one kind."""
    return [n for n, event in enumerate(pipe.events) if isinstance(event, kind) and event.table.name == table]  # type: ignore[union-attr]


@pytest.mark.long("copies a table beside a writer, and publishes another one all the while")
@ON_EACH
def test_a_new_table_is_copied_and_followed_and_the_others_go_on(shop: Pipe) -> None:
    """Both are written to all the while; the old one is published between the waves of the new one."""

    def work() -> None:
        shop.sql("CREATE TABLE new (id INT PRIMARY KEY, v INT)", f"INSERT INTO new VALUES {ROWS}")
        changes = (
            "INSERT INTO old VALUES ({n}, {n})",
            "REPLACE INTO new VALUES ({key}, {n})",
            "UPDATE new SET v = {n} WHERE id = {key} + 20",
            "DELETE FROM new WHERE id = {key} - 7",
        )
        with beside(writing(shop, *changes), 1):
            soon(lambda: bool(at(shop, Published, "new")))
        shown(shop, "new")
        shown(shop, "old")

    result = follow_while(shop, work)
    assert {one.table.name: one.published for one in result.tables} == {"new": True, "old": True}
    waves, published = at(shop, WaveCommitted, "new"), at(shop, Published, "old")
    assert len(waves) >= 3
    assert any(waves[0] < one < waves[-1] for one in published)
    shop.assert_equal()


@ON_EACH
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_new_table_that_cannot_be_copied_is_stopped_until_it_can(shop: Pipe) -> None:
    """It is named once, with the reason; the others go on, and it is copied when it has a key."""

    def work() -> None:
        shop.sql("CREATE TABLE new (id INT, v INT)", "INSERT INTO new VALUES (1, 1)")
        soon(lambda: bool(shop.seen(TableStopped)))
        shop.sql("INSERT INTO old VALUES (3, 3)")
        shown(shop, "old")
        [answer] = [one for one in status(shop.config) if one.table.name == "new"]
        assert answer.stopped is not None
        assert answer.stopped.error == "PreflightFailed"
        assert len(shop.seen(TableStopped)) == 1
        shop.sql("FLUSH BINARY LOGS", "ALTER TABLE new ADD PRIMARY KEY (id)", "FLUSH BINARY LOGS")
        shop.sql("INSERT INTO new VALUES (2, 2)")
        soon(lambda: bool(at(shop, Published, "new")))
        shown(shop, "new")

    follow_while(shop, work)
    [event] = [event for event in shop.seen(TableStopped) if isinstance(event, TableStopped)]
    assert isinstance(event.error, PreflightFailed)
    shop.assert_equal()
    assert [one.stopped for one in status(shop.config)] == [None, None]


@pytest.mark.long("several runs in a row; other tests have each step")
def test_a_new_table_whose_copy_was_broken_off_is_gone_on_with(shop: Pipe) -> None:
    """The run ends between two waves; the next run reads the chunks that are missing."""
    ended = list[str]()

    def watch(event: Event) -> None:
        shop.events.append(event)
        if isinstance(event, WaveCommitted) and event.wave == 2:
            shop.sql("DELETE FROM new WHERE id < 5", "UPDATE new SET v = 0 WHERE id > 90")
            ended.append("now")

    def after_the_first(event: Event) -> None:
        if isinstance(event, Published) and not at(shop, WaveCommitted, "new") and not ended:
            shop.sql("CREATE TABLE IF NOT EXISTS new (id INT PRIMARY KEY, v INT)")
            shop.sql(f"INSERT IGNORE INTO new VALUES {ROWS}")
        watch(event)

    shop.sql("INSERT INTO old VALUES (4, 4)")
    run(shop.config, (), 2, after_the_first, shop.spark, follow=True, stopping=lambda: bool(ended))
    assert ended
    copied = len(at(shop, WaveCommitted, "new"))
    shop.events.clear()
    shop.run()
    first = next(event for event in shop.events if isinstance(event, WaveCommitted))
    assert (copied, first.wave) == (2, 3)
    shop.assert_equal()


def test_a_run_for_named_tables_takes_no_other(shop: Pipe) -> None:
    """Whoever names tables wants these."""
    with opened(shop.config, (f"{shop.database}.old",), shop.events.append, shop.spark) as open_run:
        looks = discovery.Discovery(open_run)
        shop.sql("CREATE TABLE new (id INT PRIMARY KEY)")
        soon_after = looks._listed_at - 60  # noqa: SLF001
        looks._listed_at = soon_after  # noqa: SLF001
        looks.look()
        assert [table.name for table in open_run.tables] == ["old"]
