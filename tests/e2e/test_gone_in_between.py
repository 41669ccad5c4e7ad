"""A table is dropped, altered, locked or refused after one of its waves: the others go on."""

import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import pytest
from pydantic import SecretStr

from lakeingest.errors import LakeIngestError, OperatorNeeded, PreflightFailed, SplitUnstable
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.source import Source
from lakeingest.pipeline import preconditions
from lakeingest.pipeline.events import Event, WaveCommitted
from lakeingest.pipeline.opening import opening
from lakeingest.pipeline.rounds import discovery
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

TABLES = ("t", "z")
KEYS = {"even": "INT", "uneven": "INT", "texts": "VARCHAR(20)"}


@pytest.mark.parametrize("ddl", ["DROP TABLE t", "RENAME TABLE t TO away", "ALTER TABLE t RENAME COLUMN id TO number"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.long("a run for each statement and kind of key")
def test_the_other_tables_are_copied(pipe: Pipe, keys: str, ddl: str) -> None:
    """Whether the next wave is being planned or read then; once the table is back, the next run copies it."""
    make_tables(pipe, KEYS[keys], 1000 if keys == "uneven" else 1)
    if "COLUMN" in ddl:
        assert pipe.run(observe=after_a_wave(lambda: pipe.sql(ddl))).stopped == ()
        pipe.assert_equal()
        return
    with pytest.raises(LakeIngestError, match="no such table") as raised:
        pipe.run(observe=after_a_wave(lambda: pipe.sql(ddl)))
    assert stopped(raised.value) == ["t"]
    pipe.assert_equal("z")
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, z INT)", "INSERT INTO t VALUES (1, 2)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_right_that_is_revoked_stops_one_table(pipe: Pipe) -> None:
    """Once it is granted again, the next run goes on with the copy."""
    make_tables(pipe, "INT", 1)
    user = f"'{pipe.database}'@'%'"
    pipe.sql(f"CREATE USER {user} IDENTIFIED BY 'p'", f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}")
    pipe.sql(*(f"GRANT SELECT ON {name} TO {user}" for name in TABLES))
    source = pipe.config.source.model_copy(update={"user": pipe.database, "password": SecretStr("p")})
    pipe.config = pipe.config.model_copy(update={"source": source})
    with pytest.raises(OperatorNeeded, match="refuses user") as raised:
        pipe.run(observe=after_a_wave(lambda: pipe.sql(f"REVOKE SELECT ON t FROM {user}")))
    assert stopped(raised.value) == ["t"]
    pipe.assert_equal("z")
    pipe.sql(f"GRANT SELECT ON t TO {user}")
    pipe.run()
    pipe.assert_equal()
    pipe.sql(f"DROP USER {user}")


@pytest.mark.long("waits for a lock three times")
@pytest.mark.parametrize("keys", ["even", "texts"])
def test_a_table_that_is_locked_for_long_stops_alone(pipe: Pipe, keys: str) -> None:
    """Whether the next wave is being planned or read then; the next run goes on with its copy."""
    make_tables(pipe, KEYS[keys], 1)
    with connect(pipe.administrator) as other:
        with pytest.raises(SplitUnstable, match="locked") as raised:
            pipe.run(observe=after_a_wave(lambda: query(other, f"LOCK TABLES {pipe.database}.t WRITE")))
        assert stopped(raised.value) == ["t"]
        query(other, "UNLOCK TABLES")
    pipe.assert_equal("z")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("waits for a lock several times")
def test_a_table_that_is_locked_when_a_run_begins_is_not_copied_yet(pipe: Pipe) -> None:
    """A copy that is complete goes on, because nothing of it is read."""
    make_tables(pipe, "INT", 1)
    pipe.run()
    pipe.sql("CREATE TABLE new (id INT PRIMARY KEY)", *(f"INSERT INTO {name} VALUES (500, 5)" for name in TABLES))
    with connect(pipe.administrator) as other:
        query(other, f"LOCK TABLES {pipe.database}.t WRITE, {pipe.database}.new WRITE")
        with pytest.raises(SplitUnstable, match="locked") as raised:
            pipe.run()
        query(other, "UNLOCK TABLES")
    assert stopped(raised.value) == ["new"]
    pipe.assert_equal(*TABLES)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.parametrize("step", ["known_tables", "require"])
def test_a_table_that_is_dropped_while_a_run_begins(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """As the tables of some jobs come and go."""
    pipe.sql("CREATE TABLE z (id INT PRIMARY KEY)", "INSERT INTO z VALUES (1)")
    pipe.run()
    drop_after(pipe, monkeypatch, opening, step)
    pipe.sql("INSERT INTO z VALUES (2)", "CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(LakeIngestError, match="no such table") as raised:
        pipe.run()
    assert stopped(raised.value) == ["t"]
    pipe.assert_equal("z")
    assert pipe.run().stopped == ()


@pytest.mark.parametrize("before", ["copied before", "not copied"])
@pytest.mark.long("a variant of a table that is gone")
def test_a_table_that_is_made_anew_while_a_run_begins(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """It is away when its definition is read, and there again when the reason is looked for."""
    make_tables(pipe, "INT", 1)
    if before == "copied before":
        pipe.run()
    with monkeypatch.context() as patch:
        run_before(patch, opening, "require", lambda: pipe.sql("DROP TABLE t"))
        made_anew = "CREATE TABLE t (id INT PRIMARY KEY, w INT)"
        run_before(patch, preconditions, "_refused_tables", lambda: pipe.sql(made_anew))
        with pytest.raises(PreflightFailed, match="t is not ready: its definition changed in between") as raised:
            pipe.run()
    assert stopped(raised.value) == ["t"]
    pipe.assert_equal("z")
    pipe.sql("INSERT INTO t VALUES (1, 2)", "INSERT INTO z VALUES (1000, 2)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
@pytest.mark.parametrize(("owner", "step"), [(Source, "tables"), (discovery, "joinable")], ids=["listed", "looked at"])
def test_a_table_that_is_dropped_while_a_run_finds_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    """The run that follows goes on with the others."""
    pipe.sql("CREATE TABLE z (id INT PRIMARY KEY)", "INSERT INTO z VALUES (1)")
    pipe.run()
    dropped = drop_after(pipe, monkeypatch, owner, step)

    def work() -> None:
        pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        soon(lambda: bool(dropped))
        pipe.sql("INSERT INTO z VALUES (2)")
        shown(pipe, "z")

    with suppress(LakeIngestError):  # of `t`
        follow_while(pipe, work)
    pipe.assert_equal("z")
    assert pipe.run().stopped == ()


def run_before(patch: pytest.MonkeyPatch, module: ModuleType, step: str, work: Callable[[], object]) -> None:
    """Do the work right before a step of a run."""
    real = getattr(module, step)

    def take(*given: object, **named: object) -> object:
        work()
        return real(*given, **named)

    patch.setattr(module, step, take)


def drop_after(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, owner: object, step: str) -> list[str]:
    """Drop `t` right after a step of a run, once it is there; the list that is returned has its name then."""
    real, dropped = getattr(owner, step), list[str]()

    def take(*given: object, **named: object) -> object:
        answer = real(*given, **named)
        if not dropped and query(pipe.connection, f"SHOW TABLES FROM {pipe.database} LIKE 't'"):
            query(pipe.connection, f"DROP TABLE {pipe.database}.t")
            dropped.append("t")
        return answer

    monkeypatch.setattr(owner, step, take)
    return dropped


def make_tables(pipe: Pipe, kind: str, step: int) -> None:
    """Two tables of several waves, with a key of this type; `step` is the distance between two keys."""
    for name in TABLES:
        rows = ", ".join(f"({number * step}, {number})" for number in range(400))
        pipe.sql(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES {rows}")


def after_a_wave(work: Callable[[], object]) -> Callable[[Event], None]:
    """An observer that does the work once, after a wave of `t`."""
    left = [work]

    def observe(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "t" and left:
            time.sleep(1)  # the second wave is read, the third is not
            left.pop()()

    return observe


def stopped(error: LakeIngestError) -> list[str]:
    """The tables that the run has stopped."""
    assert error.result is not None
    return [one.table.name for one in error.result.stopped]
