"""Asks what the user is allowed to see of the source.

Servers leave hidden objects out of their results. So an empty result does not prove that there is no such object.
"""

from collections.abc import Callable, Iterable

import pymysql
from pymysql.constants import ER

from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.connection import DENIED, create_statement, query, table_name
from lakeingest.mysql.rights import databases_read

ABSENT = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}


def is_denied(connection: pymysql.Connection, sql: str) -> bool:
    """Whether the user lacks a right for the statement, which is run to find this out.

    Raises other errors of the driver; but if the statement waits too long for a lock, the user has the right.
    """
    return _is_denied(lambda: query(connection, sql))


def _is_denied(ask: Callable[[], object]) -> bool:
    """Call `ask`. Returns whether the server denies it. Raises other errors, but not the timeout of a lock."""
    try:
        ask()
    except pymysql.err.Error as error:
        if error.args[0] in DENIED:
            return True
        # a timeout is no denial: a user waits only for a table that the user is allowed to read
        if error.args[0] != ER.LOCK_WAIT_TIMEOUT:
            raise
    return False


def is_hidden(connection: pymysql.Connection, table: TableId) -> bool:
    """True if the user is not allowed to read the whole table: all its columns, and its definition.

    A table that does not exist is hidden only if the user has no right on it: then the server denies the access. The
    definition is asked for as well, because a user who may read only some columns sees neither the other columns nor,
    on MariaDB, the foreign keys.
    """
    try:
        if is_denied(connection, f"SELECT * FROM {table_name(table)} LIMIT 0"):
            return True
        return _is_denied(lambda: create_statement(connection, table))
    except pymysql.err.Error as error:
        if error.args[0] not in ABSENT:
            raise
        return False


def hidden_tables(connection: pymysql.Connection, tables: Iterable[TableId]) -> list[TableId]:
    """The tables among `tables` that are hidden, as `is_hidden` says.

    A table is not asked for if a grant lets the user read its whole database.
    """
    reads = databases_read(connection)
    return [table for table in tables if not reads(table.database) and is_hidden(connection, table)]
