"""What the binlog holds of one table that cannot be replayed stops that table, and the others are read on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.run import RunResult
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, LakeIngestError, PreflightFailed, UnsupportedEvent, UnsupportedValue
from lakeingest.pipeline.events import Event, TableStopped, WaveCommitted
from tests.e2e import others
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ZERO_DATE = ("SET sql_mode = ''", "INSERT INTO beans VALUES (9, '0000-00-00')", "SET sql_mode = DEFAULT")
PARTIAL_IMAGE = (
    "SET binlog_row_image = MINIMAL",
    "UPDATE beans SET d = '2026-01-02' WHERE id = 1",
    "SET binlog_row_image = DEFAULT",
)
DDL = ("ALTER TABLE beans ADD w INT DEFAULT (1)", "ALTER TABLE beans DROP w")


@pytest.fixture
def market(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline of three tables that are copied; the binlog of the one in the middle cannot always be replayed."""
    pipe = pipe_on(mysql_server_with(server_id="97"), chunk_rows=10)
    for name in ("apples", "beans", "corn"):
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, d DATE)", f"INSERT INTO {name} VALUES (1, '2026-01-01')")
    pipe.run()
    return pipe


def add(pipe: Pipe, key: int, *names: str) -> None:
    """A row more in each of the tables."""
    pipe.sql(*(f"INSERT INTO {name} VALUES ({key}, '2026-01-01')" for name in names))


def stopped(pipe: Pipe) -> LakeIngestError:
    """The error that a run ends with."""
    with pytest.raises(LakeIngestError) as raised:
        pipe.run()
    return raised.value


def position(pipe: Pipe, name: str) -> object:
    """Where a table's copy stands."""
    [one] = status(pipe.config, [f"{pipe.database}.{name}"])
    return one.position


@contextmanager
def without(pipe: Pipe, name: str) -> Iterator[None]:
    """The configuration leaves a table out while the block runs."""
    before = pipe.config
    tables = before.tables.model_copy(update={"exclude": (f"{pipe.database}.{name}",)})
    pipe.config = before.model_copy(update={"tables": tables})
    yield
    pipe.config = before


@pytest.mark.formats
@pytest.mark.parametrize(
    ("trouble", "error"),
    [(ZERO_DATE, UnsupportedValue), (PARTIAL_IMAGE, UnsupportedEvent), (DDL, UnsupportedEvent)],
    ids=["value", "image", "ddl"],
)
@pytest.mark.long("five runs, each with a publish", only=("hudi", "ddl", "image", "value"))
def test_the_others_go_on_run_after_run(market: Pipe, trouble: tuple[str, ...], error: type[LakeIngestError]) -> None:
    """The table keeps its position, `status` and `check` name it, and its copy can be made again."""
    pipe, before = market, position(market, "beans")
    pipe.freeze()
    add(pipe, 2, "apples", "beans")
    pipe.sql(*trouble)
    for key in (3, 4):
        add(pipe, key, "apples", "corn", "beans")
        found = stopped(pipe)
        assert type(found) is error
        assert found.exit_code == 3
        assert [len(pipe.rows(name)) for name in ("apples", "beans", "corn")] == [key, 1, key - 1]
        assert position(pipe, "beans") == before
        [beans] = status(pipe.config, [f"{pipe.database}.beans"])
        assert beans.stopped is not None
        assert beans.stopped.error == error.__name__
        [saved] = [one.finding for one in check(pipe.config).checked if one.name == "saved positions"]
        assert saved is not None
        assert "beans" in saved
    pipe.assert_equal("apples", "corn")
    pipe.sql("DELETE FROM beans WHERE id = 9")
    others.drop(pipe, "beans")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_the_witness_stops_one_table_as_well(market: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value, an image and DDL, each of another table of four."""
    pipe = market
    pipe.sql("CREATE TABLE dates (id INT PRIMARY KEY, d DATE)")
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    pipe.freeze()
    pipe.run()
    for trouble, name in ((ZERO_DATE, "beans"), (PARTIAL_IMAGE, "apples"), (DDL, "corn")):
        pipe.sql(*(statement.replace("beans", name) for statement in trouble))
    add(pipe, 2, "dates")
    result = stopped(pipe).result
    assert isinstance(result, RunResult)
    assert {one.table.name: one.error for one in result.stopped} == {
        "beans": "UnsupportedValue",
        "apples": "UnsupportedEvent",
        "corn": "UnsupportedEvent",
    }
    pipe.assert_equal("dates")


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_that_follows_goes_on_with_the_others(market: Pipe) -> None:
    """The table stops within the batch that holds its bad value; later batches are read without it."""
    pipe = market

    def work() -> None:
        pipe.sql(*ZERO_DATE)
        soon(lambda: bool(pipe.seen(TableStopped)))
        add(pipe, 2, "apples", "beans")
        shown(pipe, "apples")
        add(pipe, 3, "apples", "beans", "corn")
        shown(pipe, "corn")

    with pytest.raises(UnsupportedValue):
        follow_while(pipe, work)
    assert [len(pipe.rows(name)) for name in ("apples", "beans", "corn")] == [3, 1, 2]
    pipe.assert_equal("apples", "corn")


@pytest.mark.long("a variation in several runs")
def test_a_table_that_is_copied_for_the_first_time_stops_in_a_later_wave(market: Pipe) -> None:
    """DDL of it comes between two of its waves; no wave is committed after that, and the others are published."""
    pipe = market
    pipe.freeze()
    pipe.sql("CREATE TABLE dates (id INT PRIMARY KEY, d DATE)")
    pipe.sql(f"INSERT INTO dates VALUES {', '.join(f'({number}, NULL)' for number in range(100))}")

    def alter(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            pipe.sql(*(statement.replace("beans", "dates") for statement in DDL))
            add(pipe, 2, "apples")

    with pytest.raises(UnsupportedEvent) as raised:
        pipe.run(observe=alter)
    assert isinstance(raised.value.result, RunResult)
    [one] = raised.value.result.stopped
    assert one.table.name == "dates"
    assert len(pipe.rows("apples")) == 2
    pipe.run()  # nobody has seen its first copy: it is made anew
    pipe.assert_equal()


@pytest.mark.long("a variation in several runs")
def test_the_purged_binlog_of_one_table_stops_no_other(market: Pipe) -> None:
    """It was left out for a while; `check` says the same."""
    pipe = market
    add(pipe, 2, "apples", "beans", "corn")
    with without(pipe, "beans"):
        pipe.run()
        pipe.sql("FLUSH BINARY LOGS")
        add(pipe, 3, "apples")
        pipe.run()
        pipe.purge()
    add(pipe, 4, "apples", "corn")
    checked = {one.name: one.finding for one in check(pipe.config).checked if one.finding and one.fatal}
    assert list(checked) == ["saved positions"]
    assert checked["saved positions"].startswith(f"{pipe.database}.beans: the source has purged")
    for _ in range(2):
        error = stopped(pipe)
        assert isinstance(error, BinlogGone)
        assert isinstance(error.result, RunResult)
        assert [one.table.name for one in error.result.stopped] == ["beans"]
    pipe.assert_equal("apples", "corn")


@pytest.mark.long("several runs in a row; other tests have each step")
def test_a_table_that_was_left_out_goes_on_from_its_position(market: Pipe) -> None:
    """While another one is copied for the first time, whose waves are not read a second time."""
    pipe = market
    pipe.freeze()
    pipe.sql("CREATE TABLE dates (id INT PRIMARY KEY, d DATE)")
    pipe.sql(f"INSERT INTO dates VALUES {', '.join(f'({number}, NULL)' for number in range(100))}")
    add(pipe, 2, "beans")
    with without(pipe, "beans"):
        assert not pipe.run(max_minutes=0).caught_up
        with pytest.raises(KeyboardInterrupt):
            pipe.run(observe=end_after_a_wave)
    add(pipe, 3, "apples", "beans", "corn")
    pipe.sql("UPDATE dates SET d = '2026-03-01' WHERE id IN (1, 99)")
    pipe.run()
    dates = [one for one in pipe.seen(WaveCommitted) if isinstance(one, WaveCommitted) and one.table.name == "dates"]
    assert all(after.wave == before.wave + 1 for before, after in pairwise(dates))
    pipe.assert_equal()


def end_after_a_wave(event: Event) -> None:
    """The run is ended by Ctrl-C."""
    if isinstance(event, WaveCommitted):
        raise KeyboardInterrupt


def test_a_suite_with_an_unknown_column_stops_its_table_alone(market: Pipe, tmp_path: Path) -> None:
    """The others are copied; `check` names the file and the column."""
    pipe = market
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / f"{pipe.database}.beans.yml").write_text(
        "expectations: [{type: expect_column_to_exist, kwargs: {column: weight}}]"
    )
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(folder))})
    add(pipe, 2, "apples", "beans")
    error = stopped(pipe)
    assert isinstance(error, PreflightFailed)
    assert "has no column weight" in str(error)
    assert [len(pipe.rows(name)) for name in ("apples", "beans")] == [2, 1]
