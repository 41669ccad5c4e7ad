"""Rolling proof: runs compare their tables with the source, range by range, and say what differs."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pymysql
import pytest

from lakeingest.commands.repair import repair
from lakeingest.commands.run import run
from lakeingest.commands.status import TableStatus, status
from lakeingest.config import Throttle
from lakeingest.config.quality import Proofs
from lakeingest.core.figures.shown import iso_time
from lakeingest.core.proofs import proof
from lakeingest.core.proofs.proof import Budget, State
from lakeingest.errors import Retryable, VerificationFailed
from lakeingest.pipeline.events import Following, Measured, Published, RowsDiffer, TableStopped
from lakeingest.pipeline.proving.range_proof import RangeTask
from lakeingest.pipeline.rounds import proving
from lakeingest.state.proofs import read_budget, store_budget
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import soon

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 140
KEYS = {
    "integers": ("id INT", "n"),
    "two": ("a INT, id BIGINT UNSIGNED", "n % 3, 18446744073709551615 - n"),
    "texts": ("id VARCHAR(20)", "CONCAT(IF(n % 2, 'k', 'Ä'), n)"),
}


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "FIRST_ROWS", 20)
    monkeypatch.setattr(proof, "LEAST_ROWS", 20)
    monkeypatch.setattr(proof, "MOST_ROWS", 20)
    monkeypatch.setattr(proving, "LOOK_SECONDS", 0.05)


def proving_pipe(pipe: Pipe, on_difference: str = "stop", every: str = "1s", budget: str = "100%") -> Pipe:
    """The pipeline, whose runs compare everything that they can."""
    settings = Proofs.model_validate({"every": every, "budget": budget, "on_difference": on_difference})
    quality = pipe.config.quality.model_copy(update={"verify": settings})
    pipe.config = pipe.config.model_copy(update={"quality": quality})
    return pipe


def filled(pipe: Pipe, kind: str = "integers") -> None:
    """Two tables that are not copied yet."""
    columns, values = KEYS[kind]
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    pipe.sql(
        "CREATE TABLE other (n INT PRIMARY KEY, v INT)",
        f"INSERT INTO other VALUES {', '.join(f'({n}, {n})' for n in range(1, ROWS + 1))}",
        f"CREATE TABLE t ({columns}, n INT, v VARCHAR(20), PRIMARY KEY ({names}))",
        f"INSERT INTO t SELECT {values}, n, CONCAT('v', n) FROM other",
    )


def unseen(pipe: Pipe, *statements: str) -> None:
    """Change rows without a trace in the binlog, and wait until all ranges are due again."""
    pipe.unlogged(*statements)
    time.sleep(1.1)  # `proving_pipe` has them compared each second


def state_of_table(pipe: Pipe, name: str = "t") -> TableStatus:
    """What `status` says about a table."""
    [found] = [one for one in status(pipe.config) if one.table.name == name]
    return found


def states(pipe: Pipe, name: str = "t") -> set[str]:
    """The states of the table's ranges."""
    known = state_of_table(pipe, name).proof
    return set() if known is None else {str(each["state"]) for each in known.ranges}


@pytest.mark.formats
@pytest.mark.long("whole runs; a difference is found in a range in every run, and tests/core/test_proof has the pace")
def test_a_bounded_run_proves_ranges_after_its_publishes(pipe: Pipe) -> None:
    """`status` has the time and the position of each, and the next run knows them."""
    filled(proving_pipe(pipe, every="1d"))
    pipe.run()
    table = state_of_table(pipe)
    assert table.proof is not None
    assert table.proof.proven_at is not None
    assert len(table.proof.ranges) == ROWS // 20
    assert all(each["position"] and each["state"] == "proven" for each in table.proof.ranges)
    assert table.proof.round.proven_tables == 2
    [measured] = pipe.seen(Measured)
    assert isinstance(measured, Measured)
    proven_since = {measure.table.name: measure.proven_since for measure in measured.tables}["t"]
    assert iso_time(proven_since) == table.proof.proven_at
    budget = read_budget(pipe.state, 1.0)
    pipe.run()
    again = state_of_table(pipe)
    assert again.proof is not None
    assert again.proof.ranges == table.proof.ranges
    assert read_budget(pipe.state, 1.0) == budget


@pytest.mark.long("another process with the same comparison")
def test_a_run_without_a_session_of_spark_proves_by_its_own_workers(pipe: Pipe) -> None:
    """Which read the files of the copy."""
    filled(proving_pipe(pipe))
    run(pipe.config)
    assert states(pipe) == states(pipe, "other") == {State.PROVEN.value}
    pipe.sql("UPDATE t SET v = 'changed' WHERE n < 50")
    run(pipe.config)
    assert states(pipe) == {State.PROVEN.value}


@pytest.mark.long("several runs in which nothing is compared")
def test_without_the_key_no_run_compares(pipe: Pipe) -> None:
    """And `status` says nothing about it."""
    filled(pipe)
    pipe.run()
    assert state_of_table(pipe).proof is None
    assert not (pipe.state / "proofs").listed("*.json")


@pytest.mark.formats
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.long("a repair by Spark for each kind of key; one is reported in every run")
def test_a_difference_stops_its_table_until_it_is_repaired(pipe: Pipe, kind: str) -> None:
    """In whatever range it is; the other table goes on, and readers keep their commit."""
    filled(proving_pipe(pipe), kind)
    pipe.run()
    unseen(pipe, "UPDATE t SET v = 'wrong' WHERE n = 133")
    pipe.sql("UPDATE t SET v = 'changed' WHERE n BETWEEN 100 AND 150 AND n <> 133", "UPDATE other SET v = -1")
    with pytest.raises(
        VerificationFailed, match="1 keys differ: key .*133.* differs" if kind == "integers" else "1 key"
    ):
        pipe.run()
    seen = pipe.rows("t")
    pipe.sql("UPDATE t SET v = 'later' WHERE n = 1", "UPDATE other SET v = -2")
    pipe.events.clear()
    with pytest.raises(VerificationFailed):
        pipe.run()
    assert [event.table.name for event in pipe.events if isinstance(event, Published)] == ["other"]
    assert pipe.rows("t") == seen
    stopped = state_of_table(pipe).stopped
    assert stopped is not None
    assert (stopped.error, states(pipe) >= {State.DIFFERS.value}) == ("VerificationFailed", True)
    [repaired] = repair(pipe.config, [f"{pipe.database}.t"], pipe.spark)
    assert repaired.equal
    pipe.run()
    assert states(pipe) == {State.PROVEN.value}
    assert state_of_table(pipe).stopped is None
    pipe.assert_equal()


@pytest.mark.long("two more runs after what every run has")
def test_a_difference_that_is_gone_lets_its_table_go_on(pipe: Pipe) -> None:
    """The first comparison of the next run sees that, and the run after it goes on."""
    filled(proving_pipe(pipe))
    pipe.run()
    unseen(pipe, "UPDATE t SET v = 'wrong' WHERE n = 133")
    with pytest.raises(VerificationFailed):
        pipe.run()
    unseen(pipe, "UPDATE t SET v = 'v133' WHERE n = 133")
    pipe.run()
    assert states(pipe) == {State.PROVEN.value}


def test_a_difference_is_reported(pipe: Pipe) -> None:
    """The table goes on, and `status` names the range."""
    filled(proving_pipe(pipe, "report"))
    pipe.run()
    unseen(pipe, "DELETE FROM t WHERE n = 133")
    pipe.sql("UPDATE t SET v = 'later' WHERE n = 1")
    pipe.run()
    [event] = pipe.seen(RowsDiffer)
    assert isinstance(event, RowsDiffer)
    assert "1 keys differ: key 133 only in the target" in event.finding
    assert any("only in the target" in note for note in status(pipe.config).notes)
    assert not pipe.seen(TableStopped)
    assert "later" in {row[2] for row in pipe.rows("t")}


@pytest.mark.formats
@pytest.mark.long("a repair in a run; test_hidden_columns_of_copies repairs a copy in every run")
def test_a_difference_is_repaired(pipe: Pipe) -> None:
    """By the run that has found it, which proves the range once more."""
    filled(proving_pipe(pipe, "repair"))
    pipe.run()
    unseen(pipe, "DELETE FROM t WHERE n = 133", "UPDATE t SET v = 'wrong' WHERE n = 7")
    pipe.run()
    pipe.assert_equal()
    assert pipe.seen(RowsDiffer)
    pipe.run()
    assert states(pipe) == {State.PROVEN.value}


@pytest.mark.long("whole runs; tests/core has the decision")
def test_ddl_that_fills_values_takes_the_proof_away(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges are compared out of turn, by the same run if it can."""
    filled(proving_pipe(pipe, every="1d"))
    pipe.run()
    pipe.sql("ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 5")
    with monkeypatch.context() as patch:
        patch.setattr(RangeTask, "run", not_now)
        pipe.run()
    assert states(pipe) == {State.LOST.value}
    assert states(pipe, "other") == {State.PROVEN.value}
    [note] = [note for note in status(pipe.config).notes if "failed" in note]
    assert note.startswith(f"{pipe.database}.t: its last comparison with the source, at ")
    assert note.endswith(", failed, and is tried again: Retryable: not now")
    pipe.run()
    assert states(pipe) == {State.PROVEN.value}
    assert not [note for note in status(pipe.config).notes if "failed" in note]


@pytest.mark.long("whole runs; tests/core has the decision")
def test_status_says_for_what_comparisons_wait(pipe: Pipe) -> None:
    """For their budget, or for `throttle`; and nothing once they are made."""
    filled(proving_pipe(pipe, budget="0.01%"))
    now = datetime.now(UTC)
    later = "-".join(f"{now + timedelta(hours=hours):%H:%M}" for hours in (2, 3))
    throttled = pipe.config.model_copy(update={"throttle": Throttle.model_validate({"window": later})})
    pipe.run()
    [note] = [note for note in status(pipe.config).notes if "wait" in note]
    assert note.startswith("comparisons with the source wait: quality.verify.budget allows the next one in ")
    store_budget(pipe.state, Budget(0.0001))
    run(throttled, spark=pipe.spark)
    [note] = [note for note in status(pipe.config).notes if "wait" in note]
    assert note.startswith(
        f"comparisons with the source wait: reads begin within {later} UTC (throttle.window), as of "
    )
    proving_pipe(pipe, every="1d")
    pipe.run()
    assert not [note for note in status(pipe.config).notes if "wait" in note]


def not_now(*_: object) -> None:
    """A comparison that cannot be made."""
    raise Retryable("not now")


@pytest.mark.long("whole runs; tests/core has the decision")
def test_a_run_that_ends_between_ranges_keeps_what_it_has_proven(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on from there."""
    filled(proving_pipe(pipe, every="1d"))
    compared, original = list[object](), RangeTask.run

    def mortal(task: RangeTask, *arguments: object) -> object:
        compared.append((task.table.name, task.lower))
        if len(compared) == 3:
            raise KeyboardInterrupt
        return original(task, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RangeTask, "run", mortal)
    with pytest.raises(KeyboardInterrupt):
        pipe.run()
    killed_at = compared[-1]
    pipe.run()
    assert compared[3] == killed_at
    assert len(compared) - 1 == len(set(compared))
    assert states(pipe) == states(pipe, "other") == {State.PROVEN.value}


@pytest.fixture
def writer(pipe: Pipe) -> Iterator[Callable[[], None]]:
    """Call it to let someone write to both tables until the test ends; with DDL of the other one."""
    ended = threading.Event()
    by = pipe.administrator

    def write() -> None:
        password = by.password.get_secret_value() if by.password else ""
        with (
            pymysql.connect(
                host=by.host, port=by.port, user=by.user, password=password, database=pipe.database, autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for number in range(100_000):
                if ended.wait(0.01):
                    return
                cursor.execute(f"UPDATE t SET v = 'w{number}' WHERE n % 7 = {number % 7} AND n <> 133")
                cursor.execute(f"DELETE FROM other WHERE n = {number % ROWS}")
                cursor.execute(f"INSERT INTO other (n, v) VALUES ({number % ROWS}, {number})")
                if number % 500 == 499:  # a run must see a definition that lasts for seconds
                    cursor.execute(f"ALTER TABLE other ADD COLUMN w{number} INT NOT NULL DEFAULT 3")

    thread = threading.Thread(target=write)
    yield thread.start
    ended.set()
    if thread.ident is not None:
        thread.join()


@pytest.mark.formats
@pytest.mark.long("follows a writer for a while")
def test_a_run_that_follows_proves_beside_a_writer(pipe: Pipe, writer: Callable[[], None]) -> None:
    """It finds nothing that is not there, round after round; then what is there, and publishes all the time."""
    filled(proving_pipe(pipe, "report"))
    pipe.run()
    pipe.events.clear()
    ended = threading.Event()

    def watch() -> None:
        try:
            soon(lambda: bool(pipe.seen(Following)))
            writer()
            before = state_of_table(pipe).proof
            soon(lambda: _all_later(state_of_table(pipe), before.proven_at if before else None), 240)
            assert not pipe.seen(RowsDiffer)
            pipe.sql("SET SESSION sql_log_bin = 0", "UPDATE t SET v = 'wrong' WHERE n = 133")
            soon(lambda: bool(pipe.seen(RowsDiffer)), 240)
        finally:
            ended.set()

    failures = list[BaseException]()

    def guarded() -> None:
        try:
            watch()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)

    watcher = threading.Thread(target=guarded)
    watcher.start()
    run(pipe.config, (), None, pipe.events.append, pipe.spark, follow=True, stopping=ended.is_set)
    watcher.join()
    assert not failures, failures
    [event] = pipe.seen(RowsDiffer)[:1]
    assert isinstance(event, RowsDiffer)
    assert "key 133 differs" in event.finding
    assert len(pipe.seen(Published)) > 3


def _all_later(table: TableStatus, than: str | None) -> bool:
    return table.proof is not None and table.proof.proven_at is not None and table.proof.proven_at > (than or "")
