"""A MySQL server that is hostile or broken: it does what a test tells it, and keeps what clients have sent to it."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SALT = b"abcdefghijklmnopqrst"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
FAST, FULL = b"\x01\x03", b"\x01\x04"
_CAPABILITIES = 0x0001 | 0x0080 | 0x0200 | 0x2000 | 0x8000 | 0x00080000 | 0x00200000
_SSL = 0x0800


def switch(plugin: str, salt: bytes = SALT) -> bytes:
    """The request for another plugin."""
    return b"\xfe" + plugin.encode() + b"\0" + salt + b"\0"


def failure(code: int, text: bytes) -> bytes:
    """An error packet."""
    return b"\xff" + struct.pack("<H", code) + b"#28000" + text


def packed(number: int) -> bytes:
    """A length-encoded integer."""
    if number < 251:
        return bytes([number])
    return b"\xfe" + struct.pack("<Q", number)


def text(data: bytes) -> bytes:
    """A length-encoded string."""
    return packed(len(data)) + data


def column(name: bytes) -> bytes:
    """The definition of a text column."""
    names = text(b"def") + text(b"") * 3 + text(name) + text(b"")
    return names + b"\x0c" + struct.pack("<HIBHB", 45, 255, 253, 0, 0) + b"\0\0"


@dataclass
class Session:
    """A connection of a client. `heard` are the packets that it has sent, decrypted."""

    socket: socket.socket
    certificate: Path | None
    heard: list[bytes] = field(default_factory=list)
    number: int = 0

    def send(self, payload: bytes) -> None:
        """A packet."""
        self.raw(payload, self.number)
        self.number += 1

    def raw(self, payload: bytes, number: int) -> None:
        """A packet with any number."""
        self.socket.sendall(struct.pack("<I", len(payload))[:3] + bytes([number & 255]) + payload)

    def greet(self, plugin: str = "caching_sha2_password", version: str = "8.4.3") -> None:
        """Greet; with TLS where there is a certificate, up to the login packet."""
        able = _CAPABILITIES | (_SSL if self.certificate else 0)
        fixed = struct.pack("<I8sxHBHHB10x", 7, SALT[:8], able & 0xFFFF, 255, 2, able >> 16, 21)
        self.send(b"\x0a" + version.encode() + b"\0" + fixed + SALT[8:] + b"\0" + plugin.encode() + b"\0")
        first = self.receive()
        if self.certificate and int.from_bytes(first[:4], "little") & _SSL:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.receive()

    def receive(self) -> bytes:
        """The next packet of the client; EOFError when it has gone."""
        header = self._exactly(4)
        self.number = header[3] + 1
        payload = self._exactly(int.from_bytes(header[:3], "little"))
        self.heard.append(payload)
        return payload

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def log_in(self, version: str = "8.4.3") -> None:
        """Greet, and let anybody in who answers a challenge."""
        self.greet(version=version)
        self.send(FAST)
        self.send(OK)

    def answer(self, reply: Callable[["Session", bytes], None], version: str = "8.4.3") -> None:
        """Log in, answer OK to what sets variables, and `reply` to the other statements."""
        self.log_in(version)
        while (asked := self.receive())[:1] != b"\x01":
            if asked[1:4].upper() == b"SET":
                self.send(OK)
            else:
                reply(self, asked)


Talk = Callable[[Session], None]


@dataclass
class FakeServer:
    """Where it listens, and its sessions so far."""

    host: str
    port: int
    sessions: list[Session] = field(default_factory=list)

    @property
    def heard(self) -> bytes:
        """All that clients have sent."""
        return b"".join(b"".join(one.heard) for one in self.sessions)


@contextmanager
def fake_server(talk: Talk, certificate: Path | None = None, host: str = "127.0.0.2") -> Iterator[FakeServer]:
    """A server that says to each client what `talk` says; by default on an address that is not the loopback's usual.

    `certificate` is a file with certificate and key.
    """
    listening = socket.create_server((host, 0))
    server = FakeServer(host, listening.getsockname()[1])

    def serve(client: socket.socket) -> None:
        session = Session(client, certificate)
        server.sessions.append(session)
        with suppress(EOFError, OSError):
            talk(session)
        with suppress(OSError):
            session.socket.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
