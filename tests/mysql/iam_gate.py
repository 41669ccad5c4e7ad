"""A gate before a real MySQL, which lets users in as Amazon RDS does: over TLS, with a token of AWS IAM in clear text.

It checks the token's signature, endpoint, user and age with the secret key. Then it hands the connection over to the
server, with a session of the server's own user, byte by byte.
"""

import hashlib
import hmac
import select
import socket
import socketserver
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pymysql
from pymysql.constants import CLIENT

from lakeingest.demo.server import LocalServer
from tests.servers.answering import answering

KEY, SECRET, REGION = "AKIDEXAMPLE", "an-example-and-no-secret", "eu-west-1"
DENIED = b"\xff" + struct.pack("<H", 1045) + b"#28000Access denied"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
SWITCH = b"\xfemysql_clear_password\x00"


class Gate(socketserver.ThreadingTCPServer):
    """Listens beside the server; `tokens` are those that it accepted. Without `tls` it offers plain text only."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, server: LocalServer, data: Path, *, valid_seconds: float, tls: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server, self.valid_seconds, self.tokens = server, valid_seconds, list[str]()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self.context is not None:
            self.context.load_cert_chain(data / "server-cert.pem", data / "server-key.pem")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def accepts(self, token: str, user: str) -> bool:
        """Whether AWS would accept the token now, for this endpoint and user."""
        where, _, query = token.partition("/?")
        given = dict(parse_qsl(query, strict_parsing=True))
        signature = given.pop("X-Amz-Signature")
        at = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        scope = f"{KEY}/{given['X-Amz-Date'][:8]}/{REGION}/rds-db/aws4_request"
        expected = {"Action": "connect", "DBUser": user, "X-Amz-Expires": "900", "X-Amz-Credential": scope}
        return (
            where == f"127.0.0.1:{self.port}"
            and expected.items() <= given.items()
            and -1 <= time.time() - at.timestamp() <= self.valid_seconds
            and hmac.compare_digest(signature, _signature(where, given))
        )


def _signature(host: str, given: dict[str, str]) -> str:
    """AWS's signature, version 4, of a request in a URL."""
    query = "&".join(f"{quote(key, safe='')}={quote(given[key], safe='')}" for key in sorted(given))
    request = "\n".join(("GET", "/", query, f"host:{host}", "", "host", hashlib.sha256(b"").hexdigest()))
    scope = f"{given['X-Amz-Date'][:8]}/{REGION}/rds-db/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", given["X-Amz-Date"], scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


class _Handler(socketserver.BaseRequestHandler):
    """One connection."""

    server: Gate

    def handle(self) -> None:
        """The login, and then whatever client and server say."""
        own = self.server.server
        upstream: Any = pymysql.connect(
            host=own.host, port=own.port, user=own.user, password=own.password, charset="utf8mb4", autocommit=True
        )
        with closing(upstream), suppress(OSError):
            self._send(0, _greeting(upstream, tls=self.server.context is not None))
            if self.server.context is not None:
                self._receive()  # the request for TLS
                self.request = self.server.context.wrap_socket(self.request, server_side=True)
            number, response = self._receive()
            user = response[32:].split(b"\x00", 1)[0].decode()
            self._send(number + 1, SWITCH)
            number, token = self._receive()
            if not self.server.accepts(token.rstrip(b"\x00").decode(), user):
                self._send(number + 1, DENIED)
                return
            self.server.tokens.append(token.decode())
            self._send(number + 1, OK)
            _relay(self.request, upstream._sock)  # noqa: SLF001

    def finish(self) -> None:
        """Close the connection, also the encrypted one, which took the place of the first."""
        self.request.close()

    def _send(self, number: int, payload: bytes) -> None:
        self.request.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)

    def _receive(self) -> tuple[int, bytes]:
        header = self._exactly(4)
        return header[3], self._exactly(int.from_bytes(header[:3], "little"))

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.request.recv(size - len(found))
            if not part:
                raise ConnectionError("the client has gone")
            found += part
        return found


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Copy what each of the two says to the other one, until one of them has gone.

    In one thread: OpenSSL takes harm when one thread reads a connection while another one writes to it.
    """
    to = {client: server, server: client}
    while True:
        encrypted = isinstance(client, ssl.SSLSocket) and client.pending()
        for one in [client] if encrypted else select.select([client, server], [], [])[0]:
            part = one.recv(65536)
            if not part:
                return
            to[one].sendall(part)


def _greeting(upstream: Any, *, tls: bool) -> bytes:
    able = upstream.server_capabilities & ~CLIENT.SSL | (CLIENT.SSL if tls else 0)
    salt = b"12345678901234567890"
    fixed = struct.pack("<I8sxHBHHB10x", 1, salt[:8], able & 0xFFFF, 45, 2, able >> 16, 21)
    return (
        b"\x0a" + str(upstream.server_version).encode() + b"\x00" + fixed + salt[8:] + b"\x00mysql_native_password\x00"
    )


@contextmanager
def iam_gate(server: LocalServer, data: Path, *, valid_seconds: float = 900, tls: bool = True) -> Iterator[Gate]:
    """A gate before a server whose data folder is `data`."""
    with answering(Gate(server, data, valid_seconds=valid_seconds, tls=tls)) as gate:
        yield gate
