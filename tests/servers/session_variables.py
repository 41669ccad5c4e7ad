"""The list of session variables in `docs/session-variables.yml`, and how a test imposes their values on sessions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import yaml

from lakeingest.demo.server import LocalServer

LISTED: Mapping[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docs" / "session-variables.yml").read_text())
WAYS = ("default", "init_connect")
OTHER = {"server_id": "143", "performance_schema": "ON"}  # of a server: what is imposed would concern other tests
COPIER, PASSWORD = "plain_copier", "of tests"
RIGHTS = {
    False: "SELECT, REPLICATION SLAVE, REPLICATION CLIENT",
    True: "SELECT, REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR",
}

LONGEST = 2000  # characters of init_connect, on a MariaDB that bounds it

Setting = tuple[str, Any]


def settings(part: str, server: LocalServer, number: int) -> list[Setting]:
    """Of each variable of a part of the list its value of this number, or its last one."""
    return [(name, values[min(number, len(values) - 1)]) for name, values in listed(part, server).items()]


def groups(part: str, server: LocalServer, number: int, way: str) -> Iterator[list[Setting]]:
    """`settings`, in groups of which each can be imposed at once."""
    group: list[Setting] = []
    for one in settings(part, server, number):
        if way == "init_connect" and server.flavor.is_mariadb and len(_statement([*group, one])) > LONGEST:
            yield group
            group = []
        group.append(one)
    yield group


def listed(part: str, server: LocalServer) -> dict[str, Any]:
    """A part of the list, for a server of this flavor."""
    own = "mariadb" if server.flavor.is_mariadb else "mysql"
    found: dict[str, Any] = LISTED[part].get("both", {}) | LISTED[part].get(own, {})
    return found


def administrator(server: LocalServer) -> pymysql.Connection:
    """A session that keeps the values that it has now."""
    return pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )


def make_copier(server: LocalServer) -> None:
    """A user with exactly the documented rights; init_connect does not concern administrators."""
    with administrator(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER IF NOT EXISTS {COPIER} IDENTIFIED BY '{PASSWORD}'")
        cursor.execute(f"GRANT {RIGHTS[server.flavor.is_mariadb]} ON *.* TO {COPIER}")


def session_variables(server: LocalServer) -> set[str]:
    """The names of all variables that a session of the server has a value of."""
    with administrator(server) as connection, connection.cursor() as cursor:
        if server.flavor.is_mariadb:
            cursor.execute(
                "SELECT LOWER(VARIABLE_NAME) FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_SCOPE <> 'GLOBAL'"
            )
        else:
            cursor.execute(
                "SELECT VARIABLE_NAME FROM performance_schema.variables_metadata WHERE VARIABLE_SCOPE <> 'GLOBAL'"
            )
        return {name for (name,) in cursor.fetchall()}


@contextmanager
def imposed(server: LocalServer, way: str, chosen: Iterable[Setting]) -> Iterator[list[Setting]]:
    """New sessions of plain users have these values; those are given that can be imposed in this way."""
    with administrator(server) as connection, connection.cursor() as cursor:
        before: dict[str, Any] = {}
        try:
            if way == "default":
                able = [one for one in chosen if _is_default(cursor, one, before)]
            else:
                able = [one for one in chosen if _is_settable(server, one)]
                before["init_connect"] = ""
                cursor.execute(f"SET GLOBAL init_connect = {literal(_statement(able) if able else '')}")
            yield able
        finally:
            for name, value in reversed(before.items()):
                cursor.execute(f"SET GLOBAL {name} = {'DEFAULT' if value == 'DEFAULT' else literal(value)}")


def _statement(chosen: Iterable[Setting]) -> str:
    """What gives a session these values."""
    return f"SET {', '.join(f'SESSION {name} = {literal(value)}' for name, value in chosen)}"


def _is_default(cursor: Any, setting: Setting, before: dict[str, Any]) -> bool:
    """Make the value the default of new sessions, if it can be; `before` gets the one of before."""
    name, value = setting
    with suppress(pymysql.err.MySQLError):
        cursor.execute(f"SELECT @@global.{name}")
        [old] = cursor.fetchone()
        cursor.execute(f"SET GLOBAL {name} = {literal(value)}")
        before[name] = old
        return True
    return False


def _is_settable(server: LocalServer, setting: Setting) -> bool:
    """Whether init_connect could set it, which is run with the rights of the user."""
    name, value = setting
    with (
        suppress(pymysql.err.MySQLError),
        pymysql.connect(host=server.host, port=server.port, user=COPIER, password=PASSWORD) as plain,
        plain.cursor() as cursor,
    ):
        cursor.execute(f"SET SESSION {name} = {literal(value)}")
        return True
    return False


def literal(value: Any) -> str:
    """A value of the list in SQL."""
    if value is None:
        return "NULL"
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'" if isinstance(value, str) else str(value)
