"""Others at work on our tables and folders, between runs and while we run: built on, named, or tried again."""

import re
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.status import status
from lakeingest.config import CATALOG
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ForeignWrite, MainMoved, StateUnreadable, StorageFailed
from lakeingest.files.file import File, at
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.pipeline.catch_up import PUBLISH_TRIES
from lakeingest.pipeline.events import Event, Merged, Spooled, WaveCommitted, WentBack
from lakeingest.pipeline.run.executors import Executors
from tests.e2e.pipe import Pipe
from tests.servers.stores import on_disk, remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40))"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i})' for i in range(40))}"
CHANGES = (
    "UPDATE orders SET v = CONCAT(v, '+') WHERE id % 3 = 0",
    "DELETE FROM orders WHERE id % 7 = 1",
    "UPDATE orders SET id = id + 1000 WHERE id > 35",
)


class Stop(Exception):
    """Ends a run where a crash could."""


def compact(pipe: Pipe, table: str = "orders") -> None:
    """Someone's compaction of what readers see."""
    pipe.spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files("
        f"table => '{pipe.database}.{table}', options => map('rewrite-all', 'true'))"
    )


def stop_after_merge(pipe: Pipe) -> None:
    """A run that ends between its merge and its publish: staging is ahead of what readers see."""

    def stop(event: Event) -> None:
        if isinstance(event, Merged):
            raise Stop

    with pytest.raises(Stop):
        pipe.run(observe=stop)


def stop_after_wave(pipe: Pipe) -> None:
    """A run that ends in mid-copy."""

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            raise Stop

    with pytest.raises(Stop):
        pipe.run(observe=stop)


def files_of(pipe: Pipe, pattern: str) -> list[File]:
    """Files of the table that readers see."""
    paths = pipe.spark.sql(f"SELECT file_path FROM {CATALOG}.{pipe.database}.orders.files").collect()
    [location] = {Place.of(row[0].rpartition("/data/")[0]) for row in paths}
    return at(location, pipe.config.target.storage).listed(pattern)


@pytest.mark.long("whole runs")
def test_a_compaction_between_runs_is_built_on(pipe: Pipe) -> None:
    """Of a table that stands still, and of one with a merge that was not published yet; nothing is copied again."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    compact(pipe)
    pipe.assert_equal()
    assert [table.state for table in status(pipe.config)] == ["published"]
    pipe.run()
    pipe.assert_equal()
    pipe.sql(CHANGES[0])
    stop_after_merge(pipe)
    pipe.sql(*CHANGES[1:])
    compact(pipe)
    compact(pipe)
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(WaveCommitted)) == waves


@pytest.mark.long("whole runs")
@pytest.mark.parametrize(
    "options", ["'rewrite-all', 'true'", "'rewrite-all', 'true', 'remove-dangling-deletes', 'true'"]
)
def test_small_runs_after_a_compaction_need_no_spark(pipe: Pipe, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletes of files that are gone are not counted: every publish knows how many rows it has."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)
    pipe.run()
    name = f"{pipe.database}.orders"
    pipe.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', options => map({options}))").collect()

    def start(_: Executors) -> NoReturn:
        raise AssertionError("a run has started Spark")

    with monkeypatch.context() as patch:
        patch.setattr(Executors, "open", start)
        for number in range(3):
            pipe.sql(
                f"UPDATE orders SET v = 'run {number}' WHERE id < {number + 5}",
                f"INSERT INTO orders VALUES ({2000 + number}, '')",
            )
            pipe.run()
    pipe.assert_equal()


RUNS = 10  # before a compaction, and after it
MAINTENANCE = {
    "all": ("rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",),
    "some": ("rewrite_data_files(table => '{t}', options => map('delete-file-threshold', '1'))",),
    "none left": (
        "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))",
    ),
    "deletes": (
        "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
        "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    ),
}


@pytest.mark.long("measures many runs")
@pytest.mark.parametrize("way", MAINTENANCE)
def test_small_runs_take_no_longer_after_a_compaction(pipe: Pipe, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU time of the quickest run, in its own process: neighbours slow single runs down."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)
    pipe.run()

    def start(_: Executors) -> NoReturn:
        raise AssertionError("a run has started Spark")

    def quickest(first: int) -> float:
        seconds = []
        for number in range(first, first + RUNS):
            pipe.sql(f"UPDATE orders SET v = 'run {number}' WHERE id < {number % 9 + 3}")
            began = time.process_time()
            pipe.run()
            seconds.append(time.process_time() - began)
        return min(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(Executors, "open", start)
        before = quickest(0)
    for procedure in MAINTENANCE[way]:
        pipe.spark.sql(f"CALL {CATALOG}.system.{procedure.format(t=f'{pipe.database}.orders')}").collect()
    monkeypatch.setattr(Executors, "open", start)
    after = quickest(RUNS)
    print(f"{way}: {before:.3f} s before, {after:.3f} s after, ratio {after / before:.2f}")  # noqa: T201
    assert after < 1.3 * before
    monkeypatch.undo()
    pipe.assert_equal()


def drop_branch(pipe: Pipe) -> None:
    """Someone's retention removes our staging, published or not."""
    [name] = [row["tableName"] for row in pipe.spark.sql(f"SHOW TABLES IN {CATALOG}.{pipe.database}").collect()]
    pipe.spark.sql(f"ALTER TABLE {CATALOG}.{pipe.database}.{name} DROP BRANCH {STAGING}")


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_branch_that_is_gone_is_made_anew(pipe: Pipe) -> None:
    """What was merged and not published is merged again from the spool, though the binlog has moved on."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    waves, merged = len(pipe.seen(WaveCommitted)), len(pipe.seen(Merged))
    pipe.sql(*CHANGES)
    stop_after_merge(pipe)
    drop_branch(pipe)
    pipe.run()
    pipe.assert_equal()
    assert (len(pipe.seen(WaveCommitted)), len(pipe.seen(Merged))) == (waves, merged + 2)
    drop_branch(pipe)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_copy_that_nobody_has_seen_is_made_anew_without_its_branch(pipe: Pipe) -> None:
    """Its rows were nowhere else: they are read again."""
    pipe.sql(ORDERS, ROWS)
    stop_after_wave(pipe)
    drop_branch(pipe)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_dropped_column_stops_the_run_and_check_says_so(pipe: Pipe) -> None:
    """Nothing is published on it; with the copy dropped, the table is copied again."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    name = f"{CATALOG}.{pipe.database}.orders"
    pipe.spark.sql(f"ALTER TABLE {name} DROP COLUMN v")
    pipe.sql(CHANGES[1])
    found = f"{pipe.database}.orders: someone else changed its columns: v was dropped; `lakeingest rollback"
    with pytest.raises(ForeignWrite, match=re.escape(found)):
        pipe.run()
    assert any(found in (one.finding or "") for one in check(pipe.config, pipe.spark).problems)
    pipe.spark.sql(f"DROP TABLE {name}")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_compaction_in_mid_run_is_built_on(pipe: Pipe) -> None:
    """The same run merges once more, on top of it, and publishes."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)

    def once(event: Event) -> None:
        if isinstance(event, Merged) and len(pipe.seen(Merged)) == merged + 1:
            compact(pipe)

    merged = len(pipe.seen(Merged))
    result = pipe.run(observe=once)
    assert result.tables[0].published
    assert len(pipe.seen(Merged)) == merged + 2
    pipe.assert_equal()


@pytest.mark.long("many compactions by Spark")
def test_compactions_without_end_are_waited_out(pipe: Pipe) -> None:
    """After five tries the run ends, to be run again later; readers see what they saw."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    seen, merged = pipe.rows("orders"), len(pipe.seen(Merged))
    pipe.sql(*CHANGES)

    def always(event: Event) -> None:
        if isinstance(event, Merged):
            compact(pipe)

    with pytest.raises(MainMoved, match=r"orders: .* run the same command again") as raised:
        pipe.run(observe=always)
    assert raised.value.exit_code == 75
    assert len(pipe.seen(Merged)) == merged + PUBLISH_TRIES
    assert pipe.rows("orders") == seen
    pipe.run()
    pipe.assert_equal()


@pytest.mark.parametrize("when", ["between runs", "in mid-run"])
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("in mid",))
def test_a_foreign_row_stops_us_until_it_is_rolled_back(pipe: Pipe, when: str) -> None:
    """Also below a compaction; what readers see is left as it is."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    table = TableId(pipe.database, "orders")
    published = IcebergTarget(pipe.config.target).inspect(table)
    assert published is not None
    pipe.sql(*CHANGES)

    def write(event: Event | None = None) -> None:
        if event is None or isinstance(event, Merged):
            pipe.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (99, 'foreign')")
            compact(pipe)

    if when == "between runs":
        write()
    with pytest.raises(ForeignWrite, match=f"{table}: someone else wrote") as raised:
        pipe.run(observe=write if when == "in mid-run" else None)
    assert raised.value.exit_code == 3
    assert (99, "foreign") in pipe.rows("orders")
    pipe.spark.sql(f"CALL {CATALOG}.system.set_current_snapshot('{table}', {published.version})")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_main_rolled_back_is_brought_forward_again(pipe: Pipe) -> None:
    """Someone shows readers an older publish: the next run publishes what it had, though the source stands still."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    older = IcebergTarget(pipe.config.target).inspect(TableId(pipe.database, "orders"))
    assert older is not None
    pipe.sql(*CHANGES)
    pipe.run()
    pipe.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{pipe.database}.orders', {older.version})")
    assert len(pipe.rows("orders")) == 40
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variation in several runs")
def test_the_spool_is_kept_for_what_readers_see(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """A run of other tables forgets nothing that a compaction could make us merge again, though the binlog is gone."""
    pipe = pipe_on(mysql_server_with(server_id="93"), chunk_rows=10)
    pipe.sql(ORDERS, ROWS, "CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    pipe.run()
    pipe.sql(*CHANGES)
    stop_after_merge(pipe)
    pipe.sql("INSERT INTO other VALUES (2)")
    pipe.run("other")
    pipe.sql("FLUSH BINARY LOGS")
    with pipe.connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        last = cursor.fetchall()[-1][0]
    pipe.run("other")
    pipe.sql(f"PURGE BINARY LOGS TO '{last}'")
    compact(pipe)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_spool_that_does_not_reach_back_is_filled_from_the_binlog(pipe: Pipe) -> None:
    """Compacted in mid-run, the table needs more than this run's spool has: the next run opens one that has it."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)
    stop_after_merge(pipe)
    remove(pipe.state)
    pipe.sql("INSERT INTO orders VALUES (-1, 'new')")

    def moved(event: Event) -> None:
        if isinstance(event, Merged):
            compact(pipe)

    with pytest.raises(MainMoved):
        pipe.run(observe=moved)
    waves = len(pipe.seen(WaveCommitted))
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(WaveCommitted)) == waves


@pytest.mark.long("whole runs")
def test_a_data_file_that_someone_deleted_is_named(pipe: Pipe) -> None:
    """The run says which; with the file back it goes on."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)
    [gone, *_] = files_of(pipe, "data/*.parquet")
    contents = gone.read()
    gone.delete()
    with pytest.raises(StateUnreadable, match=re.escape(gone.name)) as raised:
        pipe.run()
    assert "\n" not in str(raised.value)
    gone.write(contents)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.local("a store has no files that a power loss empties")
@pytest.mark.parametrize("pattern", ["data/*.parquet", "metadata/snap-*.avro", "metadata/*.metadata.json"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_file_of_the_last_commit_that_is_empty_is_gone_back_from(pipe: Pipe, pattern: str) -> None:
    """As a power loss leaves one on a disk that forgets what it synced: the run says so, and copies nothing again."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql(*CHANGES)
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    newest = max(map(on_disk, files_of(pipe, pattern)), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(b"")
    pipe.sql("INSERT INTO orders VALUES (-1, 'new')")
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(WentBack)) == 1
    assert len(pipe.seen(WaveCommitted)) == waves


@pytest.mark.local("a file stands where a folder was")
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_spool_that_executors_cannot_write_is_named(pipe: Pipe) -> None:
    """Also in mid-run, on an executor: the line names the folder; with the folder back it goes on."""
    pipe.sql(ORDERS, ROWS)
    spool = on_disk(pipe.state) / "spool"
    data, away = spool / "data", spool / "away"

    def block(event: Event) -> None:
        if isinstance(event, Spooled) and not away.exists():
            data.rename(away)
            data.touch()
            pipe.sql("DELETE FROM orders WHERE id = 1")

    with pytest.raises(StorageFailed, match=re.escape(str(pipe.state))) as raised:
        pipe.run(observe=block)
    assert "\n" not in str(raised.value)
    data.unlink()
    away.rename(data)
    pipe.run()
    pipe.assert_equal()
