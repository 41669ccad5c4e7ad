"""Tables of which `tables.options` → `rows` chooses the rows: the copy has exactly those that the source chooses."""

from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.repair import repair
from lakeingest.commands.signal import ask
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, PreflightFailed, SchemaChanged
from lakeingest.pipeline.events import Event, Lifted, StartedOver, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines
from tests.e2e.test_generated_columns import choose
from tests.e2e.test_left_out_columns import copied_rows
from tests.e2e.test_renamed_columns import Killed, die_at_wave
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

CONDITION = "v >= 10 AND (s COLLATE utf8mb4_bin <> 'out' OR s IS NULL)"


def assert_chosen(pipe: Pipe, columns: str = "id, v, s", table: str = "t", condition: str = CONDITION) -> None:
    """The copy has the rows that the source chooses by the condition; `verify` says so, too."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} WHERE {condition}")
        wanted = sorted(cursor.fetchall(), key=repr)
    assert wanted
    assert sorted(copied_rows(pipe, table, columns), key=repr) == wanted
    pipe.assert_equal(table)


MOVES = (
    "UPDATE t SET v = v - 8 WHERE id % 3 = 0",
    "UPDATE t SET v = v + 8 WHERE id % 3 = 1",
    "UPDATE t SET s = IF(s = 'out', 'in', 'out') WHERE id % 4 = 0",
    "BEGIN",  # in and out again, and the other way round
    "UPDATE t SET v = 100 WHERE id < 8",
    "UPDATE t SET v = 1 WHERE id < 4",
    "UPDATE t SET v = NULL WHERE id = 5",
    "INSERT INTO t VALUES (200, 200, 'in'), (201, 1, 'in')",
    "UPDATE t SET id = id + 100, v = 201 - v WHERE id IN (200, 201)",
    "DELETE FROM t WHERE id IN (10, 11, 300)",
    "COMMIT",
    "UPDATE t SET id = id + 1000 WHERE id IN (12, 13)",
)


def moving_at(pipe: Pipe, number: int) -> Callable[[Event], None]:
    """An observer that moves rows in and out when this wave of `t` is committed."""

    def observe(event: Event) -> None:
        if isinstance(event, WaveCommitted) and (event.table.name, event.wave) == ("t", number):
            pipe.sql(*MOVES, "UPDATE o SET v = 20 - v")

    return observe


@pytest.mark.parametrize(
    ("flavor", "metadata"),
    [(MYSQL, "FULL"), (MYSQL, "MINIMAL"), (MARIADB_11_4, "FULL"), (MARIADB_11_4, "NO_LOG")],
    ids=["MySQL", "MINIMAL", "MariaDB", "NO_LOG"],
)
@pytest.mark.long("many runs; test_random_shapes copies chosen rows in every run")
def test_a_copy_has_the_chosen_rows_in_every_phase(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor, metadata: str
) -> None:
    """First copy with moves and a kill, catch-up, DDL, a re-snapshot, a repair; also by a key that only it orders."""
    pipe = pipe_on(server_of(flavor, server_id="62", binlog_row_metadata=metadata))
    texts = ("NULL", "'in'", "'out'")
    rows = ", ".join(f"({n}, {n % 20}, {texts[n % 3]})" for n in range(60))
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, s VARCHAR(9) CHARACTER SET utf8mb4)",
        f"INSERT INTO t VALUES {rows}",
        "CREATE TABLE o (id VARCHAR(9) PRIMARY KEY, v INT, s VARCHAR(9) CHARACTER SET utf8mb4)",
        f"INSERT INTO o VALUES {rows}",
    )
    choose(pipe, chunk_rows=3, rows=CONDITION)
    [planned, _] = plan(pipe.config)
    assert any("rows: only those WHERE (`v` >= 10) AND" in text for text in planned.lossy)
    with pytest.raises(Killed):
        pipe.run(observe=die_at_wave(1))
    pipe.sql("UPDATE t SET v = 20 - v WHERE id IN (1, 2, 15, 16)")
    pipe.run(observe=moving_at(pipe, 2))
    pipe.run()
    assert_chosen(pipe)
    assert_chosen(pipe, table="o")
    pipe.sql(*MOVES[:3], "DELETE FROM t WHERE id IN (20, 21)")
    pipe.run()
    assert_chosen(pipe)
    waves = len(pipe.seen(WaveCommitted))
    pipe.sql(
        "UPDATE t SET v = 20 - v WHERE id > 40",
        "ALTER TABLE t ADD w INT NOT NULL DEFAULT 7 AFTER id, MODIFY v BIGINT",
        "INSERT INTO t VALUES (400, 1, 40, 'in'), (401, 1, 4, 'in')",
        "UPDATE t SET v = 44 - v WHERE id IN (400, 401)",
        "ALTER TABLE t RENAME COLUMN w TO x",
        "UPDATE t SET x = 9 WHERE id > 390",
    )
    assert pipe.run().stopped == ()
    assert_chosen(pipe, "id, x, v, s")
    assert len(pipe.seen(Lifted)) == 2
    assert len(pipe.seen(WaveCommitted)) == waves
    pipe.begin_file()
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    pipe.sql("UPDATE t SET v = 30 - v WHERE id < 30")
    assert pipe.run().stopped == ()
    assert_chosen(pipe, "id, x, v, s")
    pipe.unlogged(
        "UPDATE t SET v = 1 WHERE id = 400",
        "UPDATE t SET v = 50 WHERE id = 401",
        "UPDATE o SET v = 1 WHERE id = '15'",
    )
    for result in repair(pipe.config, [f"{pipe.database}.t", f"{pipe.database}.o"], pipe.spark):
        assert result.equal, result
    assert_chosen(pipe, "id, x, v, s")
    assert_chosen(pipe, table="o")
    changes = "".join(lines(pipe))
    assert '"in"' in changes
    assert '"out"' not in changes
    assert not pipe.seen(StartedOver)


def test_a_row_that_ceases_to_be_chosen_is_marked_as_any_deleted_row(pipe: Pipe) -> None:
    """With `deletes: soft`; and it comes back."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10), (2, 20), (3, 3)")
    choose(pipe, rows="v >= 10", deletes="soft", metadata=["op"])
    pipe.run()
    pipe.sql("UPDATE t SET v = 1 WHERE id = 1", "UPDATE t SET v = 30 WHERE id = 3", "UPDATE t SET v = 21 WHERE id = 2")
    pipe.run()
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    names = ("id", "v", "_lakeingest_deleted", "_lakeingest_op")
    found = sorted(tuple(row) for row in copied.select(*names).collect())
    assert [row[:3] for row in found] == [(1, 10, True), (2, 21, False), (3, 30, False)]
    assert found[2][3] != found[1][3]  # it was inserted, and the other one updated
    pipe.assert_equal()
    pipe.sql("UPDATE t SET v = 11 WHERE id = 1")
    pipe.run()
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    found = sorted(tuple(row) for row in copied.select(*names).collect())
    assert found[0][:3] == (1, 11, False)
    pipe.assert_equal()


def test_ddl_of_a_column_that_chooses_rows_stops_the_table_or_reads_all_rows_again(pipe: Pipe) -> None:
    """It stops, by name, if the condition cannot be evaluated any more; other DDL is followed."""
    condition = "v >= 10 AND s COLLATE utf8mb4_bin = 'x'"
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, s VARCHAR(9) CHARACTER SET utf8mb4)",
        "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'x '), (3, 3, 'x'), (4, 40, 'X')",
    )
    choose(pipe, rows=condition)
    pipe.run()
    assert_chosen(pipe, condition=condition)
    pipe.sql(
        "ALTER TABLE t MODIFY s VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin",
        "UPDATE t SET v = 30 WHERE id = 3",
    )
    assert pipe.run().stopped == ()
    assert_chosen(pipe, condition=condition)
    for ddl, reason in (
        ("ALTER TABLE t RENAME COLUMN v TO n", "rows: v: no such column is copied"),
        ("ALTER TABLE t CHANGE n v DOUBLE", "rows: v: double cannot be compared in a condition"),
        ("ALTER TABLE t MODIFY v INT, MODIFY s VARCHAR(9) CHARACTER SET latin1", "write `s COLLATE latin1_bin`"),
    ):
        pipe.sql(ddl, "INSERT INTO t VALUES (9, 90, 'x')", "DELETE FROM t WHERE id = 9")
        with pytest.raises((OperatorNeeded, SchemaChanged), match=reason):
            pipe.run()
    pipe.sql(
        "ALTER TABLE t MODIFY s VARCHAR(9) CHARACTER SET utf8mb4", "INSERT INTO t VALUES (10, 100, 'x'), (11, 1, 'x')"
    )
    pipe.begin_file()
    assert pipe.run().stopped == ()
    assert_chosen(pipe, condition=condition)


@pytest.mark.long("whole runs; DDL of chosen rows stops a table in every run")
def test_another_condition_stops_a_copy_until_it_is_made_again(pipe: Pipe) -> None:
    """No copy has rows of two conditions; the same one, written in another way, stops nothing."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10), (2, 20), (3, 3)")
    choose(pipe, rows="v >= 10")
    pipe.run()
    choose(pipe, rows="( v >=10)")
    pipe.sql("INSERT INTO t VALUES (4, 40)")
    assert pipe.run().stopped == ()
    choose(pipe, rows="v < 15")
    pipe.sql("UPDATE t SET v = 12 WHERE id = 4")
    with pytest.raises(SchemaChanged, match=r"DDL or tables\.options changed its definition since it was copied"):
        pipe.run()
    assert pipe.rows("t") == [(1, 10), (2, 20), (4, 40)]
    pipe.begin_file()
    [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done", done.why
    assert_chosen(pipe, "id, v", condition="v < 15")
    pipe.sql("UPDATE t SET v = 1 WHERE id = 2", "UPDATE t SET v = 99 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert_chosen(pipe, "id, v", condition="v < 15")
    choose(pipe)
    with pytest.raises(SchemaChanged):
        pipe.run()


@pytest.mark.long("whole runs for a refusal before anything is read")
def test_foreign_keys_that_change_rows_unseen_need_all_rows(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Of the child and the parent, because a run finds the changed rows by them."""
    pipe = pipe_on(silent)
    pipe.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c (id INT PRIMARY KEY, v INT, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    )
    choose(pipe, rows="v > 1")
    with pytest.raises(PreflightFailed, match=r"rows leaves out rows of e2e_\w+\.[cp]; a foreign key needs them"):
        pipe.run()


def test_a_condition_that_the_table_cannot_have_is_refused(pipe: Pipe) -> None:
    """Before anything is copied; the other tables are copied."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE)",
        "CREATE TABLE o (id INT PRIMARY KEY, v INT)",
        "INSERT INTO o VALUES (1, 1), (2, 2)",
    )
    choose(pipe, rows="v > 1")
    assert [one.name for one in check(pipe.config).problems] == ["keys and types"]
    with pytest.raises(PreflightFailed, match=r"\.t: tables\.options → rows: v: double cannot be compared"):
        pipe.run()
    assert pipe.rows("o") == [(2, 2)]
