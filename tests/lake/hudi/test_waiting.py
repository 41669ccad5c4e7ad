"""Data files that no commit in a Hudi table's timeline needs: they wait for queries that have begun before."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from lakeingest.config import Config, History
from lakeingest.config import Target as Settings
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi.cleaning import clean
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.options import most_commits
from lakeingest.lake.hudi.statement import rows_at
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import writes
from lakeingest.lake.waiting import Removal, Waiting, waiting_of
from tests.lake.clocks import Clock
from tests.lake.iceberg.test_waiting import dying
from tests.lake.steps import PLAIN, Crash, Lake, Row
from tests.servers.engines import HUDI_RS

READERS = timedelta(minutes=30)
HISTORY = {"keep": "0s", "least": 8, "readers": "30m"}
Queries = dict[str, tuple[list[Path], int]]  # of each commit the files that a query on it has found, and its number


@pytest.fixture
def lake(tmp_path: Local) -> Lake:
    """A table that is written without Spark."""
    given = {"format": "hudi", "catalog": {"type": "path"}, "warehouse": tmp_path / "warehouse", "history": HISTORY}
    settings, schema = Settings.model_validate(given), TableSchema(TableId("shop", "orders"), PLAIN, ("id",))
    target = lambda: HudiTarget(settings, tmp_path / "staging")  # noqa: E731
    return Lake(settings, target, cast("SparkSession", None), schema, {})


def folder(lake: Lake) -> Local:
    """Where the table is."""
    return Local(str(files.at(lake.settings.folder(lake.table), lake.settings.storage)))


def waiting(lake: Lake) -> Waiting:
    """What waits."""
    return Waiting(Local(lake.settings.warehouse.path.parent / "waiting" / str(lake.table)), READERS)


def publishes(lake: Lake, numbers: range) -> Queries:
    """Merge and publish once for each number; queries on each of these commits that have begun and read nothing yet."""
    begun = {}
    for number in numbers:
        lake.publish(lake.merge(lake.loaded(), (number % 3, f"v{number}", False), pos=100 + number))
        found = our_last_commit(lake.table, folder(lake))
        assert found is not None
        begun[found.time] = [Path(str(file)) for file in visible_files(folder(lake), found.time)], number
    return begun


def start(lake: Lake) -> None:
    """A published table of nine rows."""
    lake.published(*((key, "a") for key in range(9)))


def expected(number: int) -> list[Row]:
    """The rows after the publish of this number."""
    return sorted((dict.fromkeys(range(9), "a") | {one % 3: f"v{one}" for one in range(number + 1)}).items())


def rows_in(found: list[Path]) -> list[Row]:
    """The rows of these files."""
    rows = pa.concat_tables([pq.read_table(file, columns=["id", "v"], partitioning=None) for file in found])
    return sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def assert_readable(begun: Queries) -> None:
    """Each query finds all rows of its commit."""
    for found, number in begun.values():
        assert rows_in(found) == expected(number)


def archive(place: Local, kept: int = 2) -> None:
    """Take all commits but the last ones out of the timeline, and the cleanings before these, as Hudi does."""
    first = sorted(begun for _, begun, _ in writes(place))[-kept]
    entries = list((place / ".hoodie" / "timeline").glob("*.*"))
    done = {file.name.partition("_")[0] for file in entries if "_" in file.name}
    for file in entries:
        instant = file.name.partition(".")[0].partition("_")[0]
        if instant in done and instant < first:
            file.unlink()


def needed(place: Local) -> set[Path]:
    """The files that the commits of the timeline read."""
    return {Path(str(file)) for _, begun, _ in writes(place) for file in visible_files(place, begun)}


def files_in(place: Path) -> set[Path]:
    """All data files."""
    return set(place.glob("*.parquet"))


def begun_by_spark(place: Local, instant: str, spark: SparkSession, *, by_instant: bool) -> DataFrame:
    """A query by Spark that has begun on the commit that readers see: it has its plan."""
    rows = rows_at(place, instant, spark) if by_instant else spark.read.format("hudi").load(str(place))
    rows = rows.select("id", "v")
    rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 - a query that runs has its plan
    return rows


def clean_by_hudi(place: Path, spark: SparkSession) -> None:
    """Someone lets Hudi's own cleaner keep the last commit alone."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS to_clean USING hudi LOCATION '{place}'")
    before = files_in(place)
    try:
        spark.sql("CALL run_clean(table => 'to_clean', retain_commits => 1)").collect()
    finally:
        spark.sql("DROP TABLE to_clean")
    assert files_in(place) < before


class BegunByHudiRs:
    """A process that has planned a query of hudi-rs, and reads when it is told to."""

    PROGRAM = """
import json, sys, pyarrow, pyarrow.parquet
from hudi import HudiTableBuilder
place, out = sys.argv[1:]
table = HudiTableBuilder.from_base_uri(place).build()
slices = table.get_file_slices()
reader = table.create_file_group_reader_with_options()
print("begun", flush=True)
sys.stdin.readline()
batches = [reader.read_file_slice(one) for one in slices]
pyarrow.parquet.write_table(pyarrow.Table.from_batches(batches), out)
"""

    def __init__(self, process: "subprocess.Popen[str]", out: Path) -> None:
        self._process, self._out = process, out

    @classmethod
    def on(cls, place: Path, folder: Path) -> Self:
        """A query that has begun on what readers see now."""
        out = folder / "rows.parquet"
        paths = [str(HUDI_RS.installed()), *(path for path in sys.path if path.endswith("site-packages"))]
        process = subprocess.Popen(
            [sys.executable, "-c", cls.PROGRAM, str(place), str(out)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return cls(process, out)

    def rows(self) -> list[Row]:
        """What it reads now."""
        self._process.communicate("\n", timeout=60)
        assert self._process.returncode == 0
        return rows_in([self._out])


def test_a_query_goes_on_on_the_commit_on_which_it_began(lake: Lake, clock: Clock) -> None:
    """Also when the commit was archived; half an hour after that its files go, and those of the timeline stay."""
    start(lake)
    begun, place = publishes(lake, range(7)), folder(lake)
    archive(place)
    clean(place, waiting(lake))
    clock.passes(READERS.total_seconds() - 1)
    later = publishes(lake, range(7, 11))
    archive(place)
    clean(place, waiting(lake))
    assert_readable(begun | later)
    clock.passes(1)
    clean(place, waiting(lake))
    assert not all(file.exists() for file in next(iter(begun.values()))[0])
    assert_readable(later)
    clock.passes(READERS.total_seconds())
    clean(place, waiting(lake))
    assert files_in(place) == needed(place)
    assert waiting(lake).all() == []
    assert_readable(publishes(lake, range(11, 13)))


@pytest.mark.parametrize("jump", [pytest.param(-365 * 86_400, id="back"), pytest.param(365 * 86_400, id="ahead")])
def test_a_clock_that_jumps_takes_no_file_from_a_query(lake: Lake, clock: Clock, jump: float) -> None:
    """Only time counts that certainly passed."""
    start(lake)
    begun, place = publishes(lake, range(5)), folder(lake)
    archive(place)
    clean(place, waiting(lake))
    clock.wall += jump
    clean(place, waiting(lake))
    assert_readable(begun)
    clock.passes(READERS.total_seconds())
    clean(place, waiting(lake))
    assert files_in(place) == needed(place)


def test_a_state_folder_that_was_lost_takes_no_file_from_a_query(lake: Lake, clock: Clock) -> None:
    """What waited waits from then on once more, as where another owner begins with a folder of its own."""
    start(lake)
    begun, place = publishes(lake, range(5)), folder(lake)
    archive(place)
    clean(place, waiting(lake))
    clock.passes(READERS.total_seconds() - 1)
    shutil.rmtree(str(waiting(lake).folder))
    clean(place, waiting(lake))
    clock.passes(READERS.total_seconds() - 1)
    clean(place, waiting(lake))
    assert_readable(begun)
    clock.passes(1)
    clean(place, waiting(lake))
    assert files_in(place) == needed(place)


@pytest.mark.long("the same at other steps", only=("nothing is stored", "nothing is deleted", "it begins to say it"))
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(Local, "create", 0, id="nothing is stored"),
        pytest.param(Local, "put", 0, id="the timeline does not say what is whole"),
        pytest.param(Local, "put", 1, id="it begins to say it"),
        pytest.param(Local, "put", 2, id="it does not say it in full"),
        pytest.param(Local, "delete_together", 0, id="nothing is deleted"),
        pytest.param(Path, "unlink", 1, id="one file is deleted"),
        pytest.param(Removal, "drop", 0, id="all is deleted and the removal stays"),
    ],
)
@pytest.mark.long(
    "the same at other steps",
    only=(
        "the timeline does not say what is whole",
        "it does not say it in full",
        "all is deleted and the removal stays",
    ),
)
def test_a_removal_survives_a_kill_at_every_step(
    lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int
) -> None:
    """Nothing goes too early, no row is lost, and in the end nothing is left over."""
    start(lake)
    begun, place = publishes(lake, range(4)), folder(lake)
    for number in range(4, 12, 4):
        archive(place)
        with monkeypatch.context() as patch, suppress(Crash):
            dying(patch, owner, name, after)
            clean(place, waiting(lake))
        assert_readable(begun)
        begun = publishes(lake, range(number, number + 4))
        clock.passes(READERS.total_seconds())
    assert_readable(begun)
    archive(place)
    clean(place, waiting(lake))
    clock.passes(READERS.total_seconds())
    clean(place, waiting(lake))
    assert files_in(place) == needed(place)
    assert waiting(lake).all() == []
    assert_readable(publishes(lake, range(12, 13)))


def test_a_table_that_was_restored_keeps_the_files_of_its_commits(lake: Lake, clock: Clock) -> None:
    """Someone puts an older copy of its folder in its place, whose commits were archived since."""
    start(lake)
    begun, place = publishes(lake, range(5)), folder(lake)
    shutil.copytree(place, place.with_name("copy"))
    publishes(lake, range(5, 10))
    archive(place)
    clean(place, waiting(lake))
    shutil.rmtree(place)
    place.with_name("copy").rename(place)
    clock.passes(READERS.total_seconds())
    clean(place, waiting(lake))
    assert_readable(begun)


def test_a_savepoint_keeps_the_files_of_its_commit(lake: Lake, clock: Clock) -> None:
    """And of those after it."""
    start(lake)
    begun, place = publishes(lake, range(6)), folder(lake)
    saved = sorted(begun)[2]
    archive(place)
    (place / ".hoodie" / "timeline" / f"{saved}_{saved}.savepoint").write_bytes(b"")
    clean(place, waiting(lake))
    clock.passes(READERS.total_seconds())
    clean(place, waiting(lake))
    assert not all(file.exists() for file in next(iter(begun.values()))[0])
    assert_readable({instant: query for instant, query in begun.items() if instant >= saved})


@pytest.mark.long("measures many publishes")
def test_a_publish_is_as_quick_whether_files_wait_or_not(lake: Lake) -> None:
    """Both ways take turns; of one table two thousand files wait."""
    full = replace(lake, schema=TableSchema(TableId("shop", "b"), PLAIN, ("id",)))
    for one in (lake, full):
        start(one)
    publishes(full, range(3))
    archive(folder(full), 1)
    for number, file in enumerate(sorted(files_in(folder(full))) * 300):
        group, token, _ = file.stem.split("_")
        shutil.copy(file, file.with_name(f"{group}_{token}_{20200101000000000 + number}.parquet"))
    assert len(files_in(folder(full))) > 2000
    seconds = {str(one.table): list[float]() for one in (lake, full)}
    for number in range(24):
        for one in (lake, full):
            merged = one.merge(one.loaded(), (number % 3, f"v{number}", False), pos=200 + number)
            began = time.process_time()
            one.publish(merged)
            seconds[str(one.table)].append(time.process_time() - began)
            archive(folder(one))
    without, waiting_too = (min(found) for found in seconds.values())  # neighbours slow single publishes down
    print(f"least CPU seconds of a publish: {without:.3f}, {waiting_too:.3f} with files that wait")  # noqa: T201
    assert waiting_too < 1.2 * without


@pytest.mark.spark
@pytest.mark.formats("hudi")
@pytest.mark.long("publishes by Spark")
def test_readers_of_every_kind_go_on(
    lake: Lake, lake_config: Config, spark: SparkSession, clock: Clock, tmp_path: Path
) -> None:
    """Queries of Spark and of hudi-rs go on when Hudi has archived their commit; a new one on it is refused."""
    history = History.model_validate({**HISTORY, "least": 2})
    target = lake_config.target.model_copy(update={"history": history})
    config = lake_config.model_copy(update={"target": target})
    lake = replace(lake, settings=target, open=lambda: open_target(config, lambda: spark), spark=spark)
    removals = waiting_of(Local(config.state.path / "waiting"), lake.table, target.history)
    start(lake)
    begun, place = Queries(), folder(lake)
    by_spark: dict[str, DataFrame] = {}
    for number in range(14):
        begun |= publishes(lake, range(number, number + 1))
        if number % 3 == 0:
            by_spark[max(begun)] = begun_by_spark(place, max(begun), spark, by_instant=number % 2 == 0)
        if number == 2:
            by_hudi_rs, third = BegunByHudiRs.on(place, tmp_path), number
    kept = {start for _, start, _ in writes(place)}
    assert len(kept) <= most_commits(2)
    assert len(begun.keys() - kept) >= 6
    assert_readable(begun)
    for instant, rows in by_spark.items():
        assert sorted(tuple(row) for row in rows.collect()) == expected(begun[instant][1])
    assert sorted(by_hudi_rs.rows()) == expected(third)
    with pytest.raises((Py4JJavaError, IllegalArgumentException), match="leaned"):  # its files may go at any time
        rows_at(place, min(begun), spark).collect()
    clock.passes(READERS.total_seconds())
    clean(place, removals)
    for instant in kept:
        assert sorted(tuple(row) for row in rows_at(place, instant, spark).collect()) == expected(begun[instant][1])
    assert lake.seen() == expected(13)
    assert {file for instant in kept for file in begun[instant][0]} <= files_in(place)
    assert not all(file.exists() for file in begun[min(begun)][0])
    publishes(lake, range(14, 22))  # Hudi goes on from what the timeline says now
    assert lake.seen() == expected(21)
    publishes(lake, range(22, 24))
    clean_by_hudi(place, spark)  # takes files from queries on older commits, and nothing else
    publishes(lake, range(24, 26))
    assert lake.seen() == expected(25)
