"""A table whose changes are lost goes on over the gap: its rows are compared, and only what differs is written."""

from collections.abc import Callable
from functools import partial

import pytest

from lakeingest.commands.signal import ask
from lakeingest.config import CATALOG
from lakeingest.core.waves.scope import OVER_GAP
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, ChangelogGone, MainMoved, SchemaChanged, SpoolGap
from lakeingest.pipeline.events import Event, Merged, Published, RowsReread, StartedOver, WaveCommitted
from tests.conftest import GTIDS
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines, position, replayed, source
from tests.e2e.test_follow import follow_while, soon
from tests.e2e.test_history import MODES
from tests.e2e.test_schema_changes import mortal
from tests.e2e.test_signals_killed_anywhere import Dead
from tests.e2e.test_started_over import beans, filled, look_and_change, lose_beans, market, states, stopped
from tests.servers.stores import remove

__all__ = ["market"]  # a fixture
pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


def over_gap(pipe: Pipe) -> None:
    """Ask for it, without waiting."""
    ask(pipe.config, "resnapshot", [beans(pipe)], scope=OVER_GAP, wait=False)


def compares(pipe: Pipe) -> list[bool]:
    """Of each copy whose rows were all read again, whether they were compared."""
    return [one.compared for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)]


def written(pipe: Pipe) -> int:
    """The rows of the table that merges wrote or took out."""
    merges = [one for one in pipe.seen(Merged) if isinstance(one, Merged) and one.table.name == "beans"]
    return sum(one.inserted + one.updated + one.deleted for one in merges)


def at_read(number: int, work: Callable[[], object]) -> Callable[[Event], None]:
    """Work to be done when a wave of rows of the table was compared and committed."""
    seen = 0

    def watch(event: Event) -> None:
        nonlocal seen
        if isinstance(event, RowsReread) and event.table.name == "beans":
            seen += 1
            if seen == number:
                work()

    return watch


@pytest.mark.formats
@pytest.mark.long("readers beside several runs")
def test_only_rows_that_differ_are_written_and_readers_see_the_old_ones_meanwhile(market: Pipe) -> None:
    """The other table goes on; changes that come while rows are compared are there in the end."""
    pipe, old, seen = market, market.rows("beans"), list[object]()
    lose_beans(pipe)
    pipe.sql("INSERT INTO apples VALUES (202, 'x', NULL)")
    assert isinstance(stopped(pipe), BinlogGone)
    over_gap(pipe)
    assert pipe.run(observe=at_read(2, partial(look_and_change, pipe, seen))).stopped == ()
    assert seen == [(old, "comparing")]
    assert (states(pipe), compares(pipe)) == (["done"], [True])
    assert not pipe.seen(WaveCommitted)
    differing = {key for key in range(80) if key % 7 == 0 or key % 3 == 0}
    changes = 2 * 5 if GTIDS else 5  # without GTIDs a change may be read with its row, and merged again
    assert written(pipe) <= len(differing) + changes
    pipe.assert_equal()
    pipe.sql("DELETE FROM beans WHERE id = 200", "INSERT INTO apples VALUES (204, 'x', NULL)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.parametrize("name", MODES)
@pytest.mark.long("a variant of a gap in the binlog")
def test_all_tables_go_on_after_the_binlog_is_purged_and_the_state_is_lost(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], name: str
) -> None:
    """The tables' commits alone say where they stand."""
    mode = MODES[name]
    pipe = filled(pipe_on(server_of(mode.flavor, server_id="201", **mode.settings), chunk_rows=30), "apples", "beans")
    pipe.sql("DELETE FROM beans WHERE id < 10", "UPDATE apples SET v = 'new' WHERE id = 20", "FLUSH BINARY LOGS")
    pipe.purge()
    assert isinstance(stopped(pipe), BinlogGone)
    remove(pipe.state)
    for table in ("apples", "beans"):
        ask(pipe.config, "resnapshot", [f"{pipe.database}.{table}"], scope=OVER_GAP, wait=False)
    pipe.run()
    pipe.assert_equal()
    pipe.sql("DELETE FROM beans WHERE id = 11", "INSERT INTO apples VALUES (204, 'x', NULL)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_goes_on_over_the_gap(market: Pipe) -> None:
    """Readers see the old rows until all are compared. Every third step is tried."""
    pipe, at, is_dead = market, 1, True
    while is_dead:
        lose_beans(pipe)
        pipe.sql(f"INSERT INTO beans VALUES ({100 + at}, 'w', NULL)", f"UPDATE beans SET v = 's{at}' WHERE id % 5 = 1")
        over_gap(pipe)
        old = pipe.rows("beans")

        def look(event: Event, old: list[tuple[object, ...]] = old) -> None:
            if isinstance(event, RowsReread):
                assert pipe.rows("beans") == old

        with mortal(pipe, at) as mortality:
            try:
                pipe.run(observe=look)
            except Dead:
                assert mortality.dead
        is_dead, at = mortality.dead, at + 3
        pipe.sql("UPDATE beans SET v = 'late' WHERE id = 9")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
    assert at > 12


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_deleted_rows_that_stay_are_marked_and_none_is_lost(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Those that were marked before the gap, and those that were deleted within it."""
    server = mysql_server_with(server_id="94")
    pipe = filled(pipe_on(server, chunk_rows=30, deletes="soft"), "apples", "beans")
    pipe.sql("DELETE FROM beans WHERE id = 5")
    pipe.run()
    lose_beans(pipe)
    over_gap(pipe)
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    deleted = {row[0] for row in pipe.rows("beans") if any(value is True for value in row)}
    assert (deleted, len(pipe.rows("beans"))) == ({5, *range(0, 80, 7)}, 80)


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_someone_compacts_what_readers_see_while_rows_are_compared(market: Pipe) -> None:
    """Staging is not built on that, because the changes since are lost: the next run begins again."""
    pipe, old = market, market.rows("beans")
    lose_beans(pipe)
    over_gap(pipe)

    def compact() -> None:
        options = "options => map('rewrite-all', 'true')"
        pipe.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{beans(pipe)}', {options})")

    with pytest.raises((MainMoved, SpoolGap)):
        pipe.run(observe=at_read(2, compact))
    assert pipe.rows("beans") == old
    pipe.run()
    assert (states(pipe), compares(pipe)) == (["done"], [True, True])
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_that_follows_compares_between_its_rounds(market: Pipe) -> None:
    """It goes on with the other table meanwhile."""
    pipe = market
    lose_beans(pipe)

    def work() -> None:
        over_gap(pipe)
        soon(lambda: states(pipe) == ["done"])
        pipe.sql("INSERT INTO apples VALUES (300, 'x', NULL)", "DELETE FROM beans WHERE id = 8")

    assert follow_while(pipe, work).stopped == ()
    assert compares(pipe) == [True]
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_is_altered_within_the_gap_is_compared_by_its_new_definition(market: Pipe) -> None:
    """Columns are those of the same name; one that cannot hold the values of before has its table copied again."""
    pipe = market
    pipe.sql("ALTER TABLE beans ADD n INT DEFAULT 5, DROP d", "UPDATE beans SET n = 6 WHERE id = 40")
    lose_beans(pipe)
    over_gap(pipe)
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("ALTER TABLE beans MODIFY n TINYINT")
    lose_beans(pipe)
    over_gap(pipe)
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert compares(pipe) == [False]


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_of_text_keys_is_copied_again(market: Pipe) -> None:
    """Only the server knows the order of its keys, so no range of them can be compared; v was nullable before."""
    pipe = market
    pipe.sql("ALTER TABLE beans DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)")
    pipe.run()
    lose_beans(pipe)
    over_gap(pipe)
    pipe.run()
    pipe.assert_equal()
    assert compares(pipe) == [False]


@pytest.mark.any_format
@pytest.mark.long("several runs in a row; other tests have each step")
def test_what_a_swap_of_tables_leaves_equal_is_not_written_again(market: Pipe) -> None:
    """As a tool for schema changes makes it; the run finds out by itself, and dies once in between."""
    pipe = market
    pipe.sql(
        "CREATE TABLE _beans_gho LIKE beans",
        "ALTER TABLE _beans_gho ADD n INT DEFAULT 7",
        "INSERT INTO _beans_gho (id, v, d) SELECT id, v, d FROM beans",
        "UPDATE beans SET v = 'late' WHERE id = 9",
        "UPDATE _beans_gho SET v = 'late' WHERE id = 9",
        "UPDATE _beans_gho SET n = 8 WHERE id = 70",
        "RENAME TABLE beans TO _beans_del, _beans_gho TO beans",
        "DELETE FROM beans WHERE id = 50",
    )

    def die() -> None:
        raise Dead

    with pytest.raises(Dead):
        pipe.run(observe=at_read(2, die))
    first = [one for one in pipe.seen(Published) if isinstance(one, Published) and one.table.name == "beans"]
    assert len(first) == 1  # as of before the swap
    pipe.sql("DELETE FROM beans WHERE id = 51", "INSERT INTO apples VALUES (300, 'x', NULL)")
    assert pipe.run().stopped == ()
    assert compares(pipe) == [True]
    assert written(pipe) < 10
    pipe.assert_equal("apples", "beans")


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_readers_of_the_changelog_begin_again_after_a_gap(market: Pipe) -> None:
    """The changes within it are not in any changelog."""
    pipe = market
    before = lines(pipe, "beans")
    lose_beans(pipe)
    over_gap(pipe)
    pipe.run()
    with pytest.raises(ChangelogGone):
        lines(pipe, "beans", since=position(before[-1]))
    # rows that were read again come as of the place of the first version, which may have them
    assert replayed(lines(pipe, "beans"), strict=False) == source(pipe, "beans")


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_where_rows_cannot_be_compared_deleted_rows_are_not_lost(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """The signal waits, and says what to do."""
    pipe = filled(pipe_on(mysql_server_with(server_id="94"), chunk_rows=30, deletes="soft"), "apples", "beans")
    pipe.sql("DELETE FROM beans WHERE id = 5")
    pipe.run()
    pipe.sql("UPDATE beans SET v = id", "ALTER TABLE beans MODIFY v INT")
    with pytest.raises(SchemaChanged, match="takes out the rows that are marked as deleted"):
        pipe.run()
    assert len(pipe.rows("beans")) == 80


@pytest.mark.long("several runs in a row; other tests have each step")
def test_gaps_are_closed_table_by_table_where_another_table_was_altered(market: Pipe) -> None:
    """The one that is not asked for has another definition, and its changes are lost, too; it goes on later."""
    market.sql("ALTER TABLE beans ADD n INT DEFAULT 3", "INSERT INTO apples VALUES (900, 'x', NULL)")
    market.sql("FLUSH BINARY LOGS")
    market.purge()
    for name in ("apples", "beans"):
        ask(market.config, "resnapshot", [f"{market.database}.{name}"], scope=OVER_GAP, spark=market.spark)
    market.assert_equal()


@pytest.mark.long("several runs in a row; other tests have each step")
def test_several_tables_are_read_again_by_one_command(market: Pipe) -> None:
    """Each by a signal of its own."""
    market.sql("INSERT INTO apples VALUES (900, 'x', NULL)", "INSERT INTO beans VALUES (900, 'x', NULL)")
    market.sql("FLUSH BINARY LOGS")
    market.purge()
    names = [f"{market.database}.{name}" for name in ("apples", "beans")]
    found = ask(market.config, "resnapshot", names, scope=OVER_GAP, spark=market.spark)
    assert [[str(table) for table in one.tables] for one in found] == [[name] for name in names]
    market.assert_equal()
