"""Rows of events that do not name their columns are those of events that do: on every server, for every type."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lakeingest.core.tables.schema import Choices, TableSchema
from lakeingest.demo.flavor import MARIADB_11_8, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import SchemaChanged
from tests.mysql.database import Db, Read, database_on
from tests.mysql.values import values_of

pytestmark = pytest.mark.mysql

SETTINGS = ("FULL", "MINIMAL", "NO_LOG")


@pytest.fixture(params=[MYSQL, MARIADB_11_8], ids=["MySQL", "MariaDB"])
def flavor(request: pytest.FixtureRequest) -> Flavor:
    """MySQL, and a MariaDB with all its types."""
    found: Flavor = request.param
    return found


@pytest.fixture
def server(flavor: Flavor, server_of: Callable[..., LocalServer]) -> LocalServer:
    """A server whose settings may be changed."""
    return server_of(flavor, server_id="58")


@pytest.fixture
def db(server: LocalServer) -> Iterator[Db]:
    """A database there; the setting is FULL again at the end."""
    with database_on(server) as database:
        yield database
        database.run("SET GLOBAL binlog_row_metadata = FULL")


def settings_of(flavor: Flavor) -> tuple[str, ...]:
    """The settings of the server, FULL first."""
    return SETTINGS if flavor.is_mariadb else SETTINGS[:2]


def written(db: Db, schema: TableSchema, setting: str, *statements: str) -> Read:
    """What the binlog has of statements under a setting."""
    db.run(f"SET GLOBAL binlog_row_metadata = {setting}")
    start = db.here()
    db.run(*statements)
    return db.read(db.segment(start), schema)


def rows(read: Read, schema: TableSchema) -> list[tuple[object, ...]]:
    """The halves, with all columns; floats by their text, because -0.0 equals 0.0."""
    halves = read.halves(schema.table, *schema.names)
    return [tuple(repr(value) if isinstance(value, float) else value for value in half) for half in halves]


@pytest.mark.long("takes seconds")
def test_every_type_is_read_without_names(db: Db, flavor: Flavor, server: LocalServer) -> None:
    """Each value of each type is the same with every setting, as are NULLs."""
    for number, (type_, values) in enumerate(values_of(server).items()):
        null = "" if "NULL" in type_ else " NULL"
        table = db.table(f"t{number}", f"a TINYINT UNSIGNED, id INT PRIMARY KEY, v {type_}{null}, b TEXT")
        inserts = [f"INSERT INTO t{number} VALUES (200, {n}, {one}, 'ä')" for n, (one, _) in enumerate(values)]
        change_all = (f"UPDATE t{number} SET v = NULL", f"DELETE FROM t{number}")
        found = [
            rows(written(db, table, setting, "SET sql_mode = ''", *inserts, *change_all), table)
            for setting in settings_of(flavor)
        ]
        assert len(found[0]) == 4 * len(values)
        assert all(one == found[0] for one in found), type_


@pytest.mark.parametrize("charset", ["latin1", "gbk", "utf8mb3", "utf16"])
def test_texts_of_any_charset_are_read_without_names(db: Db, flavor: Flavor, charset: str) -> None:
    """Texts and members in any charset are the same with every setting, beside binary columns."""
    of = f"CHARACTER SET {charset}"
    texts = f"c CHAR(9) {of}, v VARCHAR(300) {of}, x TEXT {of}, e ENUM('é','y') {of}, s SET('é','y') {of}"
    table = db.table("t", f"id INT PRIMARY KEY, b VARBINARY(9), {texts}, j JSON")
    row = "INSERT INTO t VALUES (1, x'FFE9', 'é', 'éé', 'é', 'é', 'y,é', '{\"é\": 1}')"
    found = [rows(written(db, table, setting, row, "DELETE FROM t"), table) for setting in settings_of(flavor)]
    assert found[0][0][4] == "é"
    assert all(one == found[0] for one in found)


def test_a_column_that_is_left_out_keeps_its_place(db: Db, flavor: Flavor) -> None:
    """Columns beside generated ones that are left out are read from their own places."""
    db.table("t", "a INT, g INT AS (a + 1) VIRTUAL, id INT PRIMARY KEY, h INT AS (a + 2) STORED, b INT")
    table = db.schema("t", Choices(generated="skip"))
    assert (table.names, table.skipped) == (("a", "id", "b"), ("g", "h"))
    changes = ("INSERT INTO t (a, id, b) VALUES (1, 2, 3)", "UPDATE t SET b = 4", "DELETE FROM t")
    found = [rows(written(db, table, setting, *changes), table) for setting in settings_of(flavor)]
    assert [half[2:] for half in found[0]] == [(1, 2, 3), (1, 2, 3), (1, 2, 4), (1, 2, 4)]
    assert all(one == found[0] for one in found)


def test_the_setting_may_change_within_a_segment(db: Db, flavor: Flavor) -> None:
    """Each event is read as it was written, whatever the setting was before and after it."""
    table = db.table("t", "id INT PRIMARY KEY, e ENUM('x','y'), v VARCHAR(9) CHARACTER SET latin1")
    start = db.here()
    settings = settings_of(flavor) * 3
    for number, setting in enumerate(settings):
        db.run(f"SET GLOBAL binlog_row_metadata = {setting}", f"INSERT INTO t VALUES ({number}, 'y', 'é{number}')")
    read = db.read(db.segment(start), table)
    assert sorted(half[2:] for half in rows(read, table)) == [(n, "y", f"é{n}") for n in range(len(settings))]


@pytest.mark.parametrize(
    "now",
    [
        "id INT PRIMARY KEY, v INT, e ENUM('x')",  # fewer
        "id INT PRIMARY KEY, v INT, e ENUM('x'), t VARCHAR(9), more INT",
        "id INT PRIMARY KEY, v SMALLINT, e ENUM('x'), t VARCHAR(9)",  # of one kind in the lake
        "id INT PRIMARY KEY, v INT, e SET('x'), t VARCHAR(9)",
        "id INT PRIMARY KEY, v INT, e ENUM('x'), t TINYTEXT",
        "id INT PRIMARY KEY, v INT, t VARCHAR(9), e ENUM('x')",
    ],
)
def test_another_number_or_type_of_columns_is_a_change(db: Db, flavor: Flavor, now: str) -> None:
    """A definition that the binlog contradicts stops the table, with every setting."""
    table = db.table("t", "id INT PRIMARY KEY, v INT, e ENUM('x'), t VARCHAR(9)")
    db.run("DROP TABLE t", f"CREATE TABLE t ({now})")
    for number, setting in enumerate(settings_of(flavor)[1:]):
        with pytest.raises(SchemaChanged, match="copy the table again"):
            written(db, table, setting, f"INSERT INTO t (id) VALUES ({number})")


@pytest.mark.parametrize("now", ["v INT UNSIGNED, t TEXT", "v INT, t TEXT CHARACTER SET latin1"])
def test_what_minimal_metadata_say_is_compared(db: Db, now: str) -> None:
    """Another sign or charset than that of the definition stops the table."""
    table = db.table("t", "id INT PRIMARY KEY, v INT, t TEXT")
    db.run("DROP TABLE t", f"CREATE TABLE t (id INT PRIMARY KEY, {now})")
    with pytest.raises(SchemaChanged, match="copy the table again"):
        written(db, table, "MINIMAL", "INSERT INTO t VALUES (1, 1, 'a')")


def test_a_layout_that_is_not_known_stops_the_table(db: Db, flavor: Flavor) -> None:
    """Where a definition of an earlier version lacks what the binlog does not say, nothing is guessed."""
    db.table("t", "a INT, g INT AS (a + 1) STORED, id INT PRIMARY KEY, t TEXT")
    known = db.schema("t", Choices(generated="skip"))
    assert rows(written(db, known, "MINIMAL", "INSERT INTO t (id, t) VALUES (1, 'ä')"), known)[0][4] == "ä"
    for number, setting in enumerate(settings_of(flavor)[1:], start=2):
        with pytest.raises(SchemaChanged, match="it is not known which of them are left out"):
            written(db, known.laid_out(), setting, f"INSERT INTO t (id, t) VALUES ({number}, 'ä')")
    if flavor.is_mariadb:
        blank = replace(known.laid_out(), stored=known.stored)
        with pytest.raises(SchemaChanged, match="the charset of t is not known"):
            written(db, blank, "NO_LOG", "INSERT INTO t (id, t) VALUES (9, 'ä')")


def test_members_that_the_server_may_not_show_stop_the_table(db: Db) -> None:
    """A member beyond the basic plane is shown as a question mark, so that is never taken for the text."""
    table = db.table("t", "id INT PRIMARY KEY, e ENUM('😀','b')")
    read = written(db, table, "FULL", "INSERT INTO t VALUES (1, '😀')")
    assert rows(read, table)[0][3] == "😀"
    with pytest.raises(SchemaChanged, match="may not show them exactly"):
        written(db, table, "MINIMAL", "INSERT INTO t VALUES (2, '😀')")
