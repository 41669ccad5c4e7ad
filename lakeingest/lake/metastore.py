"""A client of Hive's metastore that waits only so long for a connection, and for each answer."""

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
    """PyIceberg's client; a request without an answer raises an error of `thrift`."""

    @classmethod
    def of(cls, properties: dict[str, str]) -> Self:
        """The client for the properties of a catalog."""
        uri, *_ = properties["uri"].split(",")
        has_kerberos = property_as_bool(properties, HIVE_KERBEROS_AUTH, False)
        service = properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT)
        return cls(uri, properties.get("ugi"), has_kerberos, service)

    def ping(self) -> None:
        """Ask for an answer."""
        with self as client:
            client.get_all_databases()

    def entry(self, namespace: str, name: str) -> Any:
        """What the metastore has under a name; None if nothing."""
        try:
            with self as client:
                return client.get_table(dbname=namespace, tbl_name=name)
        except NoSuchObjectException:
            return None

    def _init_thrift_transport(self) -> TTransport.TTransportBase:
        place = urlsplit(self._uri)
        socket = TSocket.TSocket(place.hostname, place.port or _PORT)
        socket.setTimeout(SECONDS * 1000)
        if self._kerberos_auth:
            return TTransport.TSaslClientTransport(socket, host=place.hostname, service=self._kerberos_service_name)
        return TTransport.TBufferedTransport(socket)
