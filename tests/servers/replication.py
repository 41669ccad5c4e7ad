"""Two MySQL servers, the second one a replica of the first; and an address that leads to one of them."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

import pymysql
from pydantic import SecretStr

from lakeingest.config import Source
from lakeingest.config.source import Replica
from lakeingest.demo.flavor import Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import connect, query
from tests.servers.accounts import COPIER, make_copier
from tests.servers.accounts import PASSWORD as COPIERS

# An account of both servers, because it is replicated: the replica's, and that of those who write by an address. A
# pipeline has another one.
USER, PASSWORD = "writer", "p"
WRITER = {"user": USER, "password": SecretStr(PASSWORD)}


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

    def part(self) -> None:
        """Let both be servers of their own that take writes."""
        for server in (self.replica, self.primary):
            for one in ("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF"):
                query(server, one)

    def promote(self) -> Source:
        """The replica becomes a server of its own, with what it has; its account is that of the source."""
        for one in ("STOP REPLICA", "RESET REPLICA ALL"):
            query(self.replica, one)
        return self.other

    @property
    def other(self) -> Source:
        """The replica as a source."""
        assert self.source.replica is not None
        return self.source.model_copy(
            update={"host": self.source.replica.host, "port": self.source.replica.port, "replica": None}
        )

    def swap(self, address: "Address") -> Self:
        """The replica takes over with all transactions, and replicates to the primary; the pair as it is now.

        Whoever writes by the address is refused for that long, and then gets to the other server.
        """
        query(self.primary, "SET GLOBAL super_read_only = ON")
        self.level()
        promoted = self.promote()
        query(self.replica, "SET GLOBAL read_only = OFF")
        address.lead_to(promoted)
        return self.turned(promoted)

    def turned(self, promoted: Source) -> Self:
        """The primary replicates from the server that took over; the pair as it is now."""
        follow(self.primary, promoted.host, promoted.port)
        old = Replica(host=self.source.host, port=self.source.port)
        source = promoted.model_copy(update={"replica": old})
        return replace(self, source=source, primary=self.replica, replica=self.primary)

    def unlogged(self, statement: str) -> None:
        """Change the replica without a trace in its GTIDs."""
        for one in ("SET sql_log_bin = 0", statement, "SET sql_log_bin = 1"):
            query(self.replica, one)


class DomainPair(Pair):
    """Two servers of MariaDB."""

    def level(self) -> None:
        """Wait until the replica has all transactions of the primary."""
        [(ends,)] = query(self.primary, "SELECT @@global.gtid_binlog_pos")
        [(is_late,)] = query(self.replica, f"SELECT MASTER_GTID_WAIT('{ends}', 60)")
        assert is_late == "0"


@contextmanager
def replicating_domains(
    server_of: Callable[..., LocalServer], flavor: Flavor, ids: tuple[str, str] = ("83", "84"), strict: str = "ON"
) -> Iterator[Pair]:
    """Two servers of MariaDB that only such tests use; one replicates from the other."""
    settings = {"log_slave_updates": "ON", "gtid_strict_mode": strict}
    one, other = (server_of(flavor, server_id=number, **settings) for number in ids)
    with administrator(one) as primary, administrator(other) as replica:
        query(primary, "RESET MASTER")
        query(replica, "RESET MASTER")
        query(replica, "SET GLOBAL gtid_slave_pos = ''")
        for server in (primary, replica):
            for statement in ("SET sql_log_bin = 0", f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'"):
                query(server, statement)
            query(server, f"GRANT ALL ON *.* TO {USER}")
            make_copier(server, "*")
            query(server, "SET sql_log_bin = 1")
        query(
            replica,
            f"CHANGE MASTER TO MASTER_HOST = '{one.host}', MASTER_PORT = {one.port}, MASTER_USER = '{USER}',"
            f" MASTER_PASSWORD = '{PASSWORD}', MASTER_USE_GTID = slave_pos, MASTER_SSL_VERIFY_SERVER_CERT = 0",
        )
        query(replica, "START REPLICA")
        account = {"host": one.host, "port": one.port, "user": COPIER, "password": COPIERS}
        source = Source.model_validate(account | {"replica": {"host": other.host, "port": other.port}})
        pair = DomainPair(source, primary, replica)
        try:
            yield pair
        finally:
            pair.part()


@contextmanager
def replicating(server_with: Callable[..., LocalServer], ids: tuple[str, str] = ("71", "72")) -> Iterator[Pair]:
    """Two servers that only such tests use; one replicates from the other, and is level again at the end.

    Not where the replica was promoted: servers that took over from each other are no pair for other tests.
    """
    one, other = server_with(server_id=ids[0]), server_with(server_id=ids[1])
    with administrator(one) as primary, administrator(other) as replica:
        pair = Pair(replicate(one, other, primary, replica), primary, replica)
        try:
            pair.level()
            yield pair
            if query(replica, "SHOW REPLICA STATUS"):
                pair.level()
        finally:
            pair.part()
            query(primary, f"DROP USER IF EXISTS {USER}, {COPIER}")


def replicate(one: LocalServer, other: LocalServer, primary: pymysql.Connection, replica: pymysql.Connection) -> Source:
    """Let the second server replicate from the first one; that is the source, and rows are read from the replica."""
    [(executed,)] = query(primary, "SELECT @@global.gtid_executed")
    for statement in (
        f"DROP USER IF EXISTS {USER}, {COPIER}",
        "RESET BINARY LOGS AND GTIDS",
        f"SET GLOBAL gtid_purged = '{executed}'",
    ):
        query(replica, statement)
    query(primary, f"DROP USER IF EXISTS {COPIER}")
    query(primary, f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'")
    query(primary, f"GRANT ALL ON *.* TO {USER}")
    make_copier(primary, "*")
    follow(replica, one.host, one.port)
    account = {"host": one.host, "port": one.port, "user": COPIER, "password": COPIERS}
    return Source.model_validate(account | {"replica": {"host": other.host, "port": other.port}})


def follow(replica: pymysql.Connection, host: str, port: int) -> None:
    """Let a server replicate from another one, which has the account."""
    query(
        replica,
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port},"
        f" SOURCE_USER = '{USER}', SOURCE_PASSWORD = '{PASSWORD}', GET_SOURCE_PUBLIC_KEY = 1,"
        " SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1",
    )
    query(replica, "START REPLICA")


class Address:
    """An address of this machine that leads to one of several servers, as a name in DNS does."""

    def __init__(self, server: socket.socket, source: Source) -> None:
        self._server, self._to, self._open = server, (source.host, source.port), list[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def of(self, source: Source) -> Source:
        """The source, by this address."""
        return source.model_copy(update={"host": "127.0.0.1", "port": self._server.getsockname()[1], "replica": None})

    def lead_to(self, source: Source) -> None:
        """From now on it leads there; connections break."""
        self._to, broken, self._open = (source.host, source.port), self._open, []
        for one in broken:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):  # the server was closed
            while True:
                client, _ = self._server.accept()
                with suppress(OSError):
                    upstream = socket.create_connection(self._to)
                    self._open += [client, upstream]
                    threading.Thread(target=_serve, args=(client, upstream), daemon=True).start()


@contextmanager
def addressed(source: Source) -> Iterator[Address]:
    """An address that leads to the source at first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            yield Address(server, source)
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, upstream: socket.socket) -> None:
    with client, upstream, suppress(OSError):
        while True:
            for ready in select.select([client, upstream], [], [])[0]:
                sent = ready.recv(1 << 16)
                if not sent:
                    return
                (upstream if ready is client else client).sendall(sent)


@contextmanager
def administrator(server: LocalServer) -> Iterator[pymysql.Connection]:
    """A connection of the server's administrator."""
    account = {"user": server.user, "password": server.password}
    with connect(Source.model_validate({"host": server.host, "port": server.port, **account})) as connection:
        yield connection
