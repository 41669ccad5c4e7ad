"""QUERY events: a statement, and the settings that decide how its session read it. Pure.

Source: MySQL's source documentation, "Query_event" (status variables).
"""

import enum
from dataclasses import dataclass

from lakeingest.mysql.wire.events import Cursor, Event


class _Status(enum.IntEnum):
    """The status variables that come first in an event; all others come after them."""

    FLAGS = 0
    SQL_MODE = 1
    AUTO_INCREMENT = 3
    CHARSET = 4
    CATALOG = 6


_BYTES: dict[int, int] = {_Status.FLAGS: 4, _Status.SQL_MODE: 8, _Status.AUTO_INCREMENT: 4, _Status.CHARSET: 6}
_UNKNOWN = 1 << 16  # more bytes than all variables have
_CLIENT_BYTES = 2  # the client's collation is the first of three


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with its default database; bytes that are not UTF-8 become lone surrogates in both.

    `sql_mode` is that of the session, `collation` that of its client; None where the event has none.
    """

    database: str
    text: str
    sql_mode: int | None = None
    collation: int | None = None


def read_query(event: Event) -> Query:
    """The statement of a QUERY event; Damaged where it is cut."""
    body = event.body
    body.take(8)
    database_length = body.number(1)
    body.take(2)
    variables = _read_variables(Cursor(body.take(body.number(2))))
    database = body.take(database_length).decode(errors="surrogateescape")
    body.take(1)
    text = body.take(body.left).decode(errors="surrogateescape")
    mode, charset = variables.get(_Status.SQL_MODE), variables.get(_Status.CHARSET)
    return Query(
        database,
        text,
        None if mode is None else int.from_bytes(mode, "little"),
        None if charset is None else int.from_bytes(charset[:_CLIENT_BYTES], "little"),
    )


def _read_variables(body: Cursor) -> dict[int, bytes]:
    """The status variables, up to the first that is cut or unknown."""
    found: dict[int, bytes] = {}
    while body.left:
        variable = body.number(1)
        size = body.number(1) if variable == _Status.CATALOG and body.left else _BYTES.get(variable, _UNKNOWN)
        if size > body.left:
            break
        found[variable] = body.take(size)
    return found
