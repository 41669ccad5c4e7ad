"""DDL that no copy can follow: the table is published as of before it, and its rows are read again, by the same run."""

from collections.abc import Callable

import pytest

from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, PreflightFailed, SchemaChanged, UnsupportedTable
from lakeingest.pipeline.events import Event, Published, StartedOver, TableStopped, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon
from tests.e2e.test_schema_changes import mortal
from tests.e2e.test_signals_killed_anywhere import Dead
from tests.e2e.test_started_over import states

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

COLUMNS = "id INT PRIMARY KEY, v INT NOT NULL, w CHAR(5), e ENUM('x','y')"
ROWS = ", ".join(f"({number}, {number}, 'w', 'x')" for number in range(25))
BARRIERS: dict[str, tuple[str, ...]] = {
    "expression": ("ALTER TABLE {t} ADD c INT DEFAULT (v + 1)",),
    "another_key": ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (v)",),
    "wider_key": ("ALTER TABLE {t} MODIFY id BIGINT",),
    "computed": ("ALTER TABLE {t} ADD c INT AS (v + 1) STORED",),
    "narrower": ("ALTER TABLE {t} MODIFY v TINYINT NOT NULL",),
    "text": ("ALTER TABLE {t} MODIFY v VARCHAR(20) NOT NULL",),
    "not_null": ("ALTER TABLE {t} MODIFY w CHAR(5) NOT NULL",),
    "charset": ("ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",),
    "another_order": ("ALTER TABLE {t} MODIFY e ENUM('y','x')",),
    "defaults": ("ALTER TABLE {t} ADD c TIMESTAMP NOT NULL DEFAULT '2026-01-01 00:00:00', ADD d BIT(1) NOT NULL",),
    "added_and_dropped": (
        "ALTER TABLE {t} ADD c INT",
        "UPDATE {t} SET c = 5",
        "ALTER TABLE {t} DROP c",
    ),
    "twice": (
        "ALTER TABLE {t} MODIFY w CHAR(6)",
        "UPDATE {t} SET w = 'sixsix'",
        "ALTER TABLE {t} MODIFY w VARCHAR(90)",
    ),
    "followed_before": (
        "ALTER TABLE {t} ADD c INT",
        "UPDATE {t} SET c = 5",
        "ALTER TABLE {t} MODIFY v VARCHAR(20) NOT NULL",
    ),
    "emptied": (
        "TRUNCATE {t}",
        "INSERT INTO {t} VALUES (7, 7, 'w', 'x')",
        "ALTER TABLE {t} MODIFY v TINYINT NOT NULL",
    ),
    "partitions": (
        "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 2",
        "ALTER TABLE {t} TRUNCATE PARTITION p0",
    ),
    "created_again": (
        "DROP TABLE {t}",
        "CREATE TABLE {t} (id INT PRIMARY KEY, z INT)",
        "INSERT INTO {t} VALUES (5, 5)",
    ),
    "swapped": (
        "CREATE TABLE {t}_gho (id INT PRIMARY KEY, v INT NOT NULL, w CHAR(5), e ENUM('x','y'))",
        "INSERT INTO {t}_gho SELECT id, v + 1, w, e FROM {t}",
        "RENAME TABLE {t} TO {t}_del, {t}_gho TO {t}",
    ),
    "exchanged": ("RENAME TABLE {t} TO {t}_aside, exchanged_with TO {t}, {t}_aside TO exchanged_with",),
    "exchanged_with": (),
    "comment": ("/*!50000 ALTER TABLE {t} ADD c INT DEFAULT (v) */", "ALTER TABLE {t} ORDER BY v"),
}
OTHER = "other"


def copied(pipe: Pipe, *names: str) -> Pipe:
    """Tables that are copied."""
    for name in names:
        pipe.sql(f"CREATE TABLE {name} ({COLUMNS})", f"INSERT INTO {name} VALUES {ROWS}")
    pipe.run()
    pipe.events.clear()
    return pipe


def alter(pipe: Pipe, name: str) -> None:
    """The DDL of a case, and changes before and after it."""
    pipe.sql(f"UPDATE {name} SET v = 50, w = 'upd' WHERE id = 3", f"DELETE FROM {name} WHERE id = 4")
    pipe.sql(*(statement.format(t=name) for statement in BARRIERS[name]))


@pytest.mark.parametrize(
    "names", [("computed", "another_key", "emptied", "swapped"), tuple(BARRIERS)], ids=["few", "all"]
)
@pytest.mark.long("several barriers in a row")
def test_a_table_whose_ddl_cannot_be_followed_is_read_again(pipe: Pipe, names: tuple[str, ...]) -> None:
    """In the same run, whatever the DDL is; the next one goes on from there, and other tables are not read again."""
    copied(pipe, *names, OTHER)
    for name in names:
        alter(pipe, name)
    pipe.sql(f"INSERT INTO {OTHER} VALUES (100, 1, 'w', 'x')")
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names, OTHER)
    again = {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)}
    assert again == set(names)
    assert not any(one.stopped for one in status(pipe.config))
    pipe.events.clear()
    for name in names:
        pipe.sql(f"DELETE FROM {name} LIMIT 1", f"ALTER TABLE {name} ADD last INT DEFAULT 3 FIRST")
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names, OTHER)
    # without a row the source does not tell the value of a default
    assert {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)} == {
        name for name in names if not pipe.rows(name)
    }


@pytest.mark.formats
@pytest.mark.long("several runs")
def test_a_table_of_the_same_definition_is_read_again_in_every_format(pipe: Pipe) -> None:
    """After DDL of partitions and a swap."""
    copied(pipe, "partitions", "swapped", OTHER)
    alter(pipe, "partitions")
    alter(pipe, "swapped")
    pipe.sql("INSERT INTO partitions VALUES (90, 9, 'w', 'x')", "UPDATE swapped SET v = 70 WHERE id = 7")
    assert pipe.run().stopped == ()
    pipe.assert_equal("partitions", "swapped", OTHER)
    assert len(pipe.seen(StartedOver)) == 2


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_mariadb_is_read_again_after_ddl(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> None:
    """By its own DDL, too: it says what it was asked for, not whether it did anything."""
    pipe = pipe_on(server_of(MARIADB_11_4, server_id="202"), chunk_rows=10)
    names = ("another_key", "narrower", "emptied", "swapped", "created_again", "another_order")
    copied(pipe, *names, "maybe", OTHER)
    for name in names:
        alter(pipe, name)
    pipe.sql("ALTER TABLE maybe ADD COLUMN IF NOT EXISTS c INT DEFAULT 4", "CREATE OR REPLACE TABLE wide (id INT)")
    pipe.sql(f"INSERT INTO {OTHER} VALUES (100, 1, 'w', 'x')", "DROP TABLE wide")
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names, "maybe", OTHER)


@pytest.mark.any_format
@pytest.mark.long("whole runs; tests/core has the decision")
def test_numbers_that_ddl_cuts_without_naming_them_are_read_again(
    pipe_on: Callable[..., Pipe], any_server: LocalServer
) -> None:
    """MariaDB gives a FLOAT its digits at once, and cuts its values when the table is copied for another column."""
    pipe = pipe_on(any_server, chunk_rows=10)
    pipe.sql(
        "CREATE TABLE cut (id INT PRIMARY KEY, f FLOAT, d DOUBLE, n INT)", "INSERT INTO cut VALUES (1, 2e9, 2e9, 1)"
    )
    pipe.run()
    by_copy = ["SET SESSION alter_algorithm = COPY"] if any_server.flavor.is_mariadb else []
    for statements in (
        ["ALTER TABLE cut MODIFY f FLOAT(12,4), MODIFY d DOUBLE(12,4)"],
        ["ALTER TABLE cut MODIFY n BIGINT"],
        ["ALTER TABLE cut FORCE, ALGORITHM = COPY"],
        ["ALTER TABLE cut MODIFY f FLOAT, MODIFY d DOUBLE", "UPDATE cut SET f = 2e9, d = 2e9"],
        ["ALTER TABLE cut MODIFY f FLOAT(12,4), MODIFY d DOUBLE(12,4)"],
        [*by_copy, "OPTIMIZE TABLE cut"],
    ):
        pipe.sql("SET SESSION sql_mode = ''", *statements)
        assert pipe.run().stopped == ()
        pipe.assert_equal("cut")


@pytest.mark.long("whole runs")
def test_readers_see_the_table_as_of_before_the_ddl_until_it_is_read(pipe: Pipe) -> None:
    """It is published up to there, although nothing more can be merged."""
    copied(pipe, "narrower", OTHER)
    alter(pipe, "narrower")
    pipe.sql("UPDATE narrower SET v = 51 WHERE id = 5")
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            seen.append(pipe.rows("narrower"))

    pipe.run(observe=look)
    before = [(number, 50 if number == 3 else number, "upd" if number == 3 else "w", "x") for number in range(25)]
    assert seen
    assert all(rows == [row for row in before if row[0] != 4] for rows in seen)
    pipe.assert_equal()


@pytest.mark.formats("iceberg")
@pytest.mark.long("several runs in a row; other tests have each step")
def test_a_run_that_dies_while_the_table_is_read_again_goes_on(pipe: Pipe) -> None:
    """Also where the table is altered in between: then it is read once more."""
    copied(pipe, "narrower", "another_key", OTHER)
    alter(pipe, "narrower")
    alter(pipe, "another_key")

    def die(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "narrower":
            raise Dead

    with pytest.raises(Dead):
        pipe.run(observe=die)
    pipe.sql(
        "ALTER TABLE narrower MODIFY v BIGINT NOT NULL",
        "INSERT INTO narrower VALUES (100, 5000000000, 'w', 'x')",
        f"INSERT INTO {OTHER} VALUES (100, 1, 'w', 'x')",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_reads_the_table_again_all_the_same(pipe: Pipe) -> None:
    """The next run ends as if nothing had happened; readers never see anything but the source."""
    copied(pipe, "narrower", OTHER)
    at, is_dead = 1, True
    while is_dead:
        pipe.sql(
            "UPDATE narrower SET v = 9 WHERE id = 9",
            f"ALTER TABLE narrower MODIFY v {('TINYINT', 'SMALLINT')[at % 2]} NOT NULL, ADD c{at} INT DEFAULT (v)",
            f"UPDATE narrower SET w = '{at}' WHERE id % 2 = {at % 2}",
            f"INSERT INTO {OTHER} VALUES ({100 + at}, 1, 'w', 'x')",
        )
        with mortal(pipe, at) as mortality:
            try:
                pipe.run()
            except Dead:
                assert mortality.dead
        is_dead, at = mortality.dead, at + 1
        assert pipe.run().stopped == ()
        pipe.assert_equal()
    assert at > 12


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_ddl_while_the_table_is_read_again_reads_it_once_more(pipe: Pipe) -> None:
    """Nothing of the first try is left."""
    copied(pipe, "narrower", OTHER)
    alter(pipe, "narrower")
    tries = 0

    def disturb(event: Event) -> None:
        nonlocal tries
        if isinstance(event, WaveCommitted) and event.table.name == "narrower" and event.wave == 1 and tries < 2:
            tries += 1
            if tries == 1:
                pipe.sql("ALTER TABLE narrower MODIFY v VARCHAR(9) NOT NULL", "UPDATE narrower SET v = 'eight'")
            else:
                pipe.sql("DELETE FROM narrower", "ALTER TABLE narrower MODIFY v INT NOT NULL")
                pipe.sql(f"INSERT INTO narrower VALUES {ROWS}")

    for _ in range(3):  # a run does not follow DDL that comes after its beginning, if it could publish the table
        assert pipe.run(observe=disturb).stopped == ()
    assert len(pipe.seen(StartedOver)) == 3
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_is_emptied_while_it_is_read_again(pipe: Pipe) -> None:
    """Rows that were read before that and after it are never put together: all are read once more."""
    copied(pipe, "narrower", OTHER)
    pipe.sql(*(f"INSERT INTO narrower SELECT id + {100 << power}, v, w, e FROM narrower" for power in range(4)))
    pipe.run()
    pipe.events.clear()
    alter(pipe, "narrower")
    emptied = list[int]()

    def disturb(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "narrower" and len(emptied) < 2:
            emptied.append(event.wave)
            pipe.sql("TRUNCATE narrower", f"INSERT INTO narrower VALUES {ROWS}", "DELETE FROM narrower WHERE id = 5")

    assert pipe.run(observe=disturb).stopped == ()
    assert emptied == [1, 2]
    assert len(pipe.seen(StartedOver)) == 2
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_is_swapped_for_one_that_is_still_being_copied(pipe: Pipe) -> None:
    """One statement concerns a copy that readers see, and one that they do not: both are copied again."""
    copied(pipe, "narrower", OTHER)
    pipe.sql(f"CREATE TABLE fresh ({COLUMNS})", f"INSERT INTO fresh VALUES {ROWS}")
    pipe.sql(
        "INSERT INTO fresh SELECT id + 100, v, w, e FROM fresh", "INSERT INTO fresh SELECT id + 200, v, w, e FROM fresh"
    )
    swapped = list[Event]()

    def swap(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "fresh" and not swapped:
            swapped.append(event)
            pipe.sql("RENAME TABLE narrower TO aside, fresh TO narrower, aside TO fresh", "DELETE FROM fresh LIMIT 3")

    assert pipe.run(observe=swap).stopped == ()
    assert swapped
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_table_that_cannot_be_copied_as_it_is_now_stops_alone(pipe: Pipe) -> None:
    """By name, at its last commit; once it can be copied, a run reads it again."""
    copied(pipe, "narrower", OTHER)
    alter(pipe, "narrower")
    pipe.sql("ALTER TABLE narrower DROP PRIMARY KEY", f"INSERT INTO {OTHER} VALUES (100, 1, 'w', 'x')")
    for count in (1, 2):
        with pytest.raises((UnsupportedTable, PreflightFailed)):
            pipe.run()
        pipe.assert_equal(OTHER)
        assert len(pipe.rows("narrower")) == 25
        pipe.sql(f"INSERT INTO {OTHER} VALUES ({100 + count}, 1, 'w', 'x')")
    pipe.sql("ALTER TABLE narrower ADD PRIMARY KEY (id)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_person_decides_where_deleted_rows_would_be_lost(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """With soft deletes a new copy does not have those of before; DDL that is followed keeps them."""
    pipe = copied(pipe_on(mysql_server, chunk_rows=10, deletes="soft"), "narrower", OTHER)
    pipe.sql("DELETE FROM narrower WHERE id = 8", "ALTER TABLE narrower ADD c INT DEFAULT 5 AFTER e")
    pipe.run()
    assert len(pipe.rows("narrower")) == 25
    pipe.sql(BARRIERS["narrower"][0].format(t="narrower"))
    for count in range(2):
        with pytest.raises(SchemaChanged, match="takes out the rows that are marked as deleted"):
            pipe.run()
        assert len(pipe.rows("narrower")) == 25
        pipe.sql(f"INSERT INTO {OTHER} VALUES ({100 + count}, 1, 'w', 'x')")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.narrower"], scope=WHOLE, spark=pipe.spark)
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.rows("narrower")) == 24


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_rows_of_an_emptied_table_are_marked_as_deleted(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """They are compared with what the source has now, so none is lost, and nobody has to decide."""
    pipe = copied(pipe_on(mysql_server, chunk_rows=10, deletes="soft"), "emptied", OTHER)
    pipe.sql("DELETE FROM emptied WHERE id = 8", "TRUNCATE emptied", "INSERT INTO emptied VALUES (3, 30, 'new', 'y')")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    rows = pipe.rows("emptied")
    assert (len(rows), [row[0] for row in rows if not any(part is True for part in row)]) == (25, [3])


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_is_dropped_stops_and_is_read_again_once_it_is_back(pipe: Pipe) -> None:
    """The copy stays as it was before."""
    copied(pipe, "narrower", OTHER)

    def work() -> None:
        pipe.sql("UPDATE narrower SET v = 9 WHERE id = 9", "DROP TABLE narrower")
        soon(lambda: bool(pipe.seen(TableStopped)))
        pipe.sql(f"INSERT INTO {OTHER} VALUES (100, 1, 'w', 'x')")
        shown(pipe, OTHER)

    with pytest.raises(LakeIngestError):
        follow_while(pipe, work)
    assert len(pipe.rows("narrower")) == 25
    pipe.sql("CREATE TABLE narrower (id INT PRIMARY KEY, z INT)", "INSERT INTO narrower VALUES (1, 2)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_reads_the_table_again(pipe: Pipe) -> None:
    """Between its rounds, as often as it is altered; signals that wait are answered by it."""
    copied(pipe, "narrower", OTHER)

    def work() -> None:
        for number in range(7):
            type_ = ("TINYINT", "SMALLINT")[number % 2]
            pipe.sql(f"ALTER TABLE narrower MODIFY v {type_} NOT NULL", f"UPDATE narrower SET v = {number}")
            pipe.sql(f"INSERT INTO {OTHER} VALUES ({100 + number}, 1, 'w', 'x')")
            shown(pipe, OTHER)
            shown(pipe, "narrower")
        [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.narrower"], scope=WHOLE)
        assert done.state == "done"

    assert follow_while(pipe, work).stopped == ()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_request_is_answered_by_rows_that_are_read_again_because_of_ddl(pipe: Pipe) -> None:
    """It does not fail."""
    copied(pipe, "narrower", OTHER)
    alter(pipe, "narrower")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.narrower"], scope=WHOLE, wait=False)
    assert pipe.run().stopped == ()
    assert states(pipe) == ["done"]
    assert len(pipe.seen(StartedOver)) == 1
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_frozen_table_stops_and_is_read_again_when_it_evolves(pipe: Pipe) -> None:
    """The spool has gone on for the others by then."""
    copied(pipe, "narrower", OTHER)
    alter(pipe, "narrower")
    free = pipe.config
    pipe.freeze()
    for number in range(2):
        pipe.sql(f"INSERT INTO {OTHER} VALUES ({100 + number}, 1, 'w', 'x')")
        with pytest.raises(LakeIngestError) as raised:
            pipe.run()
        assert raised.value.exit_code == 3
    assert len(pipe.seen(Published)) == 2
    pipe.config = free
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.fixture
def without_gtids(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a server without GTIDs; chunks of 10 rows."""
    return pipe_on(mysql_server_with(gtid_mode="OFF", server_id="97"), chunk_rows=10)


@pytest.mark.long("starts another server")
def test_without_gtids_a_table_is_read_again_after_its_last_ddl(without_gtids: Pipe) -> None:
    """A low watermark there is the start of the file, which has the DDL, and rows of before; it counts from the DDL."""
    pipe = without_gtids
    names = ("narrower", "another_key", "twice", "emptied", "partitions", "created_again", "swapped")
    copied(pipe, *names, OTHER)
    for name in names:
        alter(pipe, name)
    pipe.sql("UPDATE narrower SET v = 6 WHERE id = 6")
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names, OTHER)
    pipe.sql("DELETE FROM narrower WHERE id = 7", "INSERT INTO created_again VALUES (6, 6)")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.narrower"], scope=WHOLE, wait=False)
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names, OTHER)


@pytest.mark.long("starts another server")
def test_without_gtids_a_table_may_have_to_wait_until_its_binlog_file_is_full(without_gtids: Pipe) -> None:
    """Not all DDL is known to have waited for the changes before it: until then the table stops, and it alone."""
    pipe = copied(without_gtids, "partitions", OTHER)
    alter(pipe, "partitions")
    pipe.sql("ALTER TABLE partitions REPAIR PARTITION p1")
    with pytest.raises(LakeIngestError):
        pipe.run()
    pipe.assert_equal(OTHER)
    pipe.sql("UPDATE partitions SET v = 6 WHERE id = 6", "FLUSH BINARY LOGS", "DELETE FROM partitions WHERE id = 7")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
