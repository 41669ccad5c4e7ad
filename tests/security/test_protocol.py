import itertools
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pymysql import Connection

from lakeingest.commands.check import check
from lakeingest.config import Source, parse_config
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import BinlogGone, LakeIngestError, OperatorNeeded, ProtocolBroken, SourceAway
from lakeingest.exits import exit_code
from lakeingest.mysql import driver, packets, row_stream
from lakeingest.mysql.binlog_reader import dump_events, read_event
from lakeingest.mysql.connection import (
    clock,
    connect,
    file_sizes,
    free_server_id,
    query,
    server_of,
    snapshot_position,
    start_of_newest,
    written_position,
)
from lakeingest.mysql.connection import source_of as source_of_connection
from lakeingest.mysql.dialect import version_of
from lakeingest.mysql.key_space import estimated_bytes, estimated_rows, key_bounds, next_boundary
from lakeingest.mysql.source_types import source_type
from tests.security.fake_server import EOF, OK, FakeServer, Session, Talk, column, failure, fake_server, packed, text

HOST = "127.0.0.1"  # where no TLS is asked for
SLOW = 0.4  # seconds between the bytes of a server that drips
CHUNK = b"\x0a" + b"A" * 0xFFFFFE


def source_of(server: FakeServer) -> Source:
    """The server as a source."""
    return Source(host=server.host, port=server.port, user="lake")


def error_of(talk: Talk, ask: Callable[[Source], object]) -> LakeIngestError:
    """What a question to a server ends with."""
    with fake_server(talk, host=HOST) as server, pytest.raises(LakeIngestError) as caught:
        ask(source_of(server))
    assert "internal error" not in str(caught.value)
    return caught.value


def selected(source: Source) -> list[tuple[object, ...]]:
    """The answer to a SELECT."""
    with connect(source) as connection:
        return query(connection, "SELECT 1")


def replying(reply: Callable[[Session], None]) -> Talk:
    """A server that lets anybody in, and answers each question so."""
    return lambda session: session.answer(lambda one, _: reply(one))


@contextmanager
def within(seconds: float, megabytes: int) -> Iterator[None]:
    """The block takes no longer, and this process has no more memory after it, at any time."""
    most, stop, began = [0], threading.Event(), time.monotonic()
    before = _resident()

    def watch() -> None:
        while not stop.wait(0.02):
            most[0] = max(most[0], _resident() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        stop.set()
        watching.join()
    assert time.monotonic() - began < seconds
    assert most[0] < megabytes << 20


def _resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def endless_greeting(session: Session) -> None:
    """One packet, in parts without end."""
    for number in itertools.count():
        session.raw(CHUNK, number)


def nonsense(session: Session) -> None:
    """Whatever comes."""
    session.socket.sendall(bytes(range(256)) * 16)
    session.receive()


def web_server(session: Session) -> None:
    """The wrong port."""
    session.socket.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def short_greeting(session: Session) -> None:
    """A packet that ends in the middle of a field."""
    session.send(b"\x0a8.4.3\0\x01\x00")
    session.receive()


def empty_greeting(session: Session) -> None:
    """A packet without a byte."""
    session.send(b"")
    session.receive()


def old_server(session: Session) -> None:
    """A greeting of a server of the last century."""
    session.send(b"\x093.23.58\0" + b"\0" * 40)
    session.receive()


def endless_login(session: Session) -> None:
    """Another plugin after each answer."""
    session.greet()
    for _ in range(100):
        session.send(b"\xfemysql_native_password\0" + b"s" * 20 + b"\0")
        session.receive()


def wrong_step(session: Session) -> None:
    """A packet that no login has."""
    session.greet()
    session.send(b"\x07what?")
    session.receive()


@pytest.mark.parametrize(
    "talk",
    [
        endless_greeting,
        nonsense,
        web_server,
        short_greeting,
        empty_greeting,
        old_server,
        endless_login,
        wrong_step,
    ],
)
def test_what_is_no_login_ends_by_its_name(talk: Talk) -> None:
    """Before anything big is read: a person has to look, for a scheduler would try again for ever."""
    with within(20, 100):
        error = error_of(talk, selected)
    assert isinstance(error, ProtocolBroken)
    assert error.exit_code == OperatorNeeded.exit_code


def dripping(session: Session) -> None:
    """A greeting, byte by byte."""
    for byte in b"\x4a\0\0\0\x0a8.4.3\0" + b"\x01" * 90:
        session.socket.sendall(bytes([byte]))
        time.sleep(SLOW)


def silent_login(session: Session) -> None:
    """A greeting, and nothing after it."""
    session.greet()
    time.sleep(60)


@pytest.mark.parametrize("talk", [dripping, silent_login])
@pytest.mark.long("waits for each of two servers", turn="talk")
def test_a_login_has_a_deadline(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all of it: each byte may come in time, and the whole of them too late. It may be better later."""
    monkeypatch.setattr(driver, "GREETING_SECONDS", 2)
    monkeypatch.setattr(driver, "LOGIN_SECONDS", 2)
    with within(15, 50):
        error = error_of(talk, selected)
    assert isinstance(error, SourceAway)
    assert "timed out" in str(error)


def many_columns(session: Session) -> None:
    """2^60 of them, as fast as they can be read."""
    session.send(packed(1 << 60))
    for number in itertools.count(1):
        session.raw(column(b"c" * 200), number)


def rows_without_end(session: Session) -> None:
    """One column, and rows of it."""
    session.send(packed(1))
    session.send(column(b"a"))
    session.send(EOF)
    for number in itertools.count(session.number):
        session.raw(text(b"x" * 200), number)


def one_endless_packet(session: Session) -> None:
    """A value whose end does not come."""
    for number in itertools.count(1):
        session.raw(CHUNK, number)


def local_file(session: Session) -> None:
    """It asks for a file of the client."""
    session.send(b"\xfb/etc/passwd")
    session.receive()


def out_of_order(session: Session) -> None:
    """A packet with another number."""
    session.raw(OK, 77)


def no_result(session: Session) -> None:
    """OK, to a question."""
    session.send(OK)


def cut_row(session: Session) -> None:
    """A row that ends in the middle of a value."""
    session.send(packed(1))
    session.send(column(b"a"))
    session.send(EOF)
    session.send(b"\xfd\xff\xff")


@pytest.mark.parametrize(
    "reply",
    [many_columns, rows_without_end, one_endless_packet, local_file, out_of_order, no_result, cut_row],
)
def test_what_is_no_result_ends_by_its_name(reply: Callable[[Session], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In bounded time and memory; the limit is lower here, so that it is reached soon."""
    monkeypatch.setattr(packets, "RESULT_BYTES", 64 << 20)
    with within(30, 400):
        error = error_of(replying(reply), selected)
    assert isinstance(error, ProtocolBroken)
    assert error.exit_code == OperatorNeeded.exit_code


def test_a_result_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may come one by one, each in time, but not without end."""

    def slowly(session: Session) -> None:
        session.send(packed(1))
        session.send(column(b"a"))
        session.send(EOF)
        for number in itertools.count(session.number):
            session.raw(text(b"x"), number)
            time.sleep(SLOW)

    monkeypatch.setattr(packets, "RESULT_SECONDS", 2)
    with within(15, 50):
        error = error_of(replying(slowly), selected)
    assert isinstance(error, SourceAway)


def test_a_result_of_the_wrong_shape_ends_by_its_name() -> None:
    """No rows, or too few columns, where the server's own id is asked for."""

    def one_column(session: Session) -> None:
        session.send(packed(1))
        for one in (column(b"a"), EOF, text(b"x"), EOF):
            session.send(one)

    def no_row(session: Session) -> None:
        session.send(packed(1))
        for one in (column(b"a"), EOF, EOF):
            session.send(one)

    def asked(source: Source) -> None:
        with connect(source) as connection:
            server_of(connection)

    for reply in (one_column, no_row):
        assert isinstance(error_of(replying(reply), asked), ProtocolBroken)


TABLE = TableSchema(TableId("shop", "t"), (Column("id", Kind.INT32, source_type("int"), nullable=False),), ("id",))


@pytest.mark.parametrize(
    "ask",
    [
        written_position,
        snapshot_position,
        clock,
        file_sizes,
        lambda connection: start_of_newest(connection, 1),
        lambda connection: free_server_id(connection, source_of_connection(connection)),
        lambda connection: key_bounds(connection, TABLE),
        lambda connection: estimated_rows(connection, TABLE),
        lambda connection: estimated_bytes(connection, TABLE),
        lambda connection: next_boundary(connection, TABLE, None, 1),
    ],
)
@pytest.mark.parametrize("version", ["9.4.0", "11.4.5-MariaDB"])
def test_a_result_with_other_values_ends_by_its_name(ask: Callable[[Connection], object], version: str) -> None:
    """A text where a number is asked for, or a column that nobody asked for; on either server."""

    def talk(session: Session) -> None:
        session.answer(lambda one, _: replied(one), version)

    def replied(session: Session) -> None:
        session.send(packed(1))
        for one in (column(b"a"), EOF, text(b"x"), EOF):
            session.send(one)

    def asked(source: Source) -> None:
        with connect(source) as connection:
            ask(connection)

    assert isinstance(error_of(talk, asked), ProtocolBroken)


@pytest.mark.parametrize("version", [b"9" * 5000, b"10.\xb2.3-MariaDB", b"MariaDB", b""])
def test_any_text_is_a_version(version: bytes) -> None:
    """What it says is looked at later."""
    assert version_of(version.decode("latin-1")) in {(), (10, 3)}


def test_a_binlog_event_without_end_ends_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that tries again would read it again: it is not `retry later`."""
    monkeypatch.setattr(packets, "PACKET_BYTES", 64 << 20)

    def dump(source: Source) -> None:
        with connect(source) as connection:
            for _ in dump_events(connection, FilePosition("binlog.000001", 4), 7):
                pass

    with within(30, 400):
        error = error_of(replying(one_endless_packet), dump)
    assert isinstance(error, ProtocolBroken)


def test_bulk_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of chunks and events of segments have no deadline as a whole, and may not come byte by byte for ever."""

    def drip(session: Session, _: bytes) -> None:
        while True:
            session.socket.sendall(b"x")
            time.sleep(SLOW / 2)

    def received(source: Source) -> None:
        with connect(source) as connection:
            connection._execute_command(3, "SELECT 1")  # type: ignore[attr-defined] # noqa: SLF001
            receiver = row_stream.Receiver(connection)
            while True:
                receiver.receive(memoryview(bytearray(1 << 16)))

    monkeypatch.setattr(row_stream, "READ_SECONDS", 2)
    with within(15, 50):
        error = error_of(lambda session: session.answer(drip), received)
    assert isinstance(error, SourceAway)
    assert "bytes in 2 seconds" in str(error)


def test_heartbeats_in_place_of_an_event_come_to_an_end() -> None:
    """A server that sends nothing else where an event is asked for does not have it."""
    body = b"binlog.000001"
    event = struct.pack("<IBIIIH", 0, 27, 1, 19 + len(body), 0, 0) + body

    def beating(session: Session, asked: bytes) -> None:
        if asked[:1] != b"\x12":  # a question before the dump
            session.send(OK)
            return
        while True:
            session.send(b"\0" + event + struct.pack("<I", zlib.crc32(event)))

    def one(source: Source) -> None:
        with connect(source) as connection:
            read_event(connection, FilePosition("binlog.000001", 4), 7)

    with within(20, 50):
        error = error_of(lambda session: session.answer(beating), one)
    assert isinstance(error, BinlogGone)


def test_an_error_of_the_server_stays_what_it_is() -> None:
    """Its text is text, whatever is in it."""

    def refusing(session: Session) -> None:
        session.greet()
        session.send(failure(1045, b"\x1b[2J[red]no[/]\nlakeingest: all is well"))

    error = error_of(refusing, selected)
    assert type(error) is OperatorNeeded
    assert "refuses user lake" in str(error)


@pytest.mark.parametrize("talk", [endless_greeting, nonsense, replying(no_result), replying(local_file)])
def test_check_reports_such_a_server_among_its_findings(talk: Talk, tmp_path: Path) -> None:
    """With the way out; `run` ends with 3."""
    with fake_server(talk, host=HOST) as server:
        account = {"host": server.host, "port": server.port, "user": "lake"}
        config = parse_config({"name": "h", "source": account, "tables": {"include": ["shop.*"]}}, tmp_path, {})
        found = {one.name: one.finding for one in check(config).problems}
    assert "correct source.host and source.port" in str(found["connection"])
    assert exit_code(ProtocolBroken("")) == 3
