"""PyMySQL's connection with a login of our own, which sends a secret only in the form that `core.secrecy` allows.

Sources: MySQL's protocol documentation, "Connection Phase", "Caching_sha2_password information", "sha256_password";
MariaDB's, "Connection".
"""

import ssl
import struct
from contextlib import suppress
from typing import Any

import pymysql
from pymysql import _auth
from pymysql.charset import charset_by_name
from pymysql.constants import CLIENT, CR

from lakeingest.config import Source
from lakeingest.core.secrecy import Answer, Demand, Line, answer
from lakeingest.errors import OperatorNeeded, ServerUnproven
from lakeingest.mysql.login import password_of
from lakeingest.mysql.packets import LOGIN_BYTES, BoundedConnection, Surprise, surprises
from lakeingest.mysql.tls import context_of, pin_of, text_of, unverified_context
from lakeingest.mysql.tunnel import open_tunnel

GREETING_SECONDS = 10  # to connect, and for each response until the session is open
LOGIN_SECONDS = 30  # for the whole login

_NATIVE, _CACHING, _SHA256 = "mysql_native_password", "caching_sha2_password", "sha256_password"
_ED25519, _CLEAR, _DIALOG, _OLD = "client_ed25519", "mysql_clear_password", "dialog", "mysql_old_password"
_DEMANDS = {  # the first demand of each plugin
    _NATIVE: Demand.CHALLENGE,
    _CACHING: Demand.CHALLENGE,
    _ED25519: Demand.CHALLENGE,
    _SHA256: Demand.EXCHANGE,
    _CLEAR: Demand.CLEAR_TEXT,
    _DIALOG: Demand.CLEAR_TEXT,
    _OLD: Demand.BROKEN,
}
_NEEDED = CLIENT.PROTOCOL_41 | CLIENT.SECURE_CONNECTION | CLIENT.PLUGIN_AUTH | CLIENT.PLUGIN_AUTH_LENENC_CLIENT_DATA
_LOGIN = struct.Struct("<IIB23s")
_PACKET_MAX = 0xFFFFFF
_OK, _MORE, _SWITCH = 0x00, 0x01, 0xFE
_FAST, _FULL = b"\x03", b"\x04"  # of caching_sha2_password: the response was enough, or the password is needed
_STEPS = 8  # the most packets that a server sends in a login: a server that sends more is refused
_WAYS = (
    "set one of source.tls.ca (the authority that signed its certificate, with verify_identity or verify_ca),"
    " source.tls.pin (its public key) and source.tls.mode: required, which encrypts and proves nothing"
)


class Driver(BoundedConnection):
    """A connection that gets its password from `mysql.login` whenever it is opened.

    `line` says how the connection is protected now. `pin` is the pin of the server's certificate, None without TLS.
    """

    line = Line.PLAIN
    pin: str | None = None

    def __init__(self, source: Source, **settings: Any) -> None:
        super().__init__(host=source.host, port=source.port, user=source.user, ssl_disabled=True, **settings)
        self.source = source
        self._settings = settings
        self._key = text_of(source, "server_public_key")
        self._context = context_of(source)

    def connect(self, sock: Any = None) -> None:
        """Open the connection and log in. The caller then sets the variables of the session, and calls `opened`."""
        driver: Any = self
        driver._read_timeout = GREETING_SECONDS  # noqa: SLF001
        self.password = password_of(self.source)  # bytes: the driver would encode a str in latin1
        self.line, self.pin = Line.PLAIN, None  # the values may be those of an earlier connection
        self._is_open = False
        self.allow(LOGIN_BYTES, LOGIN_SECONDS)
        ssh = self.source.ssh
        with surprises("a greeting or an answer to a login"):
            super().connect(sock if ssh is None else open_tunnel(self.source, ssh, GREETING_SECONDS))

    def opened(self, seconds: float) -> None:
        """Note that the session is open. From now on the server has `seconds` for each response."""
        driver: Any = self
        driver._read_timeout = seconds  # noqa: SLF001
        self._is_open = True

    @property
    def _where(self) -> str:
        return f"the source {self.source.host}:{self.source.port}"

    def _request_authentication(self) -> None:
        """Answer the server's greeting: begin TLS if it is on, then log in.

        This method replaces the driver's own. Raises ServerUnproven if the server offers no TLS and `source.tls.mode`
        requires TLS.
        """
        driver: Any = self
        offered: int = driver.server_capabilities
        if (offered & _NEEDED) != _NEEDED:  # a capability is missing
            raise Surprise("the greeting of a server that is too old, or of none")
        wants_tls, offers_tls = self._context is not None, bool(offered & CLIENT.SSL)
        if wants_tls and not offers_tls and self.source.tls_mode != "preferred":  # this mode does without TLS
            raise ServerUnproven(f"{self._where} offers no TLS, and source.tls.mode is {self.source.tls_mode}")
        begins_tls = wants_tls and offers_tls
        flags = driver.client_flag | (CLIENT.SSL if begins_tls else 0)
        charset: Any = charset_by_name(driver.charset)  # its types lack the number
        head = _LOGIN.pack(flags, _PACKET_MAX, charset.id, b"")  # asks for TLS if sent alone, and begins the login
        if begins_tls:
            self._protect(head)
        self._log_in(head)

    def _protect(self, head: bytes) -> None:
        """Begin TLS on the connection, by sending `head` alone. Note the protection in `pin` and `line`.

        Raises ServerUnproven if the server does not prove its identity in the way that `source.tls` requires.
        """
        driver: Any = self
        context = self._chosen_context()
        driver.write_packet(head)
        try:
            driver._sock = context.wrap_socket(driver._sock, server_hostname=self.source.host)  # noqa: SLF001
        except ssl.SSLCertVerificationError as error:
            pin = self._probed_pin()
            raise ServerUnproven(
                f"{self._where} has a certificate that source.tls does not trust: {error.verify_message}; its public"
                f" key has the pin {pin or 'unknown'}. If that is the server's own, {_WAYS}"
            ) from error
        driver._rfile = driver._sock.makefile("rb")  # noqa: SLF001
        self.pin = pin_of(driver._sock.getpeercert(binary_form=True))  # noqa: SLF001
        pins = self.source.tls.pin
        if pins and self.pin not in pins:  # without pins, each key that the handshake accepts will do
            raise ServerUnproven(
                f"{self._where} has a public key with the pin {self.pin}, and source.tls.pin has {', '.join(pins)}:"
                " find out why; if the server has a new key, put its pin there"
            )
        self.line = Line.PROVEN if self.source.is_proven else Line.ENCRYPTED

    def _chosen_context(self) -> ssl.SSLContext:
        """The context with which `_protect` begins TLS: that of `source.tls`, or another one in a subclass."""
        assert self._context is not None  # noqa: S101 - the caller has checked it
        return self._context

    def _probed_pin(self) -> str | None:
        """The pin of the server's certificate, read on another connection, without a login. None if that fails."""
        probe = _Probe(self.source, **self._settings)
        with suppress(pymysql.err.Error, OSError, OperatorNeeded):
            probe.connect()
        return probe.pin

    def _log_in(self, head: bytes) -> None:
        """Send the login, which begins with `head`, and answer the server's further demands until the server accepts.

        Raises Surprise if the server sends something that is no step of a login, or too many steps. Also raises the
        errors of `_first`.
        """
        driver: Any = self
        plugin, salt = str(driver._auth_plugin_name), bytes(driver.salt)  # noqa: SLF001
        if _DEMANDS.get(plugin) is not Demand.CHALLENGE or plugin == _ED25519:
            # begin with a plugin whose response shows no password; if the user has another, the server asks for that.
            # The greeting's salt is too short for ed25519.
            plugin = _NATIVE
        response = self._first(plugin, salt)
        pairs = driver._connect_attrs.items()  # noqa: SLF001
        attributes = b"".join(_with_length(name.encode()) + _with_length(value.encode()) for name, value in pairs)
        driver.write_packet(
            head
            + self.source.user.encode()
            + b"\0"
            + _with_length(response)
            + plugin.encode()
            + b"\0"
            + _with_length(attributes)
        )
        for _ in range(_STEPS):
            packet: bytes = bytes(driver._read_packet().get_all_data())  # noqa: SLF001
            is_of_caching = packet[0] == _MORE and plugin == _CACHING
            if packet[0] == _OK:
                return
            if packet[0] == _SWITCH:
                name, _, data = packet[1:].partition(b"\0")
                plugin = name.decode() or _OLD  # a request without a name is for the oldest plugin
                # no zero byte is appended to the salt of ed25519, whose own last byte may be zero
                salt = data if plugin == _ED25519 else data.removesuffix(b"\0")
                driver.write_packet(self._first(plugin, salt))
            elif is_of_caching and packet[1:] == _FULL:
                driver.write_packet(self._secret(plugin, Demand.EXCHANGE, salt))
            elif is_of_caching and packet[1:] == _FAST:
                pass  # the server sends _OK next
            else:
                raise Surprise("what is no step of a login")
        raise Surprise("a login without end")

    def _first(self, plugin: str, salt: bytes) -> bytes:
        """The first response to an authentication plugin of the server. `salt` is the plugin's challenge.

        Raises ServerUnproven if the response would show the password to a server that is not proven, and the driver's
        OperationalError for an unknown plugin.
        """
        if plugin not in _DEMANDS:
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD, f"the user has a login that is not supported ({plugin[:64]!r})"
            )
        if plugin in {_NATIVE, _CACHING, _ED25519}:
            scramble: Any = {
                _NATIVE: _auth.scramble_native_password,
                _CACHING: _auth.scramble_caching_sha2,
                _ED25519: _ed25519,
            }[plugin]
            return bytes(scramble(self.password, salt))
        return self._secret(plugin, _DEMANDS[plugin], salt)

    def _sealed(self, password: bytes, salt: bytes) -> bytes:
        """The password, encrypted by `source.tls.server_public_key`."""
        try:
            return bytes(_auth.sha2_rsa_encrypt(password, salt, (self._key or "").encode()))
        except (ValueError, AttributeError) as error:  # no key, or one that does not encrypt
            raise OperatorNeeded("source.tls.server_public_key holds no public RSA key") from error

    def _secret(self, plugin: str, demand: Demand, salt: bytes) -> bytes:
        """The password as it is, or encrypted by `source.tls.server_public_key`, whichever `core.secrecy` allows.

        Raises ServerUnproven if `core.secrecy` allows neither on this connection.
        """
        password = bytes(self.password)
        if not password:  # an empty password reveals nothing
            return b"\0"
        source = self.source
        decision = answer(
            demand,
            self.line,
            is_local=source.is_local,
            has_key=self._key is not None,
            is_token=source.token_region is not None,
        )
        if decision is Answer.AS_IT_IS:
            return password + b"\0"
        if decision is Answer.SEALED:
            return self._sealed(password, salt)
        refusal = f"{self._where} asks for {demand.value} ({plugin}) {self.line.value}; it does not get it"
        if demand is Demand.BROKEN:
            raise ServerUnproven(f"{refusal}: give the user another plugin")
        pin = f"; its public key has the pin {self.pin}" if self.pin else ""
        by_key = ", or source.tls.server_public_key with mode: disabled" if demand is Demand.EXCHANGE else ""
        raise ServerUnproven(f"{refusal}: set source.tls.ca, or source.tls.pin{by_key}{pin}")


class _Probe(Driver):
    """A connection that reads the pin of a server's certificate, and ends before the login."""

    def _chosen_context(self) -> ssl.SSLContext:
        """A context that accepts every certificate, so that the pin of any certificate can be read."""
        return unverified_context()

    def _protect(self, head: bytes) -> None:
        """Begin TLS as `Driver` does, but with any server: `pin` is noted before the pin is compared."""
        with suppress(ServerUnproven):  # raised for another pin than that of `source.tls`
            super()._protect(head)

    def _log_in(self, _head: bytes) -> None:
        """Send no login, but raise an error."""
        raise OperatorNeeded("it was only looked at")  # ends `connect`; `_probed_pin` expects it


def _with_length(data: bytes) -> bytes:
    """Bytes with their length in front, as the protocol has it; empty if they are too long for a login."""
    if len(data) < 0xFB:  # noqa: PLR2004 - of the protocol
        return bytes([len(data)]) + data
    return b"\xfc" + struct.pack("<H", len(data)) + data if len(data) < 1 << 16 else b""


def _ed25519(password: bytes, salt: bytes) -> bytes:
    """The response of client_ed25519 to a challenge. Raises OperatorNeeded if the package pynacl is missing."""
    try:
        return bytes(_auth.ed25519_password(password, salt))
    except RuntimeError as error:
        raise OperatorNeeded(f"the user has the login ed25519: {error}: pip install pynacl") from error
