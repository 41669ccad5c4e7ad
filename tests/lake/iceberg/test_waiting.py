"""Files that no retained commit of an Iceberg table needs: they wait for queries that have begun before."""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.table import DataScan, Table
from pyspark.sql import SparkSession

from lakeingest.config import Target as Settings
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.lake import waiting as waits
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Staged
from tests.lake.clocks import Clock
from tests.lake.iceberg.test_commit import table_of
from tests.lake.iceberg.test_expiry import expected, local, read, referenced
from tests.lake.iceberg.test_expiry import files as all_files
from tests.lake.iceberg.test_leftovers import aged
from tests.lake.steps import PLAIN, Crash, Lake

READERS = timedelta(minutes=30)
DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table that retains its last two commits, and the files of the others for half an hour."""
    monkeypatch.setattr(expiry, "WORTH", 2)
    history = {"keep": "0s", "least": 2, "readers": "30m"}
    settings = Settings.model_validate({"warehouse": tmp_path / "warehouse", "history": history})
    schema = TableSchema(TableId("shop", "orders"), PLAIN, ("id",))
    target = lambda: IcebergTarget(settings, waiting=tmp_path / "waiting")  # noqa: E731
    return Lake(settings, target, cast("SparkSession", None), schema, {})


def folder(lake: Lake) -> Path:
    """Where the removals of the table wait."""
    return lake.settings.warehouse.path.parent / "waiting" / str(lake.table)


def publishes(lake: Lake, numbers: range) -> dict[int, DataScan]:
    """Merge and publish once for each number; queries on each of these commits that have begun and read nothing yet."""
    begun = {}
    for number in numbers:
        staged = lake.publish(lake.merge(lake.loaded(), (number % 7, f"n{number}", False), pos=100 + number))
        begun[number] = table_of(lake).scan(snapshot_id=staged.version)
    return begun


def start(lake: Lake) -> Staged:
    """A published table of seven rows."""
    return lake.published(*((key, "a") for key in range(7)))


def assert_readable(begun: dict[int, DataScan]) -> None:
    """Each query finds all rows of its commit."""
    for number, scan in begun.items():
        assert {row["id"]: row["v"] for row in scan.to_arrow().to_pylist()} == expected(number)


def removals(lake: Lake) -> list[Path]:
    """What waits."""
    return [path for path in sorted(folder(lake).glob("*.json")) if path.name != waits.BEGAN]


@pytest.mark.long("takes seconds")
def test_a_query_goes_on_on_the_commit_on_which_it_began(lake: Lake, clock: Clock) -> None:
    """Also when the commit is retained no more; half an hour after that its files go, and those of the others stay."""
    start(lake)
    begun = publishes(lake, range(7))
    assert len(table_of(lake).metadata.snapshots) < 7
    clock.passes(READERS.total_seconds() - 1)
    later = publishes(lake, range(7, 11))
    assert_readable(begun | later)
    clock.passes(1)
    later |= publishes(lake, range(11, 15))
    with pytest.raises(FileNotFoundError):
        begun[0].to_arrow()
    assert_readable(later)
    clock.passes(READERS.total_seconds())
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert all_files(table_of(lake)) == referenced(table_of(lake))
    assert removals(lake) == []


@pytest.mark.long("the same with other jumps", only=("back",))
@pytest.mark.long("one of the boots in turn", turn="boot")
@pytest.mark.parametrize("boot", ["first", "second"])
@pytest.mark.parametrize(
    "jump", [pytest.param(-365 * DAY.total_seconds(), id="back"), pytest.param(365 * DAY.total_seconds(), id="ahead")]
)
def test_a_clock_that_jumps_takes_no_file_from_a_query(lake: Lake, clock: Clock, jump: float, boot: str) -> None:
    """The machine's clock is set while it runs, or is wrong after a restart: only time that certainly passed counts."""
    start(lake)
    begun = publishes(lake, range(5))
    clock.wall += jump
    clock.since_boot = 20.0 if boot != clock.boot else clock.since_boot
    clock.boot = boot
    begun |= publishes(lake, range(5, 8))
    lake.open().remove_leftovers(lake.table, DAY)
    assert_readable(begun)
    clock.passes(READERS.total_seconds())
    lake.open().remove_leftovers(lake.table, DAY)
    assert not any(local(one).exists() for one in lists(begun[0]))


def lists(scan: DataScan) -> list[str]:
    """The list of manifests of a query's commit."""
    snapshot = scan.snapshot()
    return [] if snapshot is None else [snapshot.manifest_list]


def dying(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int) -> None:
    """The process ends instead of a call of this function, after so many of them."""
    real: Callable[..., Any] = getattr(owner, name)
    left = [after]

    def call(*given: Any, **options: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return real(*given, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(waits.Waiting, "add", 0, id="the removal is not stored"),
        pytest.param(Local, "create", 0, id="nothing is stored"),
        pytest.param(Local, "create", 1, id="the beginning alone is stored"),
        pytest.param(waits.Removal, "drop", 0, id="all is deleted and the removal stays"),
        pytest.param(expiry, "_remove", 0, id="nothing is deleted"),
    ],
)
@pytest.mark.long("a kill at each step")
def test_a_removal_survives_a_kill_at_every_step(
    lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int
) -> None:
    """Nothing goes too early, and in the end nothing is left over."""
    start(lake)
    begun = publishes(lake, range(3))
    with monkeypatch.context() as patch:
        dying(patch, owner, name, after)
        for number in range(3, 7):
            with suppress(Crash):
                begun |= publishes(lake, range(number, number + 1))
        assert_readable(begun)
        clock.passes(READERS.total_seconds())
        with suppress(Crash):
            lake.open().remove_leftovers(lake.table, DAY)
    publishes(lake, range(7, 10))
    clock.passes(READERS.total_seconds())
    lake.open().remove_leftovers(lake.table, DAY)
    assert all_files(table_of(lake)) == referenced(table_of(lake))


@pytest.mark.long("takes seconds")
def test_a_deletion_that_is_interrupted_is_finished(lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some files of a removal are gone, and the store then refuses."""
    start(lake)
    publishes(lake, range(6))
    clock.passes(READERS.total_seconds())
    owner, left = type(table_of(lake).io), [1]
    real = owner.delete

    def delete(io: Any, location: str) -> None:
        if not left[0]:
            raise OSError("the store is away")
        left[0] -= 1
        real(io, location)

    with monkeypatch.context() as patch:
        patch.setattr(owner, "delete", delete)
        before = removals(lake)
        lake.open().remove_leftovers(lake.table, DAY)
        assert removals(lake) == before
    lake.open().remove_leftovers(lake.table, DAY)
    assert removals(lake) == []
    assert all_files(table_of(lake)) == referenced(table_of(lake))


@pytest.mark.long("takes seconds")
def test_maintain_leaves_what_waits_alone(lake: Lake, clock: Clock) -> None:
    """However old the files are: a commit may have needed them until just now."""
    start(lake)
    begun = publishes(lake, range(6))
    aged(table_of(lake))
    clock.passes(60)
    target = lake.open()
    lake.publish(target.maintain(lake.loaded()))
    assert target.remove_leftovers(lake.table, DAY) == (0, 0)
    assert_readable(begun)


@pytest.mark.long("takes seconds")
def test_files_whose_removal_was_lost_are_found_by_their_age(lake: Lake, clock: Clock) -> None:
    """Not before a query may have ended that began before the state was lost."""
    start(lake)
    begun = publishes(lake, range(6))
    shutil.rmtree(folder(lake))
    aged(table_of(lake))
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert_readable(begun)
    clock.passes(READERS.total_seconds() - 1)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert_readable(begun)
    clock.passes(1)
    removed, freed = lake.open().remove_leftovers(lake.table, DAY)
    assert removed > 3
    assert freed > 0
    assert all_files(table_of(lake)) == referenced(table_of(lake))


@pytest.mark.long("takes seconds")
def test_a_removal_that_was_damaged_is_as_one_that_was_lost(lake: Lake, clock: Clock) -> None:
    """Its files go by their age."""
    start(lake)
    begun = publishes(lake, range(6))
    removals(lake)[0].write_text("{")
    aged(table_of(lake))
    clock.passes(READERS.total_seconds() - 1)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert_readable(begun)
    for _ in range(2):
        clock.passes(READERS.total_seconds())
        lake.open().remove_leftovers(lake.table, DAY)
    assert all_files(table_of(lake)) == referenced(table_of(lake))


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("later", [3, 4, 5, 6])
@pytest.mark.parametrize("earlier", [2, 3, 4, 5])
def test_a_table_that_was_restored_keeps_the_files_of_its_snapshots(
    lake: Lake, clock: Clock, earlier: int, later: int
) -> None:
    """Someone registers an older metadata.json. Its snapshots, or files of them, are among those removed since."""
    start(lake)
    publishes(lake, range(earlier))
    older = table_of(lake)
    publishes(lake, range(earlier, earlier + later))
    catalog = older.catalog
    catalog.drop_table(older.name())
    catalog.register_table(older.name(), older.metadata_location)
    clock.passes(READERS.total_seconds())
    lake.open().remove_leftovers(lake.table, 10_000 * DAY)
    for snapshot in older.metadata.snapshots:
        older.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    assert removals(lake) == []


def test_a_file_that_someone_added_again_stays(lake: Lake, clock: Clock) -> None:
    """In a snapshot of theirs, after our last commit that needed it."""
    start(lake)
    [scan] = publishes(lake, range(1)).values()
    publishes(lake, range(1, 7))
    [newest, *_] = [task.file.file_path for task in scan.plan_files() if task.file.record_count == 1]
    table = table_of(lake)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "theirs").commit()  # type: ignore[arg-type]
    table.add_files([newest], branch="theirs", check_duplicate_files=False)
    clock.passes(READERS.total_seconds())
    lake.open().remove_leftovers(lake.table, 10_000 * DAY)
    assert local(newest).exists()
    theirs = table_of(lake).metadata.refs["theirs"].snapshot_id
    assert read(table_of(lake), theirs)


@pytest.mark.long("takes seconds")
def test_a_copy_that_was_made_again_loses_nothing_to_the_removals_of_the_one_before(lake: Lake, clock: Clock) -> None:
    """Their files are of a table that the catalog does not have."""
    start(lake)
    publishes(lake, range(6))
    dropped: Table = table_of(lake)
    dropped.catalog.drop_table(dropped.name())
    start(lake)
    publishes(lake, range(4))
    before = all_files(dropped)
    clock.passes(READERS.total_seconds())
    lake.open().remove_leftovers(lake.table, 10_000 * DAY)
    assert all_files(dropped) == before
    assert removals(lake) == []


@pytest.mark.long("measures many publishes")
def test_a_publish_is_as_quick_whether_files_wait_or_not(lake: Lake, tmp_path: Local) -> None:
    """Both ways take turns."""
    history = lake.settings.history.model_copy(update={"readers": timedelta(0)})
    settings, schema = (
        lake.settings.model_copy(update={"history": history}),
        TableSchema(TableId("shop", "b"), PLAIN, ("id",)),
    )
    soon = replace(lake, schema=schema, open=lambda: IcebergTarget(settings, waiting=tmp_path / "waiting"))
    seconds = {id(one): list[float]() for one in (lake, soon)}
    for one in (lake, soon):
        start(one)
    for number in range(12):
        for one in (lake, soon):
            began = time.process_time()
            one.publish(one.merge(one.loaded(), (number % 7, f"n{number}", False), pos=100 + number))
            seconds[id(one)].append(time.process_time() - began)
    assert min(seconds[id(lake)]) < 1.2 * min(seconds[id(soon)])  # neighbours slow single publishes down
