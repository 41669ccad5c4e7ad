"""A source that encrypts its binlog: it sends plain text, but its files have more bytes than its positions say."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from lakeingest.demo.server import HOST, LocalServer, await_start, child, reserved_port
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

KEYRING = "component_keyring_file"
OWN = "--datadir=", "--tmpdir=", "--port=", "--pid_file="


@pytest.fixture
def encrypting(mysql_server: LocalServer, tmp_path: Path) -> Iterator[LocalServer]:
    """A server like the shared one, with its own copy of the program. A file beside the program names its keyring."""
    if mysql_server.pid is None:
        pytest.skip("the server runs in a container, which has its own files")
    command = Path(f"/proc/{mysql_server.pid}/cmdline").read_text().rstrip("\0").split("\0")
    program = next(Path(word) for word in command if word.endswith("/mysqld"))
    plugins = [found.parent for found in program.parents[1].rglob(f"{KEYRING}.so")]
    if not plugins:
        pytest.skip(f"the server has no {KEYRING}")
    own = tmp_path / "own"
    (own / "plugins").mkdir(parents=True)
    shutil.copy(program, own / "mysqld")
    shutil.copy(plugins[0] / f"{KEYRING}.so", own / "plugins")
    (own / "mysqld.my").write_text(json.dumps({"components": f"file://{KEYRING}"}))
    keys = {"path": str(own / "keys"), "read_only": False}
    (own / "plugins" / f"{KEYRING}.cnf").write_text(json.dumps(keys))
    words = [word.replace(str(program), str(own / "mysqld")) for word in command if not word.startswith(OWN)]
    words += [f"--plugin-dir={own / 'plugins'}", f"--datadir={own / 'data'}", "--binlog_encryption=ON"]
    log = own / "mysqld.log"
    first = own / "first.sql"
    first.write_text(
        f"CREATE USER 'root'@'{HOST}'; GRANT ALL PRIVILEGES ON *.* TO 'root'@'{HOST}' WITH GRANT OPTION;\n"
    )
    with reserved_port(None) as port, ExitStack() as running:
        with child([*words, "--initialize-insecure", "--skip_log_bin", f"--init_file={first}"], log) as setup:
            assert setup.wait() == 0, log.read_text()
        server = replace(mysql_server, port=port, user="root", password="")
        started = running.enter_context(child([*words, f"--port={port}"], log))
        await_start(started, log, lambda: root(server).close(), 120)
        yield replace(server, pid=started.pid)


def root(server: LocalServer) -> pymysql.Connection:
    """An administrator's connection to a server without a password."""
    return pymysql.connect(host=HOST, port=server.port, user="root", password="", autocommit=True)


@pytest.mark.long("starts another server")
def test_an_encrypted_binlog_is_read(encrypting: LocalServer, pipe_on: Callable[..., Pipe]) -> None:
    """In the first copy and later, over several files, the last of which is shorter than the server says."""
    pipe = pipe_on(encrypting, chunk_rows=5)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1)' for number in range(30))}",
    )
    [*_, (_, size, encrypted)] = rows(pipe, "SHOW BINARY LOGS")
    [(_, position, *_)] = rows(pipe, "SHOW BINARY LOG STATUS")
    assert (encrypted, int(str(size)) > int(str(position))) == ("Yes", True)
    pipe.run()
    for number in range(3):
        pipe.sql(f"UPDATE t SET v = {number} WHERE id > 9", "FLUSH BINARY LOGS", f"DELETE FROM t WHERE id = {number}")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
    pipe.sql("FLUSH BINARY LOGS", "INSERT INTO t VALUES (100, 1)", "ALTER TABLE t ADD c INT DEFAULT 3")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


def rows(pipe: Pipe, statement: str) -> list[tuple[object, ...]]:
    """What the source answers."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
