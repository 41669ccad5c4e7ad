"""`tables.startup: snapshot_only`: each table is copied once, exactly, and later runs do nothing for it."""

from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import COPIED_ONCE, plan
from lakeingest.commands.run import run
from lakeingest.commands.signal import ask
from lakeingest.commands.status import TableStatus, status
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, UsageError
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.events import Event, WaveCommitted
from lakeingest.state.lease import Lease
from tests.e2e.pipe import Pipe
from tests.e2e.test_signals_killed_anywhere import Dead, mortal

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


def starting(pipe: Pipe, startup: str) -> None:
    """Let the tables of the pipeline begin so from now on."""
    tables = pipe.config.tables.model_copy(update={"startup": startup})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def fill(pipe: Pipe, name: str, count: int = 30) -> None:
    """A table of so many rows; `id` is its key."""
    rows = ", ".join(f"({n}, {n})" for n in range(count))
    pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES {rows}")


def in_source(pipe: Pipe, table: str) -> list[tuple[object, ...]]:
    """The rows that the source has now, sorted."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return sorted(cursor.fetchall())


def published(pipe: Pipe, name: str) -> int | None:
    """The commit that readers of a copy see."""
    staged = open_target(pipe.config).inspect(TableId(pipe.database, name))
    return None if staged is None else staged.published


def states(pipe: Pipe) -> list[TableStatus]:
    """What `status` says of each table."""
    return list(status(pipe.config))


def changing(pipe: Pipe, *tables: str) -> Callable[[Event], None]:
    """After each wave rows of these tables are inserted, changed, moved and deleted."""
    count = 100

    def watch(event: Event) -> None:
        nonlocal count
        if isinstance(event, WaveCommitted):
            count += 1
            for table in tables:
                pipe.sql(
                    f"INSERT INTO {table} VALUES ({count}, 1)",
                    f"UPDATE {table} SET v = {count} WHERE id < 25",
                    f"DELETE FROM {table} WHERE id = {count - 99}",
                    f"UPDATE {table} SET id = {count + 100} WHERE id = {count - 90}",
                )

    return watch


@pytest.mark.long("another format, other servers", only=("hudi", "MariaDB 10.11"))
@pytest.mark.formats
@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_later_runs_do_nothing_and_need_no_binlog(any_pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are exact under changes between their waves; then source, binlog and definition may change."""
    pipe = any_pipe
    starting(pipe, "snapshot_only")
    for name in ("a", "b"):
        fill(pipe, name)
    assert [one.state for one in plan(pipe.config)] == ["new", "new"]
    pipe.run(observe=changing(pipe, "a", "b"))
    copied = {name: in_source(pipe, name) for name in ("a", "b")}
    assert {name: pipe.rows(name) for name in copied} == copied
    versions = [published(pipe, name) for name in copied]
    pipe.sql("DELETE FROM a WHERE id < 20", "INSERT INTO b VALUES (999, 9)", "ALTER TABLE b ADD w INT")
    pipe.sql("FLUSH BINARY LOGS")
    pipe.purge()
    with monkeypatch.context() as patch:  # such a run takes no lease, so it changes nothing
        patch.setattr(Lease, "assert_held", None)
        done = pipe.run()
    assert [table.name for table in done.done] == ["a", "b"]
    assert done.caught_up
    assert "2 tables are copied, and are copied only once" in done.note
    assert {name: pipe.rows(name) for name in copied} == copied
    assert [published(pipe, name) for name in copied] == versions
    assert [(one.state, one.copied_once, one.binlog_gone) for one in states(pipe)] == [("published", True, False)] * 2
    assert "published, copied once" in repr(status(pipe.config))
    assert [one.state for one in plan(pipe.config)] == [COPIED_ONCE] * 2
    assert check(pipe.config).problems == ()
    with pytest.raises(UsageError, match="nothing to follow"):
        run(pipe.config, (), None, pipe.events.append, pipe.spark, follow=True)

    # someone asks for the rows of one: its copy begins again, because the binlog since its position is gone
    ask(pipe.config, "resnapshot", [f"{pipe.database}.b"], scope=WHOLE, spark=pipe.spark).raise_failure()
    assert pipe.rows("b") == in_source(pipe, "b")
    assert pipe.rows("a") == copied["a"]
    assert all(one.copied_once for one in states(pipe))


@pytest.mark.long("whole runs")
def test_a_table_that_comes_later_is_copied_and_the_others_stay_as_they_are(any_pipe: Pipe) -> None:
    """With `initial`, each goes on from its own position, if the source still has the binlog since; else it stops."""
    pipe = any_pipe
    starting(pipe, "snapshot_only")
    fill(pipe, "a")
    pipe.run()
    old = in_source(pipe, "a")
    pipe.sql("DELETE FROM a WHERE id < 10", "INSERT INTO a VALUES (100, 1)")
    fill(pipe, "b")
    pipe.run(observe=changing(pipe, "a", "b"))
    assert (pipe.rows("a"), pipe.rows("b")) == (old, in_source(pipe, "b"))
    pipe.sql("UPDATE b SET v = 77", "UPDATE a SET v = 78 WHERE id > 20")

    starting(pipe, "initial")
    assert not any(one.copied_once for one in states(pipe))
    pipe.events.clear()
    pipe.run()
    assert not pipe.seen(WaveCommitted)
    for name in ("a", "b"):
        assert pipe.rows(name) == in_source(pipe, name)
    starting(pipe, "snapshot_only")
    old = in_source(pipe, "a")
    pipe.sql("UPDATE a SET v = 79", "FLUSH BINARY LOGS")
    pipe.purge()
    assert len(pipe.run().done) == 2
    starting(pipe, "initial")
    with pytest.raises(BinlogGone):
        pipe.run()
    assert pipe.rows("a") == old


@pytest.mark.formats
@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_leaves_no_table_in_between(pipe: Pipe) -> None:
    """The next run goes on with it unless readers see it already; then it stays exactly as they see it."""
    starting(pipe, "snapshot_only")
    at, is_dead = 1, True
    while is_dead:
        name = f"t{at}"
        fill(pipe, name)
        with mortal(pipe, at) as mortality:
            try:
                pipe.run()
            except Dead:
                assert mortality.dead
        is_dead, at, before = mortality.dead, at + 2, in_source(pipe, name)
        seen = published(pipe, name)
        pipe.sql(f"UPDATE {name} SET v = -1 WHERE id < 12", f"DELETE FROM {name} WHERE id > 25")
        pipe.run()
        assert pipe.rows(name) == (in_source(pipe, name) if seen is None else before)
        assert [table.name for table in pipe.run().done][-1:] != []
    assert at > 9


@pytest.mark.long("starts a server with other settings")
def test_a_parent_is_brought_up_to_date_while_its_child_is_copied(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """Where the source does not log what foreign keys change: the child's copy needs the changes of the parent."""
    pipe = pipe_on(silent, chunk_rows=10)
    starting(pipe, "snapshot_only")
    fill(pipe, "parents")
    pipe.run()
    rows = ", ".join(f"({n}, {n % 30})" for n in range(60))
    pipe.sql(
        "CREATE TABLE children (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE)",
        f"INSERT INTO children VALUES {rows}",
    )

    def delete(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            pipe.sql("DELETE FROM parents WHERE id < 5")

    pipe.run(observe=delete)
    for name in ("parents", "children"):
        assert pipe.rows(name) == in_source(pipe, name)
    assert len(pipe.run().done) == 2
