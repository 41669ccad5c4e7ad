import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config import Source
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql import login
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import read_chunk
from lakeingest.mysql.connection import connect, free_server_id, literal, query, reopen
from tests.mysql.database import Db, database_on
from tests.mysql.iam_gate import KEY, REGION, SECRET, Gate, iam_gate
from tests.mysql.test_connection import source_of

pytestmark = pytest.mark.mysql


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def data(mysql_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server's data folder, with its certificates; AWS's keys are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    login._signer.cache_clear()  # noqa: SLF001
    if mysql_server.pid is None:
        pytest.skip("the server's certificates are inside the container")
    with connect(source_of(mysql_server)) as connection:
        return Path(query(connection, "SELECT @@datadir")[0][0])


def through(gate: Gate, data: Path, **other: Any) -> Source:
    """A source behind a gate, with tokens for a password."""
    given = {
        "host": "127.0.0.1",
        "port": gate.port,
        "user": "lake",
        "password": f"aws-rds-iam://{REGION}",
        "tls": {"mode": "verify_ca", "ca": str(data / "ca.pem")},
    }
    return Source.model_validate(given | other)


@pytest.mark.long("takes seconds")
def test_a_token_is_made_for_each_connection(mysql_server: LocalServer, data: Path) -> None:
    """A connection that is opened again long after has a new one: the gate takes none that is older than 2 seconds."""
    with iam_gate(mysql_server, data, valid_seconds=2) as gate, connect(through(gate, data)) as connection:
        assert query(connection, "SELECT 1") == [("1",)]
        time.sleep(3.1)
        assert query(connection, "SELECT 2") == [("2",)]  # a session outlives its token
        reopen(connection)
        assert query(connection, "SELECT 3") == [("3",)]
        assert len(set(gate.tokens)) == 2


def test_chunks_and_the_binlog_are_read_with_tokens(mysql_server: LocalServer, db: Db, data: Path) -> None:
    """Each of a chunk's two connections, and that of the dump, logs in with a token of its own."""
    schema, before = db.table("t", "id INT PRIMARY KEY"), db.here()
    db.run("INSERT INTO t VALUES (1), (2)")
    segment = db.segment(before)
    with iam_gate(mysql_server, data) as gate:
        source = through(gate, data)
        read = read_chunk(source, schema, Chunk(schema.table, KeyRange()), segment.server_uuid, segment.epoch)
        assert read.rows.num_rows == 2
        assert len(gate.tokens) == 2
        with connect(source) as connection:
            parts = list(read_segment(connection, segment, {schema.table: schema}, free_server_id(connection, source)))
        assert sum(rows.num_rows for table, rows in parts if table == schema.table) == 2
        assert len(gate.tokens) == 3


@pytest.mark.parametrize("wrong", [{"user": "other"}, {"password": "aws-rds-iam://us-east-1"}])
def test_the_gate_tells_a_wrong_token(
    mysql_server: LocalServer, data: Path, wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the other tests would show nothing: a key that AWS does not know, or a region that is not the server's."""
    if "user" in wrong:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with iam_gate(mysql_server, data) as gate:
        with pytest.raises(OperatorNeeded), connect(through(gate, data, **wrong)):
            pass
        assert gate.tokens == []


def test_a_password_is_never_sent_in_clear_text_without_tls(mysql_server: LocalServer, data: Path) -> None:
    """A server that asks for it may be anybody's."""
    plain: dict[str, Any] = {"password": "dear-secret", "tls": {"mode": "preferred"}}
    with iam_gate(mysql_server, data, tls=False) as gate:
        with pytest.raises(OperatorNeeded, match="in clear text") as caught, connect(through(gate, data, **plain)):
            pass
        assert "dear-secret" not in str(caught.value)


def test_without_credentials_an_operator_is_needed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the user and the server."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(data / "none"))
    source = Source.model_validate({"host": "db.example.com", "user": "lake", "password": f"aws-rds-iam://{REGION}"})
    with pytest.raises(OperatorNeeded, match=r"no token for lake at db\.example\.com: Unable to locate credentials"):
        login.password_of(source)


def test_every_connection_uses_the_password_of_now(
    mysql_server: LocalServer, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's password changes between two of them, and the second one is right."""
    now = ["first"]
    monkeypatch.setattr("lakeingest.mysql.driver.password_of", lambda _: now[0].encode())
    db.run("CREATE USER 'turning'@'%' IDENTIFIED BY 'first'")
    try:
        source = source_of(mysql_server, user="turning")
        with connect(source) as connection:
            db.run(f"ALTER USER 'turning'@'%' IDENTIFIED BY {literal('second')}")
            with pytest.raises(OperatorNeeded), connect(source):
                pass
            now[0] = "second"
            reopen(connection)
            assert query(connection, "SELECT 1") == [("1",)]
    finally:
        db.run("DROP USER 'turning'@'%'")
