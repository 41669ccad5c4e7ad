"""A client of Hive's metastore with a time limit for the connection and for each answer."""

from typing import Any, Self
from urllib.parse import urlsplit

from hive_metastore.ttypes import NoSuchObjectException
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    _HiveClient,
)
from pyiceberg.utils.properties import property_as_bool
from thrift.transport import TSocket, TTransport

SECONDS = 60.0
_PORT = 9083


class TimedClient(_HiveClient):
    """PyIceberg's client with a time limit. A request that fails, or gets no answer, raises an error of `thrift`."""

    @classmethod
    def of(cls, properties: dict[str, str]) -> Self:
        """The client for a catalog with these properties. It connects to the first of the catalog's addresses."""
        uri, *_ = properties["uri"].split(",")
        has_kerberos = property_as_bool(properties, HIVE_KERBEROS_AUTH, False)
        service = properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT)
        return cls(uri, properties.get("ugi"), has_kerberos, service)

    def ping(self) -> None:
        """Send a request and wait for the answer. Raises an error of `thrift` if none comes."""
        with self as client:
            client.get_all_databases()

    def entry(self, namespace: str, name: str) -> Any:
        """The metastore's entry for a table; None if the table has no entry."""
        try:
            with self as client:
                return client.get_table(dbname=namespace, tbl_name=name)
        except NoSuchObjectException:
            return None

    def _init_thrift_transport(self) -> TTransport.TTransportBase:
        """The transport that PyIceberg would make, with a time limit. PyIceberg calls this method."""
        address = urlsplit(self._uri)
        socket = TSocket.TSocket(address.hostname, address.port or _PORT)
        socket.setTimeout(SECONDS * 1000)  # in milliseconds
        if self._kerberos_auth:
            return TTransport.TSaslClientTransport(socket, host=address.hostname, service=self._kerberos_service_name)
        return TTransport.TBufferedTransport(socket)
