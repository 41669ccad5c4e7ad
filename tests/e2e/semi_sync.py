"""A semi-synchronous pair of MySQL servers, whose source is killed.

A commit on the source ends only when the replica has received the transaction. So a replica that has applied all that
it received has every transaction whose commit has ended. The source may have more transactions in its binlog.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

import pymysql

from lakeingest.config import Source
from lakeingest.demo.server import local_server
from lakeingest.mysql.connection import query, query_dicts, reopen
from tests.e2e.mortal import Mortal
from tests.servers.accounts import COPIER
from tests.servers.replication import USER, Address, Pair, administrator, replicate

SETTINGS = {
    "performance_schema": "OFF",
    "plugin_load_add": "rpl_semi_sync_source=semisync_source.so;rpl_semi_sync_replica=semisync_replica.so",
    "loose_rpl_semi_sync_source_enabled": "ON",
    "loose_rpl_semi_sync_replica_enabled": "ON",
    "loose_rpl_semi_sync_source_timeout": "3600000",  # a commit waits for the replica, however long that takes
    "loose_rpl_semi_sync_source_wait_no_replica": "OFF",  # it does not wait where none is connected
}
SYSTEM = "information_schema", "mysql", "performance_schema", "sys"
SECONDS = 60


@dataclass(frozen=True)
class SemiSyncPair(Pair):
    """Two servers of a test's own, by their ports."""

    servers: Mapping[int, Mortal]
    ids: Iterator[int]  # those of servers that are still to come

    def await_replica(self) -> None:
        """Wait until commits of the source wait for the replica."""
        self.await_status("Rpl_semi_sync_source_status", "ON")

    def await_status(self, name: str, value: str) -> None:
        """Wait until a status of the source has this value."""
        deadline = time.monotonic() + SECONDS
        while query(self.primary, f"SHOW STATUS LIKE '{name}'") != [(name, value)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def kill(self, address: Address) -> Self:
        """Kill the source, let the replica take over, and make a new replica with the program of the killed server."""
        self.await_replica()
        killed = self.servers[self.source.port]
        killed.die()
        promoted = self.promote()
        query(self.replica, "SET GLOBAL read_only = OFF")
        address.lead_to(promoted)
        (killed.data / "auto.cnf").unlink()  # has its uuid
        killed.rise().close()
        reopen(self.primary)
        empty(self.primary)
        # a replica skips transactions that were written with its own server_id
        query(self.primary, f"SET GLOBAL server_id = {next(self.ids)}")
        return self.turned(promoted)

    def promote(self) -> Source:
        """The replica first applies all that it has received."""
        query(self.replica, "STOP REPLICA IO_THREAD")
        [status] = query_dicts(self.replica, "SHOW REPLICA STATUS")
        received = status["retrieved_gtid_set"].replace("\n", "")
        [(is_late,)] = query(self.replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{received}', {SECONDS})")
        assert is_late == "0"
        return super().promote()

    def part(self) -> None:
        """Nothing: the servers end with the test."""


def empty(server: pymysql.Connection) -> None:
    """The server loses its databases, the account of pairs, and its transactions."""
    query(server, "SET sql_log_bin = 0")
    for (database,) in query(server, "SHOW DATABASES"):
        if database not in SYSTEM:
            query(server, f"DROP DATABASE {database}")
    query(server, f"DROP USER IF EXISTS {USER}, {COPIER}")
    query(server, "SET sql_log_bin = 1")
    query(server, "RESET BINARY LOGS AND GTIDS")


@contextmanager
def semi_sync_pair(folder: Path, prepared: Path, **settings: str) -> Iterator[SemiSyncPair]:
    """Start both servers, from tables that are prepared; they also get these settings."""
    start = partial(local_server, prepared=prepared)
    with (
        start(folder / "one", {"server_id": "1", **SETTINGS, **settings}) as one,
        start(folder / "other", {"server_id": "2", **SETTINGS, **settings}) as other,
        administrator(one) as primary,
        administrator(other) as replica,
    ):
        servers = {server.port: Mortal(server) for server in (one, other)}
        try:
            yield SemiSyncPair(replicate(one, other, primary, replica), primary, replica, servers, count(3))
        finally:
            for server in servers.values():
                server.end()
