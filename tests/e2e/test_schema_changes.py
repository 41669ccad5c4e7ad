"""A table follows the DDL of the source: its rows are lifted, and readers see columns and rows change at once."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pyarrow.parquet as pq
import pytest

from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ChangelogGone, LakeIngestError, Retryable, UnsupportedValue
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi import all_rows
from lakeingest.lake.hudi.commit import Commit
from lakeingest.pipeline.events import Event, Lifted, StartedOver, WaveCommitted
from lakeingest.spool.spool import Spool
from lakeingest.state.lease import Lease
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines, position, replayed, source
from tests.e2e.test_follow import follow_while, shown
from tests.e2e.test_signals_killed_anywhere import Dead, Mortality
from tests.faults.beside import beside
from tests.lake.shown import Poller, catalog_of
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


def columns(pipe: Pipe, table: str) -> dict[str, int]:
    """The columns that readers see, by name the field ids, which Hudi has not (`tests/lake/hudi/test_lift.py`)."""
    if pipe.config.target.format == "hudi":
        folder = pipe.config.target.folder(TableId(pipe.database, table)).path
        newest = max(folder.glob("*.parquet"), key=lambda file: file.stem.rpartition("_")[2])
        names = [name for name in pq.read_schema(newest).names if not name.startswith(("_hoodie", "_lakeingest"))]
        return dict.fromkeys(names, 0)
    with catalog_of(pipe.config.target) as catalog:
        schema = catalog.load_table(f"{pipe.database}.{table}").schema()
        return {field.name: field.field_id for field in schema.fields}


@pytest.mark.long("whole runs")
def test_a_column_that_is_added_is_null_in_old_rows(pipe: Pipe) -> None:
    """And rows on both sides of the DDL are as the source has them; the other table has all its changes."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE TABLE o (id INT PRIMARY KEY, v INT)",
        "INSERT INTO o VALUES (1, 1)",
    )
    pipe.run()
    before = columns(pipe, "t")
    pipe.sql(
        "UPDATE t SET v = 10 WHERE id = 1",
        "INSERT INTO o VALUES (2, 2)",
        "ALTER TABLE t ADD COLUMN c INT AFTER id",
        "INSERT INTO t VALUES (4, 40, 4)",
        "UPDATE t SET c = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO o VALUES (3, 3)",
    )
    with pytest.raises(Retryable, match="its definition was changed since the last run"):
        pipe.verify("t")
    assert pipe.run().stopped == ()
    assert len(pipe.seen(Lifted)) == 1
    pipe.assert_equal()
    assert pipe.rows("t") == [(1, None, 10), (2, 20, 2), (4, 40, 4)]
    assert len(pipe.rows("o")) == 3
    after = columns(pipe, "t")
    assert list(after) == ["id", "c", "v"]
    assert {name: after[name] for name in before} == before
    pipe.sql("INSERT INTO t VALUES (5, 50, 5)", "UPDATE t SET c = 1 WHERE id = 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("the same on another server", only=("MariaDB 10.11", "MariaDB 11.4"))
def test_definitions_between_several_alterations_are_followed(any_pipe: Pipe) -> None:
    """Also where a run was down for all of them, rows between two are read by the definition that was in force."""
    pipe = any_pipe
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.run()
    pipe.sql(
        "ALTER TABLE t ADD a INT FIRST",
        "INSERT INTO t VALUES (3, 3, 3)",
        "ALTER TABLE t ADD (b VARCHAR(10), c DECIMAL(10,2)), ADD INDEX (v), ALGORITHM=INPLACE",
        "INSERT INTO t VALUES (4, 4, 4, 'four', 4.5)",
        "ALTER TABLE t ADD d DATE NULL DEFAULT NULL AFTER id",
        "INSERT INTO t VALUES (5, 5, '2026-05-05', 5, 'five', 5.5)",
        "UPDATE t SET b = 'one' WHERE id = 1",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert len(pipe.seen(Lifted)) == 3
    assert list(columns(pipe, "t")) == ["a", "id", "d", "v", "b", "c"]


@pytest.mark.long("whole runs")
def test_ddl_is_followed_though_the_state_folder_was_lost(pipe: Pipe) -> None:
    """The last publish tells how the rows were defined. Nothing is copied again."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.run()
    pipe.sql("ALTER TABLE t ADD c INT DEFAULT 4 FIRST", "UPDATE t SET v = 3 WHERE id = 1")
    pipe.run()
    pipe.sql(
        "UPDATE t SET v = 5 WHERE id = 2",
        "ALTER TABLE t RENAME COLUMN c TO d, ADD e VARCHAR(5) AFTER d",
        "INSERT INTO t VALUES (9, 'e', 9, 9)",
    )
    remove(pipe.state)
    before = len(pipe.seen(WaveCommitted))
    assert pipe.run().stopped == ()
    assert len(pipe.seen(WaveCommitted)) == before
    pipe.assert_equal()


@pytest.mark.long("starts another server")
def test_a_server_without_gtids_is_followed_by_places(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """The DDL stands in the file of the copy's position."""
    pipe = pipe_on(mysql_server_with(gtid_mode="OFF", server_id="97"), chunk_rows=10)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.run()
    pipe.sql("UPDATE t SET v = 3 WHERE id = 1", "ALTER TABLE t ADD c INT DEFAULT 4", "UPDATE t SET c = 5 WHERE id = 2")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_reader_sees_new_columns_with_the_rows_that_have_them(pipe: Pipe) -> None:
    """Never before the publish, and no query fails. By its snapshot an old state can still be read."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.run()
    pipe.sql("UPDATE t SET v = 3 WHERE id = 1", "ALTER TABLE t ADD c INT", "UPDATE t SET c = 5, v = 4 WHERE id = 2")
    reader = Poller(pipe.config.target, TableId(pipe.database, "t"))
    with beside(reader.poll, 1):
        pipe.run()
        time.sleep(0.5)
    before, after = (("id", "v"), (1, 1), (2, 2)), (("id", "v", "c"), (1, 3, None), (2, 4, 5))
    assert reader.seen == [before, after]
    if pipe.config.target.format == "hudi":
        return
    with catalog_of(pipe.config.target) as catalog:
        table = catalog.load_table(f"{pipe.database}.t")
        first = next(one.snapshot_id for one in table.history() if table.scan(snapshot_id=one.snapshot_id).count())
        assert table.scan(snapshot_id=first).to_arrow().column_names == ["id", "v"]


@pytest.mark.long("whole runs")
def test_a_run_that_follows_the_source_follows_its_ddl(pipe: Pipe) -> None:
    """Round by round."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")

    def work() -> None:
        pipe.sql("INSERT INTO t VALUES (2, 2)")
        shown(pipe, "t")
        pipe.sql("ALTER TABLE t ADD c INT")  # without any row after it
        shown(pipe, "t")
        pipe.sql("INSERT INTO t VALUES (3, 3, 3)", "ALTER TABLE t ADD d INT FIRST", "UPDATE t SET d = id")
        shown(pipe, "t")

    assert follow_while(pipe, work).stopped == ()
    pipe.assert_equal()
    assert list(columns(pipe, "t")) == ["d", "id", "v", "c"]


@pytest.mark.long("whole runs")
def test_a_table_that_is_frozen_stops_at_ddl(pipe: Pipe) -> None:
    """It goes on when it may follow again, over the DDL that is in the binlog by then."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE o (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ADD c INT", "UPDATE t SET c = 2", "INSERT INTO o VALUES (1)")
    free = pipe.config
    pipe.freeze()
    for _ in range(2):
        with pytest.raises(LakeIngestError) as raised:
            pipe.run()
        assert raised.value.exit_code == 3
        assert len(pipe.rows("o")) == 1
    pipe.config = free
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@contextmanager
def mortal(pipe: Pipe, at: int) -> Iterator[Mortality]:
    """Runs within the block die at this step, also between two writes to the spool."""
    mortality, target = Mortality(at), type(open_target(pipe.config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lease, "assert_held", mortality.before(Lease.assert_held))
        for name in ("commit_merge", "mark", "lift", "publish", "start_over", "commit_wave"):
            patch.setattr(target, name, mortality.after(getattr(target, name)))
        for name in ("append", "put_table", "forget"):
            patch.setattr(Spool, name, mortality.after(getattr(Spool, name)))
        yield mortality


@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_follows_ddl_all_the_same(pipe: Pipe) -> None:
    """The next run ends as if nothing had happened, with what was spooled; rows and columns are the source's."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE o (id INT PRIMARY KEY)")
    pipe.sql("CREATE TABLE e (id INT PRIMARY KEY, v INT)", "INSERT INTO e VALUES (0, 0), (500, 5)")
    pipe.run()
    at, is_dead = 1, True
    while is_dead:
        pipe.sql(
            f"INSERT INTO t (id) VALUES ({at})",
            f"ALTER TABLE t ADD a{at} INT FIRST",
            f"UPDATE t SET a{at} = id",
            f"INSERT INTO o VALUES ({at})",
            f"UPDATE e SET v = {at}",
            "TRUNCATE e",
            f"INSERT INTO e VALUES ({at}, {at}), (500, {at})",
            f"ALTER TABLE t ADD b{at} INT",
            f"UPDATE t SET b{at} = id, v = {at} WHERE id % 2 = {at % 2}",
        )
        with mortal(pipe, at) as mortality:
            try:
                pipe.run()
            except Dead:
                assert mortality.dead
        is_dead, at = mortality.dead, at + 1
        begun = Spool.load(pipe.state / "spool")
        assert pipe.run().stopped == ()
        assert begun is not None
        pipe.assert_equal()
    assert at > 10


@pytest.mark.formats("hudi")
@pytest.mark.long("several publishes of Hudi")
def test_a_copy_that_is_too_large_for_one_process_follows_ddl(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks write its first files and those after DDL, also where the run before has died at its publish."""
    monkeypatch.setattr(all_rows, "MOST_BYTES", 0)
    monkeypatch.setattr(all_rows, "_PASS_BYTES_OF_TASKS", 1)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1)' for number in range(60))}",
    )
    assert pipe.run().stopped == ()
    pipe.sql(
        "DELETE FROM t WHERE id = 1", "ALTER TABLE t ADD c INT NOT NULL DEFAULT 7", "INSERT INTO t VALUES (70, 1, 2)"
    )
    with monkeypatch.context() as patch:
        patch.setattr(Commit, "complete", end_of_process)
        with pytest.raises(Dead):
            pipe.run()
    assert (0, 1) in pipe.rows("t")
    pipe.sql("UPDATE t SET v = NULL, c = 3 WHERE id < 9", "ALTER TABLE t DROP v, MODIFY c BIGINT")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("ALTER TABLE t ADD w INT DEFAULT (5)", "DELETE FROM t WHERE id = 2")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("UPDATE t SET w = 6 WHERE id = 3")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


def end_of_process(*_: object) -> NoReturn:
    """The run is killed."""
    raise Dead


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_renamed_columns_keep_their_field_ids(pipe: Pipe) -> None:
    """Also the key, and two that exchange their names: rows of before are found under the new names."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT)",
        "INSERT INTO t VALUES (1, 10, 100, 1000), (2, 20, 200, 2000), (3, 30, 300, 3000)",
    )
    pipe.run()
    before = columns(pipe, "t")
    pipe.sql(
        "UPDATE t SET a = 11 WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, CHANGE c d INT FIRST",
        "UPDATE t SET a = 201 WHERE id = 2",
        "ALTER TABLE t CHANGE id number INT NOT NULL",
        "DELETE FROM t WHERE number = 3",
        "INSERT INTO t (number, a, b, d) VALUES (4, 400, 40, 4000)",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert pipe.rows("t") == [(1000, 1, 11, 100), (2000, 2, 20, 201), (4000, 4, 40, 400)]
    assert columns(pipe, "t") == {"d": before["c"], "number": before["id"], "b": before["a"], "a": before["b"]}


@pytest.mark.long("whole runs")
def test_wider_types_are_followed(pipe: Pipe) -> None:
    """Rows of before stay as they are, and later ones have values that did not fit."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, i TINYINT, b INT NOT NULL, v VARCHAR(3), d DECIMAL(4,2), e ENUM('x','y'),"
        " s DATETIME)",
        "INSERT INTO t VALUES (1, 1, 1, 'abc', 1.25, 'x', '2026-01-01 01:02:03'), (2, -2, 2, NULL, -9.5, 'y', NULL)",
    )
    pipe.run()
    before = columns(pipe, "t")
    pipe.sql(
        "UPDATE t SET v = 'xyz' WHERE id = 2",
        "ALTER TABLE t MODIFY i INT, MODIFY b BIGINT NULL",
        "INSERT INTO t VALUES (3, 2000000000, 9000000000, 'abc', 1.25, 'y', '2026-01-01 01:02:03')",
        "ALTER TABLE t MODIFY v VARCHAR(300) AFTER id, MODIFY d DECIMAL(30,2), MODIFY e ENUM('x','y','z')",
        "UPDATE t SET b = NULL, v = REPEAT('w', 200), d = 123456789012345.67, e = 'z' WHERE id = 1",
        "ALTER TABLE t MODIFY s DATETIME(3)",
        "INSERT INTO t VALUES (4, '', 4, 4, 4, 'z', '2026-01-01 01:02:03.456')",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert columns(pipe, "t") == before
    pipe.sql("DELETE FROM t WHERE id = 2", "UPDATE t SET d = d + 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD c INT", "ALTER TABLE t ADD c INT DEFAULT (7)", "TRUNCATE t"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_ddl_during_the_first_copy_begins_it_again(pipe: Pipe, statement: str) -> None:
    """In the same run; the other table has its copy, and nothing of the first try is left."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1)' for number in range(500))}",
        "CREATE TABLE o (id INT PRIMARY KEY)",
        "INSERT INTO o VALUES (1)",
    )
    waves = 0

    def alter(event: Event) -> None:
        nonlocal waves
        if isinstance(event, WaveCommitted) and event.table.name == "t":
            waves += 1
            if waves == 2:
                pipe.sql("UPDATE t SET v = 2 WHERE id = 3", statement, "INSERT INTO t (id) VALUES (1000)")

    assert pipe.run(observe=alter).stopped == ()
    pipe.assert_equal()
    assert waves > 2
    assert len(pipe.rows("o")) == 1


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD c INT", "ALTER TABLE t MODIFY v INT AFTER c"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_that_was_interrupted_begins_again_after_ddl(pipe: Pipe, statement: str) -> None:
    """The next run drops what readers have not seen, also where only the order of the columns is another one."""
    pipe.sql(
        f"CREATE TABLE t (id INT PRIMARY KEY, v INT{'' if 'ADD' in statement else ', c INT'})",
        f"INSERT INTO t (id, v) VALUES {', '.join(f'({number}, 1)' for number in range(300))}",
    )

    def die(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            raise Dead

    with pytest.raises(Dead):
        pipe.run(observe=die)
    pipe.sql("UPDATE t SET v = 2 WHERE id = 3", statement, "UPDATE t SET c = 3 WHERE id = 4")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("UPDATE t SET v = 5, c = 6 WHERE id = 5")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.parametrize("dies", [False, True], ids=["in one run", "interrupted"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD c INT",
        "ALTER TABLE t ADD c INT DEFAULT (7), MODIFY v BIGINT, DROP w",
        "ALTER TABLE t RENAME COLUMN w TO x",
        "ALTER TABLE t MODIFY v INT AFTER w",
        "TRUNCATE t",
    ],
)
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_that_has_most_rows_is_compared_after_ddl(pipe: Pipe, statement: str, *, dies: bool) -> None:
    """What it has is not copied again where it is still right; what it lacks is copied."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(9))",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1, {number % 7})' for number in range(400))}",
        "UPDATE t SET w = 'wide' WHERE id % 10 = 0",
        "ANALYZE TABLE t",
    )

    def alter(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 4:
            assert not pipe.seen(StartedOver)
            pipe.sql("DELETE FROM t WHERE id = 5", "UPDATE t SET v = 2, w = '' WHERE id % 10 = 0")
            pipe.sql("UPDATE t SET id = 1000 WHERE id = 7", statement, "INSERT INTO t (id, v) VALUES (1001, 1)")
            if dies:
                raise Dead

    if dies:
        with pytest.raises(Dead):
            pipe.run(observe=alter)
    assert pipe.run(observe=None if dies else alter).stopped == ()
    pipe.assert_equal()
    assert [event.compared for event in pipe.seen(StartedOver) if isinstance(event, StartedOver)] == [True]
    pipe.sql("UPDATE t SET v = 4 WHERE id > 390", "DELETE FROM t WHERE id < 9")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_default_is_in_the_rows_that_were_there_before(pipe: Pipe) -> None:
    """Once, and exactly: a NULL or another value that a later change brings is not the default."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1)' for number in range(40))}",
    )
    pipe.run()
    pipe.sql("DELETE FROM t WHERE id = 7", "UPDATE t SET v = 5 WHERE id = 8")
    pipe.run()
    pipe.sql(
        "UPDATE t SET v = 3 WHERE id = 1",
        "ALTER TABLE t ADD i INT DEFAULT -5 AFTER id, ADD n INT NOT NULL, ADD s VARCHAR(9) NOT NULL DEFAULT 'a''b',"
        " ADD d DECIMAL(8,2) DEFAULT 1.5, ADD e ENUM('x','y') NOT NULL, ADD day DATE DEFAULT '2026-02-03',"
        " ADD at DATETIME(3) NOT NULL DEFAULT '2026-02-03 04:05:06.789', ADD f DOUBLE DEFAULT 0.1, ADD z INT",
        "UPDATE t SET i = NULL, s = '' WHERE id = 2",
        "INSERT INTO t (id, v, n) VALUES (50, 50, 5)",
        "ALTER TABLE t ADD w BIGINT UNSIGNED NOT NULL DEFAULT 18446744073709551615 FIRST",
        "UPDATE t SET w = 0 WHERE id = 3",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    pipe.sql("UPDATE t SET i = 6, w = 7 WHERE id > 20", "DELETE FROM t WHERE id < 5")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.parametrize(
    "column",
    [
        "c BINARY(3) NOT NULL",
        "c TIMESTAMP NOT NULL DEFAULT '2026-01-01 00:00:00'",
        "c BIT(1) NOT NULL",
    ],
)
@pytest.mark.long("variants of an end-to-end case that every run has")
def test_rows_are_read_again_for_a_default_that_is_not_known_exactly(pipe: Pipe, column: str) -> None:
    """Rather than be guessed."""
    pipe.sql("SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (2)", f"ALTER TABLE t ADD {column}", "SET sql_mode = DEFAULT")
    assert pipe.run().stopped == ()
    assert len(pipe.seen(StartedOver)) == 1
    pipe.assert_equal()


@pytest.mark.parametrize("column", ["c TIME DEFAULT '01:02:03'", "c YEAR DEFAULT 2026"])
@pytest.mark.long("variants of an end-to-end case that every run has")
def test_a_default_that_the_server_tells_in_its_own_type_is_lifted(pipe: Pipe, column: str) -> None:
    """No row is read again."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (2)", f"ALTER TABLE t ADD {column}", "INSERT INTO t (id) VALUES (3)")
    assert pipe.run().stopped == ()
    assert (len(pipe.seen(Lifted)), pipe.seen(StartedOver)) == (1, [])
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_table_whose_rows_cannot_be_read_after_ddl_stops_as_of_before_it(pipe: Pipe) -> None:
    """The implicit default is a zero date, which the lake cannot have; once there is none it goes on."""
    pipe.sql("SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (2)", "ALTER TABLE t ADD c DATE NOT NULL")
    for _ in range(2):
        with pytest.raises(UnsupportedValue):
            pipe.run()
        assert pipe.rows("t") == [(1,), (2,)]
    pipe.sql("SET sql_log_bin = 0", "UPDATE t SET c = '2026-01-01'", "SET sql_log_bin = 1", "SET sql_mode = DEFAULT")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_a_column_that_is_dropped_is_null_from_then_on(pipe: Pipe) -> None:
    """Its queries go on; older snapshots have its values. A new column of its name takes its place."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b INT)", "INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)"
    )
    pipe.run()
    before = columns(pipe, "t")
    pipe.sql("UPDATE t SET a = 11 WHERE id = 1", "ALTER TABLE t DROP a", "INSERT INTO t VALUES (3, 300)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert pipe.rows("t") == [(1, 100, None), (2, 200, None), (3, 300, None)]
    after = columns(pipe, "t")
    assert list(after) == ["id", "b", "a"]
    assert (after["id"], after["b"]) == (before["id"], before["b"])
    assert after["a"] not in before.values()
    pipe.sql("UPDATE t SET b = 301 WHERE id = 3", "ALTER TABLE t ADD c INT", "UPDATE t SET c = 5 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == [(1, 100, 5, None), (2, 200, None, None), (3, 301, None, None)]
    pipe.sql("ALTER TABLE t ADD a VARCHAR(9) DEFAULT 'new', DROP b", "UPDATE t SET a = 'old' WHERE id = 2")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert list(columns(pipe, "t")) == ["id", "c", "a", "b"]
    assert columns(pipe, "t")["a"] != after["a"]
    pipe.sql("ALTER TABLE t DROP c, ADD c INT", "UPDATE t SET c = 6 WHERE id = 2")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("the same on another server", only=("MariaDB 10.11", "MariaDB 11.4"))
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_table_that_is_emptied_has_the_rows_that_come_after_that(any_pipe: Pipe) -> None:
    """None is read again; readers see the old rows until the publish, and then those of the source."""
    pipe = any_pipe
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    pipe.run()
    copied = len(pipe.seen(WaveCommitted))
    pipe.sql(
        "UPDATE t SET v = 10 WHERE id = 1",
        "TRUNCATE t",
        "INSERT INTO t VALUES (2, 20), (4, 40)",
        "ALTER TABLE t ADD c INT DEFAULT 5",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (3, 30, 300), (5, 50, 500)",
        "UPDATE t SET v = 51 WHERE id = 5",
    )
    poller = Poller(pipe.config.target, TableId(pipe.database, "t"))
    with beside(poller.poll, 1):
        assert pipe.run().stopped == ()
    poller.look()
    assert poller.seen == [
        (("id", "v"), (1, 1), (2, 2), (3, 3)),
        (("id", "v", "c"), (3, 30, 300), (5, 51, 500)),
    ]
    pipe.assert_equal()
    pipe.sql("TRUNCATE t")
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == []
    pipe.sql("INSERT INTO t VALUES (3, 31, 301)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert len(pipe.seen(WaveCommitted)) == copied
    assert not pipe.seen(StartedOver)


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_column_that_is_dropped_goes_from_the_copy_if_that_is_asked_for(pipe: Pipe) -> None:
    """Readers see it gone with the publish; also where rows are read again. One that was dropped before stays."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b INT, c INT)",
        "INSERT INTO t VALUES (1, 10, 100, 7), (2, 20, 200, 7)",
    )
    pipe.run()
    pipe.sql("ALTER TABLE t DROP c")
    assert pipe.run().stopped == ()
    pipe.config = pipe.config.model_copy(update={"schema_changes": SchemaChanges(dropped="drop")})
    pipe.sql("UPDATE t SET a = 11", "ALTER TABLE t DROP a, ADD d INT DEFAULT 5", "INSERT INTO t VALUES (3, 300, 6)")
    poller = Poller(pipe.config.target, TableId(pipe.database, "t"))
    with beside(poller.poll, 1):
        assert pipe.run().stopped == ()
    poller.look()
    before = (("id", "a", "b", "c"), (1, 10, 100, None), (2, 20, 200, None))
    after = (("id", "b", "d", "c"), (1, 100, 5, None), (2, 200, 5, None), (3, 300, 6, None))
    assert poller.seen == [before, after]
    pipe.assert_equal()
    pipe.sql("ALTER TABLE t DROP d, MODIFY b VARCHAR(9)", "INSERT INTO t VALUES (4, 'x')")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert pipe.rows("t") == [(1, "100"), (2, "200"), (3, "300"), (4, "x")]
    pipe.sql("ALTER TABLE t ADD a INT", "UPDATE t SET a = id", "ALTER TABLE t DROP b")
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE t MODIFY v VARCHAR(20)", "ALTER TABLE t ADD c INT DEFAULT (v + 1)", "ALTER TABLE t MODIFY v TINYINT"],
)
@pytest.mark.long(
    "another statement of the same kind", only=("ALTER TABLE t MODIFY v VARCHAR(20)", "ALTER TABLE t MODIFY v TINYINT")
)
def test_readers_keep_rows_and_columns_while_a_table_is_read_again_after_ddl(pipe: Pipe, statement: str) -> None:
    """Until all of it is read and has passed its gates."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, 1)' for number in range(30))}",
    )
    pipe.run()
    before = columns(pipe, "t")
    pipe.sql("UPDATE t SET v = 2", "ALTER TABLE t ADD a INT", statement, "UPDATE t SET v = 3 WHERE id = 1")
    reader = Poller(pipe.config.target, TableId(pipe.database, "t"))
    with beside(reader.poll, 1):
        assert pipe.run().stopped == ()
        time.sleep(0.5)
    pipe.assert_equal()
    assert {one[0] for one in reader.seen} <= {tuple(before), (*before, "a"), tuple(columns(pipe, "t"))}
    assert all(len(one) == 31 for one in reader.seen)  # the columns, and thirty rows
    pipe.sql("INSERT INTO t (id, v) VALUES (100, 100)", "ALTER TABLE t ADD w INT FIRST")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_the_changelog_begins_anew_after_ddl_that_no_copy_follows(pipe: Pipe) -> None:
    """From its beginning a reader gets the table with its columns of now; from before the DDL it cannot go on."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, '1'), (2, '2')")
    pipe.run()
    pipe.sql("UPDATE t SET v = '3' WHERE id = 1")
    pipe.run()
    before = lines(pipe)
    assert replayed(before) == source(pipe)
    pipe.sql("UPDATE t SET v = '4' WHERE id = 1", "ALTER TABLE t MODIFY v INT", "INSERT INTO t VALUES (5, 5)")
    pipe.run()
    with pytest.raises(ChangelogGone):
        lines(pipe, since=position(before[-1]))
    after = lines(pipe)
    assert replayed(after) == source(pipe)
    pipe.sql("DELETE FROM t WHERE id = 2")
    pipe.run()
    later = lines(pipe, since=position(after[-1]))
    assert [json.loads(line)["op"] for line in later] == ["-D"]
    assert replayed(lines(pipe)) == source(pipe)
