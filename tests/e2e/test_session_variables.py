"""Whatever values a server imposes on sessions, by its defaults and by init_connect: copies are whole, and stay so.

`docs/session-variables.yml` has the values; `tests/mysql/test_session_variables.py` tries each of them, and says which
one it is that spoils an answer.
"""

from collections.abc import Callable

import pytest
from pydantic import SecretStr

from lakeingest.commands.check import check
from lakeingest.commands.repair import repair
from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe
from tests.mysql.values import values_of
from tests.servers.session_variables import COPIER, OTHER, PASSWORD, groups, imposed, make_copier, settings

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ALIKE = "p" * 80  # the beginning of the text keys


@pytest.mark.newest
@pytest.mark.parametrize("part", ["pinned", "harmless"])
@pytest.mark.long("runs on servers of their own, whose settings are unusual")
def test_a_copy_is_whole_whatever_a_server_imposes_on_sessions(
    server_of: Callable[..., LocalServer], any_server: LocalServer, pipe_on: Callable[..., Pipe], part: str
) -> None:
    """A table of all types and one with long keys: copied, followed, read again after DDL, compared and repaired."""
    server = server_of(any_server.flavor, **OTHER)
    make_copier(server)
    pipe = pipe_on(server, chunk_rows=10, types={"time": "micros", "zero_dates": "string"})
    account = {"user": COPIER, "password": SecretStr(PASSWORD)}
    pipe.config = pipe.config.model_copy(update={"source": pipe.config.source.model_copy(update=account)})
    at_login = next(groups(part, server, 0, "init_connect"))  # what init_connect has no room for is a default alone
    with imposed(server, "init_connect", at_login), imposed(server, "default", settings(part, server, 0)):
        copy_and_follow(pipe, server)


def copy_and_follow(pipe: Pipe, server: LocalServer) -> None:
    """Everything that reads rows, as a user with the documented rights; what is written is an administrator's."""
    values = values_of(server)
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(values))
    rows = [", ".join(pairs[n % len(pairs)][0] for pairs in values.values()) for n in range(4)]
    pipe.sql(
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) DEFAULT CHARSET utf8mb4",
        "CREATE TABLE k (id VARCHAR(200), n INT, at TIME(6), PRIMARY KEY (id, at)) DEFAULT CHARSET utf8mb4",
        *(f"INSERT INTO t VALUES ({n}, {row})" for n, row in enumerate(rows)),
        *(f"INSERT INTO k VALUES ('{ALIKE}{n % 20}', {n}, '-1:00:0{n % 10}.{n // 20}00012')" for n in range(40)),
    )
    pipe.run()
    assert seen(pipe) == written(pipe)
    pipe.sql(
        *(f"INSERT INTO t VALUES ({100 + n}, {row})" for n, row in enumerate(rows)),
        "DELETE FROM t WHERE id = 0",
        "UPDATE k SET id = UPPER(id), n = n + 100 WHERE n % 3 = 0",
        "DELETE FROM k WHERE n = 4",
        "ALTER TABLE k ADD plus INT AS (n + 1) STORED",  # rows are read again
    )
    pipe.run()
    assert seen(pipe) == written(pipe)
    pipe.assert_equal()
    pipe.unlogged("UPDATE k SET n = n + 1000 WHERE n BETWEEN 10 AND 20")
    [repaired] = repair(pipe.config, [f"{pipe.database}.k"], pipe.spark)
    assert (repaired.equal, seen(pipe)) == (True, written(pipe))
    assert check(pipe.config, pipe.spark).problems == ()


def seen(pipe: Pipe) -> list[set[object]]:
    """What readers see: the ids of the one table, the numbers of the other one."""
    return [{row[0] for row in pipe.rows("t")}, {row[1] for row in pipe.rows("k")}]


def written(pipe: Pipe) -> list[set[object]]:
    """The same in the source."""
    found: list[set[object]] = []
    for sql in ("SELECT id FROM t", "SELECT n FROM k"):
        with pipe.connection.cursor() as cursor:
            cursor.execute(sql)
            found.append({row[0] for row in cursor.fetchall()})
    return found
