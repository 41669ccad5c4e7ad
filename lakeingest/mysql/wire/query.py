"""Reads QUERY events: a statement, and the session's settings by which the server parsed the statement. Pure.

The settings are status variables of the event. `_Status` has those that MySQL 8.0 to 9.7 and MariaDB 10.11 to 12.3
write. Sources: MySQL's source, "statement_events.cpp"; MariaDB's source, "log_event.cc" and "lex_charset.h".
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.mysql.wire.events import Event


class _Status(enum.IntEnum):
    """The numbers of the status variables; MariaDB's own begin at 128."""

    FLAGS = 0
    SQL_MODE = 1
    ENDED_CATALOG = 2  # with a NUL at its end
    AUTO_INCREMENT = 3
    CHARSET = 4
    TIME_ZONE = 5
    CATALOG = 6
    MONTH_NAMES = 7
    DATABASE_CHARSET = 8
    TABLES = 9
    WRITTEN_BYTES = 10
    INVOKER = 11
    DATABASES = 12
    MICROSECONDS = 13
    TIMESTAMP_DEFAULTS = 16
    DDL_XID = 17
    UTF8MB4_COLLATION = 18
    REQUIRES_KEY = 19
    ENCRYPTION = 20
    CASCADE_TRIGGERS = 21
    SECOND_PART = 128
    XID = 129
    GTID_FLAGS = 130
    COLLATIONS = 131


# Status variable → the number of bytes of its value; `_SIZES` has the variables whose values differ in size
_BYTES: dict[int, int] = {
    _Status.FLAGS: 4,
    _Status.SQL_MODE: 8,
    _Status.AUTO_INCREMENT: 4,
    _Status.CHARSET: 6,
    _Status.MONTH_NAMES: 2,
    _Status.DATABASE_CHARSET: 2,
    _Status.TABLES: 8,
    _Status.WRITTEN_BYTES: 4,
    _Status.MICROSECONDS: 3,
    _Status.TIMESTAMP_DEFAULTS: 1,
    _Status.DDL_XID: 8,
    _Status.UTF8MB4_COLLATION: 2,
    _Status.REQUIRES_KEY: 1,
    _Status.ENCRYPTION: 1,
    _Status.CASCADE_TRIGGERS: 1,
    _Status.SECOND_PART: 3,
    _Status.XID: 8,
}
_CLIENT_BYTES = 2  # of CHARSET: the client's collation, which is the first of three collations
_DATABASES_MAX = 16  # of DATABASES: a greater count means that the server did not list the databases
_ALTER_ENDS = 4 | 8  # of GTID_FLAGS: with one of these two flags, a sequence number of eight bytes follows


@dataclass(frozen=True, slots=True)
class Query:
    """A statement (`text`) with its default database; bytes that are not UTF-8 become lone surrogates in both.

    `sql_mode` is that of the session, `collation` is the id of the client's collation. Each of the two is None if the
    event does not have it. `databases` are the databases of all tables that the statement has opened, as MySQL writes
    them for its parallel replicas. `databases` is None if MySQL wrote no list, as for statements on parents of foreign
    keys; and always on MariaDB.

    `unknown` is the number of the first status variable that is not known or is cut, None if there is no such variable:
    settings after it are not read.
    """

    database: str
    text: str
    sql_mode: int | None = None
    collation: int | None = None
    is_mariadb: bool = False
    databases: frozenset[str] | None = None
    unknown: int | None = None


def read_query(event: Event, *, is_mariadb: bool = False) -> Query:
    """The statement of a QUERY event. Raises Damaged if the event is cut, except within its status variables."""
    body = event.body
    body.take(8)  # the thread's id and the seconds of execution
    database_length = body.number(1)
    body.take(2)  # the error code
    variables, unknown = _read_variables(body.take(body.number(2)))
    database = body.take(database_length).decode(errors="surrogateescape")
    body.take(1)  # a NUL
    text = body.take(body.left).decode(errors="surrogateescape")
    mode, charset = variables.get(_Status.SQL_MODE), variables.get(_Status.CHARSET)
    return Query(
        database,
        text,
        sql_mode=None if mode is None else int.from_bytes(mode, "little"),
        collation=None if charset is None else int.from_bytes(charset[:_CLIENT_BYTES], "little"),
        is_mariadb=is_mariadb,
        databases=_databases(variables.get(_Status.DATABASES, b"")),
        unknown=unknown,
    )


def _read_variables(data: bytes) -> tuple[dict[int, bytes], int | None]:
    """Read the status variables, up to the first one that is cut or unknown.

    Returns the values by the variables' numbers; and the number of the cut or unknown variable, None if there is none.
    """
    values: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        variable = data[at]
        at += 1
        size = _size(variable, data[at:])
        if size is None or size > len(data) - at:
            return values, variable
        values[variable] = data[at : at + size]
        at += size
    return values, None


def _size(variable: int, data: bytes) -> int | None:
    """The number of bytes of a status variable's value; None if the variable is unknown.

    `data` has the bytes from the value's beginning on. The number is greater than the size of `data` if the value is
    cut.
    """
    measure = _SIZES.get(variable)
    if measure is None:
        return _BYTES.get(variable)
    return measure(data) if data else 1  # without data the value is cut, and 1 is greater than 0


def _invoker_size(data: bytes) -> int:
    """The size of a user and a host, each after a byte with its length; more than `data` has if one of them is cut."""
    host_at = 1 + data[0]  # the offset of the byte before the host
    return host_at + 1 + (data[host_at] if host_at < len(data) else 0)


def _databases_size(data: bytes) -> int:
    """The size of a count, and of as many names, each ending with a NUL; more than `data` has if a name is cut."""
    if data[0] > _DATABASES_MAX:  # the count alone, without names
        return 1
    name_end = 0  # the offset of the last NUL; before the first name, that of the count
    for _ in range(data[0]):
        name_end = data.find(0, name_end + 1)
        if name_end < 0:
            return len(data) + 1
    return name_end + 1


# Status variable → the function that reads the size of its value from the value's beginning
_SIZES: dict[int, Callable[[bytes], int]] = {
    _Status.ENDED_CATALOG: lambda data: data[0] + 2,
    _Status.TIME_ZONE: lambda data: data[0] + 1,
    _Status.CATALOG: lambda data: data[0] + 1,
    _Status.INVOKER: _invoker_size,
    _Status.DATABASES: _databases_size,
    _Status.GTID_FLAGS: lambda data: 9 if data[0] & _ALTER_ENDS else 1,
    _Status.COLLATIONS: lambda data: 4 * data[0] + 1,
}


def _databases(data: bytes) -> frozenset[str] | None:
    """The names in the value of the status variable DATABASES; None if `data` is empty, or the value lists no names."""
    if not data or not 0 < data[0] <= _DATABASES_MAX:
        return None
    return frozenset(name.decode(errors="surrogateescape") for name in data[1:-1].split(b"\0"))
