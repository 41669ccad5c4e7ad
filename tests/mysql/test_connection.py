import os
import re
import shutil
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import COMMAND

from lakeingest.config import Source
from lakeingest.core.binlog.position import file_number
from lakeingest.core.figures.load import Load
from lakeingest.demo import flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    LakeIngestError,
    OperatorNeeded,
    Retryable,
    SchemaChanged,
    Scope,
    ServerUnproven,
    SourceAway,
    SplitUnstable,
)
from lakeingest.mysql import connection as connections
from lakeingest.mysql import driver, tls
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import (
    connect,
    file_sizes,
    free_server_id,
    literal,
    named_errors,
    query,
    query_dicts,
    written_position,
)
from lakeingest.mysql.dialect import MARIADB, MYSQL, dialect_of
from tests.mysql.database import database_on

pytestmark = pytest.mark.mysql

# Whatever a server's defaults are, our sessions do not depend on them. This one also has neither a
# binlog nor a certificate.
ODD = {
    "default_time_zone": "+05:00",
    "transaction_isolation": "READ-COMMITTED",
    "sql_mode": "PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
    "max_execution_time": "12345",
    "character_set_server": "latin1",
    "autocommit": "OFF",
    "skip_log_bin": "",
    "auto_generate_certs": "OFF",
}


def source_of(server: LocalServer, **other: Any) -> Source:
    """How a configuration names a server."""
    account = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return Source.model_validate(account | other)


@pytest.fixture(scope="module")
def source(mysql_server: LocalServer) -> Source:
    """The shared server."""
    return source_of(mysql_server)


@pytest.fixture(scope="module")
def odd_server(mysql_server_with: Callable[..., LocalServer]) -> LocalServer:
    """A server whose defaults are all other than ours."""
    return mysql_server_with(**ODD)


def error_of(source: Source, sql: str) -> LakeIngestError:
    """What a statement ends with on a connection of ours."""
    with pytest.raises(LakeIngestError) as caught, connect(source) as connection:
        query(connection, sql)
    return caught.value


def cipher(source: Source) -> str:
    """The cipher of a session; '' for one in plain text."""
    with connect(source) as connection:
        [(_, name)] = query(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    return str(name)


def test_a_session_is_pinned_whatever_the_server_defaults_to(odd_server: LocalServer) -> None:
    """UTC, REPEATABLE READ, an empty sql_mode, no time limit, utf8mb4 and autocommit."""
    with connect(source_of(odd_server)) as connection:
        [row] = query(
            connection,
            "SELECT @@time_zone, @@transaction_isolation, @@sql_mode, @@max_execution_time, @@autocommit,"
            " @@character_set_client, @@character_set_results",
        )
    assert tuple(map(str, row)) == ("+00:00", "REPEATABLE-READ", "", "0", "1", "utf8mb4", "utf8mb4")


def test_values_are_the_text_of_mysql(source: Source) -> None:
    """The driver converts nothing; NULL is None."""
    with connect(source) as connection:
        [row] = query(connection, "SELECT 1, 1.50, DATE '2024-02-29', CAST('0001-01-01' AS DATETIME(3)), NULL, 'ä'")
    assert row == ("1", "1.50", "2024-02-29", "0001-01-01 00:00:00.000", None, "ä")


def test_names_of_columns_are_in_lower_case(source: Source) -> None:
    """Servers differ in the case of the columns of SHOW."""
    with connect(source) as connection:
        assert query_dicts(connection, "SELECT 1 AS Some_Name") == [{"some_name": "1"}]


@pytest.mark.parametrize("text", ["", "it's", "a\\'b\\", '"', "ä`", "%s %d", "\n"])
def test_a_literal_is_returned_unchanged(source: Source, text: str) -> None:
    """Quotes and backslashes in it have no meaning."""
    with connect(source) as connection:
        assert query(connection, f"SELECT {literal(text)}") == [(text,)]


def test_a_refused_port_means_that_the_source_is_away(source: Source) -> None:
    """The scheduler may try again later; the message names the server."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = holder.getsockname()[1]
        error = error_of(source.model_copy(update={"port": port}), "SELECT 1")
    assert isinstance(error, SourceAway)
    assert f"127.0.0.1:{port}" in str(error)


def test_a_server_that_never_greets_is_away_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server accepts connections; the timeout for its greeting is shorter than that for a query."""
    monkeypatch.setattr(driver, "GREETING_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        source = Source(host="127.0.0.1", port=frozen.getsockname()[1], user="lake")
        with pytest.raises(SourceAway, match="timed out"), connect(source):
            pass


def test_a_query_may_take_longer_than_the_greeting(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short timeout ends with the handshake."""
    monkeypatch.setattr(driver, "GREETING_SECONDS", 1)
    with connect(source) as opened:
        assert query(opened, "SELECT SLEEP(1.5)") == [("0",)]


def test_a_wrong_password_needs_an_operator_and_names_the_user(mysql_server: LocalServer) -> None:
    """The message has the user and what to correct, and not the password."""
    error = error_of(source_of(mysql_server, password="wrong-secret"), "SELECT 1")
    assert isinstance(error, OperatorNeeded)
    assert mysql_server.user in str(error)
    assert "correct source.user and source.password" in str(error)
    assert "wrong-secret" not in str(error)


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_a_password_is_sent_in_utf_8(any_server: LocalServer, mode: str, tmp_path: Path) -> None:
    """As the server's own client sends it, with and without TLS, with any characters.

    Without TLS a server of MySQL gets it only encrypted with its public key, which the user has given, or once it has a
    hash of it at hand.
    """
    password = "pä$$wört-ключ-鍵"
    plugin = "caching_sha2_password" if any_server.flavor is flavor.MYSQL else "mysql_native_password"
    made = f"IDENTIFIED WITH {plugin} BY" if any_server.flavor is flavor.MYSQL else "IDENTIFIED BY"
    with connect(source_of(any_server)) as root:
        query(root, f"CREATE USER speaker@'%' {made} {literal(password)}")
        try:
            [(used,)] = query(root, "SELECT plugin FROM mysql.user WHERE User = 'speaker'")
            assert used == plugin
            source = source_of(any_server, user="speaker", password=password, tls={"mode": mode})
            if any_server.flavor is flavor.MYSQL and mode == "disabled":
                assert isinstance(error_of(source, "SELECT 1"), ServerUnproven)
                [(_, key)] = query(root, "SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'")
                (tmp_path / "key.pem").write_text(key)
                given = {"mode": mode, "server_public_key": str(tmp_path / "key.pem")}
                assert not cipher(source_of(any_server, user="speaker", password=password, tls=given))
            for _ in range(2):  # the second answer is from the server's cache
                with connect(source) as speaking:
                    assert query(speaking, "SELECT 1") == [("1",)]
        finally:
            query(root, "DROP USER speaker@'%'")


def test_a_missing_right_needs_an_operator(source: Source) -> None:
    """The message has the rights that lakeingest needs."""
    with user_on(source, "") as poor:
        error = error_of(poor, "SELECT * FROM mysql.user")
    assert isinstance(error, OperatorNeeded)
    assert poor.user in str(error)


def test_other_errors_of_the_server_keep_their_text_and_number(source: Source) -> None:
    """In the message for the operator."""
    error = error_of(source, "SELECT FROM")
    assert type(error) is OperatorNeeded
    assert "1064" in str(error)


@pytest.mark.parametrize("statement", ["SELECT 1 FROM nowhere.none", "SELECT 1 FROM mysql.none", "SELECT none"])
def test_what_a_query_names_may_be_gone(source: Source, statement: str) -> None:
    """By DDL, which concerns one table."""
    error = error_of(source, statement)
    assert type(error) is SchemaChanged
    assert error.scope is Scope.TABLE


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_table_that_others_lock_is_given_up_soon(any_server: LocalServer) -> None:
    """After 20 seconds, which are fewer here, and not when the server would, after a day or a year."""
    with database_on(any_server) as db, connect(db.source) as other, connect(db.source) as connection:
        db.run("CREATE TABLE t (id INT PRIMARY KEY)")
        query(other, f"LOCK TABLES {db.name}.t WRITE")
        assert query(connection, "SELECT @@lock_wait_timeout + 0 = 20") == [("1",)]
        query(connection, "SET SESSION lock_wait_timeout = 1")
        with pytest.raises(SplitUnstable, match="keep a table locked"), named_errors(db.source):
            query(connection, f"SELECT 1 FROM {db.name}.t")
        query(other, "UNLOCK TABLES")


def test_a_definition_that_changed_after_the_read_view_makes_the_split_unstable(mysql_server: LocalServer) -> None:
    """After MySQL's error 1412 the chunk is read again."""
    with database_on(mysql_server) as db:
        db.run("CREATE TABLE t (id INT PRIMARY KEY)")
        with connect(db.source) as connection:
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            db.run("TRUNCATE t")
            with pytest.raises(SplitUnstable), named_errors(db.source):
                query(connection, f"SELECT * FROM {db.name}.t")


def test_a_connection_that_is_killed_during_a_query_is_source_away(source: Source) -> None:
    """Closing the dead connection raises no further error."""
    with connect(source) as killer, connect(source) as connection:
        [(thread,)] = query(connection, "SELECT CONNECTION_ID()")
        timer = threading.Timer(0.3, query, (killer, f"KILL {thread}"))
        timer.start()
        with pytest.raises(SourceAway), named_errors(source):
            query(connection, "SELECT SLEEP(20)")
        timer.join()


def test_too_many_connections_are_source_away(odd_server: LocalServer) -> None:
    """Other clients will leave: a retry can help."""
    admin = source_of(odd_server)
    with connect(admin) as connection, user_on(admin, "GRANT SELECT ON *.* TO {user}") as plain:
        [(before,)] = query(connection, "SELECT @@global.max_connections")
        query(connection, "SET GLOBAL max_connections = 1")
        try:
            error = error_of(plain, "SELECT 1")  # the one above the limit is kept for an administrator
        finally:
            query(connection, f"SET GLOBAL max_connections = {before}")
    assert isinstance(error, SourceAway)


def test_every_tls_mode_is_what_its_name_says(source: Source, mysql_server: LocalServer) -> None:
    """Disabled is plain text; preferred and required are encrypted by a server that offers it."""
    modes = {
        mode: cipher(source_of(mysql_server, tls={"mode": mode})) for mode in ("disabled", "preferred", "required")
    }
    assert not modes["disabled"]
    assert modes["preferred"]
    assert modes["required"]


@pytest.mark.parametrize("mode", ["preferred", "required", "verify_ca"])
def test_the_certificates_of_the_system_are_loaded_once_at_most(
    mysql_server: LocalServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 60 ms, and every chunk opens two connections; without verification they are not loaded."""
    loaded = []
    load = ssl.SSLContext.set_default_verify_paths

    def counted(context: ssl.SSLContext) -> None:
        loaded.append(context)
        load(context)

    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", counted)
    tls._context.cache_clear()  # noqa: SLF001
    for _ in range(2):
        with suppress(OperatorNeeded), connect(source_of(mysql_server, tls={"mode": mode})):
            pass  # its authority is not among them
    assert len(loaded) == (mode == "verify_ca")


def test_where_the_server_offers_no_tls_preferred_is_plain_and_required_fails(odd_server: LocalServer) -> None:
    """Required never falls back to plain text."""
    assert not cipher(source_of(odd_server, tls={"mode": "preferred"}))
    for mode in ("required", "verify_ca", "verify_identity"):
        assert isinstance(error_of(source_of(odd_server, tls={"mode": mode}), "SELECT 1"), OperatorNeeded)


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_a_certificate_of_an_unknown_authority_fails_closed(mysql_server: LocalServer, mode: str) -> None:
    """No retry can help: an operator has to name the right `source.tls.ca`."""
    error = error_of(source_of(mysql_server, tls={"mode": mode}), "SELECT 1")
    assert not isinstance(error, Retryable)
    assert isinstance(error, OperatorNeeded)
    assert "certificate" in str(error).lower()
    assert "tls" in str(error)


def test_a_server_that_made_its_own_certificate_is_proven_by_its_pin(any_server: LocalServer) -> None:
    """The error of a failed verification prints it, and it stays the same for the whole life of the server."""
    refused = error_of(source_of(any_server, tls={"mode": "verify_identity"}), "SELECT 1")
    assert isinstance(refused, ServerUnproven)
    if not cipher(source_of(any_server)):  # MariaDB before 11.4 makes none
        assert "offers no TLS" in str(refused)
        return
    pin = re.findall(r"sha256:[A-Za-z0-9+/]{43}=", str(refused))[0]
    assert cipher(source_of(any_server, tls={"pin": pin}))
    wrong = error_of(source_of(any_server, tls={"pin": "sha256:" + "A" * 43 + "="}), "SELECT 1")
    assert isinstance(wrong, ServerUnproven)
    assert pin in str(wrong)


def test_verify_ca_works_with_the_right_authority(mysql_server: LocalServer, tmp_path: Path) -> None:
    """The server's own certificate is signed by the authority that it made at its first start.

    Its file is read for each connection: it may be renewed while a run follows.
    """
    with connect(source_of(mysql_server)) as connection:
        [(folder, ca)] = query(connection, "SELECT @@datadir, @@ssl_ca")
    if mysql_server.pid is None:
        pytest.skip("the authority's file is inside the container")
    copy = tmp_path / "ca.pem"
    shutil.copyfile(Path(folder) / ca, copy)
    right = {"mode": "verify_ca", "ca": str(copy)}
    assert cipher(source_of(mysql_server, tls=right))
    copy.write_text("renewed, but not well")
    assert isinstance(error_of(source_of(mysql_server, tls=right), "SELECT 1"), OperatorNeeded)


@pytest.mark.parametrize("mode", ["required", "verify_ca", "verify_identity"])
def test_a_missing_authority_file_needs_an_operator(mysql_server: LocalServer, tmp_path: Path, mode: str) -> None:
    """A retry cannot correct a wrong path in pipeline.yml."""
    wrong = {"mode": mode, "ca": str(tmp_path / "none.pem")}
    assert isinstance(error_of(source_of(mysql_server, tls=wrong), "SELECT 1"), OperatorNeeded)


def test_a_free_server_id_is_not_in_use(mysql_server: LocalServer) -> None:
    """Neither by a replica nor by the server; when all are taken, the range must be widened."""
    pair = source_of(mysql_server, server_ids="7000-7001")
    with connect(pair) as connection:
        assert {free_server_id(connection, pair) for _ in range(30)} == {7000, 7001}
        with replica_with_id(pair, 7000):
            assert {free_server_id(connection, pair) for _ in range(10)} == {7001}
            with replica_with_id(pair, 7001), pytest.raises(OperatorNeeded, match="7000-7001"):
                free_server_id(connection, pair)
        own = source_of(mysql_server, server_ids="1-2")  # the server's own id is 1
        assert {free_server_id(connection, own) for _ in range(10)} == {2}


def test_the_written_position_is_the_end_of_the_binlog(mysql_server: LocalServer) -> None:
    """It moves with every commit, and to a new file with a rotation."""
    with database_on(mysql_server) as db:
        before = written_position(db.connection)
        db.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        after = written_position(db.connection)
        db.run("FLUSH BINARY LOGS")
        rotated = written_position(db.connection)
    assert (before.number, before.pos) < (after.number, after.pos)
    assert (rotated.number, rotated.pos > 4) == (after.number + 1, True)


def test_a_source_without_binlog_needs_an_operator(odd_server: LocalServer) -> None:
    """It has no position; the message has the fix."""
    with pytest.raises(OperatorNeeded, match="log_bin"), connect(source_of(odd_server)) as connection:
        written_position(connection)


def test_file_sizes_are_those_of_all_files(source: Source) -> None:
    """Oldest first; a rotation adds one."""
    with connect(source) as connection:
        before = list(file_sizes(connection))
        query(connection, "FLUSH BINARY LOGS")
        after = file_sizes(connection)
        current = written_position(connection)
    assert list(after) == [*before, current.file]
    assert after[current.file] >= current.pos
    assert list(after) == sorted(after, key=file_number)


@contextmanager
def user_on(admin: Source, grant: str) -> Iterator[Source]:
    """A user with the rights of `grant` (`{user}` stands for its name), dropped at the end."""
    with connect(admin) as connection:
        query(connection, "CREATE USER 'plain'@'%' IDENTIFIED BY 'p'")
        try:
            if grant:
                query(connection, grant.format(user="'plain'@'%'"))
            yield Source.model_validate({"host": admin.host, "port": admin.port, "user": "plain", "password": "p"})
        finally:
            query(connection, "DROP USER 'plain'@'%'")


@contextmanager
def replica_with_id(source: Source, server_id: int) -> Iterator[pymysql.Connection]:
    """A connection that has registered as a replica."""
    with connect(source) as connection:
        wire: Any = connection
        wire._execute_command(  # noqa: SLF001 - the driver has no public way to send a command
            COMMAND.COM_REGISTER_SLAVE, struct.pack("<IBBBHII", server_id, 0, 0, 0, 0, 0, 0)
        )
        wire._read_packet()  # noqa: SLF001
        yield connection


@pytest.mark.parametrize("greeting", ["5.5.5-10.11.18-MariaDB-0+deb12u1-log", "11.4.2-MariaDB"])
def test_mariadb_is_known_by_its_greeting(greeting: str) -> None:
    """Before a variable that it does not have is set."""
    assert dialect_of(greeting) is MARIADB


@pytest.mark.parametrize(
    ("greeting", "log_status"),
    [
        ("9.7.4-2", "SHOW BINARY LOG STATUS"),
        ("8.4.0", "SHOW BINARY LOG STATUS"),
        ("8.0.36-28", "SHOW MASTER STATUS"),
        ("5.7.44-log", "SHOW MASTER STATUS"),
    ],
)
def test_mysql_gets_the_statement_of_its_version(greeting: str, log_status: str) -> None:
    """The statement was renamed, and the old name is refused by newer versions."""
    assert dialect_of(greeting) == replace(MYSQL, log_status=log_status)


QUESTIONS: dict[str, Callable[[BinlogSource], object]] = {
    "written": BinlogSource.written,
    "files": BinlogSource.files,
    "clock": BinlogSource.clock,
    "state": BinlogSource.state,
    "uuid": BinlogSource.uuid,
    "retention": BinlogSource.retention_seconds,
    "names": BinlogSource.names_columns,
    "load": lambda source: source.load_meter(Load(threads_running=50)).measure(source.connection),
}


def ask_while_it_hangs(server: LocalServer, ask: Callable[[BinlogSource], object]) -> None:
    """Ask a server that answers, and again while its process stands still."""
    assert server.pid is not None
    with BinlogSource.open(source_of(server)) as source:
        ask(source)
        os.kill(server.pid, signal.SIGSTOP)
        while True:  # it may answer once more before it stands still
            ask(source)


@pytest.mark.local("it stops the server's process")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.long("waits for a server that hangs, with one of the questions in turn", turn="question")
def test_a_server_that_hangs_is_noticed(
    mysql_server_with: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """A question that a server answers at once waits no ten minutes for it, as a query for rows does."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1)
    server, began = mysql_server_with(server_id="59"), time.monotonic()
    assert server.pid is not None
    try:
        with pytest.raises(SourceAway, match="timed out"):
            ask_while_it_hangs(server, QUESTIONS[question])
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert time.monotonic() - began < 20
