"""Columns that `tables.options` → `columns` leaves out: no value of theirs leaves the source's readers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.signal import ask
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed, SchemaChanged
from lakeingest.pipeline.events import Lifted, StartedOver, WaveCommitted
from lakeingest.pipeline.joining import recopying
from lakeingest.pipeline.joining.known_names import assert_names_known
from lakeingest.pipeline.run.table_run import TableRun
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines
from tests.e2e.test_erasure import texts
from tests.e2e.test_generated_columns import choose
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

SECRET, KNOWN = "canary-that-is-left-out", "canary-that-is-copied"
PEOPLE = "CREATE TABLE people (ssn VARCHAR(60), id INT PRIMARY KEY, name VARCHAR(60), secret BLOB, v INT)"
SUITE = """
expectations:
  - {type: expect_column_values_to_not_match_regex, kwargs: {column: name, regex: canary}, severity: warning}
"""


def source_rows(pipe: Pipe, table: str, columns: str) -> list[tuple[object, ...]]:
    """These columns of the source's rows, sorted."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table}")
        return sorted(cursor.fetchall())


def assert_same(pipe: Pipe, columns: str, table: str = "t") -> None:
    """The copy has these columns of the source and no others, with the source's rows; `verify` says so, too."""
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, table))
    assert {name for name in copied.columns if not name.startswith("_")} == set(columns.split(", "))
    assert copied_rows(pipe, table, columns) == source_rows(pipe, table, columns)
    pipe.assert_equal(table)


def copied_rows(pipe: Pipe, table: str, columns: str) -> list[tuple[object, ...]]:
    """These columns of the rows that readers of the lake see, sorted."""
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, table))
    return sorted(tuple(row) for row in copied.select(*columns.split(", ")).collect())


def holding(pipe: Pipe, canary: str) -> set[str]:
    """The files of the lake and of the state that hold this text."""
    # other tests share the warehouse
    folders: Sequence[Path] = (pipe.config.target.warehouse.path / pipe.database, pipe.config.state.path)
    return {path.name for folder in folders for path, text in texts(folder) if canary in text}


@pytest.mark.local
@pytest.mark.long("searches all files; test_random_shapes leaves columns out in every run")
def test_no_file_has_a_value_of_a_column_that_is_left_out(any_pipe: Pipe, tmp_path: Path) -> None:
    """Of chunks, changes, DDL, rows that are read again, samples of gates, and the changelog."""
    pipe = any_pipe
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.people.yml").write_text(SUITE)
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(suites))})
    rows = ", ".join(f"('{SECRET}{n}', {n}, '{KNOWN}{n}', '{SECRET}', {n})" for n in range(25))
    pipe.sql(PEOPLE, f"INSERT INTO people VALUES {rows}")
    choose(pipe, chunk_rows=10, columns={"exclude": ["SSN", "secret", "later"]})
    [planned] = plan(pipe.config)
    assert planned.lossy == ("ssn: left out", "secret: left out")
    pipe.run()
    assert_same(pipe, "id, name, v", "people")
    pipe.sql(
        f"UPDATE people SET ssn = '{SECRET}', v = 7 WHERE id < 5",
        f"UPDATE people SET ssn = 'only this {SECRET}' WHERE id = 6",
        "UPDATE people SET id = 90 WHERE id = 9",
        "DELETE FROM people WHERE id = 8",
        f"ALTER TABLE people ADD later VARCHAR(60) NOT NULL DEFAULT '{SECRET}' AFTER id, ADD w INT",
        f"INSERT INTO people VALUES ('{SECRET}', 91, '{SECRET}', '{KNOWN}', '{SECRET}', 1, 2)",
        "ALTER TABLE people DROP ssn",
        f'ALTER TABLE people MODIFY later VARCHAR(70) NOT NULL DEFAULT "{SECRET}"',
        "UPDATE people SET w = 3 WHERE id = 91",
    )
    pipe.run()
    assert_same(pipe, "id, name, v, w", "people")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.people"], scope=WHOLE, wait=False)
    pipe.run()
    assert_same(pipe, "id, name, v, w", "people")
    assert not pipe.seen(StartedOver)
    changes = lines(pipe, "people")
    assert any(KNOWN in str(line) for line in changes)
    assert not any(SECRET in str(line) for line in changes)
    assert {Path(name).suffix for name in holding(pipe, KNOWN)} >= {".parquet", ".html"}
    assert holding(pipe, SECRET) == set()


def no_row_was_read_again(pipe: Pipe, waves: int) -> bool:
    """Whether the copy has followed all DDL, since it had so many waves."""
    return len(pipe.seen(WaveCommitted)) == waves and not pipe.seen(StartedOver)


@pytest.mark.parametrize(
    ("flavor", "metadata"),
    [(MYSQL, "FULL"), (MYSQL, "MINIMAL"), (MARIADB_11_4, "FULL"), (MARIADB_11_4, "NO_LOG")],
    ids=["MySQL", "MINIMAL", "MariaDB", "NO_LOG"],
)
@pytest.mark.long("whole runs; test_random_shapes draws such DDL in every run")
def test_ddl_of_a_column_that_is_left_out_is_followed(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor, metadata: str
) -> None:
    """It is added, defined anew, moved beside another change, renamed and dropped, with rows between all statements."""
    pipe = pipe_on(server_of(flavor, server_id="59", binlog_row_metadata=metadata))
    choose(pipe, columns={"exclude": ["s", "s2", "s3"]})
    pipe.sql("CREATE TABLE t (s INT, id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    pipe.sql(
        "INSERT INTO t VALUES (3, 3, 3)",
        "ALTER TABLE t MODIFY s VARCHAR(20)",
        "INSERT INTO t VALUES ('four', 4, 4)",
        "ALTER TABLE t ADD s2 INT FIRST, ADD w INT AFTER s2",
        "INSERT INTO t VALUES (5, 5, 'five', 5, 5)",
        "ALTER TABLE t RENAME COLUMN s TO s3, MODIFY v BIGINT FIRST",
        "UPDATE t SET s3 = 'six', w = 60 WHERE id = 1",
        "ALTER TABLE t DROP s2, RENAME COLUMN v TO x",
        "INSERT INTO t VALUES (7, 70, 'seven', 7)",
    )
    assert pipe.run().stopped == ()
    assert_same(pipe, "x, w, id")
    assert len(pipe.seen(Lifted)) == 4
    pipe.sql("ALTER TABLE t DROP s3", "INSERT INTO t VALUES (8, 80, 8)", "DELETE FROM t WHERE id = 2")
    assert pipe.run().stopped == ()
    assert_same(pipe, "x, w, id")
    assert no_row_was_read_again(pipe, waves)


def test_a_column_that_is_renamed_while_its_table_begins_again_stays_left_out(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definition that was checked is the one by which rows are read again, and none that the source has later."""
    choose(pipe, columns={"exclude": ["s"]})
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, s INT, v INT)", "INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)")
    pipe.run()
    pipe.sql("ALTER TABLE t MODIFY id BIGINT", "INSERT INTO t VALUES (3, 30, 3)")

    def check_then_rename(table: TableRun, current: TableSchema) -> None:
        assert_names_known(table, current)
        monkeypatch.undo()  # the column is renamed once
        pipe.sql("ALTER TABLE t RENAME COLUMN s TO n")

    monkeypatch.setattr(recopying, "assert_names_known", check_then_rename)
    with pytest.raises(SchemaChanged, match="n may be that column under another name"):
        pipe.run()
    assert "n" not in shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t")).columns


def test_a_column_that_is_copied_from_now_on_gets_its_values(pipe: Pipe) -> None:
    """By a new name, but only if a person says so. A column that gets the name of one left out is NULL in the copy."""
    choose(pipe, columns={"exclude": ["s"]})
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, s INT, v INT)", "INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (3, 30, 3)", "ALTER TABLE t RENAME COLUMN s TO n", "INSERT INTO t VALUES (4, 40, 4)")
    with pytest.raises(SchemaChanged, match="n may be that column under another name"):
        pipe.run()
    assert "n" not in shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t")).columns
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    assert pipe.run().stopped == ()
    assert_same(pipe, "id, n, v")
    pipe.sql("ALTER TABLE t RENAME COLUMN v TO s", "INSERT INTO t VALUES (5, 50, 5)", "UPDATE t SET s = 9 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert copied_rows(pipe, "t", "id, n") == source_rows(pipe, "t", "id, n")
    assert {v for (v,) in copied_rows(pipe, "t", "v")} == {None}  # `schema.dropped` keeps the column
    pipe.assert_equal()


@pytest.mark.long("whole runs; DDL of columns that are left out has them in every run")
def test_another_choice_stops_a_copy_until_it_is_made_again(pipe: Pipe) -> None:
    """No copy has rows of two choices; a choice that changes no column stops nothing."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, s INT, v INT)",
        "INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)",
        "CREATE TABLE o (id INT PRIMARY KEY, v INT)",
        "INSERT INTO o VALUES (1, 1)",
    )
    pipe.run()
    choose(pipe, columns={"exclude": ["s"]})
    pipe.sql("INSERT INTO t VALUES (3, 30, 3)", "INSERT INTO o VALUES (2, 2)")
    with pytest.raises(SchemaChanged, match=r"DDL or tables\.options changed its definition since it was copied"):
        pipe.run()
    assert len(pipe.rows("t")) == 2
    assert_same(pipe, "id, v", "o")
    [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done", done.why
    assert copied_rows(pipe, "t", "id, v") == source_rows(pipe, "t", "id, v")
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    assert "s" not in copied.columns or copied.where("s IS NOT NULL").count() == 0
    pipe.assert_equal()
    choose(pipe, columns={"include": ["id", "V"]})
    pipe.sql("UPDATE t SET v = 5 WHERE id = 1")
    pipe.run()
    pipe.sql("ALTER TABLE t ADD w INT", "INSERT INTO t VALUES (6, 6, 6, 6)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"exclude": ["ID"]}, r"\.t: tables\.options → columns leaves out or hides id, a column of its key; copy it"),
        ({"include": ["v"]}, r"\.t: tables\.options → columns leaves out or hides id, a column of its key; copy it"),
    ],
)
def test_the_key_cannot_be_left_out(pipe: Pipe, columns: dict[str, list[str]], reason: str) -> None:
    """Another unique index does not become the key by itself; the user can name it."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL UNIQUE, w INT)", "INSERT INTO t VALUES (1, 2, 3)")
    choose(pipe, columns=columns)
    assert [one.name for one in check(pipe.config).problems] == ["keys and types"]
    with pytest.raises(PreflightFailed, match=reason):
        pipe.run()
    choose(pipe, columns=columns, key=["v"])
    names = "v" if "include" in columns else "v, w"
    pipe.run()
    assert_same(pipe, names)


def test_names_that_are_no_columns_are_a_warning(pipe: Pipe) -> None:
    """A typo would copy what is to be left out."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, ssn INT)", "CREATE TABLE o (id INT PRIMARY KEY, mail INT)")
    choose(pipe, columns={"exclude": ["snn", "mail"]})
    checked = check(pipe.config)
    assert checked.ok
    [warning] = [one.finding for one in checked.warnings if one.name == "names of columns"]
    assert f"names columns that are not there: snn ({pipe.database}.o, {pipe.database}.t)" in str(warning)


@pytest.mark.long("whole runs for a refusal before anything is read")
def test_columns_of_foreign_keys_that_change_rows_unseen_are_refused(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """A run finds the rows that they change by these columns."""
    pipe = pipe_on(silent)
    pipe.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    )
    choose(pipe, columns={"exclude": ["p"]})
    with pytest.raises(
        PreflightFailed, match=r"leaves out, hides, casts or renames p of e2e_\w+\.c; a foreign key needs it"
    ):
        pipe.run()


@pytest.mark.parametrize(
    ("flavor", "type_", "value"),
    [
        (MYSQL, "ENUM('a', 'b') CHARACTER SET binary", "'b'"),
        (MARIADB_11_4, "VARCHAR(500) COMPRESSED", "REPEAT('x', 500)"),
        (MARIADB_11_4, "TEXT COMPRESSED", "REPEAT('x', 5000)"),
    ],
    ids=["bytes", "varchar", "text"],
)
@pytest.mark.long("another type of the same kind", only=("text",))
@pytest.mark.long("another type of the same kind", only=("varchar",))
def test_a_type_that_cannot_be_copied_is_no_reason_if_it_is_left_out(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor, type_: str, value: str
) -> None:
    """The rest of the table is copied, and its changes are read past such values."""
    pipe = pipe_on(server_of(flavor))
    pipe.sql(
        f"CREATE TABLE t (id INT PRIMARY KEY, odd {type_}, v VARCHAR(9))",
        f"INSERT INTO t VALUES (1, {value}, 'a'), (2, NULL, 'b')",
    )
    assert not check(pipe.config).ok
    choose(pipe, columns={"exclude": ["odd"]})
    pipe.run()
    assert_same(pipe, "id, v")
    pipe.sql(f"INSERT INTO t VALUES (3, {value}, 'c')", f"UPDATE t SET odd = {value}, v = 'd' WHERE id < 3")
    pipe.run()
    assert_same(pipe, "id, v")
