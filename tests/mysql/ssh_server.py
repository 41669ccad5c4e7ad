"""A real SSH server, of another implementation than the client that is tested. It counts what it forwards."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncssh

USER = "lake"


@dataclass
class SshServer:
    """A running server: its keys, and what it has seen. With `forwards` False it refuses to forward."""

    host_key: asyncssh.SSHKey
    user_key: asyncssh.SSHKey
    forwards: bool = True
    port: int = 0
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    logins: int = 0
    forwarded: int = 0
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def known_hosts(self) -> str:
        """The line of a client that knows the server."""
        return f"[127.0.0.1]:{self.port} {self.host_key.export_public_key().decode().strip()}"

    @property
    def private_key(self) -> str:
        """The user's key."""
        return self.user_key.export_private_key().decode()

    def drop(self) -> None:
        """Break all connections."""
        dropped, self.connections[:] = list(self.connections), []
        for connection in dropped:
            self.loop.call_soon_threadsafe(connection.abort)


@contextmanager
def ssh_server() -> Iterator[SshServer]:
    """A server with new keys on a free port of this machine."""
    kind = "ssh-ed25519"
    running = SshServer(asyncssh.generate_private_key(kind), asyncssh.generate_private_key(kind))

    class Session(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            running.connections.append(conn)

        def auth_completed(self) -> None:
            running.logins += 1

        def connection_requested(self, *_: Any) -> bool:
            if not running.forwards:
                raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "not for you")
            running.forwarded += 1
            return True

    async def listen() -> asyncssh.SSHAcceptor:
        known = asyncssh.import_authorized_keys(running.user_key.export_public_key().decode())
        return await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Session, server_host_keys=[running.host_key], authorized_client_keys=known
        )

    thread = threading.Thread(target=running.loop.run_forever, daemon=True)
    thread.start()
    acceptor = asyncio.run_coroutine_threadsafe(listen(), running.loop).result(30)
    running.port = acceptor.get_port()
    try:
        yield running
    finally:
        running.drop()
        running.loop.call_soon_threadsafe(acceptor.close)
        asyncio.run_coroutine_threadsafe(acceptor.wait_closed(), running.loop).result(30)
        running.loop.call_soon_threadsafe(running.loop.stop)
        thread.join(30)
        running.loop.close()
