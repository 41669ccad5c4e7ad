"""Every session variable of the servers: pinned, refused by name, or tried here and harmless.

`docs/session-variables.yml` lists them with the values that are tried. They are imposed on all new sessions, many at a
time, and then everything is asked of the server that a pipeline asks: tables, definitions, conditions, boundaries,
chunks, rows by their keys, changes, checksums. Where an answer is another one, the group is cut until it is known which
value it was.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from lakeingest.config.tables import Tables
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, OperatorNeeded
from lakeingest.mysql import session
from lakeingest.mysql.checksum import range_checksums, row_checksums
from lakeingest.mysql.chunk_reader import read_chunk, read_rows
from lakeingest.mysql.connection import clock, connect, file_sizes, query, server_of
from lakeingest.mysql.key_membership import keys_within
from lakeingest.mysql.key_space import estimated_bytes, estimated_rows, key_bounds, next_boundary
from lakeingest.mysql.keyed_rows import conditions_of, rows_of
from lakeingest.mysql.preflight import foreign_keys
from lakeingest.mysql.preflight import server as conditions
from lakeingest.mysql.preflight import tables as table_conditions
from lakeingest.mysql.preflight.server import Server, ask
from lakeingest.mysql.schema_reader import list_tables, list_views, read_schemas, read_stable_schema
from lakeingest.mysql.text_classes import text_classes
from tests.mysql.database import EPOCH, Db, database_on
from tests.mysql.values import values_of
from tests.servers.session_variables import (
    COPIER,
    LISTED,
    OTHER,
    PASSWORD,
    WAYS,
    Setting,
    administrator,
    groups,
    imposed,
    listed,
    literal,
    make_copier,
    session_variables,
)

pytestmark = pytest.mark.mysql

ROUNDS = 3  # values of a variable
ALIKE = "p" * 80  # the beginning of the text keys
CHOICES = Choices(zero_dates="string", time="micros")


@dataclass
class Asked:
    """A server, what a pipeline of a user with the documented rights asks it, and its usual answers."""

    server: LocalServer
    db: Db
    start: FilePosition
    usual: dict[str, object]

    def difference(self, way: str, chosen: Sequence[Setting]) -> str | None:
        """What is another answer where this is imposed; None if none is."""
        with imposed(self.server, way, chosen):
            try:
                found = answers(self.db, self.start)
            except Exception as error:  # noqa: BLE001 - whatever it is, the values that did it are sought
                return f"{type(error).__name__}: {error}"
        return ", ".join(name for name, answer in self.usual.items() if found[name] != answer) or None

    def culprits(self, way: str, chosen: Sequence[Setting]) -> dict[str, str]:
        """The smallest groups of values with which an answer is another one, and what is other."""
        why = self.difference(way, chosen) if chosen else None
        if why is None:
            return {}
        middle = len(chosen) // 2
        found = self.culprits(way, chosen[:middle]) | self.culprits(way, chosen[middle:]) if middle else {}
        return found or {", ".join(f"{name} = {value}" for name, value in chosen): why}


@pytest.fixture
def asked(server_of: Callable[..., LocalServer], any_server: LocalServer) -> Iterator[Asked]:
    """On a server of each flavor that no other test uses."""
    with asked_of(server_of(any_server.flavor, **OTHER)) as asked:
        yield asked


@contextmanager
def asked_of(server: LocalServer) -> Iterator[Asked]:
    """A table of all types and one with long keys of text on this server, and its usual answers."""
    make_copier(server)
    with database_on(server) as made:
        account = {"user": COPIER, "password": SecretStr(PASSWORD)}
        db = Db(made.source.model_copy(update=account), made.connection, made.name)
        values = values_of(server)
        columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(values))
        literals = [
            [pairs[n % len(pairs)][0] for pairs in values.values()] for n in range(max(map(len, values.values())))
        ]
        db.run(
            f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
            "CREATE TABLE k (id VARCHAR(200), at TIME(6), n INT DEFAULT 5, v TIMESTAMP(3) NULL,"
            " PRIMARY KEY (id, at), KEY (n)) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci"
            " COMMENT 'größer'",
            "CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES t (id)"
            " ON DELETE CASCADE)",
            "CREATE VIEW seen AS SELECT * FROM k",
            "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY)",
        )
        start = db.here()
        db.run(
            *(f"INSERT INTO t VALUES ({n}, {', '.join(row)})" for n, row in enumerate(literals)),
            *(
                f"INSERT INTO k (id, at, n, v) VALUES ('{ALIKE}{n % 20}ä', '-1:00:0{n % 10}.{n // 20}00012', {n},"
                f" '2024-02-29 01:02:03.{n:03}')"
                for n in range(40)
            ),
            "UPDATE k SET id = UPPER(id) WHERE n % 3 = 0",
            "DELETE FROM k WHERE n = 4",
        )
        yield Asked(server, db, start, answers(db, start))


def answers(db: Db, start: FilePosition) -> dict[str, object]:
    """Everything that a pipeline asks of a server, by what is asked."""
    found: dict[str, object] = {}
    tables = [TableId(db.name, name) for name in ("t", "k", "child")]
    with connect(db.source) as connection:
        found["tables"] = list_tables(connection)
        found["views"] = list_views(connection)
        schemas = read_schemas(connection, dict.fromkeys(tables, CHOICES))
        found["definitions"] = schemas
        found["settled"] = read_stable_schema(connection, tables[1], CHOICES)
        before = query(connection, f"SELECT COUNT(*) FROM {db.name}.other")
        db.run("INSERT INTO other VALUES ()")
        found["sees what others write"] = query(connection, f"SELECT COUNT(*) FROM {db.name}.other") != before
        server = Server.of(connection, tables)
        found["conditions"] = ask(server, conditions.CONDITIONS | table_conditions.CONDITIONS)
        found["cascades"] = foreign_keys.cascades(server, Tables(include=("*.*",)))
        found["files"] = list(file_sizes(connection))[:1]
        found["classes"] = text_classes(connection, "utf8mb4_general_ci", ["a", "A ", "ä", "ß" * 99])
        assert abs(clock(connection) - clock(db.connection)) < 60
        uuid = server_of(connection)
        for schema in schemas.values():
            assert isinstance(schema, TableSchema)
            found |= {
                f"{what} of {schema.table.name}": answer for what, answer in of_table(db, connection, schema, uuid)
            }
    written = db.read(db.segment(start), *(one for one in schemas.values() if isinstance(one, TableSchema)))
    found |= {f"changes of {table.name}": shown(rows) for table, rows in written.tables.items()}
    return found


def of_table(db: Db, connection: Any, schema: TableSchema, uuid: str) -> Iterator[tuple[str, object]]:
    """What is asked of one table."""
    if schema.ordered:
        yield "bounds", key_bounds(connection, schema)
    estimated_rows(connection, schema), estimated_bytes(connection, schema)
    bounds: list[Key | None] = [None]
    while (following := next_boundary(connection, schema, bounds[-1], 10)) is not None:
        bounds.append(following)
    yield "boundaries", bounds
    ranges = [KeyRange(lower, upper) for lower, upper in zip(bounds, [*bounds[1:], None], strict=True)]
    reads = [read_chunk(db.source, schema, Chunk(schema.table, keys), uuid, EPOCH) for keys in ranges]
    yield "chunks", [shown(read.rows) for read in reads]
    keys = [row for read in reads for row in read.rows.select(list(schema.key)).to_pylist()]
    by_keys = rows_of(connection, schema, keys)
    assert len(by_keys) == len(keys)
    yield "rows by keys", shown(by_keys)
    yield "reads again", shown(read_rows(db.source, schema, conditions_of(schema, keys), uuid, EPOCH).rows)
    yield "members", [keys_within(connection, schema, keys, one) for one in ranges]
    yield "checksums", [range_checksums(db.source, schema, one, 7) for one in ranges]
    yield "checksums of rows", list(row_checksums(db.source, schema, EVERY_KEY, 15).items())


def shown(rows: Any) -> list[str]:
    """Rows as text: NaN equals itself, and -0.0 not 0.0."""
    return sorted(map(str, rows.to_pylist()))


@pytest.mark.newest
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.long("hundreds of values on each server, of which an end-to-end test tries those that matter")
def test_no_value_of_any_session_variable_changes_an_answer(
    asked: Asked, way: str, record_property: Callable[[str, object], None]
) -> None:
    """The list names each variable that the server has, and no value of those that are tried matters."""
    server = asked.server
    known = {name for part in LISTED for name in listed(part, server)}
    assert session_variables(server) - known == set(), "decide what to do with these: docs/session-variables.yml"
    wrong: dict[str, str] = {}
    for number in range(ROUNDS):
        for part in ("pinned", "harmless"):
            for chosen in groups(part, server, number, way):
                with imposed(server, way, chosen) as able:
                    left = sorted({name for name, _ in chosen} - {name for name, _ in able})
                said = f"{server.flavor.name} {way} {part}: not imposed: {', '.join(left)}"
                record_property("session variables", said)
                wrong |= asked.culprits(way, able)
    assert wrong == {}


@pytest.mark.newest
@pytest.mark.long("a server of its own for one line")
def test_a_value_that_no_session_can_change_is_refused_by_name(asked: Asked) -> None:
    """By a condition of preflight, or by the error with which the connection ends."""
    for setting in listed("refused", asked.server).items():
        with imposed(asked.server, "default", [setting]) as able:
            assert able == [setting]
            said = objections(asked)
        assert setting[0] in said, said


def objections(asked: Asked) -> str:
    """What preflight finds, and with which error the reading of the tables ends, if it does."""
    said = ""
    try:
        with connect(asked.db.source) as connection:
            found = ask(Server.of(connection), conditions.CONDITIONS)
            said = " ".join(one.finding for one in found if one.finding)
        answers(asked.db, asked.start)
    except LakeIngestError as error:
        said += str(error)
    return said


@pytest.mark.newest
@pytest.mark.long("starts servers of their own")
def test_what_init_connect_begins_ends_with_the_login(asked: Asked) -> None:
    """A transaction, the next transaction's properties, and what it says to a reader of the binlog."""
    begun = (
        "SET @slave_connect_state = '9-9-9', @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1;"
        " SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION WITH CONSISTENT SNAPSHOT"
    )
    with administrator(asked.server) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL init_connect = {literal(begun)}")
        try:
            assert answers(asked.db, asked.start) == asked.usual
            with connect(asked.db.source) as opened:
                before = query(opened, f"SELECT COUNT(*) FROM {asked.db.name}.k")
                asked.db.run("DELETE FROM k WHERE n = 5")
                assert query(opened, f"SELECT COUNT(*) FROM {asked.db.name}.k") != before
        finally:
            cursor.execute("SET GLOBAL init_connect = ''")


def test_a_session_that_is_not_as_it_was_pinned_is_refused_by_name(any_db: Db) -> None:
    """What a proxy does that mixes sessions, here done by hand."""
    for name, value in {"sql_select_limit": "3", "time_zone": "+05:00", "completion_type": "CHAIN"}.items():
        with connect(any_db.source) as connection:
            assert server_of(connection)
            query(connection, f"SET SESSION {name} = {value if value.isdigit() else literal(value)}")
            with pytest.raises(OperatorNeeded, match=rf"the session has {name} = '{re.escape(value)}'"):
                server_of(connection)


def test_the_list_has_exactly_the_variables_that_are_pinned() -> None:
    """Those of both servers, and those of one of them."""
    pinned = {"both": session.BOTH, "mysql": session.ON_MYSQL, "mariadb": session.ON_MARIADB}
    of_servers = {server: {pin.name for pin in pins} for server, pins in pinned.items()}
    shared = of_servers["both"]
    for server in ("mysql", "mariadb"):
        assert shared | of_servers[server] == LISTED["pinned"]["both"].keys() | LISTED["pinned"][server].keys()
