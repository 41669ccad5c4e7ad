"""Connections to the source through an SSH server, for a source that only that server can reach.

A process, such as an executor, has one SSH connection to an SSH server. All connections of the process to the source
share the SSH connection: each goes through a pair of sockets to a channel of its own. No port is opened on this
machine, so other users of the machine cannot use the tunnel.
"""

import io
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakeingest.config import Source
from lakeingest.config.source import Ssh
from lakeingest.errors import OperatorNeeded, SourceAway

if TYPE_CHECKING:
    import paramiko

_PART = 1 << 16  # how many bytes are copied at once
_KEEP_ALIVE_SECONDS = 30
_BROKEN = (OSError, EOFError)
_SILENT = logging.NullHandler()
_LOCK = threading.Lock()
_CLIENTS: dict[tuple[int, Ssh], "paramiko.SSHClient"] = {}  # by process too: a fork must not share a connection


def open_tunnel(source: Source, ssh: Ssh, seconds: float) -> socket.socket:
    """A socket that leads to the source through the SSH server. Each step of the connection takes at most `seconds`.

    Raises SourceAway if the SSH server, or the source behind it, cannot be reached. Raises OperatorNeeded if the SSH
    server has another host key, if it refuses the user or the connection to the source, or if a key cannot be read.
    """
    with _named_errors(source, ssh):
        client = _client(ssh, seconds)
        transport = client.get_transport()
        if transport is None:
            raise EOFError("the connection was closed")
        here = ("127.0.0.1", 0)  # SSH asks where the connection comes from: from this machine, without a port
        channel = transport.open_channel("direct-tcpip", (source.host, source.port), here, timeout=seconds)
    for_driver, for_channel = socket.socketpair()
    for copy in (_to_source, _from_source):
        threading.Thread(target=copy, args=(for_channel, channel), daemon=True, name="tunnel").start()
    return for_driver


def _client(ssh: Ssh, seconds: float) -> "paramiko.SSHClient":
    """The process's connection to the SSH server. If it is missing or broken, a new connection is opened."""
    import paramiko

    with _LOCK:
        shared = _CLIENTS.pop((os.getpid(), ssh), None)  # put back if it is not broken
        if shared is not None:
            transport = shared.get_transport()
            if transport is not None and transport.is_active():
                _CLIENTS[os.getpid(), ssh] = shared
                return shared
            shared.close()
        client = paramiko.SSHClient()
        logging.getLogger("paramiko").addHandler(_SILENT)  # else errors that become errors of lakeingest are printed
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        _trust(client.get_host_keys(), ssh)
        client.connect(
            ssh.host,
            ssh.port,
            ssh.user,
            pkey=_key(ssh),
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=seconds,
            allow_agent=False,  # only the key of `source.ssh.key` is tried
            look_for_keys=False,
        )
        opened = client.get_transport()
        if opened is not None:
            opened.set_keepalive(_KEEP_ALIVE_SECONDS)
        _CLIENTS[os.getpid(), ssh] = client
        return client


def _trust(keys: "paramiko.HostKeys", ssh: Ssh) -> None:
    """Add the host keys of `source.ssh.known_hosts` to `keys`. Only these host keys are trusted.

    A key that is marked as revoked is trusted for no host. Raises OperatorNeeded if a line has no key.
    """
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    entries, revoked = [], set[bytes]()
    for number, line in enumerate(_text_of("known_hosts", ssh.known_hosts).splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#") or fields[0] == "@cert-authority":  # certificates are not used
            continue
        is_revoked = fields[0] == "@revoked"
        try:
            entry = HostKeyEntry.from_line(" ".join(fields[1:] if is_revoked else fields))
        except InvalidHostKey as error:
            raise OperatorNeeded(f"line {number} of source.ssh.known_hosts has no key: {error.exc}") from error
        if entry is None:  # the key is of a type that is not used
            continue
        if is_revoked:
            revoked.add(entry.key.asbytes())
        else:
            entries.append(entry)
    for entry in entries:
        if entry.key.asbytes() not in revoked:
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)


def _key(ssh: Ssh) -> "paramiko.PKey":
    """The private key of `source.ssh.key`. Raises OperatorNeeded if it is of an unknown kind or has a passphrase."""
    import paramiko

    text = _text_of("key", ssh.key.get_secret_value())
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        with suppress(paramiko.SSHException):  # raised for a key of another kind
            return kind.from_private_key(io.StringIO(text))
    raise OperatorNeeded("source.ssh.key is no private key without a passphrase, of the kinds Ed25519, ECDSA and RSA")


def _text_of(name: str, value: str) -> str:
    """The text of the setting `source.ssh.<name>`: its value or, if the value names a file, the file's content.

    Raises OperatorNeeded if the file cannot be read.
    """
    if not Ssh.is_file(value):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorNeeded(f"source.ssh.{name} {value} cannot be read: {error}") from error


@contextmanager
def _named_errors(source: Source, ssh: Ssh) -> Iterator[None]:
    """Turn SSH's errors inside the block into errors of lakeingest, which name the server and the way out."""
    try:
        import paramiko
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"source.ssh: {error}: pip install 'lakeingest[ssh]'") from error
    where, way = f"the SSH server {ssh.host}:{ssh.port}", f"the source {source.host}:{source.port}"
    try:
        yield
    except paramiko.BadHostKeyException as error:
        raise OperatorNeeded(
            f"{where} has another host key than source.ssh.known_hosts says: find out why; if it was replaced, put the"
            " new one there"
        ) from error
    except paramiko.AuthenticationException as error:
        raise OperatorNeeded(f"{where} refuses user {ssh.user} with source.ssh.key: {error}") from error
    except paramiko.ChannelException as error:
        no_way = f"{where} does not lead to {way}: {error.text}"
        if error.code == 1:  # administratively prohibited
            raise OperatorNeeded(f"{no_way}; allow the user port forwarding") from error
        raise SourceAway(f"{no_way}; run the same command again when it is back") from error
    except paramiko.SSHException as error:
        if "not found in known_hosts" in str(error):
            raise OperatorNeeded(f"{where} is not in source.ssh.known_hosts: add its host key") from error
        raise SourceAway(f"{where} is away: {error}; run the same command again when it is back") from error
    except (OSError, EOFError) as error:
        raise SourceAway(f"{where} is away: {error}; run the same command again when it is back") from error


def _to_source(for_channel: socket.socket, channel: "paramiko.Channel") -> None:
    """Copy bytes from the socket to the channel until the socket or the channel ends; then close the channel."""
    with suppress(*_BROKEN):
        while part := for_channel.recv(_PART):
            channel.sendall(part)
    with suppress(*_BROKEN):
        channel.close()


def _from_source(for_channel: socket.socket, channel: "paramiko.Channel") -> None:
    """Copy bytes from the channel to the socket until the channel or the socket ends; then close the socket."""
    with suppress(*_BROKEN):
        while part := channel.recv(_PART):
            for_channel.sendall(part)
    with suppress(*_BROKEN):
        for_channel.shutdown(socket.SHUT_RDWR)  # ends the wait of `_to_source`, and the driver's read
    for_channel.close()
