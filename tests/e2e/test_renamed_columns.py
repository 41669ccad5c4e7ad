"""Columns to which `tables.options` → `columns` → `rename` gives other names in the copy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.repair import repair
from lakeingest.commands.signal import ask
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed, SchemaChanged
from lakeingest.pipeline.events import Event, Lifted, StartedOver, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines
from tests.e2e.test_generated_columns import choose
from tests.e2e.test_left_out_columns import copied_rows, source_rows
from tests.e2e.test_schema_changes import columns as columns_of
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

RENAME = {"id": "number", "MAIL": "address", "a": "b", "b": "a", "later": "soon"}
SUITE = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: address}}
"""


class Killed(BaseException):
    """The run is killed."""


def assert_renamed(pipe: Pipe, source: str, copy: str, table: str = "t") -> None:
    """The copy has the source's rows, with these names for these columns of the source; `verify` says so, too."""
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, table))
    assert {name for name in copied.columns if not name.startswith("_")} == set(copy.split(", "))
    assert copied_rows(pipe, table, copy) == source_rows(pipe, table, source)
    pipe.assert_equal(table)


def die_at_wave(number: int) -> Callable[[Event], None]:
    """An observer that kills the run at this wave."""

    def observe(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == number:
            raise Killed

    return observe


@pytest.mark.parametrize(
    ("flavor", "metadata"),
    [(MYSQL, "FULL"), (MYSQL, "MINIMAL"), (MARIADB_11_4, "FULL"), (MARIADB_11_4, "NO_LOG")],
    ids=["MySQL", "MINIMAL", "MariaDB", "NO_LOG"],
)
@pytest.mark.long("many runs; test_random_shapes copies renamed columns in every run")
def test_a_copy_has_the_chosen_names_in_every_phase(
    pipe_on: Callable[..., Pipe],
    server_of: Callable[..., LocalServer],
    tmp_path: Path,
    flavor: Flavor,
    metadata: str,
) -> None:
    """First copy with a kill, changes, DDL, a re-snapshot, a repair, a suite, the changelog; two exchange names."""
    pipe = pipe_on(server_of(flavor, server_id="61", binlog_row_metadata=metadata))
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.t.yml").write_text(SUITE)
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(suites))})
    rows = ", ".join(f"({n}, 'mail {n}', {n * 10}, {-n}, {n})" for n in range(25))
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, Mail VARCHAR(40), a INT, b INT, v INT)",
        f"INSERT INTO t VALUES {rows}",
        "CREATE TABLE o (code VARCHAR(9), id INT, v INT, PRIMARY KEY (code, id))",
        f"INSERT INTO o VALUES {', '.join(f'({n}, {n}, {n})' for n in range(25))}",
    )
    choose(pipe, chunk_rows=10, columns={"rename": RENAME | {"code": "id"}})
    with pytest.raises(Killed):
        pipe.run(observe=die_at_wave(1))
    pipe.sql("UPDATE t SET a = 5 WHERE id IN (3, 20)", "DELETE FROM o WHERE id = 3")
    pipe.run()
    assert_renamed(pipe, "id, mail, a, b, v", "number, address, b, a, v")
    assert_renamed(pipe, "code, id, v", "id, number, v", "o")
    pipe.sql(
        "UPDATE t SET mail = 'new', v = 7 WHERE id < 3",
        "UPDATE t SET id = 90 WHERE id = 9",
        "UPDATE o SET id = 90, code = 'x' WHERE id = 9",
        "DELETE FROM t WHERE id = 8",
        "ALTER TABLE t ADD later INT NOT NULL DEFAULT 4 AFTER a, MODIFY v BIGINT, ADD w INT",
        "INSERT INTO t VALUES (91, 'm', 1, 2, 3, 4, 5)",
    )
    waves = len(pipe.seen(WaveCommitted))
    assert pipe.run().stopped == ()
    pipe.sql("ALTER TABLE t DROP w", "UPDATE t SET b = 6 WHERE id = 91")
    assert pipe.run().stopped == ()
    assert len(pipe.seen(Lifted)) == 2
    assert len(pipe.seen(WaveCommitted)) == waves
    now = ("id, mail, a, later, b, v", "number, address, b, soon, a, v")
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    assert copied.where("w IS NOT NULL").count() == 0  # `schema.dropped` keeps it
    assert copied_rows(pipe, "t", now[1]) == source_rows(pipe, "t", now[0])
    pipe.assert_equal()
    ask(pipe.config, "resnapshot", [f"{pipe.database}.{name}" for name in "to"], scope=WHOLE, wait=False)
    pipe.sql("UPDATE t SET b = 8 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert copied_rows(pipe, "t", now[1]) == source_rows(pipe, "t", now[0])
    assert_renamed(pipe, "code, id, v", "id, number, v", "o")
    pipe.unlogged("UPDATE t SET a = 9 WHERE id = 2", "DELETE FROM o WHERE id = 5")
    for result in repair(pipe.config, [f"{pipe.database}.t", f"{pipe.database}.o"], pipe.spark):
        assert result.equal, result
        assert len(result.repaired) == 1
    assert copied_rows(pipe, "t", now[1]) == source_rows(pipe, "t", now[0])
    changes = "".join(lines(pipe))
    assert '"address"' in changes
    assert '"Mail"' not in changes


def test_a_column_that_the_source_renames_keeps_its_name_only_if_the_user_says_so(pipe: Pipe) -> None:
    """Else the table stops. With the new name in `rename`, no row is read again; a dropped column is just dropped."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT)", "INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)")
    choose(pipe, columns={"rename": {"a": "x", "v": "y"}})
    pipe.run()
    fields, waves = columns_of(pipe, "t"), len(pipe.seen(WaveCommitted))
    pipe.sql("INSERT INTO t VALUES (3, 30, 3)", "ALTER TABLE t RENAME COLUMN a TO n", "INSERT INTO t VALUES (4, 40, 4)")
    for _ in range(2):
        with pytest.raises(SchemaChanged, match=r"renames \(a: x, v: y\) is gone, and n may be that column"):
            pipe.run()
    assert pipe.rows("t") == [(1, 10, 1), (2, 20, 2), (3, 30, 3)]
    choose(pipe, columns={"rename": {"n": "x", "v": "y"}})
    assert pipe.run().stopped == ()
    assert_renamed(pipe, "id, n, v", "id, x, y")
    assert columns_of(pipe, "t") == fields
    pipe.sql("ALTER TABLE t RENAME COLUMN v TO w, ADD k INT", "INSERT INTO t VALUES (5, 50, 5, 5)")
    choose(pipe, columns={"rename": {"n": "x", "v": "y", "w": "z"}})
    assert pipe.run().stopped == ()
    assert_renamed(pipe, "id, n, w, k", "id, x, z, k")
    assert columns_of(pipe, "t")["z"] == fields["y"]
    pipe.sql("ALTER TABLE t DROP n, ADD l INT", "UPDATE t SET l = 1 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert copied_rows(pipe, "t", "id, z, k, l") == source_rows(pipe, "t", "id, w, k, l")
    assert len(pipe.seen(WaveCommitted)) == waves
    assert not pipe.seen(StartedOver)


@pytest.mark.long("whole runs; a table that the source renames has them in every run")
def test_other_names_for_the_columns_of_a_copy_need_a_new_copy(pipe: Pipe) -> None:
    """A name for a column that is not there changes nothing until the column comes. Field ids stay."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    choose(pipe, columns={"rename": {"a": "x"}})
    pipe.run()
    fields = columns_of(pipe, "t")
    choose(pipe, columns={"rename": {"a": "x", "later": "y"}})
    pipe.sql("INSERT INTO t VALUES (3, 30)", "ALTER TABLE t ADD later INT", "UPDATE t SET later = 1 WHERE id = 2")
    assert pipe.run().stopped == ()
    assert_renamed(pipe, "id, a, later", "id, x, y")
    choose(pipe, columns={"rename": {"a": "z", "later": "y"}})
    pipe.sql("INSERT INTO t VALUES (4, 40, 4)")
    with pytest.raises(
        SchemaChanged, match="rename was changed: a is x in the copy, and would be z; undo that, or let"
    ):
        pipe.run()
    choose(pipe, columns={"rename": {"a": "x", "later": "y"}})
    assert pipe.run().stopped == ()
    choose(pipe, columns={"rename": {"a": "y", "later": "x"}})
    [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done", done.why
    assert_renamed(pipe, "id, a, later", "id, y, x")
    assert columns_of(pipe, "t")["y"] == fields["x"]


@pytest.mark.long("whole runs for a refusal before anything is read")
def test_foreign_keys_that_change_rows_unseen_need_the_names_of_the_source(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """A run finds the rows that they change by these columns; names of other columns are no matter."""
    pipe = pipe_on(silent)
    pipe.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1, 1), (2, 2)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
    )
    choose(pipe, columns={"rename": {"p": "parent", "v": "value"}})
    with pytest.raises(
        PreflightFailed, match=r"leaves out, hides, casts or renames p of e2e_\w+\.c; a foreign key needs it"
    ):
        pipe.run()
    choose(pipe, columns={"rename": {"v": "value"}})
    pipe.run()
    pipe.sql("DELETE FROM p WHERE id = 1")
    pipe.run()
    assert_renamed(pipe, "id, p", "id, p", "c")
    assert_renamed(pipe, "id, v", "id, value", "p")


@pytest.mark.parametrize(
    ("rename", "reason"),
    [
        ({"a": "B"}, r"a and b would both be b in the copy; correct tables\.options → columns → rename"),
        ({"a": "x", "id": "X"}, "a and id|id and a"),
        ({"a": "_lakeingest_op"}, "names that begin with _lakeingest_ are reserved"),
        ({"a": ".x"}, "begins with a dot"),
        ({"a": "x\n"}, "its name cannot be printed"),
    ],
)
def test_a_name_that_the_copy_cannot_have_is_refused(pipe: Pipe, rename: dict[str, str], reason: str) -> None:
    """By name, before anything is copied."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 2, 3)")
    if "id" in rename:
        with pytest.raises(ValueError, match="rename has x, X twice"):
            choose(pipe, columns={"rename": rename})
        return
    choose(pipe, columns={"rename": rename})
    assert [one.name for one in check(pipe.config).problems] == ["keys and types"]
    with pytest.raises(PreflightFailed, match=reason):
        pipe.run()
