"""Changes by foreign keys that the source does not log are read again, and each copy is exact."""

import contextlib
import random
import re
from collections.abc import Callable

import pymysql
import pytest

from lakeingest.demo.flavor import MARIADB_11_4, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import SplitUnstable
from lakeingest.pipeline.events import Event, Merged, RowsReread, StartedOver, WaveCommitted
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown
from tests.e2e.test_schema_changes import mortal
from tests.e2e.test_signals_killed_anywhere import Dead

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


def family(pipe: Pipe) -> None:
    """A parent, children that go with it or forget it or follow it, and grandchildren."""
    pipe.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY, code INT UNIQUE, v INT)",
        "CREATE TABLE going (id INT PRIMARY KEY, p INT, v INT,"
        " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE forgetting (id INT PRIMARY KEY, c INT, v INT,"
        " FOREIGN KEY (c) REFERENCES parents (code) ON DELETE SET NULL ON UPDATE SET NULL)",
        "CREATE TABLE grands (id INT PRIMARY KEY, g INT, v INT,"
        " FOREIGN KEY (g) REFERENCES going (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO parents VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0), (4, 40, 0)",
        "INSERT INTO going SELECT 10 * a.id + b.id, a.id, 0 FROM parents a, parents b",
        "INSERT INTO forgetting SELECT 10 * a.id + b.id, a.code, 0 FROM parents a, parents b",
        "INSERT INTO grands SELECT 10 * g.id + p.id, g.id, 0 FROM going g, parents p WHERE p.id < 3",
    )


def compared(pipe: Pipe) -> int:
    """How often all rows of a table were compared."""
    return len(pipe.seen(StartedOver))


def reread(pipe: Pipe) -> set[str]:
    """The tables of which rows were read again."""
    return {one.table.name for one in pipe.seen(RowsReread) if isinstance(one, RowsReread)}


@pytest.mark.formats
@pytest.mark.long("publishes of both formats", only=("hudi",))
def test_children_and_their_children_are_as_the_source_has_them(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """Rows that go, forget or follow; later logged changes of the same rows come on top. Nothing else is read."""
    pipe = pipe_on(silent)
    family(pipe)
    pipe.run()
    pipe.assert_equal()
    pipe.sql(
        "DELETE FROM parents WHERE id = 1",
        "UPDATE parents SET id = 5, code = 50 WHERE id = 2",
        "UPDATE going SET v = 7 WHERE id = 21",
        "INSERT INTO going VALUES (11, 3, 8)",
        "UPDATE forgetting SET c = 40, v = 9 WHERE id = 12",
        "INSERT INTO grands VALUES (111, 11, 3)",
    )
    pipe.run()
    pipe.assert_equal()
    assert (reread(pipe), compared(pipe)) == ({"going", "forgetting", "grands"}, 0)
    before = len(pipe.seen(RowsReread))
    pipe.sql("UPDATE parents SET v = 1", "INSERT INTO parents VALUES (9, 90, 0)", "UPDATE going SET v = 6")
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(RowsReread)) == before


def at_wave(table: str, number: int, work: Callable[[], object]) -> Callable[[Event], None]:
    """Work to be done when a wave of the table's first copy was committed."""

    def watch(event: Event) -> None:
        if isinstance(event, WaveCommitted) and (event.table.name, event.wave) == (table, number):
            work()

    return watch


@pytest.mark.formats
@pytest.mark.long("starts a server with other settings")
def test_parents_that_change_while_tables_are_copied(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """After the chunks of their children were read; of grandchildren all rows are compared then."""
    pipe = pipe_on(silent, chunk_rows=5)
    family(pipe)
    changes = ["DELETE FROM parents WHERE id = 1", "UPDATE parents SET id = 6, code = 60 WHERE id = 2"]
    changes += ["UPDATE grands SET v = 5 WHERE id > 200", "UPDATE going SET v = 3 WHERE id > 10"]
    pipe.run(observe=at_wave("grands", 1, lambda: pipe.sql(*changes)))
    pipe.assert_equal()
    assert compared(pipe) == 1
    pipe.sql("DELETE FROM parents WHERE id = 3")
    pipe.run()
    pipe.assert_equal()
    assert compared(pipe) == 1


@pytest.mark.formats
@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_is_exact_afterwards(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Every third step is tried; what readers see is always as of its position."""
    pipe, at, is_dead = pipe_on(silent), 1, True
    family(pipe)
    pipe.run()
    while is_dead:
        pipe.sql(
            f"INSERT INTO parents VALUES ({100 + at}, {1000 + at}, 0), ({200 + at}, {2000 + at}, 0)",
            f"INSERT INTO going VALUES ({1000 + at}, {100 + at}, 0), ({2000 + at}, {200 + at}, 0)",
            f"INSERT INTO grands VALUES ({1000 + at}, {1000 + at}, 0), ({2000 + at}, {2000 + at}, 0)",
            f"INSERT INTO forgetting VALUES ({1000 + at}, {1000 + at}, 0), ({2000 + at}, {2000 + at}, 0)",
        )
        pipe.run()
        pipe.sql(
            f"DELETE FROM parents WHERE id = {100 + at}",
            f"UPDATE parents SET id = {300 + at}, code = {3000 + at} WHERE id = {200 + at}",
            f"INSERT INTO going VALUES ({1000 + at}, 3, 1)",
        )
        with mortal(pipe, at) as mortality:
            try:
                pipe.run()
            except Dead:
                assert mortality.dead
        is_dead, at = mortality.dead, at + 3
        pipe.sql(f"UPDATE going SET v = {at} WHERE id > 2000", "UPDATE parents SET v = 2")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
    assert at > 12


TREE = (
    "CREATE TABLE nodes (id INT PRIMARY KEY, up INT, v INT, FOREIGN KEY (up) REFERENCES nodes (id) ON DELETE CASCADE)",
    "INSERT INTO nodes VALUES (1, NULL, 0), (2, 1, 0), (3, 2, 0), (4, 3, 0), (5, NULL, 0), (6, 5, 0)",
    "CREATE TABLE tenants (id INT UNSIGNED PRIMARY KEY)",
    "CREATE TABLE docs (tenant INT UNSIGNED, id BIGINT UNSIGNED, v INT, PRIMARY KEY (tenant, id),"
    " FOREIGN KEY (tenant) REFERENCES tenants (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE pages (tenant INT UNSIGNED, doc BIGINT UNSIGNED, number SMALLINT, v INT,"
    " PRIMARY KEY (tenant, doc, number),"
    " FOREIGN KEY (tenant, doc) REFERENCES docs (tenant, id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "INSERT INTO tenants VALUES (1), (2), (3)",
    "INSERT INTO docs SELECT a.id, 18446744073709551600 + b.id, 0 FROM tenants a, tenants b",
    "INSERT INTO pages SELECT d.tenant, d.id, n.id, 0 FROM docs d, nodes n WHERE n.id < 4",
)


@pytest.mark.formats
@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.long("starts a server with other settings")
def test_keys_that_follow_and_rows_that_refer_to_their_own_table(
    pipe_on: Callable[..., Pipe], silent: LocalServer, deletes: str
) -> None:
    """Composite keys of which a part follows the parent's, in two steps; trees; deleted rows may stay, marked."""
    pipe = pipe_on(silent, deletes=deletes)
    pipe.sql(*TREE)
    pipe.run()
    pipe.sql(
        "DELETE FROM nodes WHERE id = 1",
        "INSERT INTO nodes VALUES (3, 5, 1)",
        "UPDATE tenants SET id = 7 WHERE id = 1",
        "UPDATE pages SET v = 1 WHERE tenant = 7 AND number = 2",
        "UPDATE tenants SET id = 8 WHERE id = 7",
        "DELETE FROM tenants WHERE id = 2",
    )
    pipe.run()
    pipe.assert_equal()
    pipe.sql("DELETE FROM docs WHERE tenant = 8 LIMIT 1", "DELETE FROM nodes WHERE id = 5", "DELETE FROM tenants")
    pipe.run()
    pipe.assert_equal()
    assert compared(pipe) == 0


@pytest.mark.any_format
@pytest.mark.long("starts a server with other settings")
def test_rows_whose_keys_move_past_the_chunks_that_are_read(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """They follow a key of their parent to where the copy has read already, so that no chunk has them."""
    pipe = pipe_on(silent, chunk_rows=1)
    pipe.sql(*TREE)
    pipe.run(observe=at_wave("docs", 1, lambda: pipe.sql("UPDATE tenants SET id = 0 WHERE id = 3")))
    assert {row[0] for row in pipe.rows("docs")} == {0, 1, 2}
    pipe.assert_equal()


def dml(chance: random.Random) -> str:
    """A random change of one of the tables of `family`, which may fail."""
    one, two, three = (chance.randrange(1, 7) for _ in range(3))
    return chance.choice(
        [
            f"DELETE FROM parents WHERE id = {one}",
            f"UPDATE parents SET id = {one} WHERE id = {two}",
            f"UPDATE parents SET code = {10 * one} WHERE id = {two}",
            f"INSERT INTO parents VALUES ({one}, {10 * two}, {three})",
            f"INSERT INTO going VALUES ({10 * one + two}, {three}, 1)",
            f"UPDATE going SET p = {one} WHERE id = {10 * two + three}",
            f"UPDATE going SET id = {10 * one + two} WHERE id = {10 * two + three}",
            f"DELETE FROM going WHERE p = {one} AND id % 2",
            f"INSERT INTO forgetting VALUES ({10 * one + two}, {10 * three}, 1)",
            f"UPDATE forgetting SET c = {10 * one}, v = v + 1 WHERE id % 7 = {two}",
            f"REPLACE INTO grands VALUES ({100 * one + two}, {10 * one + three}, {two})",
            f"UPDATE grands SET g = {10 * one + two} WHERE id % 5 = {three}",
        ]
    )


@pytest.mark.formats
@pytest.mark.parametrize("seed", [0])
@pytest.mark.long("a run for each of many batches")
def test_random_changes_leave_no_difference(pipe_on: Callable[..., Pipe], silent: LocalServer, seed: int) -> None:
    """Batches of random changes of three levels of tables, also while rows are read again; a run after each."""
    pipe, chance = pipe_on(silent), random.Random(seed)
    family(pipe)
    pipe.run()

    def batch(size: int) -> None:
        for _ in range(size):
            with contextlib.suppress(pymysql.err.Error):
                pipe.sql(dml(chance))

    def meanwhile(event: Event) -> None:
        if isinstance(event, RowsReread | Merged) and chance.random() < 0.3:
            batch(3)

    for _ in range(8):
        batch(chance.randrange(1, 20))
        assert pipe.run(observe=meanwhile).stopped == ()
        pipe.run()
        pipe.assert_equal()
    assert compared(pipe) == 0


@pytest.mark.parametrize("flavor", [MARIADB_11_4], ids=lambda flavor: flavor.name)
@pytest.mark.long("several catch-ups of parents and children")
def test_a_source_that_never_logs_them(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor
) -> None:
    """MariaDB, whose read views know their place in the binlog."""
    pipe = pipe_on(server_of(flavor))
    family(pipe)
    pipe.run()
    pipe.sql(
        "DELETE FROM parents WHERE id = 1",
        "UPDATE parents SET id = 5, code = 50 WHERE id = 2",
        "INSERT INTO going VALUES (11, 3, 8)",
    )
    pipe.run()
    pipe.assert_equal()
    assert (reread(pipe), compared(pipe)) == ({"going", "forgetting", "grands"}, 0)


@pytest.mark.formats
@pytest.mark.long("several catch-ups of parents and children")
def test_a_time_in_which_the_source_did_not_log_them(mortal: Mortal, pipe_on: Callable[..., Pipe]) -> None:
    """Its setting was another one between two runs, as after an upgrade from 8.4: row events show that."""
    pipe = pipe_on(mortal.server)
    family(pipe)
    pipe.run()
    pipe.sql("DELETE FROM parents WHERE id = 3")
    mortal.die()
    pipe.connection = mortal.rise("--innodb_native_foreign_keys=ON")
    pipe.sql(f"USE {pipe.database}", "DELETE FROM parents WHERE id = 1", "UPDATE parents SET code = 60 WHERE id = 2")
    mortal.die()
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}", "INSERT INTO parents VALUES (9, 90, 0)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert compared(pipe) == 3
    for _ in range(2):
        pipe.sql("DELETE FROM parents WHERE id IN (4, 9)")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
    pipe.events.clear()
    pipe.sql("INSERT INTO parents VALUES (4, 40, 0)")
    pipe.run()
    assert compared(pipe) == 0


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_that_follows_reads_children_whose_parents_alone_have_changed(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """The log has no row of the child."""
    pipe = pipe_on(silent)
    family(pipe)

    def work() -> None:
        pipe.sql("DELETE FROM parents WHERE id = 1")
        shown(pipe, "grands")
        pipe.sql("UPDATE parents SET code = 50 WHERE id = 2")
        shown(pipe, "forgetting")

    follow_while(pipe, work)
    assert {row[1] for row in pipe.rows("forgetting")} == {None, 30, 40}
    pipe.run()
    pipe.assert_equal()
    assert compared(pipe) == 0


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_child_waits_for_its_parent(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Nothing is published of a table whose parent's changes nobody reads; the next run goes on with it."""
    pipe = pipe_on(silent)
    family(pipe)
    with pytest.raises(SplitUnstable, match="whose changes are not read now"):
        pipe.run("going")
    pipe.sql("DELETE FROM parents WHERE id = 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_columns_of_foreign_keys_that_are_renamed(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Between two runs, and while a run follows; the parent is altered, too."""
    pipe = pipe_on(silent)
    family(pipe)
    pipe.run()
    pipe.sql("DELETE FROM parents WHERE id = 1", "ALTER TABLE going RENAME COLUMN p TO q")
    pipe.sql("ALTER TABLE parents RENAME COLUMN v TO w, ADD n INT", "UPDATE parents SET id = 9 WHERE id = 2")
    assert pipe.run().stopped == ()
    pipe.assert_equal()

    def work() -> None:
        pipe.sql(
            "DELETE FROM parents WHERE id = 3", "ALTER TABLE going RENAME COLUMN q TO r", "DELETE FROM grands LIMIT 1"
        )
        shown(pipe, "grands")
        pipe.sql("DELETE FROM parents WHERE id = 9")
        shown(pipe, "parents")

    assert follow_while(pipe, work).stopped == ()
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.any_format
@pytest.mark.long("starts a server with other settings")
def test_foreign_keys_that_come_and_go(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """Rows are compared once where the copy was made without these changes, or the foreign keys were others."""
    pipe = pipe_on(silent, cascades="missing")
    family(pipe)
    pipe.run()
    pipe.sql("DELETE FROM parents WHERE id = 1")
    pipe.run()
    assert not pipe.verify("going")["going"].equal
    tables = pipe.config.tables.model_copy(update={"options": {}})
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    pipe.sql("DELETE FROM parents WHERE id = 2")
    pipe.run()
    pipe.assert_equal()
    assert compared(pipe) == 3
    with pipe.connection.cursor() as cursor:
        cursor.execute("SHOW CREATE TABLE going")
        name = re.findall(r"CONSTRAINT `(\w+)`", str(cursor.fetchall()))[0]
    pipe.sql("DELETE FROM parents WHERE id = 3", f"ALTER TABLE going DROP FOREIGN KEY {name}")
    pipe.run()
    pipe.assert_equal()
    pipe.sql(
        "DELETE FROM going WHERE p NOT IN (SELECT id FROM parents)",
        "ALTER TABLE going ADD FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE",
        "DELETE FROM parents WHERE id = 4",
    )
    pipe.run()
    pipe.assert_equal()
    before = compared(pipe)
    pipe.sql("INSERT INTO parents VALUES (9, 90, 0)", "INSERT INTO going VALUES (99, 9, 0)")
    pipe.run()
    pipe.sql("DELETE FROM parents")
    pipe.run()
    pipe.assert_equal()
    assert compared(pipe) == before
