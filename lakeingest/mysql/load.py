"""The load of a source, for `throttle` of pipeline.yml: running threads, old row versions, and the replica's lag."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import GtidSet
from lakeingest.core.figures.load import Load
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import answering_soon, connect, query_row
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.replica import executed
from lakeingest.mysql.rights import account_of
from lakeingest.mysql.visibility import is_denied

_METRIC = "trx_rseg_history_len"
_HISTORY_OF_MYSQL = f"SELECT count, status FROM information_schema.innodb_metrics WHERE name = '{_METRIC}'"
_HISTORY_OF_MARIADB = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"


class LoadMeter:
    """Measures the parts of the load that `limit` limits. It opens a connection only for a measurement."""

    def __init__(self, settings: Source, limit: Load) -> None:
        self._settings, self._limit = settings, limit
        # a time, and what the source had executed by then; oldest first, and only sets that the replica did not contain
        self._missing: deque[tuple[float, GtidSet]] = deque()

    def measure(self, primary: pymysql.Connection) -> Load:
        """The present load; None for each part without a limit. `primary` is a connection to the source.

        Raises OperatorNeeded if the length of the history list is limited, and `history_list_length` raises it.
        """
        limit = self._limit
        if limit == Load():  # no limits, so there is nothing to measure
            return limit
        with self._reading(primary) as server, answering_soon(primary), answering_soon(server):
            return Load(
                None if limit.threads_running is None else threads_running(server),
                None if limit.history_list_length is None else history_list_length(server),
                None if limit.replica_lag is None else self._replica_lag(primary, server),
            )

    @contextmanager
    def _reading(self, primary: pymysql.Connection) -> Iterator[pymysql.Connection]:
        """A connection to the server that rows are read from: the replica, if there is one."""
        if self._settings.replica is None:
            yield primary
        else:
            with connect(self._settings.of_rows) as replica:
                yield replica

    def _replica_lag(self, primary: pymysql.Connection, replica: pymysql.Connection) -> float:
        """How long ago, at least, the source had executed a transaction that the replica lacks.

        Seconds_Behind_Source of SHOW REPLICA STATUS is not used: it is 0 while the connection between the servers
        hangs, and NULL if the replication has stopped.
        """
        now = time.monotonic()
        self._missing.append((now, executed(primary)))
        applied = executed(replica)
        while self._missing and not (self._missing[0][1] - applied).count:  # the replica contains the oldest set now
            self._missing.popleft()
        return now - self._missing[0][0] if self._missing else 0.0


def threads_running(connection: pymysql.Connection) -> int:
    """The number of threads that work, the thread of this query included. To ask for it, no right is needed."""
    _, number = query_row(connection, "SHOW GLOBAL STATUS LIKE 'Threads_running'", 2)
    return int(number)


def history_list_length(connection: pymysql.Connection) -> int:
    """The number of transactions whose old row versions InnoDB still keeps.

    Raises OperatorNeeded if the user lacks the right PROCESS, or if the server does not count them; both on MySQL only.
    """
    if dialect(connection) is MARIADB:
        _, length = query_row(connection, _HISTORY_OF_MARIADB, 2)
        return int(length)
    if is_denied(connection, _HISTORY_OF_MYSQL):
        account = account_of(connection)
        raise OperatorNeeded(f"throttle.history_list_length needs a right: GRANT PROCESS ON *.* TO {account}")
    length, status = query_row(connection, _HISTORY_OF_MYSQL, 2)
    if str(status) != "enabled":  # then the number is that of an earlier time
        raise OperatorNeeded(
            f"throttle.history_list_length: the server does not count it; SET GLOBAL innodb_monitor_enable = {_METRIC}"
        )
    return int(length)
