"""Re-snapshots that people ask for: beside a run, without one, several at once, cancelled, failed, and killed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest

from lakeingest.api import Pipeline
from lakeingest.commands.resnapshot import scope_of
from lakeingest.commands.run import run
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.demo.server import LocalServer
from lakeingest.errors import Retryable, SchemaChanged, UsageError
from lakeingest.pipeline.events import Following, Published, RowsReread, SignalMoved
from lakeingest.state.lease import is_held
from lakeingest.state.signals import SignalFolder
from tests.e2e.job import Job, until
from tests.e2e.pipe import Pipe
from tests.e2e.signalled import soon, states
from tests.servers.stores import everything, remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def lost(pipe: Pipe) -> Pipe:
    """A table of 60 rows that is copied, and then differs from its source by changes that no binlog has."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({number}, {number})' for number in range(60))}",
    )
    pipe.run()
    pipe.unlogged("UPDATE t SET v = 'lost' WHERE id IN (5, 25, 45)", "DELETE FROM t WHERE id IN (6, 26, 46)")
    pipe.events.clear()
    return pipe


def name(pipe: Pipe) -> str:
    """The table's name."""
    return f"{pipe.database}.t"


def found(pipe: Pipe) -> list[int]:
    """Which of the lost changes the copy has by now."""
    rows = {row[0]: row[1] for row in pipe.rows("t")}
    changed = [number for number in (5, 25, 45) if rows[number] == "lost"]
    return sorted(changed + [number for number in (6, 26, 46) if number not in rows])


@pytest.mark.formats
@pytest.mark.long("several runs in a row; other tests have each step")
def test_without_a_run_the_command_reads_again_itself(lost: Pipe) -> None:
    """Keys, a range, a condition and the whole table, each through the state folder; `done` is published."""
    pipeline = Pipeline(lost.config, lost.spark)
    [done] = pipeline.resnapshot(name(lost), keys=[5, 6])
    assert (done.state, found(lost)) == ("done", [5, 6])
    lost.sql("UPDATE t SET v = 'logged' WHERE id = 7", "INSERT INTO t VALUES (100, 'logged')")
    pipeline.resnapshot(name(lost), from_=20, to=30)
    assert found(lost) == [5, 6, 25, 26]
    pipeline.resnapshot(name(lost), where="v = 'lost'")
    assert found(lost) == [5, 6, 25, 26, 45]
    pipeline.resnapshot(name(lost))
    lost.assert_equal()
    assert [one.signal.state for one in SignalFolder(lost.state).read()] == ["done"] * 4
    assert not is_held(lost.state)
    assert [file for file in everything(lost.state / "patches") if file.suffix == ".parquet"] == []


def follow_while(pipe: Pipe, work: Callable[[], object]) -> None:
    """A run that follows while the work is done, which begins when it has caught up. Spark is for the main thread."""
    ended = list[str]()

    def begin() -> None:
        try:
            soon(lambda: bool(pipe.seen(Following) or ended))
            work()
        finally:
            ended.append("work")

    with ThreadPoolExecutor(1) as pool:
        worked = pool.submit(begin)
        try:
            run(pipe.config, (), None, pipe.events.append, pipe.spark, follow=True, stopping=lambda: bool(ended))
        finally:
            ended.append("run")
            worked.result()


@pytest.mark.long("whole runs")
def test_beside_a_run_that_follows_it_is_carried_out_between_rounds(lost: Pipe) -> None:
    """The command waits for the run; what is written meanwhile is published, too."""
    reported: list[str] = []

    def work() -> None:
        lost.sql("UPDATE t SET v = 'logged' WHERE id = 7")
        results = ask(
            lost.config, "resnapshot", [name(lost)], scope=WHOLE, report=lambda one: reported.append(str(one))
        )
        assert [one.state for one in results] == ["done"]
        assert lost.seen(RowsReread)
        lost.sql("INSERT INTO t VALUES (100, 'logged')")
        before = len(lost.seen(Published))
        soon(lambda: len(lost.seen(Published)) > before)

    follow_while(lost, work)
    lost.assert_equal()
    assert "pending" in reported[0]
    assert [moved.document.signal.state for moved in lost.seen(SignalMoved)] == ["running", "done"]  # type: ignore[union-attr]
    assert "done" in reported[-1]


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_two_tables_are_read_again_one_after_the_other(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> None:
    """So that they do not need twice the connections."""
    pipe = pipe_on(mysql_server, chunk_rows=10)
    for table in ("t", "u"):
        pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        pipe.sql(f"INSERT INTO {table} VALUES {', '.join(f'({number})' for number in range(60))}")
    pipe.run()

    def work() -> None:
        for table in ("t", "u"):
            ask(pipe.config, "resnapshot", [f"{pipe.database}.{table}"], scope=WHOLE, wait=False)
        soon(lambda: [one.signal.state for one in SignalFolder(pipe.state).read()] == ["done"] * 2)

    follow_while(pipe, work)
    tables = [read.table.name for read in pipe.seen(RowsReread)]  # type: ignore[union-attr]
    assert tables.count("t") > 1
    assert [one for one, _ in groupby(tables)] == ["t", "u"]


@pytest.mark.long("whole runs")
def test_signals_of_one_table_are_carried_out_in_order(lost: Pipe) -> None:
    """Each is done in the end; a range that the whole table covers is answered by it."""
    for scope in (Scope(keys=((5,),)), WHOLE, Scope(range=KeyRange((20,), (30,)))):
        ask(lost.config, "resnapshot", [name(lost)], scope=scope, wait=False)
    [table] = status(lost.config)
    assert [(one.number, one.state) for one in table.signals] == [(1, "pending"), (2, "pending"), (3, "pending")]
    assert "signal 2, resnapshot of" in repr(status(lost.config))
    lost.run()
    assert [one.signal.state for one in SignalFolder(lost.state).read()] == ["done"] * 3
    begun = [one.document.signal for one in lost.seen(SignalMoved)]  # type: ignore[union-attr]
    assert [one.number for one in begun if one.state == "running"] == [1, 2]
    lost.assert_equal()


@pytest.mark.long("whole runs")
def test_what_is_cancelled_is_not_read(lost: Pipe) -> None:
    """Open re-snapshots of the table end as cancelled; their rows are not read."""
    ask(lost.config, "resnapshot", [name(lost)], scope=WHOLE, wait=False)
    ask(lost.config, "resnapshot", [name(lost)], scope=Scope(keys=((5,),)), wait=False)
    results = ask(lost.config, "cancel", [name(lost)])
    assert [one.state for one in results] == ["done", "done"]
    stored = SignalFolder(lost.state).read()
    assert [one.signal.state for one in stored] == ["cancelled", "cancelled", "done", "done"]
    lost.run()
    assert lost.seen(RowsReread) == []
    assert found(lost) == []


@pytest.mark.long("whole runs")
def test_an_error_fails_the_signal_and_not_the_run(lost: Pipe) -> None:
    """A condition that the server refuses only when it is asked: the run goes on, the command has its error."""
    other = Scope(where="no_such_column = 1")
    ask(lost.config, "resnapshot", [name(lost)], scope=other, wait=False)
    lost.sql("INSERT INTO t VALUES (100, 'logged')")
    assert lost.run().caught_up
    [failed] = SignalFolder(lost.state).read()
    assert failed.signal.state == "failed"
    assert "no_such_column" in (failed.signal.why or "")
    results = ask(lost.config, "resnapshot", [name(lost)], scope=other, spark=lost.spark)
    with pytest.raises(SchemaChanged, match="no_such_column"):
        results.raise_failure()
    assert (100, "logged") in lost.rows("t")


@pytest.mark.long("whole runs")
def test_a_condition_is_asked_before_the_signal_is_made(lost: Pipe) -> None:
    """UsageError with the server's words; so are keys that are none, and several parts at once."""
    table = name(lost)
    with pytest.raises(UsageError, match="no_such_column"):
        scope_of(lost.config, [table], where="no_such_column = 1")
    with pytest.raises(UsageError, match="the server refuses the condition"):
        scope_of(lost.config, [table], where="id = ")
    with pytest.raises(UsageError, match="no value"):
        scope_of(lost.config, [table], keys=["a word"])
    with pytest.raises(UsageError, match="has 1 values"):
        scope_of(lost.config, [table], start=[1, 2])
    with pytest.raises(UsageError, match="empty range"):
        scope_of(lost.config, [table], start=9, stop=9)
    with pytest.raises(UsageError, match="not several"):
        scope_of(lost.config, [table], where="id = 1", keys=[1])
    assert SignalFolder(lost.state).read() == []


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_paused_table_is_not_read_until_it_is_resumed(lost: Pipe) -> None:
    """The signal waits and says so; the command that works itself ends with 75, and leaves it."""
    ask(lost.config, "pause", [name(lost)])
    with pytest.raises(Retryable, match="signal 2 is not carried out yet"):
        ask(lost.config, "resnapshot", [name(lost)], scope=WHOLE, spark=lost.spark)
    assert status(lost.config)[0].signals[0].note == f"{name(lost)} is paused"
    ask(lost.config, "resume", [name(lost)])
    lost.run()
    lost.assert_equal()


@pytest.mark.long("whole runs")
def test_a_table_that_is_not_copied_yet_is_copied_first(pipe: Pipe) -> None:
    """The signal is answered after the copy, by a run that makes both."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    [done] = ask(pipe.config, "resnapshot", [name(pipe)], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done"
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_numbers_go_on_where_the_state_folder_was_lost(lost: Pipe) -> None:
    """The commits name the signals that they answered: a new one does not get such a number."""
    ask(lost.config, "resnapshot", [name(lost)], scope=WHOLE, spark=lost.spark)
    remove(lost.state / "signals")
    lost.unlogged("UPDATE t SET v = 'more' WHERE id = 1")
    [done] = ask(lost.config, "resnapshot", [name(lost)], scope=WHOLE, spark=lost.spark)
    assert (done.number, done.state) == (2, "done")
    lost.assert_equal()


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_format: str) -> Iterator[Job]:
    """A pipeline with a table of many waves."""
    job = Job(tmp_path / "job", mysql_server, "asked", 20, lake_format=lake_format).write()
    values = ", ".join(f"({number}, 'row {number}')" for number in range(800))
    job.sql(
        f"USE {job.database}",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {values}",
    )
    yield job
    job.sql(f"DROP DATABASE {job.database}")


@pytest.mark.formats
@pytest.mark.long("several processes with a Spark each")
def test_a_killed_run_is_gone_on_from_its_last_wave(job: Job) -> None:
    """`kill -9` after two waves: the next run reads the others, and the signal is done."""
    assert job.run()[0] == 0
    job.unlogged(f"UPDATE {job.database}.t SET v = 'lost' WHERE id % 10 = 0")
    ask(job.config, "resnapshot", [f"{job.database}.t"], scope=WHOLE, wait=False)
    process = job.start("run")
    until(process, "read again")
    until(process, "read again")
    process.kill()
    process.communicate(timeout=60)
    job.sql(f"DELETE FROM {job.database}.t WHERE id % 9 = 0")
    progress = job.progress("t")
    assert progress is not None
    assert states(job) == [("resnapshot", "running")]
    code, lines = job.run()
    assert code == 0, lines
    assert states(job) == [("resnapshot", "done")]
    assert job.published("t") == job.source("t")
