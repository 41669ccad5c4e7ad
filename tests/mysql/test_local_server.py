import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from lakeingest.demo import server as server_module
from lakeingest.demo.server import LocalServer, local_server
from lakeingest.errors import OperatorNeeded
from tests.plugins import lanes

pytestmark = pytest.mark.mysql

HOLDER = """
import sys, time
from pathlib import Path
from lakeingest.demo.server import local_server

with local_server(Path(sys.argv[1])) as server:
    print(server.port, flush=True)
    time.sleep(600)
"""


def test_the_server_answers(mysql_server: LocalServer) -> None:
    """The account it names can log in over TCP and run a query."""
    assert select(mysql_server, "SELECT 1") == (1,)
    assert select(mysql_server, "SELECT @@version") == (mysql_server.version,)


def test_the_account_administers(mysql_server: LocalServer) -> None:
    """It may create databases and users, and grant to them."""
    with connected(mysql_server) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE local_server")
        cursor.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'reader'")
        cursor.execute("GRANT SELECT ON local_server.* TO reader@'127.0.0.1'")
        cursor.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'")
        cursor.execute("DROP USER reader@'127.0.0.1'")
        cursor.execute("DROP DATABASE local_server")


def test_the_default_server_meets_the_conditions_of_a_source(mysql_server: LocalServer) -> None:
    """It writes full row images with GTIDs, durably, and is MySQL."""
    assert select(
        mysql_server,
        "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_mode,"
        " @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@binlog_order_commits",
    ) == (1, "ROW", "FULL", "FULL", "ON", 1, 1, 1)
    assert "mariadb" not in mysql_server.version.lower()


@pytest.mark.long("takes seconds")
def test_a_new_server_has_an_empty_binlog(tmp_path: Path) -> None:
    """It has executed no transaction and is in its first binlog file."""
    with local_server(tmp_path) as server:
        assert select(server, "SELECT @@gtid_executed") == ("",)
        assert select(server, "SHOW BINARY LOG STATUS")[0] == "binlog.000001"


@pytest.mark.long("starts another server")
def test_settings_replace_defaults(mysql_server_with: Callable[..., LocalServer]) -> None:
    """A server without GTIDs is possible, and the same settings return the same server."""
    plain = mysql_server_with(gtid_mode="OFF", enforce_gtid_consistency="OFF")
    assert select(plain, "SELECT @@gtid_mode, @@enforce_gtid_consistency") == ("OFF", "OFF")
    assert mysql_server_with(enforce_gtid_consistency="OFF", gtid_mode="OFF") is plain


def test_its_password_is_not_shown(mysql_server: LocalServer) -> None:
    """Printing the server, as logs and tracebacks do, does not print its password."""
    assert mysql_server.password not in repr(mysql_server)


def test_it_listens_on_loopback_only(mysql_server: LocalServer) -> None:
    """No address but 127.0.0.1 answers on its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, only chooses the address that others would see
        outward = probe.getsockname()[0]
    assert answers("127.0.0.1", mysql_server.port)
    assert not answers("127.0.0.2", mysql_server.port)
    assert outward == "127.0.0.1" or not answers(outward, mysql_server.port)


@pytest.mark.long("takes seconds")
def test_nothing_is_left_after_its_end(tmp_path: Path) -> None:
    """At the end the server does not answer, also on a given port, and its folder is as it was."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = set(tmp_path.iterdir())
    with local_server(tmp_path, port=port) as server:
        assert server.port == port
        assert answers("127.0.0.1", port)
    assert not answers("127.0.0.1", port)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.long("starts two other servers")
def test_a_server_on_prepared_tables_is_one_of_its_own(tmp_path: Path) -> None:
    """It shares neither its identity nor its transactions nor its certificate with the one that was set up first."""
    found = []
    for name in ("first", "second"):
        with local_server(tmp_path / name, prepared=tmp_path / "prepared") as server:
            uuid, executed, folder = select(server, "SELECT @@server_uuid, @@global.gtid_executed, @@datadir")
            found.append((uuid, (Path(folder) / "ca.pem").read_text()))
        assert executed == ""
    assert not {*found[0]} & {*found[1]}
    assert len([path for path in (tmp_path / "prepared").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.long("starts another server")
def test_nothing_is_left_after_an_exception(tmp_path: Path, error: type[BaseException]) -> None:
    """An exception, Ctrl-C too, ends the server and passes through."""
    started = []

    def fail() -> None:
        with local_server(tmp_path) as server:
            started.append(server)
            raise error

    with pytest.raises(error):
        fail()
    assert not answers("127.0.0.1", started[0].port)
    assert list(tmp_path.glob("mysqld-*")) == []


@pytest.mark.long("takes seconds")
def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    """When the process that holds it is killed with SIGKILL, the server is soon gone."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        assert answers("127.0.0.1", port)
        holder.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while answers("127.0.0.1", port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not answers("127.0.0.1", port)
    shutil.rmtree(tmp_path)  # nobody was left to do it


@pytest.mark.long("starts another server")
def test_a_long_path_is_allowed(tmp_path: Path) -> None:
    """The folder's path may be longer than that of a Unix socket."""
    with local_server(tmp_path / ("x" * 60) / ("y" * 60)) as server:
        assert select(server, "SELECT 1") == (1,)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """The error names the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(OperatorNeeded, match=f"port {port} cannot be had"),
            local_server(tmp_path, port=port),
        ):
            pass


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """Such as a folder below a file."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(OperatorNeeded, match="file/folder cannot be written: Not a directory"),
        local_server(tmp_path / "file" / "folder"),
    ):
        pass


@pytest.mark.long("starts another server")
def test_mariadb_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mysqld on PATH that is MariaDB is skipped."""
    trace = program(
        tmp_path / "bin" / "mysqld",
        "echo 'mysqld  Ver 10.11.11-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64'",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with local_server(tmp_path) as server:
        assert "mariadb" not in server.version.lower()
    assert trace.read_text() == "--no-defaults --version\n"


@pytest.mark.long("starts another server")
def test_an_old_mysql_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mysqld on PATH that is older than 8.4 is skipped."""
    trace = program(
        tmp_path / "bin" / "mysqld",
        "echo 'mysqld  Ver 8.0.42 for Linux on x86_64 (MySQL Community Server - GPL)'",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with local_server(tmp_path) as server:
        assert not server.version.startswith("8.0")
    assert trace.read_text() == "--no-defaults --version\n"


@pytest.mark.long("starts another server")
@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("unix:///nowhere/docker.sock", "Docker does not run the image: .*No such file"),
        ("tcp://192.0.2.1:2375", "DOCKER_HOST is another machine"),
    ],
)
def test_docker_without_a_daemon_of_this_machine_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, why: str
) -> None:
    """The reason is named in one line; where a server can be had otherwise, it is."""
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(OperatorNeeded, match=why) as failure, local_server(tmp_path, in_container=True):
        pass
    assert "\n" not in str(failure.value)


@pytest.mark.skipif(not lanes.IMAGE, reason="runs a container, as `make test-servers` does")
def test_a_container_is_gone_after_its_end(tmp_path: Path) -> None:
    """While it runs, it answers on loopback alone; its data are removed with it."""
    with lanes.server(tmp_path, {}, lanes.FLAVORS[0]) as server:
        assert select(server, "SELECT 1") == (1,)
        assert not answers("127.0.0.2", server.port)
    assert not answers("127.0.0.1", server.port)


def test_if_no_server_can_be_started_all_reasons_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says why each way failed and what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setenv("LAKEINGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(server_module, "SYSTEM_PROGRAMS", tmp_path)
    with pytest.raises(OperatorNeeded) as failure, local_server(tmp_path):
        pass
    message = str(failure.value)
    assert "a mysqld on PATH: none is installed" in message
    assert "a container: Docker does not run the image" in message
    assert "Debian's packages: apt-get is missing" in message
    assert "Install MySQL 8.4 or newer" in message
    assert "\n" not in message


def select(server: LocalServer, sql: str) -> Any:
    """The first row of a query."""
    with connected(server) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def connected(server: LocalServer) -> pymysql.Connection:
    """A connection as the server's administrator."""
    return pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)


def answers(host: str, port: int) -> bool:
    """Whether anything accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def program(path: Path, body: str) -> Path:
    """Write a program that runs a shell line; the file returned gets the arguments of each call."""
    trace = path.with_suffix(".calls")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$*" >> "{trace}"\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return trace
