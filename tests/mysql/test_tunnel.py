import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from lakeingest.config import Source, parse_config
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, SourceAway
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import read_chunk
from lakeingest.mysql.connection import connect, free_server_id, named_errors, query, reopen
from tests.mysql.database import Db, database_on
from tests.mysql.ssh_server import USER, SshServer, ssh_server
from tests.mysql.test_connection import cipher, source_of

pytestmark = pytest.mark.mysql


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def ssh() -> Iterator[SshServer]:
    """An SSH server that nobody has used yet."""
    with ssh_server() as running:
        yield running


def behind(ssh: SshServer, server: LocalServer, **other: Any) -> Source:
    """The source as pipeline.yml names it behind an SSH server."""
    way = {"host": "127.0.0.1", "port": ssh.port, "user": USER, "key": ssh.private_key, "known_hosts": ssh.known_hosts}
    return source_of(server, ssh=way | other)


def test_chunks_and_the_binlog_are_read_through_one_ssh_connection(
    db: Db, mysql_server: LocalServer, ssh: SshServer
) -> None:
    """Every connection to the source is forwarded: two of a chunk, one of the dump."""
    schema, before = db.table("t", "id INT PRIMARY KEY, v MEDIUMTEXT"), db.here()
    db.run("INSERT INTO t VALUES (1, REPEAT('x', 3000000)), (2, '')")
    segment, source = db.segment(before), behind(ssh, mysql_server)
    read = read_chunk(source, schema, Chunk(schema.table, KeyRange()), segment.server_uuid, segment.epoch)
    assert read.rows["v"].to_pylist() == ["x" * 3_000_000, ""]
    with connect(source) as connection:
        parts = list(read_segment(connection, segment, {schema.table: schema}, free_server_id(connection, source)))
    assert sum(rows.num_rows for table, rows in parts if table == schema.table) == 2
    assert (ssh.logins, ssh.forwarded) == (1, 3)


def test_another_process_opens_its_own_ssh_connection(mysql_server: LocalServer, ssh: SshServer) -> None:
    """An executor has the configuration, and nothing else."""
    source = behind(ssh, mysql_server)
    with connect(source) as connection:
        code = (
            "import pickle, sys; from lakeingest.mysql.connection import connect, query\n"
            "with connect(pickle.load(sys.stdin.buffer)) as connection: print(query(connection, 'SELECT 42')[0][0])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], input=pickle.dumps(source), capture_output=True, check=False
        )
        assert done.stdout.strip() == b"42", done.stderr.decode()
        assert query(connection, "SELECT 1") == [("1",)]
    assert (ssh.logins, ssh.forwarded) == (2, 2)


def test_tls_goes_through_the_tunnel(mysql_server: LocalServer, ssh: SshServer) -> None:
    """The SSH server sees encrypted bytes only."""
    source = behind(ssh, mysql_server)
    assert cipher(source.model_copy(update={"tls": source.tls.model_copy(update={"mode": "required"})}))
    assert not cipher(source.model_copy(update={"tls": source.tls.model_copy(update={"mode": "disabled"})}))


def test_a_broken_ssh_connection_is_source_away_and_then_replaced(mysql_server: LocalServer, ssh: SshServer) -> None:
    """As a broken connection to the source is; a connection of a run is opened again."""
    source = behind(ssh, mysql_server)
    with connect(source) as connection:
        ssh.drop()
        with pytest.raises(SourceAway), named_errors(source):
            query(connection, "SELECT 1")
        reopen(connection)
        assert query(connection, "SELECT 2") == [("2",)]
    assert ssh.logins == 2


def public_key(ssh: SshServer) -> str:
    """The server's host key as a line of known_hosts has it after the names."""
    return ssh.known_hosts.partition(" ")[2]


def test_an_unknown_host_key_is_refused(mysql_server: LocalServer, ssh: SshServer) -> None:
    """Nobody is asked whether to trust it, and nothing is sent to it."""
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    for line, found in (
        (f"[127.0.0.1]:{ssh.port} {other}", "has another host key"),
        (f"elsewhere.example.com {other}", "is not in source.ssh.known_hosts"),
        (f"{ssh.known_hosts}\n@revoked * {public_key(ssh)}", "is not in source.ssh.known_hosts"),
        (f"@revoked\t{ssh.known_hosts}\n{ssh.known_hosts}", "is not in source.ssh.known_hosts"),
        (f"@cert-authority {ssh.known_hosts}", "is not in source.ssh.known_hosts"),
        (f"[127.0.0.1]:{ssh.port} ssh-ed25519 AAAAdamaged", "line 1 of source.ssh.known_hosts has no key"),
    ):
        with pytest.raises(OperatorNeeded, match=found), connect(behind(ssh, mysql_server, known_hosts=line)):
            pass
    assert ssh.logins == 0


def test_a_key_that_the_ssh_server_does_not_know_needs_an_operator(mysql_server: LocalServer, ssh: SshServer) -> None:
    """The message has the user; no other key of the machine is tried."""
    other = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    with pytest.raises(OperatorNeeded, match="refuses user lake"), connect(behind(ssh, mysql_server, key=other)):
        pass


@pytest.mark.parametrize("key", ["-----BEGIN OPENSSH PRIVATE KEY-----\nno key", "/nowhere/id"])
def test_a_key_that_cannot_be_read_needs_an_operator(mysql_server: LocalServer, ssh: SshServer, key: str) -> None:
    """Before anything is sent."""
    with pytest.raises(OperatorNeeded, match=r"source\.ssh\.key"), connect(behind(ssh, mysql_server, key=key)):
        pass


def test_a_way_that_the_ssh_server_refuses_needs_an_operator(mysql_server: LocalServer, ssh: SshServer) -> None:
    """A retry cannot help; a source that does not answer behind the server is away."""
    source = behind(ssh, mysql_server)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, but nobody listens
        closed = source.model_copy(update={"port": holder.getsockname()[1]})
        with pytest.raises(SourceAway, match="does not lead to the source"), connect(closed):
            pass
    ssh.forwards = False
    with pytest.raises(OperatorNeeded, match="allow the user port forwarding"), connect(source):
        pass


def test_an_ssh_server_that_is_away_is_source_away(mysql_server: LocalServer) -> None:
    """The scheduler may try again later."""
    with ssh_server() as gone:
        source = behind(gone, mysql_server)
    with pytest.raises(SourceAway, match=f"the SSH server 127.0.0.1:{gone.port} is away"), connect(source):
        pass


def test_keys_may_be_files_beside_pipeline_yml(mysql_server: LocalServer, ssh: SshServer, tmp_path: Path) -> None:
    """Or their text, for a job whose executors do not have the files."""
    (tmp_path / "a key").write_text(ssh.private_key)
    (tmp_path / "known_hosts").write_text(f"# ours\n\n{ssh.known_hosts}\n")
    way = {"host": "127.0.0.1", "port": ssh.port, "user": USER, "key": "a key", "known_hosts": "known_hosts"}
    account = {"host": mysql_server.host, "port": mysql_server.port, "user": mysql_server.user}
    source = account | {"password": mysql_server.password, "ssh": way}
    config = parse_config({"name": "shop", "source": source, "tables": {"include": ["shop.*"]}}, tmp_path, {})
    with connect(config.source) as connection:
        assert query(connection, "SELECT 1") == [("1",)]
