"""`tables.startup: adopt`: a table that another tool made becomes a copy; only what differs is written."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from lakeingest.commands.check import check
from lakeingest.commands.plan import TAKEN_OVER, plan
from lakeingest.commands.status import status
from lakeingest.config import CATALOG
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ForeignWrite, LakeIngestError, PreflightFailed
from lakeingest.lake.iceberg.tables.history import STAGING, TAKEN
from lakeingest.pipeline.events import Event, Merged, Published, RowsReread, TookOver, WaveCommitted
from tests.e2e.exact import comparer
from tests.e2e.other_tools import adopting, delete_by_equality, frame, name_of, namespace, snapshots, write
from tests.e2e.pipe import Pipe
from tests.e2e.test_rollbacks import rollback
from tests.e2e.test_signals_killed_anywhere import Dead, mortal
from tests.lake.shown import catalog_of
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

COLUMNS = "id int, v string, n int"
ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40), n INT)"
EACH = pytest.mark.parametrize("shop", ["MySQL", "no GTIDs", "MariaDB"], indirect=True)


@pytest.fixture
def shop(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline with a table of 100 rows in its source; MySQL, unless the test names other servers."""
    kind = getattr(request, "param", "MySQL")
    settings = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if kind == "no GTIDs" else {}
    pipe = pipe_on(server_of(MARIADB_11_4 if kind == "MariaDB" else MYSQL, **settings), chunk_rows=10)
    rows = ", ".join(f"({n}, 'v{n}', {n * 7})" for n in range(100))
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {rows}")
    return pipe


def assert_same(pipe: Pipe, table: str = "orders") -> None:
    """Source and lake are equal, by PyMySQL and Arrow, by PyIceberg's own reader, and by `verify`."""
    with catalog_of(pipe.config.target) as catalog:
        copy = catalog.load_table(f"{pipe.database}.{table}").scan().to_arrow()
    with comparer(pipe.administrator, pipe.database, pipe.config.tables) as source:
        assert source.difference(table, copy) == ""
    pipe.assert_equal(table)


def written(pipe: Pipe) -> int:
    """The rows that merges wrote or took out."""
    merges = [one for one in pipe.seen(Merged) if isinstance(one, Merged)]
    return sum(one.inserted + one.updated + one.deleted for one in merges)


def properties(pipe: Pipe, table: str = "orders") -> dict[str, str]:
    """The table's properties."""
    with catalog_of(pipe.config.target) as catalog:
        return dict(catalog.load_table(f"{pipe.database}.{table}").properties)


def refused(pipe: Pipe) -> str:
    """The reason why the run takes nothing over; `check` and `plan` say the same, and nothing has changed."""
    before = [one.snapshot_id for one in snapshots(pipe, "orders")]
    with pytest.raises(PreflightFailed) as failed:
        pipe.run()
    reason = str(failed.value)
    [finding] = [one.finding for one in check(pipe.config).problems if one.finding]
    assert finding in reason
    [planned] = plan(pipe.config)
    assert planned.state == "cannot be copied"
    assert any(each in reason for each in planned.reasons)
    assert [one.snapshot_id for one in snapshots(pipe, "orders")] == before
    return reason


@EACH
@pytest.mark.long("whole runs on several servers", only=("no GTIDs", "MariaDB"))
def test_only_rows_that_differ_are_written(shop: Pipe) -> None:
    """Rows that the tool lacks, has too many of, has twice, or has with other values; and those with no key."""
    pipe = shop
    rows = frame(pipe, "orders", COLUMNS)
    write(pipe, "orders", rows.where("id <> 3"))
    write(pipe, "orders", rows.where("id IN (20, 21)"))  # once more
    others = [(3, "other", 21), (500, "too many", 1), (None, "no key", 0)]
    write(pipe, "orders", pipe.spark.createDataFrame(others, COLUMNS))
    pipe.sql("UPDATE orders SET n = NULL WHERE id = 4", "DELETE FROM orders WHERE id = 5")
    pipe.sql("FLUSH BINARY LOGS")  # without GTIDs, the changes of the current file are merged once more
    adopting(pipe)
    [planned] = plan(pipe.config)
    assert (planned.state, planned.reasons) == (TAKEN_OVER, ())
    assert planned.foreign[0].startswith("104 rows of a job of Spark")
    assert [one.finding for one in check(pipe.config).problems] == []
    pipe.run()
    assert not pipe.seen(WaveCommitted)
    assert_same(pipe)
    assert written(pipe) == 6
    assert TAKEN not in properties(pipe)
    pipe.sql("UPDATE orders SET v = 'later' WHERE id = 7", "DELETE FROM orders WHERE id = 8")
    pipe.run()
    assert_same(pipe)
    assert [one.state for one in status(pipe.config)] == ["published"]


@pytest.mark.parametrize("shop", ["MySQL", "MariaDB"], indirect=True)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.long("Spark writes deletes")
def test_deletes_by_equality_become_positions(shop: Pipe, version: int, *, whole_rows: bool) -> None:
    """As Flink and debezium-server write them. Of rows that came later, none is deleted."""
    pipe = shop
    write(pipe, "orders", frame(pipe, "orders", COLUMNS), format_version=str(version))
    changed = [(n,) for n in range(0, 100, 3)]
    name = f"{CATALOG}.{pipe.database}.orders"
    delete_by_equality(pipe.spark, name, ["id"], [*changed, (1,), (2,)], whole_rows=whole_rows)
    write(pipe, "orders", frame(pipe, "orders", COLUMNS).where("id % 3 = 0"))
    pipe.sql("DELETE FROM orders WHERE id IN (1, 99)")
    seen_before = pipe.rows("orders")
    assert len(seen_before) == 98
    adopting(pipe, properties={"format-version": str(version)})
    [planned] = plan(pipe.config)
    assert any("1 files of deletes by values" in note for note in planned.foreign)
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, TookOver):
            assert event.rows == 98
            seen.append(pipe.rows("orders"))

    pipe.run(observe=look)
    assert seen == [seen_before]
    assert_same(pipe)
    assert written(pipe) == 2
    kinds = pipe.spark.sql(f"SELECT content, file_format FROM {name_of(pipe, 'orders')}.delete_files").collect()
    assert {tuple(row) for row in kinds} == {(1, "PUFFIN" if version == 3 else "PARQUET")}


@pytest.mark.long("whole runs")
def test_changes_that_happen_while_rows_are_compared_are_applied(pipe: Pipe) -> None:
    """Before and behind the key that is compared; and DDL before, while and after that."""
    rows = ", ".join(f"({n}, 'v{n}', {n * 7})" for n in range(100))
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {rows}")
    write(pipe, "orders", frame(pipe, "orders", COLUMNS))
    pipe.sql("ALTER TABLE orders ADD w INT, MODIFY n BIGINT", "UPDATE orders SET w = id WHERE id < 3")
    waves = 0

    def change(event: Event) -> None:
        nonlocal waves
        if isinstance(event, RowsReread):
            waves += 1
            pipe.sql(
                f"INSERT INTO orders (id, v, n) VALUES ({1000 + waves}, 'new', 1)",
                f"UPDATE orders SET v = 'w{waves}' WHERE id IN ({waves}, {99 - waves})",
                f"DELETE FROM orders WHERE id IN ({10 + waves}, {80 - waves})",
            )
            if waves == 1:
                pipe.sql("ALTER TABLE orders ADD x VARCHAR(9) DEFAULT 'x'", "UPDATE orders SET x = 'y' WHERE id = 90")

    adopting(pipe)
    [planned] = plan(pipe.config)
    assert any("it lacks w" in note for note in planned.foreign)
    assert any("n (int to long)" in note for note in planned.foreign)
    assert pipe.run(observe=change).stopped == ()
    assert waves > 1
    pipe.run()
    assert_same(pipe)
    pipe.sql("ALTER TABLE orders DROP v, RENAME COLUMN n TO m", "UPDATE orders SET m = -1 WHERE id = 30")
    pipe.run()
    assert_same(pipe)


@EACH
@pytest.mark.long("a run for each step of a run")
def test_a_run_that_dies_at_any_step_is_gone_on_with(shop: Pipe) -> None:
    """Readers see the rows of the other tool until all rows are compared."""
    pipe, at, deaths = shop, 1, 0
    namespace(pipe)
    adopting(pipe)
    while True:
        rows = frame(pipe, "orders", COLUMNS)
        write(pipe, "orders", rows)
        old = pipe.rows("orders")
        pipe.sql(f"UPDATE orders SET v = 's{at}' WHERE id % 9 = 1", f"DELETE FROM orders WHERE id = {at}")
        published = 0

        def look(event: Event, old: list[tuple[object, ...]] = old) -> None:
            nonlocal published
            published += isinstance(event, Published)
            if isinstance(event, TookOver | RowsReread) and not published:
                assert pipe.rows("orders") == old

        with mortal(pipe, at) as mortality:
            try:
                pipe.run(observe=look)
            except Dead:
                deaths += 1
        pipe.sql(f"UPDATE orders SET n = {at} WHERE id = 97")
        assert pipe.run().stopped == ()
        assert_same(pipe)
        if not mortality.dead:
            break
        at += 4
        pipe.spark.sql(f"DROP TABLE {name_of(pipe, 'orders')}")
        remove(pipe.state)
    assert deaths > 2


@pytest.mark.long("whole runs")
def test_a_tool_that_is_still_on_is_noticed(pipe: Pipe) -> None:
    """Before the first publish, and after it. Its rows stay, and nothing of ours is published over them."""
    rows = ", ".join(f"({n}, 'v{n}', {n * 7})" for n in range(100))
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {rows}")
    all_rows = frame(pipe, "orders", COLUMNS)
    write(pipe, "orders", all_rows)
    adopting(pipe, stopped="Airbyte")

    def write_once(event: Event) -> None:
        if isinstance(event, TookOver):
            write(pipe, "orders", pipe.spark.createDataFrame([(700, "late", 1)], COLUMNS))

    with pytest.raises(ForeignWrite, match="is Airbyte still on"):
        pipe.run(observe=write_once)
    with pytest.raises(ForeignWrite, match="is Airbyte still on"):
        pipe.run()
    assert len(pipe.rows("orders")) == 101
    # it is switched off, and the person says so
    pipe.spark.sql(f"ALTER TABLE {name_of(pipe, 'orders')} DROP BRANCH `{STAGING}`")
    pipe.run()
    assert_same(pipe)
    # it is switched on again
    write(pipe, "orders", pipe.spark.createDataFrame([(701, "later", 1)], COLUMNS))
    with pytest.raises(ForeignWrite, match="rollback"):
        pipe.run()
    rollback(pipe)
    pipe.run()
    assert_same(pipe)


@pytest.mark.long("whole runs")
def test_a_tool_that_makes_the_table_anew_is_noticed(pipe: Pipe) -> None:
    """A published copy is not taken over a second time."""
    pipe.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    write(pipe, "orders", frame(pipe, "orders", COLUMNS))
    adopting(pipe, stopped="DMS")
    pipe.run()
    pipe.spark.sql(f"DROP TABLE {name_of(pipe, 'orders')}")
    write(pipe, "orders", frame(pipe, "orders", COLUMNS))
    with pytest.raises(LakeIngestError, match="DMS has made it anew"):
        pipe.run()


@pytest.mark.long("several runs that end at once")
def test_what_cannot_be_taken_over_is_refused_by_name(pipe: Pipe) -> None:
    """Columns that nobody names, types that differ, partitions, and without the user's word nothing at all."""
    pipe.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    rows = pipe.spark.createDataFrame(
        [(1, "a", 1, "x", (1, 2))],
        "id int, v string, n bigint, _airbyte_raw_id string, _airbyte_meta struct<a:int,b:int>",
    )
    write(pipe, "orders", rows)
    adopting(pipe, stopped=None)
    assert "is no copy of" in refused(pipe)
    adopting(pipe)
    reason = refused(pipe)
    assert "has no column _airbyte_raw_id, _airbyte_meta" in reason
    assert "n is long, and the copy's n (int) is int" in reason
    adopting(pipe, drop=["_airbyte_*"], partition_by=("id",))
    assert "n is long" in refused(pipe)
    adopting(pipe, drop=["_airbyte_*", "n"], partition_by=("id",))
    assert "it is divided by nothing, and partition_by says id" in refused(pipe)
    adopting(pipe, drop=["_airbyte_*", "n"], partition_by=())
    pipe.run()
    assert_same(pipe)
    found = {field.name: field.dataType.simpleString() for field in pipe.spark.table(name_of(pipe, "orders")).schema}
    assert found == {"id": "int", "v": "string", "n": "int", "_airbyte_raw_id": "string"}


@pytest.mark.long("a variant of what cannot be taken over")
def test_a_name_mapping_is_refused_only_with_files_that_need_it(pipe: Pipe, tmp_path: Path) -> None:
    """The libraries of Iceberg for Go give every table one, and its files have field ids."""
    pipe.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    rows = frame(pipe, "orders", COLUMNS)
    write(pipe, "orders", rows)
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v"]}, {"field-id": 3, "names": ["n"]}]'
    named = f"'schema.name-mapping.default' = '{mapping}'"
    pipe.spark.sql(f"ALTER TABLE {name_of(pipe, 'orders')} SET TBLPROPERTIES ({named})")
    adopting(pipe)
    [planned] = plan(pipe.config)
    assert (planned.state, planned.reasons) == (TAKEN_OVER, ())
    file = str(tmp_path / "by-names.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "v": ["b"], "n": pa.array([2], pa.int32())}), file)
    with catalog_of(pipe.config.target) as catalog:
        catalog.load_table(f"{pipe.database}.orders").add_files([file])
    assert f"{file} has columns without field ids" in refused(pipe)


@pytest.mark.long("a variant of what cannot be taken over")
def test_keys_that_only_the_server_can_order_are_refused(pipe: Pipe) -> None:
    """Nobody could compare their rows by ranges."""
    pipe.sql("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY)", "INSERT INTO orders VALUES ('a')")
    write(pipe, "orders", frame(pipe, "orders", "id string"))
    adopting(pipe)
    assert "only the server knows the order of its keys" in refused(pipe)


@pytest.mark.long("a variant with partitions")
def test_partitions_that_pipeline_yml_names_stay(pipe: Pipe) -> None:
    """Rows go on into the same partitions."""
    rows = ", ".join(f"({n}, 'v{n}', {n % 3})" for n in range(60))
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {rows}")
    namespace(pipe)
    frame(pipe, "orders", COLUMNS).writeTo(name_of(pipe, "orders")).partitionedBy(functions.col("n")).create()
    pipe.sql("UPDATE orders SET n = 5 WHERE id < 6", "DELETE FROM orders WHERE id = 7")
    adopting(pipe)
    assert "it is divided by identity of n, and partition_by says nothing" in refused(pipe)
    adopting(pipe, partition_by=("n",))
    pipe.run()
    assert_same(pipe)
    partitions = pipe.spark.sql(f"SELECT partition.n FROM {name_of(pipe, 'orders')}.partitions").collect()
    assert sorted(row[0] for row in partitions) == [0, 1, 2, 5]
