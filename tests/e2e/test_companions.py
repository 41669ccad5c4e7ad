"""Companions of copies that were dropped, whose changes are lost, or whose table does not change any more."""

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from lakeingest.config.changelog import Changelog
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.pipeline.companions import companions, log_tables
from lakeingest.pipeline.companions.transactions import Transactions
from lakeingest.pipeline.events import Undelivered
from lakeingest.pipeline.rounds import one_round
from lakeingest.state.companions import read_tidied
from tests.e2e import others
from tests.e2e.logged_rows import assert_log_is_right, log_of
from tests.e2e.pipe import Pipe
from tests.e2e.test_companion_status import list_of, refuse
from tests.e2e.test_follow import follow_while, soon
from tests.e2e.test_histories import versions
from tests.lake.shown import catalog_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def beside(pipe: Pipe) -> Pipe:
    """A table with all companions that the format has, and another one."""
    is_iceberg = pipe.config.target.format == "iceberg"
    changelog = Changelog(table=True, transactions=list_of(pipe)) if is_iceberg else Changelog()
    pipe.config = pipe.config.model_copy(update={"history": "scd2", "changelog": changelog})
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    return pipe


class Tomorrow(dt.datetime):
    """A clock that is a day ahead."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        """The time a day from now."""
        return super().now(tz) + dt.timedelta(days=1)


def listed(pipe: Pipe) -> list[dict[str, Any]]:
    """The list of transactions, in order."""
    with catalog_of(pipe.config.target) as catalog:
        found = catalog.load_table((list_of(pipe), "transactions")).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["_lakeingest_number"]))


def spooled(pipe: Pipe, table: str) -> set[str]:
    """The files with change rows of a table, as the manifests of spool and archive name them."""
    spool = pipe.state / "spool"
    manifests = [*(spool / "segments").listed("*.json"), *(spool / "archive").listed("*-*.*.json")]
    entries = (files.document(file)["tables"].get(f"{pipe.database}.{table}") for file in manifests)
    return {entry[0] for entry in entries if entry}


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_the_companions_of_a_first_copy_come_with_it(beside: Pipe) -> None:
    """The run that publishes the copy writes them, up to the same place."""
    beside.run()
    assert [(row["id"], row["begun_by"]) for row in versions(beside)] == [(1, "copy"), (2, "copy")]
    if beside.config.target.format == "iceberg":
        log = log_of(beside.config.target, TableId(beside.database, "t"))
        assert [row["_lakeingest_op"] for row in log] == ["RESET", "+I", "+I"]


@pytest.mark.formats
@pytest.mark.long("several runs; test_changelog_table and test_histories have companions")
def test_a_companion_that_was_dropped_begins_anew_at_the_next_run(beside: Pipe) -> None:
    """Also if its table does not change."""
    beside.run()
    is_iceberg = beside.config.target.format == "iceberg"
    for name in ("t__history", *["t__changelog"] * is_iceberg):
        others.drop(beside, name)
    beside.run()
    assert not beside.seen(Undelivered)
    assert [(row["id"], row["begun_by"]) for row in versions(beside)] == [(1, "copy"), (2, "copy")]
    if is_iceberg:
        log = log_of(beside.config.target, TableId(beside.database, "t"))
        assert [row["_lakeingest_op"] for row in log] == ["RESET", "+I", "+I"]
    beside.sql("UPDATE t SET v = 3 WHERE id = 1")
    beside.run()
    assert [(row["v"], row["ended_by"]) for row in versions(beside) if row["id"] == 1] == [(1, "update"), (3, None)]
    if is_iceberg:
        assert assert_log_is_right(beside.config.target, TableId(beside.database, "t")) > 0


@pytest.mark.long("several runs")
def test_the_list_of_transactions_goes_on_after_a_lost_file(beside: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what is before the file, then says that there is a gap, and has what comes later."""
    beside.run()
    beside.sql("UPDATE t SET v = 10")
    beside.run()
    assert [row["gap"] for row in listed(beside)] == [True, False]
    before = spooled(beside, "t")
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "write", refuse)
        beside.sql("UPDATE t SET v = 11")
        beside.run()
        beside.sql("UPDATE t SET v = 12")
        beside.run()
    lost = spooled(beside, "t") - before
    assert lost
    for name in lost:
        (beside.state / "spool" / name).delete()
    beside.events.clear()
    beside.run()
    assert not beside.seen(Undelivered)
    assert [row["gap"] for row in listed(beside)] == [True, False, True]
    beside.sql("UPDATE t SET v = 13")
    beside.run()
    rows = listed(beside)
    assert [row["gap"] for row in rows] == [True, False, True, False]
    assert json.loads(rows[-1]["tables"]) == {f"{beside.database}.t": 4}
    places = [row["_lakeingest_position"] for row in rows]
    assert places == sorted(places)


def test_rows_of_a_quiet_log_leave_on_their_day(beside: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a day removes them, though nothing is written into the log; and it goes on exactly."""

    class Earlier(dt.datetime):
        """A clock that is three days late."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return super().now(tz) - dt.timedelta(days=3)

    changelog = Changelog.model_validate({"table": True, "table_keep": "1d", "transactions": list_of(beside)})
    beside.config = beside.config.model_copy(update={"changelog": changelog, "history": "none"})
    with monkeypatch.context() as patch:
        patch.setattr(log_tables, "dt", SimpleNamespace(datetime=Earlier, UTC=dt.UTC, timedelta=dt.timedelta))
        patch.setattr(companions, "datetime", Earlier)
        beside.run()
        beside.sql("UPDATE t SET v = 5 WHERE id = 1")
        beside.run()
    table = TableId(beside.database, "t")
    assert len(log_of(beside.config.target, table)) == 5
    beside.run()
    assert log_of(beside.config.target, table) == []
    assert listed(beside) == []
    beside.sql("UPDATE t SET v = 6 WHERE id = 2")
    beside.run()
    log = log_of(beside.config.target, table)
    assert [(row["_lakeingest_op"], row["id"], row["v"]) for row in log] == [("-U", 2, 2), ("+U", 2, 6)]
    assert [json.loads(row["tables"]) for row in listed(beside)] == [{str(table): 2}]
    assert not beside.seen(Undelivered)


@pytest.mark.long("several runs")
def test_a_quiet_log_that_lost_a_file_gets_its_rows_again(beside: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looks at the log first: what was noted of it counts for the lost commit only."""
    table = TableId(beside.database, "t")
    beside.run()
    beside.sql("UPDATE t SET v = 10 WHERE id = 1")
    beside.run()
    before = log_of(beside.config.target, table)
    files_before = set(files_of_log(beside))
    beside.sql("UPDATE t SET v = 11 WHERE id = 1")
    beside.run()
    beside.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    beside.run()  # notes that the log is complete as of now
    [lost] = set(files_of_log(beside)) - files_before
    Path(lost.removeprefix("file://")).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(companions, "datetime", Tomorrow)
        beside.run()  # the table is quiet, and its log is tidied
    assert log_of(beside.config.target, table) == before
    beside.sql("INSERT INTO other VALUES (1)")
    beside.run()
    log = log_of(beside.config.target, table)
    assert [(row["_lakeingest_op"], row["v"]) for row in log[len(before) :]] == [("-U", 10), ("+U", 11)]
    beside.sql("UPDATE t SET v = 12 WHERE id = 1")
    beside.run()
    assert not beside.seen(Undelivered)
    assert assert_log_is_right(beside.config.target, table) > 0
    log = log_of(beside.config.target, table)
    assert [row["v"] for row in log if row["_lakeingest_op"] == "+U"] == [10, 11, 12]


def test_a_run_that_follows_tidies_a_few_companions_in_a_round(beside: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all are tidied, the day is noted; the log and the list of transactions need a round each."""
    beside.run()
    today = read_tidied(beside.state)
    assert today is not None
    monkeypatch.setattr(companions, "datetime", Tomorrow)
    monkeypatch.setattr(one_round, "TIDIED_AT_ONCE", 1)
    rounds, tidied = list[bool](), companions.Companions.tidy

    def counted(self: companions.Companions, *given: Any) -> bool:
        rounds.append(tidied(self, *given))
        return rounds[-1]

    monkeypatch.setattr(companions.Companions, "tidy", counted)
    follow_while(beside, lambda: soon(lambda: read_tidied(beside.state) == today + dt.timedelta(days=1)))
    assert rounds[:2] == [True, True]
    assert not any(rounds[2:])
    assert not beside.seen(Undelivered)


def files_of_log(pipe: Pipe) -> list[str]:
    """The data files that the log of the table has now."""
    with catalog_of(pipe.config.target) as catalog:
        loaded = catalog.load_table(pipe.config.target.identifier(TableId(pipe.database, "t__changelog")))
        return [task.file.file_path for task in loaded.scan().plan_files()]
