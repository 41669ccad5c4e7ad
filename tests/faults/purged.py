"""A source drops its binlog files, as it does when they have expired."""

import time

import pymysql

from lakeingest.mysql.connection import file_sizes, query, written_position

SECONDS = 30.0


def purge(connection: pymysql.Connection) -> None:
    """All but the last are dropped. A file that a connection still reads stays at first, without an error."""
    deadline = time.monotonic() + SECONDS
    while len(file_sizes(connection)) > 1:
        query(connection, f"PURGE BINARY LOGS TO '{written_position(connection).file}'")
        assert time.monotonic() < deadline, "the source keeps more than one binlog file"
        time.sleep(0.05)
