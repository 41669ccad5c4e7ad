"""Tables of other shapes: odd names, odd columns, other keys than a primary one, very wide and very long rows."""

import re
from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed
from lakeingest.mysql.key_choice import ADD_KEY
from lakeingest.pipeline.events import Merged
from tests.e2e.pipe import Pipe
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

MADE = ("made", "virtual_key")
ODD = ("a.b", "a`b", "it's", 'say "x"', "select", "❤ ü %s", "1/2#?&=;\\")


def copied_and_changed(pipe: Pipe, *changes: str) -> None:
    """Bootstrap, changes through the binlog, and source = target after each."""
    pipe.run()
    pipe.assert_equal()
    pipe.sql(*changes)
    pipe.run()
    assert pipe.seen(Merged)
    pipe.assert_equal()


def quoted(name: str) -> str:
    """An identifier of MySQL's."""
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.long("many tables")
def test_tables_and_columns_with_odd_names(any_pipe: Pipe) -> None:
    """Dots, quotes, reserved words, signs that mean something in a path or a URI: as names of tables, keys, columns."""
    pipe = any_pipe
    for name in ODD:
        columns = ", ".join(f"{quoted(f'{name}{n}')} VARCHAR(9)" for n in range(2))
        pipe.sql(
            f"CREATE TABLE {quoted(name)} ({quoted(name)} INT PRIMARY KEY, {columns})",
            f"INSERT INTO {quoted(name)} VALUES {', '.join(f'({n}, {n}, NULL)' for n in range(25))}",
        )
    changes = [
        statement
        for name in ODD
        for statement in (
            f"UPDATE {quoted(name)} SET {quoted(name + '1')} = 'new' WHERE {quoted(name)} < 5",
            f"DELETE FROM {quoted(name)} WHERE {quoted(name)} > 20",
        )
    ]
    copied_and_changed(pipe, *changes)


@pytest.mark.long("whole runs")
def test_a_database_with_an_odd_name(pipe: Pipe) -> None:
    """Its dot is none between database and table."""
    if pipe.config.target.catalog.type in {"glue", "hive"}:
        pytest.skip("a catalog that has only names of a-z, 0-9 and _")
    database = f"{pipe.database}.x`y"
    tables = pipe.config.tables.model_copy(update={"include": (f"{pipe.database}?x?y.*",)})
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    pipe.sql(
        f"CREATE DATABASE {quoted(database)}",
        f"CREATE TABLE {quoted(database)}.`t.u` (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {quoted(database)}.`t.u` VALUES (1, 1), (2, 2)",
    )
    try:
        copied_and_changed(pipe, f"UPDATE {quoted(database)}.`t.u` SET v = 3 WHERE id = 2")
        rows = shown(pipe.spark, pipe.config.target, TableId(database, "t.u")).collect()
        assert sorted(map(tuple, rows)) == [(1, 1), (2, 3)]
    finally:
        pipe.sql(f"DROP DATABASE {quoted(database)}")


@pytest.mark.parametrize("key", ["INT", "VARCHAR(9)"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_columns_may_be_named_as_ours_in_a_comparison(pipe: Pipe, key: str) -> None:
    """Equal tables are equal, and the row that is not is named, by keys of either order."""
    names = ("number", "lower0", "upper0", "left", "right", "key0", "count")
    columns = ", ".join(f"`{name}` INT" for name in names)
    rows = ", ".join(str((n, *[n * n] * len(names))) for n in range(25))
    pipe.sql(f"CREATE TABLE t (id {key} PRIMARY KEY, {columns})", f"INSERT INTO t VALUES {rows}")
    copied_and_changed(pipe, "UPDATE t SET number = 7, lower0 = 3, key0 = NULL WHERE id < 5")
    pipe.unlogged("UPDATE t SET number = 0 WHERE id = 9")
    assert [tuple(map(str, one.key)) for one in pipe.verify("t")["t"].differences] == [("9",)]


@pytest.mark.long("whole runs")
def test_tables_without_a_primary_key(pipe: Pipe) -> None:
    """A unique key of NOT NULL columns does as well, and so do columns that the user names."""
    pipe.sql(
        "CREATE TABLE by_index (a VARCHAR(9) NOT NULL, b INT NOT NULL, v INT, UNIQUE KEY (b, a))",
        "CREATE TABLE by_word (a VARCHAR(9), b INT, v INT)",
        *(f"INSERT INTO {name} VALUES ('x', 1, 1), ('X', 2, 2), ('y', 1, 3)" for name in ("by_index", "by_word")),
    )
    assert "by_word: it has neither a primary key" in str([one.finding for one in check(pipe.config).problems])
    declare(pipe, "by_word", "a", "b")
    plans = {one.table.name: one for one in plan(pipe.config)}
    assert plans["by_index"].key == ("b", "a")
    assert "(yours: no index keeps it unique)" in plans["by_word"].key_path
    copied_and_changed(
        pipe,
        *(f"UPDATE {name} SET v = 9, a = 'z' WHERE b = 2" for name in ("by_index", "by_word")),
        *(f"DELETE FROM {name} WHERE v = 3" for name in ("by_index", "by_word")),
    )


@pytest.mark.parametrize(("row", "reason"), [("('x', 1, 7)", "is not unique"), ("('y', NULL, 7)", "is NULL in a row")])
def test_a_declared_key_that_is_none_is_refused(pipe: Pipe, row: str, reason: str) -> None:
    """Before anything is copied, with the table and the way out; what differs by bytes is not the same."""
    pipe.sql("CREATE TABLE t (a VARCHAR(9), b INT, v INT)", "INSERT INTO t VALUES ('x', 1, 1), ('X', 1, 2)")
    declare(pipe, "t", "a", "b")
    assert check(pipe.config).ok
    pipe.sql(f"INSERT INTO t VALUES {row}")
    with pytest.raises(PreflightFailed, match=rf"\.t: the key \(a, b\) {reason}.*tables\.options → key"):
        pipe.run()


def declare(pipe: Pipe, table: str, *key: str) -> None:
    """Let the config name a key for a table."""
    options = {f"*.{table}": pipe.config.tables.options["*.*"].model_copy(update={"key": key})}
    tables = pipe.config.tables.model_copy(update={"options": pipe.config.tables.options | options})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_generated_and_invisible_columns(any_pipe: Pipe) -> None:
    """Whether they are stored or not, whatever they are made of, and as keys."""
    any_pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, s VARCHAR(20), kept INT AS (n * 2) STORED, j JSON,"
        " virt VARCHAR(40) AS (CONCAT(s, '-', n)) VIRTUAL, hidden INT INVISIBLE DEFAULT 7,"
        " path VARCHAR(20) AS (JSON_UNQUOTE(JSON_EXTRACT(j, '$.a'))) VIRTUAL, KEY (virt))",
        "CREATE TABLE made (n INT, v INT, k VARCHAR(20) AS (CONCAT('k', n)) STORED, UNIQUE KEY (k))",
        "INSERT INTO t (id, n, s, j) VALUES (1, 1, 'a', '{\"a\": 1}'), (2, NULL, 'b', NULL), (3, 3, NULL, '{}')",
        f"INSERT INTO made (n, v) VALUES {', '.join(f'({n}, {n})' for n in range(25))}",
    )
    declare(any_pipe, "made", "k")
    copied_and_changed(
        any_pipe,
        "UPDATE t SET n = 10 WHERE id < 3",
        "UPDATE t SET s = 'new', hidden = 8, j = '{\"a\": \"x\"}' WHERE id = 3",
        "INSERT INTO t (id, n, s, hidden) VALUES (4, 4, 'four', NULL)",
        "UPDATE made SET n = n + 100 WHERE v % 3 = 0",
        "DELETE FROM made WHERE v % 5 = 1",
    )


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_keys_and_indexes_that_only_mysql_makes(pipe: Pipe) -> None:
    """Of generated columns, hidden ones, and expressions, whose hidden columns are none of the table's."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, j JSON, KEY ((n + 1)), KEY ((CAST(j->>'$.a' AS CHAR(9)))))",
        "CREATE TABLE made (n INT, v INT, k VARCHAR(20) AS (CONCAT('k', n)) STORED PRIMARY KEY)",
        "CREATE TABLE virtual_key (n INT, v INT, k VARCHAR(20) AS (CONCAT('k', n)) VIRTUAL NOT NULL UNIQUE)",
        "SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE auto_key (v INT)",
        "SET sql_generate_invisible_primary_key = OFF",
        "INSERT INTO t VALUES (1, 1, '{\"a\": 1}'), (2, NULL, NULL), (3, 3, '{}')",
        *(f"INSERT INTO {name} (n, v) VALUES {', '.join(f'({n}, {n})' for n in range(25))}" for name in MADE),
        "INSERT INTO auto_key VALUES (1), (2), (3)",
    )
    copied_and_changed(
        pipe,
        'UPDATE t SET n = 10, j = \'{"a": "x"}\' WHERE id < 3',
        *(f"UPDATE {name} SET n = n + 100 WHERE v % 3 = 0" for name in MADE),
        *(f"DELETE FROM {name} WHERE v % 5 = 1" for name in MADE),
        "UPDATE auto_key SET v = 9 WHERE v = 2",
        "DELETE FROM auto_key WHERE v = 1",
    )
    assert pipe.rows("auto_key") == [(2, 9), (3, 3)]


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_a_table_without_a_key_is_copied_with_the_key_that_the_error_names(any_pipe: Pipe) -> None:
    """Equal rows are told apart by it, and applications need not know of it."""
    any_pipe.sql("CREATE TABLE t (a INT, b INT)", f"INSERT INTO t VALUES {', '.join(['(1, NULL), (2, 2)'] * 12)}")
    with pytest.raises(PreflightFailed, match=re.escape(f"ALTER TABLE … {ADD_KEY}")):
        any_pipe.run()
    any_pipe.sql(f"ALTER TABLE t {ADD_KEY}")
    copied_and_changed(
        any_pipe,
        "INSERT INTO t VALUES (1, NULL), (3, 3)",
        "DELETE FROM t WHERE a = 1 ORDER BY row_id LIMIT 5",
        "UPDATE t SET b = 7 WHERE a = 2 ORDER BY row_id DESC LIMIT 3",
    )
    rows = [row[:2] for row in any_pipe.rows("t")]
    assert [rows.count(row) for row in ((1, None), (2, 2), (2, 7), (3, 3))] == [8, 9, 3, 1]


@pytest.mark.long("whole runs")
def test_a_table_in_partitions(pipe: Pipe) -> None:
    """It is one table to whoever reads it, whatever partition its rows move to."""
    parts = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({10 * n})" for n in range(1, 5))
    pipe.sql(
        f"CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) ({parts})",
        f"INSERT INTO t VALUES {', '.join(f'({n}, {n})' for n in range(30))}",
    )
    copied_and_changed(pipe, "UPDATE t SET id = id + 30 WHERE id < 5", "DELETE FROM t WHERE id > 25 AND id < 30")


@pytest.mark.long("a thousand columns")
def test_a_thousand_columns(pipe: Pipe) -> None:
    """Of which rows fill as much as MySQL has room for; and a row of its 65,535 bytes."""
    columns = ", ".join(f"c{n} VARCHAR(4) CHARACTER SET latin1" for n in range(1000))
    texts = [chr(97 + n % 26) * 4 for n in range(1000)]
    pipe.sql(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t VALUES (1, {', '.join(map(repr, texts))})",
        "INSERT INTO t (id, c999) VALUES (2, 'last')",
        "CREATE TABLE long_rows (id INT PRIMARY KEY, a VARCHAR(32700) CHARACTER SET latin1, b VARBINARY(32700))",
        "INSERT INTO long_rows VALUES (1, REPEAT('a', 32700), REPEAT(x'00ff', 16350)), (2, '', x'')",
    )
    pipe.run()
    pipe.sql(
        "UPDATE t SET c0 = NULL, c500 = 'é' WHERE id = 1",
        "UPDATE long_rows SET a = REPEAT('é', 32700), b = NULL WHERE id = 1",
        "INSERT INTO t (id) VALUES (3)",
        "INSERT INTO long_rows VALUES (3, NULL, REPEAT(x'00ff', 16350))",
    )
    pipe.run()
    none = [None] * 1000
    assert pipe.rows("t") == [
        (1, None, *texts[1:500], "é", *texts[501:]),
        (2, *none[:-1], "last"),
        (3, *none),
    ]
    assert pipe.rows("long_rows") == [(1, "é" * 32_700, None), (2, "", b""), (3, None, b"\0\xff" * 16_350)]


@pytest.mark.long("copies and merges values of 100 MB")
def test_values_of_a_hundred_megabytes(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """A LONGBLOB and a LONGTEXT, through a chunk and through the binlog."""
    server = mysql_server_with(max_allowed_packet="1073741824", server_id="77")
    pipe = pipe_on(server)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB, s LONGTEXT)",
        f"INSERT INTO t VALUES (1, REPEAT(x'00ff10', {(100 << 20) // 3}), 'small'), (2, NULL, REPEAT('é', {50 << 20}))",
    )
    more = "INSERT INTO t VALUES (3, REPEAT('x', 99999999), '')"
    pipe.run()
    pipe.sql("UPDATE t SET s = 'new' WHERE id = 1", more)
    pipe.run()
    large, small = b"\0\xff\x10" * ((100 << 20) // 3), "é" * (50 << 20)
    wanted = [(1, large, "new"), (2, None, small), (3, b"x" * 99_999_999, "")]
    assert all(one == other for one, other in zip(pipe.rows("t"), wanted, strict=True))
