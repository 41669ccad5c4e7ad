"""The whole way: bootstrap, binlog, publish, verify, on a real server, Spark and Iceberg."""

from collections.abc import Callable

import pytest

from lakeingest.commands.adopt import adopt
from lakeingest.commands.run import run
from lakeingest.commands.status import status
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, NotOurCopy, Retryable, StaleWriter, UsageError
from lakeingest.monitoring.event_lines import line
from lakeingest.mysql.connection import query
from lakeingest.pipeline.binlog import ingest
from lakeingest.pipeline.events import Event, Merged, Published, WaveCommitted
from lakeingest.pipeline.merging import merge
from tests.e2e.pipe import Pipe
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(10,2), d DOUBLE)"


def fill(pipe: Pipe, count: int, start: int = 0) -> None:
    """Insert `count` orders with consecutive keys, in one transaction."""
    values = ", ".join(f"({i}, 'v{i}', {i}.25, {i} / 3)" for i in range(start, start + count))
    pipe.sql(f"INSERT INTO orders VALUES {values}")


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_tables_with_a_priority_come_first(pipe: Pipe) -> None:
    """Their first copies, and their changes."""
    options = {f"{pipe.database}.b": TableOptions(priority=5), f"{pipe.database}.c": TableOptions(priority=-5)}
    tables = pipe.config.tables.model_copy(update={"options": {**pipe.config.tables.options, **options}})
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    for name in "abcd":
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1)")
    pipe.run()
    pipe.sql(*(f"INSERT INTO {name} VALUES (2)" for name in "abcd"))
    pipe.run()
    copied = [event.table.name for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)]
    published = [event.table.name for event in pipe.seen(Published) if isinstance(event, Published)]
    assert copied == ["b", "a", "d", "c"]
    assert published == ["b", "a", "d", "c"] * 2
    pipe.assert_equal()


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_long_backlog_is_merged_in_several_commits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at the end of a binlog file; readers see all changes at once."""
    monkeypatch.setattr(merge, "MOST_ROWS", 10)
    monkeypatch.setattr(ingest, "LEAST_BYTES", 1)
    pipe.sql(ORDERS)
    fill(pipe, 20)
    pipe.run()
    for number in range(4):
        pipe.sql(f"UPDATE orders SET n = n + 1 WHERE id BETWEEN {number} AND {number + 9}", "FLUSH BINARY LOGS")
    published = len(pipe.seen(Published))
    pipe.run()
    assert len(pipe.seen(Merged)) >= 4
    assert len(pipe.seen(Published)) == published + 1
    pipe.assert_equal()


def test_changes_between_runs_are_applied(pipe: Pipe) -> None:
    """Inserts, updates, deletes, key moves and rolled back work between two runs; a third run finds nothing to do."""
    pipe.sql(ORDERS)
    fill(pipe, 40)
    pipe.run()
    pipe.sql(
        "UPDATE orders SET v = NULL, n = n + 1 WHERE id % 3 = 0",
        "DELETE FROM orders WHERE id BETWEEN 5 AND 9",
        "UPDATE orders SET id = id + 1000 WHERE id > 30",
        "INSERT INTO orders VALUES (6, 'again', 1, 1e300), (-4, '', -0.01, -0.0)",
        "BEGIN",
        "DELETE FROM orders",
        "ROLLBACK",
    )
    pipe.run()
    pipe.assert_equal()
    published = len(pipe.seen(Published))
    pipe.run()
    assert len(pipe.seen(Published)) == published
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_every_type_is_copied_and_verified(pipe: Pipe) -> None:
    """Whether a chunk or the binlog brings it, and in both images of an update."""
    types = {
        "year": ("YEAR", "1901", "2155"),
        "time": ("TIME(3)", "'-838:59:59'", "'00:00:01.005'"),
        "big": ("DECIMAL(65,30)", "-1.5", "12345678901234567890123456789012345.5"),
        "flag": ("BIT(1)", "1", "0"),
        "bits": ("BIT(12)", "4095", "1"),
        "chosen": ("SET('a','b','ü')", "'a,ü'", "''"),
        "doc": ("JSON", """'{"a": [1, 2.5, "ä"]}'""", "'null'"),
        "place": ("POINT", "POINT(1, 2)", "ST_GeomFromText('POINT(3 4)', 4326)"),
        "vec": ("VECTOR(2)", "TO_VECTOR('[1.5,-2]')", "TO_VECTOR('[0,3e38]')"),
        "old": ("VARCHAR(9) CHARACTER SET latin1", "'ä€'", "''"),
        "wide": ("CHAR(9) CHARACTER SET utf16", "'ä😀'", "'x '"),
        "bin": ("BINARY(4)", "x'0100'", "''"),
    }
    names, first, second = zip(*((name, one, two) for name, (_, one, two) in types.items()), strict=True)
    columns = ", ".join(f"c_{name} {type_}" for name, (type_, *_) in types.items())
    pipe.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    for id_ in range(4):
        pipe.sql(f"INSERT INTO t VALUES ({id_}, {', '.join(second if id_ % 2 else first)})")
    pipe.sql("INSERT INTO t (id) VALUES (4)")
    pipe.run()
    pipe.assert_equal()
    changed = ", ".join(f"c_{name} = {value}" for name, value in zip(names, second, strict=True))
    pipe.sql(
        f"UPDATE t SET {changed} WHERE id IN (0, 4)",
        f"INSERT INTO t VALUES (9, {', '.join(first)})",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 100 WHERE id = 2",
    )
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats("iceberg")
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_compressed_and_tagged_transactions_are_copied(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Any session can switch compression on, and tag its GTIDs: neither loses a row, nor do both at once."""
    pipe = pipe_on(mysql_server_with(server_id="56"), chunk_rows=10)
    pipe.sql(ORDERS)
    fill(pipe, 40)
    pipe.run()
    pipe.sql("SET binlog_transaction_compression = ON", "UPDATE orders SET v = REPEAT('x', 40) WHERE id < 20")
    pipe.sql("SET gtid_next = 'AUTOMATIC:tagged'", "DELETE FROM orders WHERE id > 35")
    pipe.sql("SET binlog_transaction_compression = OFF", "INSERT INTO orders VALUES (99, 'tagged', 1, 1)")
    pipe.run()
    pipe.assert_equal()
    pipe.sql("SET gtid_next = AUTOMATIC", "DELETE FROM orders WHERE id < 3")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_days_before_the_gregorian_calendar_are_exact(pipe: Pipe) -> None:
    """As MySQL has them, whether a chunk or the binlog brings them: no engine moves them to another calendar."""
    pipe.sql("CREATE TABLE days (id INT PRIMARY KEY, d DATE, at DATETIME(6), t TIMESTAMP(6) NULL)")
    old = "'1000-01-01', '1582-10-04 23:59:59.999999', '1970-01-01 00:00:01'"
    pipe.sql(f"INSERT INTO days VALUES (1, {old}), (2, NULL, NULL, NULL)")
    pipe.run()
    pipe.sql(f"INSERT INTO days VALUES (3, {old})", "UPDATE days SET d = '1400-02-28', at = '1001-01-01' WHERE id = 2")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.parametrize("kind", [WaveCommitted, Merged])
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("hudi", "Merged"))
def test_changes_during_a_run_are_caught(pipe: Pipe, kind: type[Event]) -> None:
    """Changes made after every wave, or after the stop was read, are in this run's result or the next one's, once."""
    pipe.sql(ORDERS, "CREATE TABLE parts (o BIGINT UNSIGNED, l SMALLINT, v TEXT, PRIMARY KEY (o, l))")
    fill(pipe, 200)
    pipe.sql("INSERT INTO parts SELECT id DIV 4, id % 4 - 1, v FROM orders")

    def change(event: Event) -> None:
        if isinstance(event, kind):
            n = len(pipe.seen(kind)) * 7
            pipe.sql(
                f"INSERT INTO orders VALUES ({1000 + n}, 'new', 1, 1)",
                f"UPDATE orders SET v = CONCAT(v, '+') WHERE id IN ({n}, {n} + 60, {n} + 120)",
                f"DELETE FROM orders WHERE id = {n + 1}",
                f"UPDATE IGNORE orders SET id = {n + 1} WHERE id = {199 - n}",
                f"UPDATE parts SET o = o + 18446744073709551000 WHERE o = {n % 50}",
                f"DELETE FROM parts WHERE o = {(n + 3) % 50} AND l < 1",
            )

    pipe.run(observe=change)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_merge_between_waves_leaves_later_chunks_alone(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a merge after each wave, changes of chunks still to come are dropped, and those of old ones applied."""
    monkeypatch.setattr("lakeingest.pipeline.copying.waves.MERGE_BACKLOG", 1)
    pipe.sql(ORDERS)
    fill(pipe, 300)

    def change(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            pipe.sql(
                "UPDATE orders SET n = n + 1 WHERE id % 10 = 0",
                f"DELETE FROM orders WHERE id % 100 = {event.wave}",
                f"UPDATE IGNORE orders SET id = 299 - id WHERE id = {event.wave * 100 + 50}",
                f"INSERT INTO orders VALUES ({event.wave * 100 - 99}, 'b', 1, 1) ON DUPLICATE KEY UPDATE v = 'there'",
            )

    pipe.run(observe=change)
    merges = [event for event in pipe.seen(Merged) if isinstance(event, Merged)]
    assert len(merges) > 1
    assert sum(merge.dropped for merge in merges) > 0
    pipe.assert_equal()


@pytest.mark.long("many chunks")
def test_a_merge_in_many_ranges_is_exact(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of keys at their edges: unsigned ones above 2^63, and keys of two columns."""
    monkeypatch.setattr("lakeingest.pipeline.merging.merge.SLICE_ROWS", 50)
    monkeypatch.setattr("lakeingest.pipeline.merging.row_numbers.FILE_ROWS", 30)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 119)"
    pipe.sql(
        "CREATE TABLE wide (id BIGINT UNSIGNED PRIMARY KEY, v TEXT)",
        "CREATE TABLE pairs (a INT, b BIGINT, v TEXT, PRIMARY KEY (a, b))",
        f"INSERT INTO wide {numbers} SELECT 18446744073709551615 - i * 31, CONCAT('v', i) FROM n",
        f"INSERT INTO pairs {numbers} SELECT i DIV 40 - 1, i - 60, CONCAT('v', i) FROM n",
    )
    pipe.run()
    pipe.sql(
        "UPDATE wide SET v = CONCAT(v, '+') WHERE id % 3 = 0",
        "UPDATE wide SET id = id - 1 WHERE id % 5 = 0",
        "DELETE FROM wide WHERE id % 7 = 0",
        f"INSERT IGNORE INTO wide {numbers} SELECT i, 'low' FROM n",
        "UPDATE pairs SET a = a + 10 WHERE b % 4 = 0",
        "DELETE FROM pairs WHERE b % 9 = 0",
        "INSERT IGNORE INTO pairs SELECT a, -b, 'turned' FROM (SELECT * FROM pairs) p",
    )
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_out_of_time_is_continued(pipe: Pipe) -> None:
    """`max_minutes` ends a run at a commit, unpublished; the next run copies only what is missing."""
    pipe.sql(ORDERS)
    fill(pipe, 200)
    first = pipe.run(max_minutes=1e-9)
    assert not first.caught_up
    assert not first.tables[0].published
    with pytest.raises(Retryable, match="not published yet"):
        pipe.verify()

    class Stop(Exception):
        """Ends a run where a crash could."""

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            raise Stop

    with pytest.raises(Stop):
        pipe.run(observe=stop)
    pipe.sql("UPDATE orders SET v = 'changed' WHERE id IN (3, 190)", "DELETE FROM orders WHERE id = 7")
    pipe.run()
    waves = [event for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)]
    assert [event.wave for event in waves] == list(range(1, len(waves) + 1))
    assert sum(event.rows for event in waves) == 200
    pipe.assert_equal()


@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_a_new_table_joins_and_a_run_may_name_tables(pipe: Pipe) -> None:
    """A table made later is copied by the next run; a run of one table goes on with the others' binlog."""
    pipe.sql(ORDERS)
    fill(pipe, 30)
    pipe.run()
    pipe.sql("CREATE TABLE late (id BIGINT PRIMARY KEY, v BLOB)", "INSERT INTO late VALUES (1, 'a'), (2, NULL)")
    pipe.sql("DELETE FROM orders WHERE id < 3", "UPDATE orders SET v = 'x' WHERE id = 20")
    pipe.run("late")
    assert {row[0] for row in pipe.rows("late")} == {1, 2}
    assert len(pipe.rows("orders")) == 30
    pipe.sql("DELETE FROM late WHERE id = 1", "DELETE FROM orders WHERE id = 4")
    pipe.run()
    pipe.assert_equal()
    with pytest.raises(UsageError, match="nothere"):
        pipe.run("nothere")


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_lost_state_folder_is_filled_again_from_the_binlog(pipe: Pipe) -> None:
    """The target is the checkpoint: without state a published table goes on from its own position."""
    pipe.sql(ORDERS)
    fill(pipe, 30)
    pipe.run()
    remove(pipe.state)
    pipe.sql("DELETE FROM orders WHERE id = 4", "INSERT INTO orders VALUES (500, 'n', 1, 1)")
    pipe.run()
    assert [event.rows for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)] == [30]
    pipe.assert_equal()


@pytest.mark.parametrize("lost", ["state", "state and binlog", "state after a merge"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_goes_on_though_the_state_folder_was_lost(
    pipe_on: Callable[..., Pipe],
    mysql_server_with: Callable[..., LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    """It is compared if changes are lost, too, or parts were merged. On Hudi it begins again: its rows were there."""
    pipe = pipe_on(mysql_server_with(server_id="77"), chunk_rows=10)
    pipe.sql(ORDERS)
    fill(pipe, 400)
    pipe.sql("ANALYZE TABLE orders")
    if lost == "state after a merge":
        monkeypatch.setattr("lakeingest.pipeline.copying.waves.MERGE_SPLITS", 1)

    class Stop(Exception):
        """Ends a run where a crash could."""

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            pipe.sql(f"DELETE FROM orders WHERE id = {event.wave}", "UPDATE orders SET n = n + 1 WHERE id < 9")
            if event.wave == 3:
                raise Stop

    with pytest.raises(Stop):
        pipe.run(observe=stop)
    assert bool(pipe.seen(Merged)) == (lost == "state after a merge")
    remove(pipe.state)
    if lost == "state and binlog":
        pipe.sql("FLUSH BINARY LOGS")
        pipe.sql(f"PURGE BINARY LOGS TO '{query(pipe.connection, 'SHOW BINARY LOGS')[-1][0]}'")
    pipe.sql("DELETE FROM orders WHERE id < 5")
    pipe.events.clear()
    pipe.run()
    pipe.assert_equal()
    waves = [event.wave for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)]
    first = waves[0] if waves else None
    is_hudi = pipe.config.target.format == "hudi"
    assert first == (1 if is_hudi else 4 if lost == "state" else None)


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_purged_binlog_is_named(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> None:
    """When the source has dropped the file that the position stands in, the run stops and says so."""
    pipe = pipe_on(mysql_server_with(server_id="77"), chunk_rows=10)
    pipe.sql(ORDERS)
    fill(pipe, 5)
    pipe.run()
    pipe.sql("FLUSH BINARY LOGS", "DELETE FROM orders WHERE id = 1", "FLUSH BINARY LOGS")
    with pipe.connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        last = cursor.fetchall()[-1][0]
    pipe.sql(f"PURGE BINARY LOGS TO '{last}'")
    with pytest.raises(BinlogGone, match="purged"):
        pipe.run()
    assert len(pipe.rows("orders")) == 5


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_verify_names_what_differs_also_in_a_busy_source(pipe: Pipe) -> None:
    """A change that the binlog does not tell of is found, its keys are named; one that it tells of is no difference."""
    pipe.sql(ORDERS)
    fill(pipe, 60)
    pipe.run()
    pipe.unlogged(
        "UPDATE orders SET d = d + 1e-12 WHERE id = 42",
        "DELETE FROM orders WHERE id = 7",
        "INSERT INTO orders VALUES (-3, NULL, NULL, NULL)",
    )
    [result] = pipe.verify().values()
    assert not result.equal
    assert [(difference.key, difference.where) for difference in result.differences] == [
        ((-3,), "only in the source"),
        ((7,), "only in the target"),
        ((42,), "differs"),
    ]
    pipe.sql("CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    pipe.sql("UPDATE orders SET v = 'y' WHERE id = 1")
    assert [difference.key for difference in pipe.verify("orders")["orders"].differences] == [(-3,), (7,), (42,)]


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_status_tells_where_tables_stand(pipe: Pipe) -> None:
    """Before, after and behind: state, rows, position, lag and what the gate asked."""
    pipe.sql(ORDERS)
    fill(pipe, 12)
    [before] = status(pipe.config)
    assert (before.state, before.position, before.lag_bytes) == ("not copied yet", None, None)
    pipe.run()
    [after] = status(pipe.config)
    assert (after.state, after.rows, after.lag_bytes) == ("published", 12, 0)
    assert after.gate is not None
    assert {name: after.gate[name] for name in ("success", "rows", "suites")} == {
        "success": True,
        "rows": 12,
        "suites": ["schema"],
    }
    pipe.sql("DELETE FROM orders WHERE id = 1", "FLUSH BINARY LOGS")
    [behind] = status(pipe.config)
    assert behind.lag_bytes is not None
    assert behind.lag_bytes > 0


@pytest.mark.long("test_unnamed_columns has a server without GTIDs in every run")
def test_without_gtids_the_copy_is_exact_too(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """With gtid_mode OFF marks are file positions: several runs under changes, equal."""
    pipe = pipe_on(mysql_server_with(gtid_mode="OFF", enforce_gtid_consistency="OFF"), chunk_rows=10)
    pipe.sql(ORDERS)
    fill(pipe, 150)

    def change(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            pipe.sql("UPDATE orders SET n = n + 1 WHERE id % 9 = 0", f"DELETE FROM orders WHERE id = {event.wave * 30}")

    pipe.run(observe=change)
    [first] = [event for event in pipe.seen(Merged) if isinstance(event, Merged)]
    assert first.repeats
    assert "; without GTIDs, all changes since the binlog file began, " in str(line(first))
    pipe.sql("FLUSH BINARY LOGS", "UPDATE orders SET id = id + 7000 WHERE id > 100")
    pipe.run()
    [_, later] = [event for event in pipe.seen(Merged) if isinstance(event, Merged)]
    assert not later.repeats
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_second_writer_is_refused(pipe: Pipe) -> None:
    """A run whose staging branch was moved by another one commits nothing more, and the table stays right."""
    pipe.sql(ORDERS)
    fill(pipe, 200)

    other = pipe.config.model_copy(update={"state": Place.of(f"{pipe.config.state}-other")})

    def takeover(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            adopt(other, [f"{pipe.database}.orders"], pipe.config.name)
            run(other, spark=pipe.spark)

    with pytest.raises((StaleWriter, NotOurCopy), match=r"another writer|belongs to"):
        pipe.run(observe=takeover)
    pipe.config = other  # the copy belongs to it now
    pipe.assert_equal()
