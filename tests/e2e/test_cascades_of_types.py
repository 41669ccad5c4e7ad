"""Foreign keys of any type whose changes the source does not log, and sources without GTIDs: each copy is exact."""

import itertools
from collections.abc import Callable, Collection

import pytest

from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.errors import SplitUnstable
from lakeingest.pipeline.events import RowsReread, StartedOver
from tests.e2e.pipe import Pipe
from tests.e2e.test_cascades_read import at_wave, compared, family, reread
from tests.e2e.test_state import WITHOUT_GTIDS

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

KINDS: dict[str, tuple[str, list[str], Callable[[str], str]]] = {
    # the type, values of parents, and the same ones as the child may write them
    "CHAR(36)": ("CHAR(36)", [f"'{n}e8400-e29b-41d4-a716-44665544000{n}'" for n in range(1, 6)], str.upper),
    "VARCHAR_ci": (
        "VARCHAR(20) COLLATE utf8mb4_unicode_ci",
        ["'one'", "'Two '", "'stra\u00dfe'", "'four\u00a0'", "'\u00e4'"],
        lambda text: text.upper().replace("'ONE'", "'oNe  '").replace("\u00a0'", " '"),
    ),
    "latin1": (
        "CHAR(9) CHARACTER SET latin1 COLLATE latin1_german2_ci",
        ["'a'", "'\u00e4'", "'c'", "'\u00df'", "'e'"],
        str.upper,
    ),
    "BINARY(16)": ("BINARY(16)", [f"x'{n:030x}00'" for n in range(1, 6)], str),
    "DATE": ("DATE", [f"'0{n}01-02-0{n}'" for n in range(1, 6)], str),
    "DATETIME": ("DATETIME(3)", [f"'0{n}01-02-0{n} 01:02:03.4{n}'" for n in range(1, 6)], str),
    "TIMESTAMP": (
        "TIMESTAMP(6)",
        [f"'20{n}1-02-01 01:02:03.00000{n}'" for n in range(3)] + ["'1999-01-01'", "'2001-01-01'"],
        str,
    ),
    "TIME": ("TIME(2)", [f"'-{n}01:02:0{n}.5'" for n in range(1, 6)], str),
    "YEAR": ("YEAR", ["0", "1901", "1970", "2000", "2155"], str),
    "DECIMAL": ("DECIMAL(30, 3)", [f"-{n}00000000000000000000.12{n}" for n in range(1, 6)], str),
    "BIT": ("BIT(12)", [f"b'1000000{n:03b}'" for n in range(1, 6)], str),
    "UUID": ("UUID", [f"'{n}e8400aa-e29b-41d4-a716-44665544000{n}'" for n in range(1, 6)], str.upper),
    "INET6": ("INET6", [f"'fe80::{n}'" for n in range(1, 6)], str.upper),
    "ENUM": ("ENUM('a', 'b', 'c', 'd', 'e')", ["'a'", "'b'", "'c'", "'d'", "'e'"], str.upper),
}
QUICK = {"CHAR(36)", "VARCHAR_ci", "ENUM"}
NEVER_COMPARED = {"ENUM"}


def kinds(*left_out: str, quick: Collection[str] = QUICK) -> list[object]:
    """The types of keys, most of them in the long lane."""
    variant = pytest.mark.long("a variant of a case that every run has")
    return [
        pytest.param(kind, id=kind, marks=[] if kind in quick else variant) for kind in KINDS if kind not in left_out
    ]


def typed_family(pipe: Pipe, kind: str) -> list[str]:
    """Parents, children and grandchildren that refer by values of this type; the values."""
    type_, values, written = KINDS[kind]
    pipe.sql(
        f"CREATE TABLE tops (k {type_} PRIMARY KEY, v INT)",
        f"CREATE TABLE kids (n INT, k {type_}, o {type_}, v INT, PRIMARY KEY (k, n), UNIQUE (n), UNIQUE (n, k),"
        " FOREIGN KEY (k) REFERENCES tops (k) ON DELETE CASCADE ON UPDATE CASCADE,"
        " FOREIGN KEY (o) REFERENCES tops (k) ON DELETE SET NULL ON UPDATE SET NULL)",
        f"CREATE TABLE tips (id INT PRIMARY KEY, n INT, k {type_}, v INT,"
        " FOREIGN KEY (n, k) REFERENCES kids (n, k) ON DELETE SET NULL ON UPDATE CASCADE)",
        *(f"INSERT INTO tops VALUES ({value}, 0)" for value in values[:4]),
    )
    for n, (first, other) in enumerate(itertools.permutations(values[:4], 2)):
        pipe.sql(f"INSERT INTO kids VALUES ({n}, {written(first)}, {written(other)}, 0)")
        pipe.sql(f"INSERT INTO tips VALUES ({n}, {n}, {first}, 0)")
    return values


def change_typed(pipe: Pipe, values: list[str]) -> None:
    """Rows go, forget and follow; logged changes come on top."""
    pipe.sql(
        f"DELETE FROM tops WHERE k = {values[0]}",
        f"UPDATE tops SET k = {values[4]} WHERE k = {values[1]}",
        "UPDATE kids SET v = 7 WHERE n = 6",
        f"INSERT INTO kids VALUES (100, {values[4]}, {values[2]}, 3)",
        f"INSERT INTO tips VALUES (100, 100, {values[4]}, 3)",
    )


def assert_follows(pipe: Pipe, kind: str) -> None:
    """Copies are exact after changes of the parents, and what was read for that is what had to be."""
    values = typed_family(pipe, kind)
    pipe.run()
    pipe.assert_equal()
    change_typed(pipe, values)
    pipe.run()
    pipe.assert_equal()
    assert (reread(pipe), compared(pipe)) == ({"kids", "tips"}, 2 if kind in NEVER_COMPARED else 0)
    if "CHAR" in kind:  # other letters, which are the same value to the source
        pipe.sql("UPDATE tops SET k = UPPER(k)")
        pipe.run()
        pipe.assert_equal()
    before = len(pipe.events)
    pipe.sql("UPDATE kids SET v = 9", f"INSERT INTO tops VALUES ({values[0]}, 0)")
    pipe.run()
    pipe.assert_equal()
    assert not [one for one in pipe.events[before:] if isinstance(one, RowsReread | StartedOver)]


@pytest.mark.formats
@pytest.mark.parametrize("kind", kinds("UUID", "INET6"))
@pytest.mark.long("another type of key", only=("CHAR(36)", "ENUM"))
@pytest.mark.long("the same for other types")
def test_keys_of_any_type_are_followed(pipe_on: Callable[..., Pipe], silent: LocalServer, kind: str) -> None:
    """Where the server finds other texts equal, too. Of a type that is not compared all rows are."""
    assert_follows(pipe_on(silent), kind)


@pytest.mark.parametrize("kind", kinds(quick={"VARCHAR_ci"}))
@pytest.mark.long("the same on another server")
def test_keys_of_any_type_on_mariadb(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], kind: str
) -> None:
    """Keys of types that only MariaDB has are followed, too."""
    assert_follows(pipe_on(server_of(MARIADB_11_4)), kind)


@pytest.fixture
def without_gtids(mysql_server_with: Callable[..., LocalServer]) -> LocalServer:
    """A server that has no GTIDs, and does not log what foreign keys change."""
    return mysql_server_with(server_id="97", innodb_native_foreign_keys="ON", **WITHOUT_GTIDS)


@pytest.mark.any_format
@pytest.mark.parametrize("kind", ["CHAR(36)", "ENUM"])
@pytest.mark.long("starts a server with other settings")
def test_without_gtids_children_wait_for_the_next_binlog_file(
    pipe_on: Callable[..., Pipe], without_gtids: LocalServer, kind: str
) -> None:
    """Only from the next file on a read is known to have what foreign keys changed; other tables go on."""
    pipe = pipe_on(without_gtids)
    values = typed_family(pipe, kind)
    pipe.sql("FLUSH BINARY LOGS")
    pipe.run()
    pipe.assert_equal()
    change_typed(pipe, values)
    for _ in range(2):
        with pytest.raises(SplitUnstable, match="a read certainly contains these changes only after"):
            pipe.run()
        pipe.sql("UPDATE kids SET v = v + 1")
        assert len(pipe.rows("tops")) == 3
        assert len(pipe.rows("kids")) == 12
    before = compared(pipe)
    pipe.sql("FLUSH BINARY LOGS")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("UPDATE kids SET v = 9", f"INSERT INTO tops VALUES ({values[0]}, 0)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert (reread(pipe), compared(pipe) - before) == ({"kids", "tips"}, 2 if kind in NEVER_COMPARED else 0)


@pytest.mark.any_format
@pytest.mark.long("starts a server with other settings")
def test_without_gtids_children_wait_after_ddl_of_a_parent_too(
    pipe_on: Callable[..., Pipe], without_gtids: LocalServer
) -> None:
    """Whichever table the DDL is of, and whether rows or all of them are to be read: a run ends, and says so."""
    pipe = pipe_on(without_gtids, chunk_rows=5)
    family(pipe)
    pipe.sql("FLUSH BINARY LOGS")
    pipe.run()
    for table, statement in (("parents", "ADD c INT"), ("parents", "ADD d INT DEFAULT (7)"), ("going", "ADD c INT")):
        pipe.sql(f"ALTER TABLE {table} {statement}", "DELETE FROM parents ORDER BY id DESC LIMIT 1")
        with pytest.raises(SplitUnstable):
            pipe.run()
        pipe.sql("FLUSH BINARY LOGS")
        assert pipe.run().stopped == ()
        pipe.assert_equal()


@pytest.mark.any_format
@pytest.mark.long("starts a server with other settings")
def test_without_gtids_parents_may_change_while_tables_are_copied(
    pipe_on: Callable[..., Pipe], without_gtids: LocalServer
) -> None:
    """The copy is published once the next binlog file has begun, at whatever moment that is."""
    pipe = pipe_on(without_gtids, chunk_rows=5)
    family(pipe)
    changes = ["DELETE FROM parents WHERE id = 1", "UPDATE parents SET id = 6, code = 60 WHERE id = 2"]
    changes += ["UPDATE grands SET v = 5 WHERE id > 200", "FLUSH BINARY LOGS", "UPDATE going SET v = 3 WHERE id > 10"]
    pipe.run(observe=at_wave("grands", 1, lambda: pipe.sql(*changes)))
    pipe.assert_equal()
    pipe.sql("DELETE FROM parents WHERE id = 3")
    with pytest.raises(SplitUnstable):
        pipe.run()
    pipe.sql("FLUSH BINARY LOGS", "UPDATE going SET v = 4")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_children_of_values_that_the_copy_loses_are_compared(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Any update of a parent may have touched them, if the rules care for updates; so may any delete."""
    pipe = pipe_on(silent, types={"zero_dates": None})
    pipe.sql(
        "SET sql_mode = ''",
        "CREATE TABLE tops (id INT PRIMARY KEY, d DATE UNIQUE, x DOUBLE UNIQUE, v INT)",
        "CREATE TABLE days (id INT PRIMARY KEY, d DATE, FOREIGN KEY (d) REFERENCES tops (d) ON DELETE CASCADE)",
        "CREATE TABLE reals (id INT PRIMARY KEY, x DOUBLE, FOREIGN KEY (x) REFERENCES tops (x) ON UPDATE CASCADE)",
        "INSERT INTO tops VALUES (1, 0, 1.5, 0), (2, '2001-01-01', -0e0, 0), (3, '2002-01-01', 2.5, 0)",
        "INSERT INTO days VALUES (1, 0), (2, '2001-01-01')",
        "INSERT INTO reals VALUES (1, 0), (3, 2.5)",
    )
    pipe.run()
    pipe.assert_equal()
    pipe.sql("UPDATE tops SET x = 3.5, v = 1 WHERE id = 3")
    pipe.run()
    pipe.assert_equal()
    assert {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)} == {"reals"}
    before = compared(pipe)
    pipe.sql("DELETE FROM tops WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
    assert [row[0] for row in pipe.rows("days")] == [2]
    assert compared(pipe) == before + 1
