"""Two MySQL servers, the second one a replica of the first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql

from lakeingest.config import Source
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import connect, query

USER, PASSWORD = "lake", "p"  # an account of both servers, because it is replicated


@dataclass(frozen=True)
class Pair:
    """A source whose rows are read from its replica, and an administrator's connection to each of the two servers."""

    source: Source
    primary: pymysql.Connection
    replica: pymysql.Connection

    def level(self) -> None:
        """Wait until the replica has all transactions of the primary."""
        [(executed,)] = query(self.primary, "SELECT @@global.gtid_executed")
        [(is_late,)] = query(self.replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 60)")
        assert is_late == "0"

    def promote(self) -> Source:
        """The replica becomes a server of its own, with what it has; its account is that of the source."""
        for one in ("STOP REPLICA", "RESET REPLICA ALL"):
            query(self.replica, one)
        assert self.source.replica is not None
        return self.source.model_copy(
            update={"host": self.source.replica.host, "port": self.source.replica.port, "replica": None}
        )

    def unlogged(self, statement: str) -> None:
        """Change the replica without a trace in its GTIDs."""
        for one in ("SET sql_log_bin = 0", statement, "SET sql_log_bin = 1"):
            query(self.replica, one)


@contextmanager
def replicating(server_with: Callable[..., LocalServer], ids: tuple[str, str] = ("71", "72")) -> Iterator[Pair]:
    """Two servers that only such tests use; one replicates from the other, and is level again at the end.

    Not where the replica was promoted: servers that took over from each other are no pair for other tests.
    """
    one, other = server_with(server_id=ids[0]), server_with(server_id=ids[1])
    with administrator(one) as primary, administrator(other) as replica:
        [(executed,)] = query(primary, "SELECT @@global.gtid_executed")
        for statement in (
            f"DROP USER IF EXISTS {USER}",
            "RESET BINARY LOGS AND GTIDS",
            f"SET GLOBAL gtid_purged = '{executed}'",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{one.host}', SOURCE_PORT = {one.port},"
            f" SOURCE_USER = '{USER}', SOURCE_PASSWORD = '{PASSWORD}', GET_SOURCE_PUBLIC_KEY = 1,"
            " SOURCE_AUTO_POSITION = 1",
        ):
            query(replica, statement)
        query(primary, f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'")
        query(primary, f"GRANT ALL ON *.* TO {USER}")
        query(replica, "START REPLICA")
        try:
            account = {"host": one.host, "port": one.port, "user": USER, "password": PASSWORD}
            source = Source.model_validate(account | {"replica": {"host": other.host, "port": other.port}})
            pair = Pair(source, primary, replica)
            pair.level()
            yield pair
            if query(replica, "SHOW REPLICA STATUS"):
                pair.level()
        finally:
            query(replica, "STOP REPLICA")
            query(replica, "RESET REPLICA ALL")
            query(primary, f"DROP USER {USER}")


@contextmanager
def administrator(server: LocalServer) -> Iterator[pymysql.Connection]:
    """A connection of the server's administrator."""
    account = {"user": server.user, "password": server.password}
    with connect(Source.model_validate({"host": server.host, "port": server.port, **account})) as connection:
        yield connection
