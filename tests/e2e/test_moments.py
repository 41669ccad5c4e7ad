"""`wait` returns when readers see what was written, and `at` names what they saw at a past moment."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakeingest.api import Pipeline
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.core.figures.freshness import committed_at
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, OperatorNeeded, Retryable, UsageError
from tests.conftest import GTIDS
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while
from tests.e2e.test_monitoring import CHEAP, options

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(any_pipe: Pipe) -> Pipe:
    """Two tables that are copied."""
    any_pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT)", "CREATE TABLE quiet (id INT PRIMARY KEY)")
    any_pipe.sql("INSERT INTO busy VALUES (1, 1)", "INSERT INTO quiet VALUES (1)")
    any_pipe.run()
    return any_pipe


def opened(pipe: Pipe) -> Pipeline:
    """The pipeline as users of Python open it."""
    return Pipeline(pipe.config, pipe.spark)


def names(pipe: Pipe) -> list[str]:
    """Both tables."""
    return [f"{pipe.database}.busy", f"{pipe.database}.quiet"]


def answer(pipe: Pipe, sql: str) -> str:
    """The one value that the source answers."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(sql)
        [(value,)] = cursor.fetchall()
    return str(value)


def values(pipe: Pipe, version: int | None = None) -> dict[int, int]:
    """The rows of `busy` that readers see, or those of a version."""
    rows = opened(pipe).rows(names(pipe)[0], version)
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.mark.long("follows on each server")
def test_who_waits_reads_their_own_writes(pair: Pipe) -> None:
    """Again and again while a run follows; tables without changes let nobody wait in vain."""

    def work() -> None:
        for number in range(2, 12):
            pair.sql(f"INSERT INTO busy VALUES ({number}, {number})", f"UPDATE busy SET v = -{number} WHERE id = 1")
            waited = opened(pair).wait(max_seconds=60)
            assert [str(one.table) for one in waited.tables] == names(pair)
            seen = values(pair)
            assert (seen[1], seen[number]) == (-number, number)
        opened(pair).wait(until=datetime.now(UTC).isoformat(), max_seconds=60)

    follow_while(pair, work)


@pytest.mark.long("one of the servers in turn", turn="any_server")
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_wait_ends_with_the_run_that_publishes(pair: Pipe) -> None:
    """It is over at once if nothing is missing, and after its time if something is; a past time is seen already."""
    assert [row[0] for row in opened(pair).wait(max_seconds=0).cells()] == names(pair)
    before = answer(pair, "SELECT UTC_TIMESTAMP()")
    pair.sql("INSERT INTO busy VALUES (2, 2)")
    with pytest.raises(Retryable, match=r"busy \(up to .*quiet \(up to "):
        opened(pair).wait(max_seconds=0)
    with pytest.raises(Retryable, match="busy"):
        opened(pair).wait(names(pair)[0], max_seconds=0)
    pair.run("busy")
    assert opened(pair).wait(names(pair)[0], max_seconds=0).tables[0].complete_to is not None
    opened(pair).wait(names(pair)[0], until=before, max_seconds=0)
    with pytest.raises(Retryable):
        opened(pair).wait(until="2200-01-01", max_seconds=0)


@pytest.mark.long("one server and format in turn", turn=("any_server", "lake_format"))
def test_a_wait_for_gtids_ends_when_readers_see_them(pair: Pipe, any_server: LocalServer) -> None:
    """Where the source has none they are refused, because nobody could tell when they are seen."""
    if GTIDS or any_server.flavor.is_mariadb:
        gtid = "0-1-7" if any_server.flavor.is_mariadb else "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"
        with pytest.raises(UsageError, match="GTID"):
            opened(pair).wait(gtid=gtid, max_seconds=0)
        with pytest.raises(UsageError, match="GTID"):
            opened(pair).at(gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1")
        return
    first = answer(pair, "SELECT @@GLOBAL.gtid_executed")
    opened(pair).wait(gtid=first, max_seconds=0)
    pair.sql("INSERT INTO busy VALUES (2, 2)")
    second = answer(pair, "SELECT @@GLOBAL.gtid_executed")
    with pytest.raises(Retryable):
        opened(pair).wait(gtid=second, max_seconds=0)
    pair.run()
    opened(pair).wait(gtid=second, max_seconds=0)
    for gtid, rows in ((first, {1: 1}), (second, {1: 1, 2: 2})):
        assert values(pair, opened(pair).at(names(pair)[0], gtid=gtid).tables[0].version) == rows
    with pytest.raises(UsageError, match="give one of them"):
        opened(pair).wait(gtid=second, until="1h")
    with pytest.raises(UsageError, match="by --time or by --gtid"):
        opened(pair).at(names(pair)[0])


@pytest.mark.long("waits for what does not come")
def test_a_wait_says_what_keeps_a_table(pipe: Pipe, tmp_path: Path) -> None:
    """A stopped table raises its own error, and a paused one says how it goes on. Nobody waits for what is dropped."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.busy.yml").write_text(CHEAP)
    options(pipe, quality=Quality(suites=Place.of(suites)))
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT)", "CREATE TABLE gone (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("INSERT INTO busy VALUES (1, 1000)", "DROP TABLE gone")
    with pytest.raises(GateFailed):
        pipe.run()
    with pytest.raises(GateFailed, match="busy"):
        opened(pipe).wait(max_seconds=60)
    with pytest.raises(UsageError, match=r"no run follows .*\.gone"):
        opened(pipe).wait(f"{pipe.database}.gone")
    pipe.sql("UPDATE busy SET v = 1")
    pipe.run()
    assert [one.table.name for one in opened(pipe).wait(max_seconds=0).tables] == ["busy"]
    opened(pipe).pause(f"{pipe.database}.busy")
    pipe.sql("UPDATE busy SET v = 2")
    with pytest.raises(OperatorNeeded, match=r"paused by .*lakeingest resume"):
        opened(pipe).wait(max_seconds=60)


@pytest.mark.long("one server and format in turn", turn=("any_server", "lake_format"))
def test_the_version_of_a_past_moment_has_the_rows_of_then(pair: Pipe) -> None:
    """By the clock of the source. Where all versions are later, there is none."""
    then = [(answer(pair, "SELECT UTC_TIMESTAMP(6)"), values(pair))]
    for number in (2, 3):
        time.sleep(1.1)  # MariaDB stores whole seconds
        pair.sql(f"INSERT INTO busy VALUES ({number}, {number})")
        pair.run()
        time.sleep(1.1)
        then.append((answer(pair, "SELECT UTC_TIMESTAMP(6)"), values(pair)))
    assert [len(rows) for _, rows in then] == [1, 2, 3]
    found = [opened(pair).at(names(pair)[0], time=moment).tables[0] for moment, _ in then]
    assert [values(pair, one.version) for one in found] == [rows for _, rows in then]
    assert [one.until is None for one in found] == [False, False, True]
    assert {str(one.table) for one in opened(pair).at(time="0s").tables} == set(names(pair))
    committed = committed_at(found[0].position)
    assert committed is not None
    early = datetime.fromtimestamp(committed, UTC) - timedelta(seconds=60)
    nothing = opened(pair).at(names(pair)[0], time=early.isoformat())
    assert nothing.tables[0].version is None
    assert "every version that can still be read is later" in nothing.note
