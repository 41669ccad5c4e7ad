"""What holds for Hudi alone: the commit's metadata, staging in a folder, the lock of a publish, what others do."""

import datetime as dt
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession

from lakeingest.core.copies import progress_form
from lakeingest.core.tables.schema import Column, Kind, TableId
from lakeingest.errors import ForeignWrite, NotOurTable, StaleWriter, StateUnreadable, StorageFailed, UnsupportedTable
from lakeingest.files.local import Local
from lakeingest.lake.hudi import lock
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.options import most_commits
from lakeingest.lake.hudi.publication import Publication
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.staged.staging import StagingFolder
from lakeingest.lake.target import Effects, Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.steps import Crash, Lake
from tests.servers.stores import on_disk

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

OF_ANOTHER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def folder(lake: Lake) -> Local:
    """Where readers find the table."""
    return Local(lake.settings.folder(lake.table).path)


def staging(lake: Lake) -> Local:
    """The folder of ours."""
    target = lake.open()
    assert isinstance(target, HudiTarget)
    return on_disk(target._folder) / str(lake.table)  # noqa: SLF001 - what is in it is under test


def write(lake: Lake, spark: SparkSession, row: tuple[Any, ...], **options: str) -> None:
    """Someone else's write to the table."""
    rows = spark.createDataFrame([row], "id int, v string")
    given = {"hoodie.table.name": lake.table.name, "hoodie.datasource.write.recordkey.field": "id", **options}
    rows.write.format("hudi").options(**given).mode("append").save(str(folder(lake)))


@pytest.mark.long("publishes of Hudi")
def test_every_publish_has_its_marks(lake: Lake) -> None:
    """Hudi's own commit has the position, the complete progress, its version and the one before it."""
    first = lake.published((1, "a"), pos=20)
    properties = [dict(lake.open().properties(lake.table))]
    second = lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    properties.append(dict(lake.open().properties(lake.table)))
    assert [one["lakeingest.version"] for one in properties] == [str(first.version), str(second.version)]
    assert [one["lakeingest.base"] for one in properties] == ["", str(first.version)]
    assert [one["lakeingest.position"][-2:] for one in properties] == ["20", "30"]
    assert [one["lakeingest.gate"] for one in properties] == ["{}", "{}"]
    progress = [json.loads(one["lakeingest.progress"]) for one in properties]
    assert [one["position"]["at"] for one in progress] == ["binlog.000001:20", "binlog.000001:30"]
    assert progress_form.to_json(lake.loaded().progress) == progress[1]


@pytest.mark.long("publishes of Hudi")
def test_a_publish_of_a_position_alone_is_a_commit(lake: Lake) -> None:
    """A quiet table's position moves too, and no row with it."""
    lake.published((1, "a"), pos=20)
    marked = lake.open().mark(lake.loaded(), lake.leveled(lake.loaded(), 30))
    published = lake.publish(marked)
    assert lake.loaded() == replace(published, progress=marked.progress)
    assert lake.seen() == [(1, "a")]


@pytest.mark.long("publishes of Hudi")
def test_a_merge_is_counted_without_spark(lake: Lake) -> None:
    """By the keys of files: of what readers see, under the merges since then; a commit's rows are known from that."""
    staged = lake.wave(lake.created(), [(1, "a"), (2, "b"), (3, "c")])
    assert lake.open().count(lake.table, staged.version) == 3
    staged, found = counted(lake, staged, 20, (3, "C", False), (4, "d", False), (9, None, True))
    assert found == Effects(1, 1, 0)
    staged = lake.publish(staged)
    assert lake.open().count(lake.table, staged.version) == 4
    staged, found = counted(lake, lake.loaded(), 30, (1, None, True), (5, "e", False), (2, "B", False))
    assert found == Effects(1, 1, 1)
    staged, found = counted(lake, staged, 40, (1, "a", False), (5, None, True), (5000, None, True))
    assert found == Effects(1, 0, 1)
    staged, found = counted(lake, staged, 50, (1, None, True), (5, None, True))
    assert found == Effects(0, 0, 1)
    assert lake.open().count(lake.table, staged.version) == len(lake.rows(staged)) == 3


def test_a_key_that_is_there_twice_is_named(lake: Lake) -> None:
    """Nothing is merged into such rows: a MERGE INTO would change both."""
    staged = lake.wave(lake.wave(lake.created(), [(1, "a"), (2, "b")], upper=(5,)), [(2, "again"), (6, "f")])
    assert counted(lake, staged, 20, (1, "A", False))[1] == Effects(0, 1, 0)
    with pytest.raises(StateUnreadable, match="twice"):
        counted(lake, lake.loaded(), 30, (2, "B", False))


def counted(lake: Lake, staged: Staged, pos: int, *rows: tuple[Any, ...]) -> tuple[Staged, Effects]:
    """Merge changes in a process that has no Spark."""
    target = lake.without_spark()
    written = target.merger(staged, lake.schema.key, None).write(lake.changes(rows))
    return target.commit_merge(staged, [written], lambda _: lake.leveled(staged, pos))


@pytest.mark.long("commits to Hudi many times")
def test_the_merges_between_two_publishes_are_one_commit(lake: Lake, spark: SparkSession) -> None:
    """Of several changes of a key the last one counts, and a delete is not undone by what stood before it."""
    lake.published((1, "a"), (2, "b"), (3, "c"))
    staged = lake.merge(lake.loaded(), (1, "A", False), (2, None, True), (4, "d", False), pos=30)
    staged = lake.merge(staged, (2, "again", False), (4, None, True), (3, "C", False), pos=40)
    staged = lake.merge(staged, (3, None, True), (5, "e", False), pos=50)
    expected = [(1, "A"), (2, "again"), (5, "e")]
    assert lake.rows(staged) == expected
    lake.publish(staged)
    assert lake.seen() == expected
    assert lake.rows(lake.loaded()) == expected
    assert len(list((folder(lake) / ".hoodie" / "timeline").glob("*_*.commit"))) == 2


def test_staging_is_swept_after_a_publish(lake: Lake) -> None:
    """Files that only what is published needed are gone; what was staged since then is not."""
    staged = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    lake.publish(staged)
    assert len(list(staging(lake).glob("*.json"))) == 1
    assert list((staging(lake) / "data").iterdir()) == []


@pytest.mark.long("a copy that is made once more")
def test_the_loss_of_the_staging_folder_changes_nothing_visible(lake: Lake) -> None:
    """The table itself is the checkpoint: its progress is in its commit."""
    published = lake.published((1, "a"))
    lake.merge(lake.loaded(), (2, "staged, then lost", False), pos=30)
    shutil.rmtree(staging(lake))
    found = lake.loaded()
    assert (found.version, found.published, found.visible) == (published.version, published.version, True)
    lake.publish(lake.merge(found, (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.long("commits to Hudi many times")
def test_staging_on_what_readers_no_longer_see_is_dropped(lake: Lake, spark: SparkSession) -> None:
    """Someone restored the table to an older commit: its position counts, not that of staging."""
    first = lake.published((1, "a"), pos=20)
    instant = our_last_commit(lake.table, folder(lake))
    assert instant is not None
    kept = folder(lake).with_name("kept")
    shutil.copytree(folder(lake), kept)
    staged = lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    lake.merge(replace(staged, progress=lake.loaded().progress), (3, "c", False), pos=40)
    shutil.rmtree(folder(lake))
    kept.rename(folder(lake))
    found = lake.loaded()
    assert found.version == first.version
    assert found.progress.position is not None
    assert str(found.progress.position.at) == "binlog.000001:20"
    lake.publish(lake.merge(found, (3, "again", False), pos=40))
    assert lake.seen() == [(1, "a"), (3, "again")]


def test_a_table_that_was_dropped_is_copied_again(lake: Lake) -> None:
    """Without the table its staging counts for nothing."""
    lake.merge(lake.published((1, "old")), (2, "old", False), pos=30)
    shutil.rmtree(folder(lake))
    assert lake.open().inspect(lake.table) is None
    assert lake.open().recover(lake.table) is None
    lake.publish(lake.open().mark(lake.copied((1, "new")), lake.leveled(lake.loaded(), 40)))
    assert lake.seen() == [(1, "new")]


def test_an_interrupted_first_publish_is_repeated(lake: Lake, spark: SparkSession) -> None:
    """What it left is no table: nobody sees it, and the next one replaces it."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    building = folder(lake).with_name(folder(lake).name + BUILDING)
    for file in (building / ".hoodie" / "timeline").glob("*_*.commit"):
        file.unlink()  # as if it had died before its commit
    assert lake.loaded() == staged
    assert not folder(lake).exists()
    lake.publish(staged)
    assert lake.seen() == [(1, "a")]
    assert not building.exists()


def test_an_interrupted_merge_is_repeated(lake: Lake) -> None:
    """A commit that is not completed is not there, and the next one clears it away."""
    lake.published((1, "a"), (2, "b"))
    staged = lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30)
    lake.publish(staged)
    timeline = folder(lake) / ".hoodie" / "timeline"
    max(timeline.glob("*_*.commit")).unlink()
    shutil.rmtree(staging(lake))
    assert lake.seen() == [(1, "a"), (2, "b")]
    lake.publish(lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "B"), (3, "c")]


@contextmanager
def failing(when: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A publish fails before its commit, or after it: then only the answer is lost."""
    with monkeypatch.context() as patch:
        for way in ("publish_by_files", "publish_by_spark"):
            patch.setattr(Publication, way, breaking(getattr(Publication, way), when))
        yield


def breaking(real: Callable[..., Any], when: str) -> Callable[..., Any]:
    """A way to publish that fails then; one that has nothing to do goes on."""

    def write(*given: Any) -> Any:
        if when == "after" and real(*given) is False:
            return False
        raise RuntimeError("the connection to Spark is broken")

    return write


def test_a_publish_takes_effect_once_if_its_answer_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeline tells: the first publish and a later one are there, once, and their staging is swept."""
    with failing("after", monkeypatch):
        published = lake.published((1, "a"))
    assert lake.loaded() == replace(published, progress=lake.loaded().progress)
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    with failing("after", monkeypatch):
        published = lake.publish(staged)
    assert lake.loaded() == replace(published, progress=lake.loaded().progress)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_a_failed_publish_is_reported_as_failed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error passes as it is, readers keep what they see, and the same publish can be made again."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    with failing("before", monkeypatch), pytest.raises(RuntimeError, match="connection to Spark"):
        lake.publish(staged)
    assert lake.loaded() == staged
    assert not folder(lake).exists()
    lake.publish(staged)
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    with failing("before", monkeypatch), pytest.raises(RuntimeError, match="connection to Spark"):
        lake.publish(staged)
    assert lake.seen() == [(1, "a")]
    assert lake.loaded() == staged
    lake.publish(staged)
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_a_commit_of_staging_takes_effect_if_a_network_file_system_repeats_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the answer of link() is lost, NFS asks again and answers that the file exists: it is ours."""
    staged, real = lake.copied((1, "a")), os.link

    def link(*given: Any) -> None:
        real(*given)
        raise FileExistsError(errno.EEXIST, "File exists")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        marked = lake.open().mark(staged, lake.leveled(staged, 20))
    assert lake.loaded() == marked


def test_a_folder_that_cannot_be_renamed_is_not_reported_as_foreign(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that refuses the first publish its name is a matter of storage; the next run finishes it."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StorageFailed, match="Read-only file system"):
            lake.publish(staged)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a")]


@pytest.fixture
def held_elsewhere(lake: Lake) -> Iterator[None]:
    """Another process is publishing the table."""
    lock = folder(lake).with_name(folder(lake).name + ".lakeingest.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", OF_ANOTHER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("")


def test_of_two_publishes_at_once_one_waits_and_is_refused(
    lake: Lake, held_elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first one is at it nothing of the second is written."""
    monkeypatch.setattr(lock, "LOCK_SECONDS", 1.0)
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
        lake.publish(staged)
    assert not folder(lake).exists()
    assert lake.loaded() == staged


@pytest.mark.long("writes of several kinds, each with a publish before it")
def test_rows_of_someone_else_are_a_foreign_write(lake: Lake, spark: SparkSession) -> None:
    """An upsert, a delete and an overwrite stop the table by name; what they did stays as it is."""
    lake.published((1, "a"))
    write(lake, spark, (2, "theirs"))
    for call in (lake.open().recover, lake.open().inspect):
        with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote commit [0-9]+ to it"):
            call(lake.table)
    assert lake.seen() == [(1, "a"), (2, "theirs")]


@pytest.mark.long("several publishes")
def test_a_foreign_write_before_a_publish_is_found(lake: Lake, spark: SparkSession) -> None:
    """It came after the table was loaded: the publish is refused."""
    lake.published((1, "a"))
    staged = lake.merge(lake.loaded(), (1, "A", False), pos=30)
    write(lake, spark, (2, "theirs"))
    with pytest.raises(ForeignWrite, match=str(lake.table)):
        lake.publish(staged)
    assert lake.seen() == [(1, "a"), (2, "theirs")]


@pytest.mark.long("commits to Hudi many times")
def test_a_folder_of_someone_else_is_not_ours(lake: Lake, spark: SparkSession) -> None:
    """Whatever is in it, it is refused and stays as it is."""
    folder(lake).mkdir(parents=True)
    with pytest.raises(NotOurTable, match=f"is no copy of {lake.table}"):
        lake.open().recover(lake.table)
    write(lake, spark, (1, "theirs"))
    with pytest.raises(NotOurTable, match=f"is no copy of {lake.table}"):
        lake.open().recover(lake.table)
    assert lake.seen() == [(1, "theirs")]


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"version": 1}'])
def test_a_commit_of_staging_that_cannot_be_read_is_named(lake: Lake, broken: str) -> None:
    """Corrupt progress is never taken for none."""
    lake.copied((1, "a"))
    last = max(staging(lake).glob("*.json"))
    last.write_text(broken)
    with pytest.raises(StateUnreadable, match=f"{lake.table}.*{last.name}"):
        lake.open().recover(lake.table)


def test_a_commit_of_the_table_that_cannot_be_read_is_named(lake: Lake) -> None:
    """A timeline file that is cut off is an error, not a table without commits."""
    lake.published((1, "a"))
    [commit] = (folder(lake) / ".hoodie" / "timeline").glob("*_*.commit")
    commit.write_bytes(commit.read_bytes()[:100])
    with pytest.raises(StateUnreadable, match=commit.name):
        lake.open().inspect(lake.table)


@pytest.mark.parametrize("name", ["a b", "a-b", "Größe", "1st", "_hoodie_row"])
def test_a_column_that_hudi_cannot_name_is_refused(lake_of: Callable[..., Lake], name: str) -> None:
    """Before anything is made, and the message names it."""
    lake = lake_of(
        (Column("id", Kind.INT32, source_type("int"), nullable=False), Column(name, Kind.STRING, source_type("text"))),
        ("id",),
    )
    with pytest.raises(UnsupportedTable, match=name):
        lake.created()
    assert not staging(lake).exists()


@pytest.mark.parametrize("name", ["a b", "50%", "a'b", "a/b"])
def test_a_table_whose_folder_hudi_would_not_find_is_refused(lake: Lake, name: str) -> None:
    """MERGE INTO finds no folder whose name changes in a URI."""
    with pytest.raises(UnsupportedTable, match="Hudi cannot merge into"):
        lake.open().types(replace(lake.schema, table=TableId("shop", name)))


def test_a_folder_may_have_other_letters(lake: Lake) -> None:
    """They are in its name as they are."""
    lake = replace(lake, schema=replace(lake.schema, table=TableId("contract", "größe$1-x")))
    lake.publish(lake.merge(lake.published((1, "a")), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert (lake.table.database, lake.table.name) in lake.open().names()


@pytest.mark.long("publishes of Hudi")
def test_values_are_exact_through_every_step(lake_of: Callable[..., Lake], spark: SparkSession) -> None:
    """Each kind's edges: as staged, as bulk inserted, and as merged."""
    columns = (
        Column("id", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
        Column("small", Kind.INT32, source_type("int")),
        Column("large", Kind.INT64, source_type("bigint")),
        Column("price", Kind.DECIMAL, source_type("decimal(38,10)"), precision=38, scale=10),
        Column("f", Kind.FLOAT, source_type("float")),
        Column("d", Kind.DOUBLE, source_type("double")),
        Column("day", Kind.DATE, source_type("date")),
        Column("at", Kind.DATETIME, source_type("datetime(6)")),
        Column("seen", Kind.TIMESTAMP, source_type("timestamp(6)")),
        Column("text", Kind.STRING, source_type("text")),
        Column("raw", Kind.BINARY, source_type("blob")),
    )
    lake = lake_of(columns, ("id",))
    least = (
        Decimal(0),
        -(2**31),
        -(2**63),
        Decimal("-9999999999999999999999999999.9999999999"),
        -3.4028234663852886e38,
        5e-324,
        dt.date(1, 1, 1),
        dt.datetime(1, 1, 1),
        dt.datetime(1970, 1, 1, 0, 0, 1),
        "",
        bytearray(b""),
    )
    most = (
        Decimal(2**64 - 1),
        2**31 - 1,
        2**63 - 1,
        Decimal("9999999999999999999999999999.9999999999"),
        3.4028234663852886e38,
        1.7976931348623157e308,
        dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2038, 1, 19, 3, 14, 7, 999999),
        "\x00 Zoë 🦆\n",
        bytearray(b"\x00\xff\x00"),
    )
    nothing = (Decimal(7), *[None] * 10)
    staged = lake.copied(least, most, nothing)
    expected = sorted([least, most, nothing])
    assert lake.rows(staged) == expected
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    assert lake.seen() == expected
    # through MERGE INTO as well: the same values under other keys
    again = [(Decimal(8), *least[1:]), (Decimal(9), *most[1:])]
    merged = lake.merge(lake.loaded(), *((*row, False) for row in again), pos=30)
    assert lake.rows(merged) == sorted([*expected, *again])
    lake.publish(merged)
    assert lake.seen() == sorted([*expected, *again])


def test_a_publish_with_a_damaged_staged_file_does_nothing(lake: Lake) -> None:
    """Readers keep what they see; without staging the changes are merged again."""
    lake.published((1, "a"))
    there = set((staging(lake) / "data").iterdir())
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    (new,) = set((staging(lake) / "data").iterdir()) - there
    new.write_bytes(b"")
    with pytest.raises(StateUnreadable, match=f"{new.name} is gone or damaged.* not published: remove"):
        lake.publish(staged)
    assert lake.seen() == [(1, "a")]
    shutil.rmtree(staging(lake))
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.long("dozens of publishes")
def test_a_table_does_not_grow_with_its_publishes(lake: Lake) -> None:
    """The last commits that the history names stay, and as many more at most until Hudi removes them."""
    history = lake.settings.history.model_validate({"keep": "0s", "least": 2, "readers": "0s"})
    settings = lake.settings.model_copy(update={"history": history})
    short = replace(
        lake, settings=settings, open=lambda: HudiTarget(settings, staging(lake).parent, open_spark=lambda: lake.spark)
    )
    short.published((1, "a"))
    for number in range(12):
        short.publish(short.merge(short.loaded(), (1, f"n{number}", False), pos=30 + number))
    files = list(folder(short).glob("*.parquet"))
    assert len(files) <= most_commits(2)
    assert max(file.stat().st_size for file in files) < 50_000  # a Bloom filter alone has 430 KB
    assert short.seen() == [(1, "n11")]


def test_all_files_are_on_the_disk_before_staging_is_swept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table, which Hudi does not sync, and those of staging before a commit names them."""
    synced: dict[int, int] = {}
    real, sweep = os.fsync, StagingFolder.sweep

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_mtime_ns

    def look(self: StagingFolder, version: int) -> None:
        for path in (*folder(lake).rglob("*"), *staging(lake).rglob("*.*")):
            status = path.stat()
            assert synced.get(status.st_ino) == status.st_mtime_ns, f"{path} was not synced"
        sweep(self, version)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(StagingFolder, "sweep", look)
    lake.published((1, "a"))
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
