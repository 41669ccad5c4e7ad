"""A table that has stopped is copied again from its first chunk where that is asked for; readers keep the old rows."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest

from lakeingest.commands.changelog import changelog_of
from lakeingest.commands.check import check
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.config import CATALOG
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, ChangelogGone, LakeIngestError, MainMoved, SpoolGap, UnsupportedValue
from lakeingest.pipeline.changelog.reading import Part
from lakeingest.pipeline.events import Event, StartedOver, TableStopped, WaveCommitted
from lakeingest.spool.followed import Altered
from lakeingest.state.signals import SignalFolder
from tests.conftest import GTIDS
from tests.e2e.pipe import Pipe
from tests.e2e.test_binlog_of_one_table import without
from tests.e2e.test_follow import follow_while, shown, soon
from tests.e2e.test_history import MODES
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 80
ZERO_DATE = ("SET sql_mode = ''", "UPDATE beans SET d = '0000-00-00' WHERE id = 2", "SET sql_mode = DEFAULT")
PART = Scope(range=KeyRange((1,), (5,)))


def filled(pipe: Pipe, *names: str) -> Pipe:
    """Tables of some waves, copied."""
    for name in names:
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20), d DATE)")
        pipe.sql(f"INSERT INTO {name} VALUES {', '.join(f'({key}, {key}, NULL)' for key in range(ROWS))}")
    pipe.run()
    pipe.events.clear()
    return pipe


@pytest.fixture
def market(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline of two tables that are copied, on a server whose binlog may be purged."""
    return filled(pipe_on(mysql_server_with(server_id="94"), chunk_rows=3), "apples", "beans")


@pytest.fixture
def alone(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """The same with one table."""
    return filled(pipe_on(mysql_server_with(server_id="94"), chunk_rows=3), "beans")


def beans(pipe: Pipe) -> str:
    """The name of the table that stops."""
    return f"{pipe.database}.beans"


def keys_of(parts: Iterable[Part]) -> list[int]:
    """The keys of all rows of a changelog; DDL has none."""
    return [key for part in parts if not isinstance(part, Altered) for key in part.rows["id"].to_pylist()]


def lose_beans(pipe: Pipe) -> None:
    """Changes of one table are lost: it was left out until the binlog that has them was purged."""
    pipe.sql("DELETE FROM beans WHERE id % 7 = 0", "UPDATE beans SET v = 'new' WHERE id % 3 = 0")
    with without(pipe, "beans"):
        pipe.run()
        pipe.sql("FLUSH BINARY LOGS", "INSERT INTO apples SELECT MAX(id) + 1, 'x', NULL FROM apples")
        pipe.run()
        pipe.purge()
    pipe.events.clear()


def whole(pipe: Pipe) -> int:
    """Ask for the whole table, without waiting; the signal's number."""
    pipe.begin_file()
    [signal] = ask(pipe.config, "resnapshot", [beans(pipe)], scope=WHOLE, wait=False)
    return signal.number


def look_and_change(pipe: Pipe, seen: list[object]) -> None:
    """In the middle of a run: note what readers and `status` say of the beans, then change rows of both tables."""
    seen.append((pipe.rows("beans"), status(pipe.config, [beans(pipe)])[0].state))
    pipe.sql(
        "DELETE FROM beans WHERE id IN (1, 78)",
        "INSERT INTO beans VALUES (200, 'y', NULL)",
        "UPDATE beans SET v = 'z' WHERE id IN (2, 79)",
        "INSERT INTO apples VALUES (203, 'x', NULL)",
    )


def states(pipe: Pipe) -> list[str]:
    """The states of all signals."""
    return [one.signal.state.value for one in SignalFolder(pipe.state).read()]


def stopped(pipe: Pipe) -> LakeIngestError:
    """The error that a run ends with."""
    with pytest.raises(LakeIngestError) as raised:
        pipe.run()
    return raised.value


def at_wave(number: int, work: Callable[[], object]) -> Callable[[Event], None]:
    """Work to be done when a wave of the new copy was committed."""

    def watch(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "beans" and event.wave == number:
            work()

    return watch


@pytest.mark.formats
@pytest.mark.long("readers beside several runs")
def test_a_table_whose_binlog_is_gone_is_copied_again_and_readers_see_the_old_rows_meanwhile(market: Pipe) -> None:
    """The other table goes on. The new copy lacks the deleted rows, and has the changes made while it was copied."""
    pipe, old, seen = market, market.rows("beans"), list[object]()
    lose_beans(pipe)
    pipe.sql("INSERT INTO apples VALUES (202, 'x', NULL)")
    assert isinstance(stopped(pipe), BinlogGone)
    whole(pipe)
    assert [one.finding for one in check(pipe.config).checked if one.name == "saved positions"] == [None]
    assert pipe.run(observe=at_wave(2, partial(look_and_change, pipe, seen))).stopped == ()
    assert seen == [(old, "copying again")]
    assert (states(pipe), len(pipe.seen(StartedOver))) == (["done"], 1)
    pipe.assert_equal()
    assert [one.stopped for one in status(pipe.config)] == [None, None]
    pipe.sql("DELETE FROM beans WHERE id = 200", "INSERT INTO apples VALUES (204, 'x', NULL)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_the_only_table_of_a_pipeline_is_started_over(alone: Pipe) -> None:
    """The command does it by itself, where no run is at work."""
    pipe = alone
    pipe.sql("DELETE FROM beans WHERE id < 10", "UPDATE beans SET v = 'new' WHERE id = 20")
    pipe.sql("FLUSH BINARY LOGS")
    pipe.purge()
    assert isinstance(stopped(pipe), BinlogGone)
    [done] = ask(pipe.config, "resnapshot", [beans(pipe)], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done"
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_where_all_tables_are_lost_those_that_are_asked_for_go_on(market: Pipe) -> None:
    """The others stop, each for itself, until they are asked for as well."""
    pipe = market
    pipe.sql("DELETE FROM beans WHERE id < 10", "DELETE FROM apples WHERE id < 10")
    pipe.sql("FLUSH BINARY LOGS")
    pipe.purge()
    whole(pipe)
    error = stopped(pipe)
    assert isinstance(error, BinlogGone)
    assert [one.table.name for one in error.result.stopped] == ["apples"]
    pipe.assert_equal("beans")
    pipe.sql("INSERT INTO beans VALUES (300, 'x', NULL)")
    assert isinstance(stopped(pipe), BinlogGone)
    pipe.assert_equal("beans")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.apples"], scope=WHOLE, spark=pipe.spark)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.parametrize("name", MODES)
@pytest.mark.long("copies a table twice")
def test_all_tables_are_started_over_after_the_binlog_was_reset(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], name: str
) -> None:
    """Its places mean something else now. Readers of the changelog do not get rows of the old one."""
    mode = MODES[name]
    pipe = filled(pipe_on(server_of(mode.flavor, server_id="201", **mode.settings), chunk_rows=3), "apples", "beans")
    pipe.sql(
        mode.reset, "DELETE FROM beans WHERE id < 10", "FLUSH BINARY LOGS", "UPDATE beans SET v = 'x' WHERE id = 20"
    )
    assert isinstance(stopped(pipe), BinlogGone)
    for table in ("apples", "beans"):
        ask(pipe.config, "resnapshot", [f"{pipe.database}.{table}"], scope=WHOLE, wait=False)

    def change() -> None:
        pipe.sql("UPDATE beans SET v = 'y' WHERE id IN (11, 79)", "DELETE FROM beans WHERE id = 12")

    pipe.run(observe=at_wave(1, change))
    pipe.assert_equal()
    parts = list(changelog_of(pipe.config, beans(pipe)).read())
    assert sorted(keys_of(parts)) == [row[0] for row in pipe.rows("beans")]


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_value_that_cannot_be_replayed_is_passed_over(market: Pipe) -> None:
    """The row was corrected since; it is the run that has stopped at the value which starts the copy over."""
    pipe = market
    pipe.sql(*ZERO_DATE, "UPDATE beans SET d = NULL WHERE id = 2", "DELETE FROM beans WHERE id = 3")
    whole(pipe)
    assert pipe.run().stopped == ()
    assert len(pipe.seen(TableStopped)) == len(pipe.seen(StartedOver)) == 1
    assert states(pipe) == ["done"]
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_the_only_table_with_such_a_value_is_started_over(alone: Pipe) -> None:
    """A later run finds its spool behind the value."""
    pipe = alone
    pipe.sql(*ZERO_DATE, "UPDATE beans SET d = NULL WHERE id = 2")
    for _ in range(2):
        assert isinstance(stopped(pipe), UnsupportedValue)
    whole(pipe)
    pipe.run()
    assert states(pipe) == ["done"]
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_a_run_that_follows_starts_a_copy_over(market: Pipe) -> None:
    """It goes on with the other table, and the copy is made again between its rounds."""
    pipe = market

    def work() -> None:
        pipe.sql(*ZERO_DATE, "UPDATE beans SET d = NULL WHERE id = 2")
        soon(lambda: bool(pipe.seen(TableStopped)))
        pipe.begin_file()
        [done] = ask(pipe.config, "resnapshot", [beans(pipe)], scope=WHOLE)
        assert done.state == "done"
        pipe.sql("INSERT INTO apples VALUES (100, 'x', NULL)", "DELETE FROM beans WHERE id = 7")
        shown(pipe, "apples")
        shown(pipe, "beans")

    assert follow_while(pipe, work).stopped == ()
    pipe.assert_equal()


class Killed(BaseException):
    """The end of a process in between."""


@pytest.mark.formats
@pytest.mark.parametrize("kind", [StartedOver, WaveCommitted])
@pytest.mark.long("copies a table twice")
def test_what_was_started_over_goes_on_in_the_next_run(market: Pipe, kind: type[Event]) -> None:
    """The run ends after the commit that empties staging, or after a wave; no wave is read twice."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    whole(pipe)

    def die(event: Event) -> None:
        if isinstance(event, kind):
            raise Killed

    with pytest.raises(Killed):
        pipe.run(observe=die)
    pipe.sql("DELETE FROM beans WHERE id IN (2, 76)", "INSERT INTO apples VALUES (110, 'x', NULL)")
    assert pipe.rows("beans") == old
    pipe.run()
    waves = [one.wave for one in pipe.seen(WaveCommitted) if isinstance(one, WaveCommitted)]
    assert waves == sorted(set(waves))
    assert (states(pipe), len(pipe.seen(StartedOver))) == (["done"], 1)
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_copy_that_was_started_over_goes_on_though_the_spool_is_lost(market: Pipe) -> None:
    """Its commits say where the spool began; nobody has to ask a second time. Without GTIDs it begins once more."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    whole(pipe)

    def end() -> None:
        raise Killed

    with pytest.raises(Killed):
        pipe.run(observe=at_wave(1, end))
    pipe.sql("DELETE FROM beans WHERE id = 1")
    remove(pipe.state / "spool")
    assert pipe.rows("beans") == old
    pipe.run()
    assert (states(pipe), len(pipe.seen(StartedOver))) == (["done"], 2 if GTIDS else 1)
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_someone_compacts_what_readers_see_while_the_copy_is_made(market: Pipe) -> None:
    """Staging is not built on that, because the changes since are lost: the next run starts the copy over again."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    whole(pipe)

    def compact() -> None:
        options = "options => map('rewrite-all', 'true')"
        pipe.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{beans(pipe)}', {options})")

    with pytest.raises((MainMoved, SpoolGap)):
        pipe.run(observe=at_wave(2, compact))
    assert pipe.rows("beans") == old
    pipe.run()
    assert (states(pipe), len(pipe.seen(StartedOver))) == (["done"], 2)
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_only_a_request_for_the_whole_table_starts_over_and_answers_the_others(market: Pipe) -> None:
    """A range waits, and its note says what helps."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    ask(pipe.config, "resnapshot", [beans(pipe)], scope=PART, wait=False)
    assert isinstance(stopped(pipe), BinlogGone)
    assert pipe.rows("beans") == old
    [part] = SignalFolder(pipe.state).read()
    assert part.signal.state == "pending"
    assert "has stopped: BinlogGone" in part.note
    assert f"`lakeingest resnapshot {beans(pipe)}`, of the whole table, starts its copy over" in part.note
    whole(pipe)
    pipe.run()
    assert states(pipe) == ["done", "done"]
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_stopped_for_another_reason_is_not_started_over(market: Pipe) -> None:
    """Its definition has changed: the signal waits, and says why."""
    pipe = market
    pipe.freeze()
    pipe.sql("ALTER TABLE beans ADD w INT", "INSERT INTO apples VALUES (100, 'x', NULL)")
    whole(pipe)
    assert stopped(pipe).runbook in {"SchemaChanged", "UnsupportedEvent"}
    [signal] = SignalFolder(pipe.state).read()
    assert signal.signal.state == "pending"
    assert "SchemaChanged" in signal.note
    assert pipe.seen(StartedOver) == []
    pipe.assert_equal("apples")


@pytest.mark.long("copies a table twice")
def test_a_paused_table_is_started_over_when_it_is_resumed(market: Pipe) -> None:
    """Until then it waits."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    ask(pipe.config, "pause", [beans(pipe)])
    number = whole(pipe)
    assert isinstance(stopped(pipe), BinlogGone)
    document = SignalFolder(pipe.state).one(number)
    assert document is not None
    assert document.note == f"{beans(pipe)} is paused"
    assert pipe.rows("beans") == old
    ask(pipe.config, "resume", [beans(pipe)])
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_a_copy_that_was_started_over_is_finished_although_the_request_is_cancelled(market: Pipe) -> None:
    """There is no way back to rows that cannot be kept up to date; cancelled before that, nothing is started over."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    whole(pipe)
    ask(pipe.config, "cancel", [beans(pipe)])
    assert isinstance(stopped(pipe), BinlogGone)
    assert (pipe.seen(StartedOver), pipe.rows("beans")) == ([], old)
    number = whole(pipe)

    def cancel() -> None:
        ask(pipe.config, "cancel", [beans(pipe)], wait=False)

    pipe.run(observe=at_wave(1, cancel))
    document = SignalFolder(pipe.state).one(number)
    assert document is not None
    assert document.signal.state == "cancelled"
    pipe.assert_equal()


@pytest.mark.long("copies a table twice")
def test_an_error_of_the_new_copy_fails_the_signal(market: Pipe) -> None:
    """The value is in the table itself; once it is corrected later runs make the copy, and nobody asks again."""
    pipe, old = market, market.rows("beans")
    pipe.sql(*ZERO_DATE)
    with pytest.raises(UnsupportedValue):
        ask(pipe.config, "resnapshot", [beans(pipe)], scope=WHOLE, spark=pipe.spark).raise_failure()
    assert states(pipe) == ["failed"]
    assert pipe.rows("beans") == old
    pipe.sql("UPDATE beans SET d = NULL WHERE id = 2")
    assert isinstance(stopped(pipe), UnsupportedValue)  # the change has the row of before
    if GTIDS:
        whole(pipe)  # the file with the change is the low watermark of the rows that were read
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("several publishes")
def test_rows_that_were_marked_as_deleted_are_gone(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """With soft deletes: as if the copy had been dropped; deletes after that are marked again."""
    pipe = filled(pipe_on(mysql_server_with(server_id="94"), chunk_rows=3, deletes="soft"), "apples", "beans")
    pipe.sql("DELETE FROM beans WHERE id = 1")
    pipe.run()
    assert len(pipe.rows("beans")) == ROWS
    lose_beans(pipe)
    whole(pipe)
    pipe.run()
    left = [row[0] for row in pipe.rows("beans")]
    assert left == [key for key in range(ROWS) if key % 7 and key != 1]
    pipe.assert_equal()
    pipe.sql("DELETE FROM beans WHERE id = 2")
    pipe.run()
    assert [row[0] for row in pipe.rows("beans")] == left
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("copies a table twice")
def test_readers_of_the_changelog_begin_again(market: Pipe) -> None:
    """They get ChangelogGone until the new copy is published. The changelog then begins with the rows of that copy."""
    pipe = market
    lose_beans(pipe)
    whole(pipe)

    def meanwhile() -> None:
        with pytest.raises(ChangelogGone):
            list(changelog_of(pipe.config, beans(pipe)).read())

    pipe.run(observe=at_wave(2, meanwhile))
    copy = pipe.rows("beans")
    parts = list(changelog_of(pipe.config, beans(pipe)).read())
    assert sorted(keys_of(parts)) == [row[0] for row in copy]
