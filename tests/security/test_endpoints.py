"""Each row of the table in SECURITY.md, but the source's: what a server proves before it gets a secret or a request."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.storage.errors import storage_errors
from tests.security.certificates import Authority

CANARY = "kanari-secret"
POSTGRESQL_TLS = struct.pack(">II", 8, 80877103)  # "SSLRequest"


@dataclass
class Impostor:
    """A server with TLS that the client does not know: what clients have sent to it, decrypted, and how many came."""

    port: int
    heard: list[bytes] = field(default_factory=list)
    came: int = 0


@contextmanager
def impostor_at(certificate: Path, *, before: Callable[[socket.socket], None] | None = None) -> Iterator[Impostor]:
    """An impostor on another address than the loopback's usual; `before` says what comes before TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = socket.create_server(("127.0.0.2", 0))
    found = Impostor(listening.getsockname()[1])

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            if before is not None:
                before(client)
            with context.wrap_socket(client, server_side=True) as protected:
                while part := protected.recv(65536):
                    found.heard.append(part)
                    protected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                found.came += 1
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield found
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's keys are in the environment, and nothing else is."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": CANARY,
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)


def config(folder: Path, **target: Any) -> Config:
    """A pipeline with this target."""
    source = {"host": "127.0.0.1", "user": "nobody"}
    doc = {"name": "a", "source": source, "tables": {"include": ["a.*"]}, "target": target, "state": "s3://a/state"}
    return parse_config(doc, folder, {})


def asked(settings: Config) -> None:
    """Open the catalog, and ask it for its namespaces."""
    with storage_errors("s3://a/w", settings.target.catalog_place):
        open_catalog(settings.target).list_namespaces()


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("kind", ["rest with a token", "rest with a credential", "signed rest", "glue"])
def test_a_catalog_that_is_not_verified_gets_no_request(kind: str, impostor: Path, tmp_path: Path) -> None:
    """Not even a signed one: the error names the catalog, and its certificate or the failed connection."""
    with impostor_at(impostor) as server:
        url = f"https://127.0.0.2:{server.port}"
        catalog: dict[str, Any] = {
            "rest with a token": {"type": "rest", "uri": url, "properties": {"token": CANARY}},
            "rest with a credential": {"type": "rest", "uri": url, "properties": {"credential": f"a:{CANARY}"}},
            "signed rest": {
                "type": "rest",
                "uri": url,
                "properties": {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1"},
            },
            "glue": {"type": "glue", "properties": {"glue.endpoint": url}},
        }[kind]
        with pytest.raises(LakeIngestError) as caught:
            asked(config(tmp_path, warehouse="s3://a/w", catalog=catalog))
    assert "internal error" not in str(caught.value)
    assert CANARY not in str(caught.value)
    assert server.came >= 1
    assert server.heard == []


@pytest.mark.long("takes seconds")
@pytest.mark.usefixtures("_keys")
def test_a_store_that_is_not_verified_gets_no_request(
    impostor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the client of the state's files nor from that of tables."""
    monkeypatch.setattr("lakeingest.files.stored.PATIENCE_SECONDS", 1)  # it would try again for longer
    with impostor_at(impostor) as server:
        storage = {"endpoint": f"https://127.0.0.2:{server.port}", "region": "eu-west-1", "path_style": True}
        settings = config(tmp_path, warehouse="s3://a/w", catalog={"type": "glue"}, storage=storage)
        with pytest.raises(LakeIngestError):
            (state_of(settings) / "owner.json").exists()
        assert server.came >= 1
        came = server.came
        io = open_catalog(settings.target)._load_file_io({}, "s3://a/w")  # noqa: SLF001
        with pytest.raises(OSError, match=r"(?i)certificate|ssl|tls|network"):
            io.new_input("s3://a/w/x").open()
        assert server.came > came
    assert server.heard == []


def test_a_database_that_is_not_verified_gets_no_login(impostor: Path, tmp_path: Path) -> None:
    """PostgreSQL's client says who it is only after TLS; the error has the settings that say what the server proves."""

    def starting(client: socket.socket) -> None:
        assert client.recv(8) == POSTGRESQL_TLS
        client.sendall(b"S")

    with impostor_at(impostor, before=starting) as server:
        uri = f"postgresql://me:{CANARY}@127.0.0.2:{server.port}/d"
        with pytest.raises(LakeIngestError, match="sslmode and sslrootcert") as caught:
            asked(config(tmp_path, warehouse="s3://a/w", catalog={"type": "sql", "uri": uri}))
    assert CANARY not in str(caught.value)
    assert server.came >= 1
    assert server.heard == []


def test_a_database_of_the_right_authority_gets_its_login(authority: Authority, tmp_path: Path) -> None:
    """Or the test above would show nothing: with the authority's file the client goes on."""

    def starting(client: socket.socket) -> None:
        client.recv(8)
        client.sendall(b"S")

    with impostor_at(authority.server("postgresql", "127.0.0.2"), before=starting) as server:
        uri = f"postgresql://me:{CANARY}@127.0.0.2:{server.port}/d?sslrootcert={authority.ca}&connect_timeout=3"
        with pytest.raises(LakeIngestError):
            asked(config(tmp_path, warehouse="s3://a/w", catalog={"type": "sql", "uri": uri}))
    assert b"user\0me" in b"".join(server.heard)


def test_a_database_without_tls_gets_no_login(tmp_path: Path) -> None:
    """It does not fall back to plain text."""
    heard: list[bytes] = []

    def refusing(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                heard.append(client.recv(8))
                client.sendall(b"N")
                heard.append(client.recv(1000))
                client.close()

    with socket.create_server(("127.0.0.2", 0)) as listening:
        threading.Thread(target=refusing, args=(listening,), daemon=True).start()
        uri = f"postgresql://me:{CANARY}@127.0.0.2:{listening.getsockname()[1]}/d"
        with pytest.raises(LakeIngestError, match="sslmode and sslrootcert"):
            asked(config(tmp_path, warehouse="s3://a/w", catalog={"type": "sql", "uri": uri}))
        listening.shutdown(socket.SHUT_RDWR)
    assert b"me" not in b"".join(heard)
