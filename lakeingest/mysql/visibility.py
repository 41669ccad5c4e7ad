"""Asks what the user may see of the source. Servers leave out hidden objects, so an empty answer may be no answer."""

from collections.abc import Callable

import pymysql
from pymysql.constants import ER

from lakeingest.core.schema import TableId
from lakeingest.mysql.connection import DENIED, create_statement, query, table_name

ABSENT = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}


def is_denied(connection: pymysql.Connection, sql: str) -> bool:
    """Whether the user lacks a right for the statement."""
    return _is_denied(lambda: query(connection, sql))


def _is_denied(ask: Callable[[], object]) -> bool:
    """Whether the server denies a call. Other errors are raised, but for a lock that others hold for long."""
    try:
        ask()
    except pymysql.err.Error as error:
        if error.args[0] in DENIED:
            return True
        if error.args[0] != ER.LOCK_WAIT_TIMEOUT:  # others lock a table that the user may read
            raise
    return False


def is_hidden(connection: pymysql.Connection, table: TableId) -> bool:
    """Whether the user may not read the table as a whole. The table need not exist.

    Servers deny a table to a user without a right on it, whether the table exists or not. A user who may only read some
    columns does not see the others, nor, on MariaDB, foreign keys: so the server must show the table's definition, too.
    """
    try:
        return is_denied(connection, f"SELECT * FROM {table_name(table)} LIMIT 0") or _is_denied(
            lambda: create_statement(connection, table)
        )
    except pymysql.err.Error as error:
        if error.args[0] not in ABSENT:
            raise
        return False
