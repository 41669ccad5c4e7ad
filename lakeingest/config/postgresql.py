"""The address of a PostgreSQL catalog, in the forms of its two clients: SQLAlchemy for PyIceberg, and JDBC for Spark.

SQLAlchemy parses the address, so that its parts are those to which SQLAlchemy will connect. A server on another machine
has to prove who it is: if the address has no `sslmode`, both clients get `sslmode=verify-full`. They verify the server
by the authorities in the file `sslrootcert`, or without one by the authorities of the system (JDBC: those of Java).
"""

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from lakeingest.config.source import is_loopback

if TYPE_CHECKING:
    from sqlalchemy import URL

SCHEME = "postgresql"
_MODE, _ROOTS, _SECRET = "sslmode", "sslrootcert", {"password", "sslpassword", "user"}
_PROVING = {"verify-full", "verify-ca"}
_JAVA_ROOTS = {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}  # the authorities that Java trusts


@dataclass(frozen=True, slots=True)
class PostgreSql:
    """The parsed address of a PostgreSQL catalog."""

    url: "URL"

    @classmethod
    def parse(cls, address: str) -> "PostgreSql":
        """Parse `postgresql://user:password@host:port/database?…`. Raises ValueError for an address of another form.

        The message has no part of the address, because any part may be from the password.
        """
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        malformed = ValueError(
            f"a catalog of type sql has no uri, or {SCHEME}://user:password@host/database, signs such as @ : / ? # %"
            " percent-encoded, and its password nowhere else"
        )
        try:
            url = make_url(address)
        except (ArgumentError, ValueError):
            raise malformed from None
        host = url.host or ""
        has_repeated_settings = not all(isinstance(value, str) for value in url.query.values())
        if url.drivername != SCHEME or not host or "@" in host:  # @: a part of a password that is not percent-encoded
            raise malformed
        if has_repeated_settings or not _SECRET.isdisjoint(url.query):
            raise malformed
        return cls(url)

    @property
    def place(self) -> str:
        """The address for messages: without user, password and settings."""
        port = "" if self.url.port is None else f":{self.url.port}"
        return f"{SCHEME}://{self._host}{port}/{self.url.database or ''}"

    @property
    def _host(self) -> str:
        """The host as a URL has it: an IPv6 address is in brackets."""
        return f"[{self.url.host}]" if ":" in (self.url.host or "") else str(self.url.host)

    @property
    def mode(self) -> str | None:
        """The `sslmode` for both clients: that of the address, or else a default.

        The default is None for a server on this machine without `sslrootcert`, otherwise `verify-full`.
        """
        mode = self.url.query.get(_MODE)
        if mode is not None:
            return str(mode)
        if is_loopback(self.url.host or "") and _ROOTS not in self.url.query:
            return None
        return "verify-full"

    @property
    def proof_warning(self) -> str | None:
        """A warning if the server need not prove who it is; None if it must, or if the server is on this machine."""
        if self.mode in _PROVING or is_loopback(self.url.host or ""):
            return None
        return (
            f"target.catalog.uri has {_MODE}={self.mode}, which does not prove that {self.url.host} is the right"
            f" server: leave it out, or set verify-full with {_ROOTS}=FILE where the system does not know the authority"
        )

    def sqlalchemy(self) -> str:
        """The URL for SQLAlchemy, with its password."""
        settings = {} if self.mode is None else {_MODE: self.mode}
        if self.mode in _PROVING:  # the address overrides this default
            settings[_ROOTS] = ssl.get_default_verify_paths().cafile or "system"
        url = self.url.set(drivername=f"{SCHEME}+psycopg", query={**settings, **self.url.query})
        return url.render_as_string(hide_password=False)

    def jdbc(self) -> dict[str, str]:
        """The properties of Iceberg's JDBC catalog: URL, user and password."""
        settings = {} if self.mode is None else {_MODE: self.mode}
        if self.mode in _PROVING and _ROOTS not in self.url.query:  # then Java's authorities count
            settings |= _JAVA_ROOTS
        query = urlencode({**settings, **self.url.query})
        secrets = {"jdbc.user": self.url.username, "jdbc.password": self.url.password}
        return {
            "uri": f"jdbc:{self.place}" + (f"?{query}" if query else ""),
            **{name: str(value) for name, value in secrets.items() if value is not None},
        }
