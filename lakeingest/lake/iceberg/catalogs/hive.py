"""Hive's metastore as a catalog. Each request has a time limit, and no commit is sent long after its lock was granted.

A commit takes an exclusive lock of the table, reads where the table's metadata is, and alters the table's entry. After
`hive.txn.timeout` (300 seconds by default) the server gives the lock to another client. Then both clients could alter
the entry. So a commit is sent only within `_LOCKED_SECONDS` after its lock was granted. A commit also names the
metadata that it replaces. Servers from 2.3.10 or 4.0 on compare this name with the current metadata (HIVE-26882); older
servers ignore it.
"""

import time
from typing import Any

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    EnvironmentContext,
    InvalidOperationException,
    LockResponse,
    LockState,
    UnknownDBException,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError
from pyiceberg.typedef import Identifier
from thrift.protocol import TBinaryProtocol

from lakeingest.lake.iceberg.catalogs.places import FixedLocations
from lakeingest.lake.iceberg.tables.times import OrderedCatalog
from lakeingest.lake.metastore import TimedClient

# in the refusal of a server with `hive.metastore.disallow.incompatible.col.type.changes`, which is its default
_INCOMPATIBLE = "types incompatible with the existing columns"
_LOCKED_SECONDS = 60.0  # a lock is used for this time at most; hive.txn.timeout must not be shorter


class TimedHiveCatalog(OrderedCatalog, FixedLocations, HiveCatalog):
    """PyIceberg's client of a metastore. A request without an answer raises an error of `thrift`."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        """The client that sends PyIceberg's requests. It knows the age of its locks."""
        return _LockingClient.of(properties)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace.

        Raises NoSuchNamespaceError, also if the server reports a missing namespace by an error of another type.
        """
        try:
            return super().list_tables(namespace)
        except (UnknownDBException, InvalidOperationException) as error:
            raise NoSuchNamespaceError(str(error)) from error


class _LockingClient(TimedClient):
    """A client whose connections remember when they got their lock."""

    def _client(self) -> Client:
        """The same connection as PyIceberg's, but a `_CheckedClient`."""
        client = _CheckedClient(TBinaryProtocol.TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _CheckedClient(Client):  # type: ignore[misc]
    """A connection to the metastore that remembers when it got its lock."""

    _locked_at = 0.0

    def lock(self, rqst: Any) -> LockResponse:
        """Ask for a lock, and note the time if it is granted."""
        return self._timed(super().lock, rqst)

    def check_lock(self, rqst: Any) -> LockResponse:
        """Ask whether the lock is granted now, and note the time if it is."""
        return self._timed(super().check_lock, rqst)

    def _timed(self, ask: Any, request: Any) -> LockResponse:
        """Send a request for a lock by `ask`. If the lock is granted, note the time before the request."""
        asked_at = _now()  # so that the lock is not older than noted
        answer = ask(request)
        if answer.state == LockState.ACQUIRED:
            self._locked_at = asked_at
        return answer

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        """Alter the table. Newer servers refuse this if someone has replaced the metadata since it was read.

        By default a server refuses columns of other types in the places of the entry's columns. DDL leads to such
        columns, for example if it drops a column. Then the entry keeps its columns: readers of Iceberg take them from
        the metadata.

        Raises CommitFailedException if the lock was granted too long ago.
        """
        if _now() - self._locked_at > _LOCKED_SECONDS:
            raise CommitFailedException(f"{dbname}.{tbl_name}: the lock was granted too long ago")
        replaced = new_tbl.parameters["previous_metadata_location"]
        environment_context.properties |= {
            "expected_parameter_key": "metadata_location",
            "expected_parameter_value": replaced,
        }
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except InvalidOperationException as error:
            if _INCOMPATIBLE not in str(error.message):
                raise
            new_tbl.sd.cols = self.get_table(dbname, tbl_name).sd.cols  # the lock keeps others from changing them
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)


def _now() -> float:
    """The seconds of a clock that is never set back. With CLOCK_BOOTTIME it also counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
