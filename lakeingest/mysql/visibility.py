"""What the user may see of the source. Servers leave out what is hidden, so that an empty answer may be no answer."""

import pymysql
from pymysql.constants import ER

from lakeingest.core.schema import TableId
from lakeingest.mysql.connection import DENIED, query, table_name

ABSENT = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}


def is_denied(connection: pymysql.Connection, sql: str) -> bool:
    """Whether the user lacks a right for the statement."""
    try:
        query(connection, sql)
    except pymysql.err.Error as error:
        if error.args[0] in DENIED:
            return True
        if error.args[0] != ER.LOCK_WAIT_TIMEOUT:  # others lock a table that the user may read
            raise
    return False


def is_hidden(connection: pymysql.Connection, table: TableId) -> bool:
    """Whether the user may not read the table as a whole. It need not be there.

    Servers deny a table to a user without a right on it whether it is there or not. A user who may only read some
    columns does not see others, nor, on MariaDB, foreign keys: so the table's definition has to be shown, too.
    """
    name = table_name(table)
    try:
        return any(is_denied(connection, sql) for sql in (f"SELECT * FROM {name} LIMIT 0", f"SHOW CREATE TABLE {name}"))
    except pymysql.err.Error as error:
        if error.args[0] not in ABSENT:
            raise
        return False
