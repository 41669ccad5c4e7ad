"""A copied table that the user may no longer see is not gone: it is named, and the others go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from lakeingest.commands.check import check
from lakeingest.commands.status import status
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, PreflightFailed
from lakeingest.mysql.connection import query
from lakeingest.mysql.rights import grant_select
from lakeingest.pipeline.events import LeftAsItIs
from lakeingest.pipeline.rounds import discovery
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon
from tests.e2e.test_gone_in_between import stopped
from tests.servers.accounts import statements

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.any_format,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.long("the same on another version", only=("MariaDB 10.11",)),
]

PASSWORD = "of one test"
# What is taken from the user of `hidden`, and what gives it back. {t} is the table, {user} the user.
REVOKED = {
    "table": ("REVOKE SELECT ON {t} FROM {user}", "GRANT SELECT ON {t} TO {user}"),
    "column": (
        "REVOKE SELECT ON {t} FROM {user}; GRANT SELECT (id) ON {t} TO {user}",
        "GRANT SELECT ON {t} TO {user}",
    ),
    "read, not write": (
        "REVOKE SELECT ON {t} FROM {user}; GRANT INSERT ON {t} TO {user}",
        "GRANT SELECT ON {t} TO {user}",
    ),
}


@contextmanager
def own_user(pipe: Pipe, *tables: str) -> Iterator[str]:
    """Let the pipeline have a user of its own, with the documented rights, and SELECT on these tables alone."""
    user = f"u_{pipe.database}"[:32]
    is_mariadb = "MariaDB" in str(query(pipe.connection, "SELECT VERSION()")[0][0])
    pipe.sql(f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'")
    _, binlog = statements(is_mariadb=is_mariadb, user=user)
    pipe.sql(binlog, *(f"GRANT SELECT ON {one} TO {user}" for one in tables))
    source = pipe.config.source.model_copy(update={"user": user, "password": SecretStr(PASSWORD)})
    pipe.config = pipe.config.model_copy(update={"source": source})
    try:
        yield user
    finally:
        pipe.sql(f"DROP USER {user}")


@pytest.fixture
def tables(any_pipe: Pipe) -> Pipe:
    """A pipeline with two tables."""
    any_pipe.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (1, 1)",
    )
    return any_pipe


@pytest.mark.parametrize("kind", REVOKED)
@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.long("one of the rights in turn", turn="kind")
def test_a_copied_table_that_is_hidden_stops_and_goes_on_once_it_may_be_seen(tables: Pipe, kind: str) -> None:
    """`run` and `check` name it with the GRANT, `status` says that it is hidden, and the other table goes on."""
    pipe, (take, give) = tables, REVOKED[kind]
    with own_user(pipe, "a", "b") as user:
        pipe.run()
        pipe.sql(*(one.format(t="a", user=user) for one in take.split("; ")))
        pipe.sql("INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, 2)")
        name = f"{pipe.database}.a"
        for _ in range(2):
            with pytest.raises(PreflightFailed, match=f"{name} is not ready: ") as raised:
                pipe.run()
            assert grant_select("", pipe.database, names_are_patterns=True).removesuffix(" TO ") in str(raised.value)
            assert stopped(raised.value) == ["a"]
        assert pipe.rows("b") == [(1, 1), (2, 2)]
        assert pipe.rows("a") == [(1, 1)]
        assert any(f"lacks SELECT on {name}" in str(one.finding) for one in check(pipe.config).problems)
        if kind == "table":
            assert [one.hidden for one in status(pipe.config)] == [True, False]
            assert "published, PreflightFailed, hidden from the user" in repr(status(pipe.config))
        pipe.sql(give.format(t="a", user=user))
        assert pipe.run().stopped == ()
        pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_run_that_follows_stops_a_table_that_is_hidden(tables: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are followed; at the end the run does not succeed."""
    pipe = tables
    monkeypatch.setattr(discovery, "LIST_SECONDS", 0.5)
    with own_user(pipe, "a", "b") as user:

        def work() -> None:
            pipe.sql(f"REVOKE SELECT ON a FROM {user}")
            soon(lambda: bool(status(pipe.config, offline=True)[0].stopped))
            pipe.sql("INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, 2)")
            shown(pipe, "b")

        with pytest.raises(PreflightFailed, match="may not read it: GRANT SELECT") as raised:
            follow_while(pipe, work)
        assert stopped(raised.value) == ["a"]
        assert pipe.rows("b") == [(1, 1), (2, 2)]
        pipe.sql(f"GRANT SELECT ON a TO {user}")
        pipe.run()
        pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_rows_of_an_included_table_that_the_user_never_saw_end_the_run(tables: Pipe) -> None:
    """The run that meets them in the binlog names the table; a table that is not included is nobody's concern."""
    pipe = tables
    with own_user(pipe, "b"):
        assert pipe.run().stopped == ()
        pipe.sql("INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, 2)")
        with pytest.raises(PreflightFailed, match="a is not ready: the binlog has rows of it") as raised:
            pipe.run()
        assert stopped(raised.value) == ["a"]
        pipe.assert_equal("b")
        without = pipe.config.tables.model_copy(update={"exclude": ("*.a",)})
        pipe.config = pipe.config.model_copy(update={"tables": without})
        pipe.sql("INSERT INTO a VALUES (3, 3)")
        assert pipe.run().stopped == ()


@pytest.mark.long("whole runs")
def test_a_copy_without_a_table_is_named_by_each_run(tables: Pipe) -> None:
    """One that was dropped between two runs, one that was renamed away, and one that is excluded now."""
    pipe = tables
    pipe.sql("CREATE TABLE c (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("DROP TABLE a", "RENAME TABLE b TO d")
    without = pipe.config.tables.model_copy(update={"exclude": ("*.c",)})
    pipe.config = pipe.config.model_copy(update={"tables": without})
    for _ in range(2):
        result = pipe.run()
        assert [(table.name, reason[:26]) for table, reason in result.left] == [
            ("a", "is no longer in the source"),
            ("b", "is no longer in the source"),
            ("c", "is no longer included; its"),
        ]
        assert len(pipe.seen(LeftAsItIs)) == 3
        pipe.events.clear()
    [warning] = [one for one in check(pipe.config).warnings if one.name == "copies without a table"]
    assert f"{pipe.database}.c is no longer included" in str(warning.finding)


@pytest.mark.long("whole runs")
def test_a_role_that_is_taken_hides_its_tables(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> None:
    """A role that is not active by default gives no right either."""
    pipe = pipe_on(mysql_server)
    role = f"r_{pipe.database}"[:32]
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)", f"CREATE ROLE {role}")
    try:
        with own_user(pipe, "b") as user:
            pipe.sql(f"GRANT SELECT ON a TO {role}", f"GRANT {role} TO {user}", f"SET DEFAULT ROLE ALL TO {user}")
            pipe.run()
            pipe.assert_equal()
            for taken, given in (
                (f"SET DEFAULT ROLE NONE TO {user}", f"SET DEFAULT ROLE ALL TO {user}"),
                (f"REVOKE {role} FROM {user}", f"GRANT {role} TO {user}"),
            ):
                pipe.sql(taken, "DELETE FROM a", "INSERT INTO a VALUES (1)")
                with pytest.raises(LakeIngestError, match="lacks SELECT on") as raised:
                    pipe.run()
                assert stopped(raised.value) == ["a"]
                pipe.sql(given, f"SET DEFAULT ROLE ALL TO {user}")
                pipe.run()
                pipe.assert_equal()
    finally:
        pipe.sql(f"DROP ROLE {role}")


@pytest.mark.long("whole runs")
def test_a_partial_revoke_hides_a_database(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """SELECT on all databases but one, as MySQL's partial_revokes allow."""
    pipe = pipe_on(mysql_server_with(partial_revokes="ON"))
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY)")
    with own_user(pipe, "*.*") as user:
        pipe.run()
        pipe.sql(f"REVOKE SELECT ON {pipe.database}.* FROM {user}", "INSERT INTO a VALUES (1)")
        with pytest.raises(PreflightFailed, match="lacks SELECT on"):
            pipe.run()
        pipe.sql(f"GRANT SELECT ON {pipe.database}.* TO {user}")
        pipe.run()
        pipe.assert_equal()


def test_an_invisible_column_that_the_user_may_not_read_is_not_left_out(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """SELECT * succeeds without it, and the server's list of columns lacks it: the table is refused."""
    pipe = pipe_on(mysql_server)
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT INVISIBLE)", "INSERT INTO a (id, v, w) VALUES (1, 1, 1)")
    with own_user(pipe) as user:
        pipe.sql(f"GRANT SELECT (id, v) ON a TO {user}")
        with pytest.raises(PreflightFailed, match="lacks SELECT on"):
            pipe.run()
