"""One table that must stop never stops the others: they are copied, merged and published; the error names the one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from lakeingest.commands.run import RunResult
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.config import CATALOG, Quality
from lakeingest.config.place import Place
from lakeingest.config.tables import Tables
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    ForeignWrite,
    GateFailed,
    LakeIngestError,
    PreflightFailed,
    SchemaChanged,
    SplitUnstable,
    StateUnreadable,
)
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.pipeline.events import Measured, Published, StartedOver, TableStopped
from lakeingest.pipeline.rounds import one_round
from lakeingest.pipeline.schema import lifting
from lakeingest.spool import thinning
from lakeingest.spool.spool import Spool
from tests.e2e import others
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon
from tests.lake.shown import catalog_of
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

NAMES = ("apples", "beans", "corn")  # in the order in which they are worked on: the one in the middle stops
CHEAP = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: v, max_value: 100}}]"


@pytest.fixture
def market(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], tmp_path: Path) -> Pipe:
    """A pipeline of three tables that are copied; a suite is asked of the one in the middle."""
    pipe = pipe_on(mysql_server_with(server_id="96"), chunk_rows=100)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / f"{pipe.database}.beans.yml").write_text(CHEAP)
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(tmp_path / "suites"))})
    for name in NAMES:
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    pipe.run()
    return pipe


def add(pipe: Pipe, key: int, *names: str) -> None:
    """A row more in each of the tables."""
    pipe.sql(*(f"INSERT INTO {name} VALUES ({key}, {key})" for name in names or NAMES))


def stopped(pipe: Pipe) -> LakeIngestError:
    """What a run ends with."""
    with pytest.raises(LakeIngestError) as raised:
        pipe.run()
    return raised.value


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_failed_gate_stops_one_table_and_the_others_are_published(market: Pipe) -> None:
    """The run ends with its error and 1; `status` names it until the table goes on, which the next run lets it."""
    pipe, before = market, market.rows("beans")
    add(pipe, 3)
    pipe.sql("UPDATE beans SET v = 1000 WHERE id = 1")
    error = stopped(pipe)
    assert isinstance(error, GateFailed)
    assert error.exit_code == 1
    assert [len(pipe.rows(name)) for name in NAMES] == [3, 2, 3]
    assert pipe.rows("beans") == before
    result = error.result
    assert isinstance(result, RunResult)
    assert {one.table.name: one.published for one in result.tables} == {"apples": True, "beans": False, "corn": True}
    [one] = result.stopped
    assert (one.table.name, one.error, one.exit, one.message) == ("beans", "GateFailed", 1, str(error))
    assert f"{pipe.database}.beans: GateFailed at " in result.note
    [_, beans, corn] = status(pipe.config)
    assert (beans.last_gate, beans.stopped, corn.last_gate, corn.stopped) == ("failed", one, "passed", None)
    assert f"{pipe.database}.beans: GateFailed at {one.at}: {error}" in status(pipe.config).note
    pipe.sql("UPDATE beans SET v = 10 WHERE id = 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert [one.stopped for one in status(pipe.config)] == [None] * 3
    assert not everything(pipe.state / "stopped")


def alter_unlogged(pipe: Pipe) -> AbstractContextManager[None]:
    """The definition changes, and the binlog does not tell."""
    return on_source(
        pipe,
        ("SET sql_log_bin = 0", "ALTER TABLE beans ADD w INT", "SET sql_log_bin = 1"),
        ("SET sql_log_bin = 0", "ALTER TABLE beans DROP w", "SET sql_log_bin = 1"),
    )


def not_innodb(pipe: Pipe) -> AbstractContextManager[None]:
    """A precondition of the table itself is no longer met."""
    return on_source(
        pipe,
        ("SET sql_log_bin = 0", "ALTER TABLE beans ENGINE = MyISAM", "SET sql_log_bin = 1"),
        ("SET sql_log_bin = 0", "ALTER TABLE beans ENGINE = InnoDB", "SET sql_log_bin = 1"),
    )


@contextmanager
def on_source(pipe: Pipe, before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[None]:
    """Statements before and after a block."""
    pipe.sql(*before)
    yield
    pipe.sql(*after)


def foreign_row(pipe: Pipe) -> AbstractContextManager[None]:
    """Someone writes to the copy."""
    return others.inserted(pipe, "beans", (99, 99))


@contextmanager
def unreadable(pipe: Pipe) -> Iterator[None]:
    """All metadata of the copy is gone."""
    with catalog_of(pipe.config.target) as catalog:
        file = Path(catalog.load_table(f"{pipe.database}.beans").metadata_location.removeprefix("file://"))
    hidden = file.parent.rename(file.parent.with_suffix(".hidden"))
    yield
    hidden.rename(file.parent)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (alter_unlogged, SchemaChanged),
        (foreign_row, ForeignWrite),
        (unreadable, StateUnreadable),
        (not_innodb, PreflightFailed),
    ],
)
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_whatever_stops_a_table_the_others_go_on(
    market: Pipe, trouble: Callable[[Pipe], AbstractContextManager[None]], error: type[LakeIngestError]
) -> None:
    """Run after run; and when it is over, the table goes on from where it was, though its binlog is purged by then."""
    pipe = market
    add(pipe, 3)
    with trouble(pipe):
        for key in (4, 5):
            found = stopped(pipe)
            assert type(found) is error
            assert found.exit_code == 3
            assert [len(pipe.rows(name)) for name in ("apples", "corn")] == [key - 1] * 2
            [beans] = status(pipe.config, [f"{pipe.database}.beans"])
            assert beans.stopped is not None
            assert beans.stopped.error == error.__name__
            add(pipe, key, "apples", "corn") if error is SchemaChanged else add(pipe, key)
            pipe.sql("FLUSH BINARY LOGS")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variation in several runs")
def test_what_a_stopped_table_needs_is_kept_in_the_spool(market: Pipe) -> None:
    """The source purges its binlog meanwhile; the table goes on from the spool, which is forgotten then."""
    pipe = market
    add(pipe, 3)
    pipe.sql("UPDATE beans SET v = 1000 WHERE id = 1")
    for key in (4, 5, 6):
        stopped(pipe)
        add(pipe, key)
        pipe.sql("FLUSH BINARY LOGS")
    stopped(pipe)
    pipe.purge()
    assert len(segments(pipe)) > 2
    pipe.sql("UPDATE beans SET v = 10 WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
    assert segments(pipe) == []


def segments(pipe: Pipe) -> list[File]:
    """The manifests of the spool."""
    assert Spool.load(pipe.state / "spool") is not None
    return everything(pipe.state / "spool" / "segments")


@pytest.mark.long("a dozen runs")
def test_the_spool_has_few_files_however_long_a_table_is_paused(market: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table goes on from them, though the source has purged that part of its binlog meanwhile."""
    monkeypatch.setattr(thinning, "JOIN", 4)
    add(market, 10)
    ask(market.config, "pause", [f"{market.database}.beans"], spark=market.spark)
    for key in range(20, 32):
        add(market, key)
        market.run()
    assert len(segments(market)) < 8
    market.sql("FLUSH BINARY LOGS")
    market.run()
    market.purge()
    ask(market.config, "resume", [f"{market.database}.beans"], wait=False)
    assert market.run().stopped == ()
    market.assert_equal()
    assert not market.seen(StartedOver)


@pytest.mark.formats
@pytest.mark.long("a variation in several runs")
def test_a_new_table_that_cannot_be_copied_leaves_the_others(market: Pipe) -> None:
    """One whose name is taken, one without a key, one with a zero date: each has its reason, 3 is the exit code."""
    pipe = market
    pipe.sql(
        "CREATE TABLE aloe (id VARCHAR(5))",
        "SET sql_mode = ''",
        "CREATE TABLE barley (id INT PRIMARY KEY, d DATE)",
        "INSERT INTO barley VALUES (1, '2026-01-01'), (2, '0000-00-00')",
        "SET sql_mode = DEFAULT",
        "CREATE TABLE dates (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE figs (id INT PRIMARY KEY, v INT)",
    )
    add(pipe, 3, "apples", "corn", "dates", "figs")
    others.make(pipe, "dates", (7, "theirs")) if pipe.config.target.format == "hudi" else taken(pipe, "dates")
    error = stopped(pipe)
    assert error.exit_code == 3
    assert isinstance(error.result, RunResult)
    found = {one.table.name: (one.error, one.message) for one in error.result.stopped}
    assert {name: answer for name, (answer, _) in found.items()} == {
        "aloe": "PreflightFailed",
        "barley": "UnsupportedValue",
        "dates": "PreflightFailed",
    }
    assert "neither a primary key" in found["aloe"][1]
    assert "exists and is no copy of" in found["dates"][1]
    assert [len(pipe.rows(name)) for name in ("apples", "corn", "figs")] == [3, 3, 1]
    assert isinstance(pipe.events[-2], Published | TableStopped)
    assert isinstance(pipe.events[-1], Measured)
    pipe.assert_equal("apples", "corn", "figs")


def taken(pipe: Pipe, name: str) -> None:
    """Someone else's table has the name."""
    pipe.spark.sql(f"CREATE TABLE {CATALOG}.{pipe.database}.{name} AS SELECT 7 AS id, 'theirs' AS v")


@pytest.mark.long("a variation in several runs")
def test_the_most_serious_error_decides_how_a_run_ends(market: Pipe) -> None:
    """A person who is needed comes before a gate; both tables are in the result."""
    pipe = market
    pipe.sql("UPDATE beans SET v = 1000 WHERE id = 1")
    add(pipe, 3)
    with others.inserted(pipe, "corn", (99, 99)):
        error = stopped(pipe)
    assert isinstance(error, ForeignWrite)
    assert isinstance(error.result, RunResult)
    assert [(one.table.name, one.exit) for one in error.result.stopped] == [("corn", 3), ("beans", 1)]
    assert files.document(pipe.state / "stopped" / f"{pipe.database}.corn.json")["exit"] == 3


@pytest.mark.long("a variation in several runs")
def test_a_run_that_follows_goes_on_and_tries_a_failed_gate_again(
    market: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are published as before; when the rows are mended the table is, too, and the run ends well."""
    pipe = market
    monkeypatch.setattr(one_round, "RETRY_SECONDS", 1.0)

    def work() -> None:
        pipe.sql("UPDATE beans SET v = 1000 WHERE id = 1")
        soon(lambda: bool(pipe.seen(TableStopped)))
        add(pipe, 3)
        shown(pipe, "apples")
        shown(pipe, "corn")
        assert len(pipe.rows("beans")) == 2
        pipe.sql("UPDATE beans SET v = 10 WHERE id = 1")
        shown(pipe, "beans")

    assert follow_while(pipe, work).stopped == ()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("waits for a definition to settle")
def test_a_table_whose_definition_was_unsettled_goes_on_by_itself(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, lake_format: str
) -> None:
    """It stopped because its definition changed all the time; once that is over, the same run follows its DDL."""
    monkeypatch.setattr(one_round, "RETRY_SECONDS", 1.0)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()

    def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lifting, "BRACKETS", 0)  # no look at it is settled
            pipe.sql("ALTER TABLE t ADD v INT DEFAULT 7", "INSERT INTO t VALUES (2, 8)")
            soon(lambda: bool(pipe.seen(TableStopped)))
        shown(pipe, "t")

    assert follow_while(pipe, work).stopped == ()
    assert [type(one.error) for one in pipe.seen(TableStopped) if isinstance(one, TableStopped)] == [SplitUnstable]
    assert pipe.seen(StartedOver) == []
    pipe.assert_equal()


@pytest.mark.long("a variation in several runs")
def test_one_copy_that_is_dropped_is_made_again_and_the_others_go_on(market: Pipe) -> None:
    """After a change of its definition; the DDL in the binlog, which is behind it by then, stops no one."""
    pipe = market
    other = f"{pipe.database}_b"
    tables = Tables(include=(f"{pipe.database}.*", f"{other}.*"), options=pipe.config.tables.options)
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    pipe.freeze()
    try:
        pipe.sql(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.peas (id INT PRIMARY KEY)")
        pipe.run()
        add(pipe, 3)
        back = f"USE {pipe.database}"
        pipe.sql(f"USE {other}", "ALTER TABLE peas ADD v INT", "INSERT INTO peas VALUES (1, 2)", back)
        error = stopped(pipe)
        assert isinstance(error, SchemaChanged)
        assert [len(pipe.rows(name)) for name in NAMES] == [3] * 3
        add(pipe, 4)
        pipe.sql(f"USE {other}", "ALTER TABLE peas ADD w INT", "INSERT INTO peas VALUES (2, 3, 4)", back)
        pipe.spark.sql(f"DROP TABLE {CATALOG}.{other}.peas")
        pipe.run()
        assert pipe.spark.table(f"{CATALOG}.{other}.peas").count() == 2
        pipe.assert_equal(*NAMES)
    finally:
        pipe.sql(f"DROP DATABASE {other}")
