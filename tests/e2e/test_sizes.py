"""Chunks of a bounded size, whatever the table looks like: seen by its data files, of which each chunk makes one."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves import chunks
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ChunkTooSlow
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.events import Event, Merged, Spooled, WaveCommitted
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

WIDE_BYTES = 200_000


@pytest.fixture
def auto(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline with `chunk_rows: auto`."""
    return pipe_on(mysql_server)


def numbers(pipe: Pipe, count: int, value: str = "''") -> None:
    """Insert rows with the keys 1, 2, 3 … into the table `t`."""
    pipe.sql(
        f"SET SESSION cte_max_recursion_depth = {count}",
        f"INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" SELECT i, {value} FROM n",
    )


def wide(pipe: Pipe, count: int, options: str = "") -> None:
    """A table `t` of wide rows."""
    pipe.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT) {options}")
    numbers(pipe, count, f"REPEAT('x', {WIDE_BYTES})")


def chunk_rows(pipe: Pipe) -> list[int]:
    """The rows of each chunk that had any."""
    files = pipe.spark.table(f"lake.{pipe.database}.t.files").collect()
    return [int(file["record_count"]) for file in files]


def waves(pipe: Pipe) -> list[WaveCommitted]:
    """The waves so far."""
    return [event for event in pipe.events if isinstance(event, WaveCommitted)]


@pytest.mark.parametrize(("far", "most"), [(120_000, 100), (2 * 1201, 200)])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_cluster_of_keys_and_a_far_one_make_chunks_of_bounded_rows(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, far: int, most: int
) -> None:
    """Cut by the server where keys are sparse on the whole; by arithmetic into no more than twice the wanted rows."""
    pipe = pipe_on(mysql_server, chunk_rows=100)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    numbers(pipe, 1200)
    pipe.sql(f"INSERT INTO t VALUES ({far}, 'far')", "ANALYZE TABLE t")
    pipe.run()
    assert sum(chunk_rows(pipe)) == 1201
    assert most / 2 < max(chunk_rows(pipe)) <= most
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_wide_rows_are_cut_by_bytes_from_the_first_wave(auto: Pipe) -> None:
    """The server's estimate of bytes decides where nothing is measured yet."""
    wide(auto, 300)
    auto.sql("ANALYZE TABLE t")
    auto.run()
    assert sum(wave.rows for wave in waves(auto)) == 300
    assert len(waves(auto)) == 2  # the first is there to learn from; no chunk is given up
    assert max(chunk_rows(auto)) * WIDE_BYTES <= chunks.TARGET_BYTES
    auto.assert_equal()


@pytest.mark.long("many rows")
def test_rows_that_are_wider_than_estimated_are_cut_finer(auto: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that are not there yet make one chunk of all; its reader gives up before its memory is full."""
    monkeypatch.setattr("lakeingest.pipeline.copying.waves.BYTES_MAX", 8 << 20)
    monkeypatch.setattr(chunks, "FIRST_ROWS", 400)
    wide(auto, 300, "STATS_AUTO_RECALC = 0")
    auto.run()
    assert sum(chunk_rows(auto)) == 300
    assert max(chunk_rows(auto)) * WIDE_BYTES <= 8 << 20
    auto.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_chunks_of_a_narrow_table_grow(auto: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wave has chunks of so many times the rows while they stay below the targets."""
    monkeypatch.setattr(chunks, "FIRST_ROWS", 50)
    monkeypatch.setattr(chunks, "TARGET_SECONDS", 60.0)  # this machine may be busy with other things
    auto.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    numbers(auto, 20_000)
    auto.sql("ANALYZE TABLE t")
    auto.run()
    sizes = [wave.rows // wave.chunks for wave in waves(auto) if not wave.complete]
    assert len(sizes) > 2
    assert all(two == pytest.approx(chunks.GROWTH * one, rel=0.05) for one, two in pairwise(sizes))
    auto.assert_equal()


@pytest.mark.long("many rows")
def test_a_chunk_that_is_too_slow_is_cut_finer(auto: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives it up; nothing of its wave is committed, and smaller chunks come to an equal table."""
    monkeypatch.setattr("lakeingest.pipeline.copying.waves.SECONDS_MAX", 0.1)
    monkeypatch.setattr(chunks, "TARGET_BYTES", 1 << 40)
    monkeypatch.setattr(chunks, "FIRST_ROWS", 600)
    wide(auto, 600)
    auto.sql("UPDATE t SET v = 'changed' WHERE id = 5")
    auto.run()
    assert sum(chunk_rows(auto)) == 600
    assert max(chunk_rows(auto)) < 600
    auto.assert_equal()


@pytest.mark.long("many rows")
def test_a_chunk_of_fixed_rows_that_is_too_slow_is_named(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's setting is obeyed, and the error names it; with other rows the same run goes on."""
    pipe = pipe_on(mysql_server, chunk_rows=600)
    wide(pipe, 600)
    with monkeypatch.context() as patched:
        patched.setattr("lakeingest.pipeline.copying.waves.SECONDS_MAX", 0.02)  # 120 MB
        with pytest.raises(ChunkTooSlow, match=rf"{pipe.database}\.t: .* set a smaller chunk_rows"):
            pipe.run()
    pipe.run()
    assert chunk_rows(pipe) == [600]
    pipe.assert_equal()


@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_splits_of_a_busy_table_stay_few(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wave has marks of its own; merges lift them to one before a commit has to carry too many."""
    monkeypatch.setattr("lakeingest.pipeline.copying.waves.MERGE_SPLITS", 3)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    numbers(pipe, 400)
    target, carried = open_target(pipe.config), list[int]()

    def change(event: Event) -> None:
        if isinstance(event, Spooled) and len(carried) < 5:  # a wave is read, and the next one has not begun
            pipe.sql(f"UPDATE t SET v = 'new' WHERE id % 50 = {len(carried)}")
        if isinstance(event, WaveCommitted):
            staged = target.inspect(TableId(pipe.database, "t"))
            assert staged is not None
            carried.append(len(staged.progress.splits.all))

    pipe.run(observe=change)
    assert carried == [1, 2, 3, 2, 3]  # the chunks of a wave have one mark while nobody writes
    assert len(pipe.seen(Merged)) == 2
    pipe.assert_equal()
