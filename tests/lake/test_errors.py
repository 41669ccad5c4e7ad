"""What the lake is kept on fails: one line that names it, nothing half done, and it goes on when that is mended."""

import os
import random
import resource
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import read_manifest_list, write_manifest_list
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, Retryable, StateUnreadable, StorageFailed
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.files import kept_files
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.storage.errors import parse_errors, storage_errors
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.staged.writer import StagedRows
from lakeingest.lake.target import Staged
from tests.lake.steps import Crash, Lake, Raw

pytestmark = pytest.mark.spark


@pytest.fixture
def own(lake: Lake, lake_config: Config, tmp_path: Path) -> Lake:
    """A table in a warehouse of its own, which Spark does not know."""
    settings = lake_config.target.model_copy(update={"warehouse": Place.of(tmp_path / "warehouse")})
    return replace(lake, open=lambda: IcebergTarget(settings))


def catalog_of(tmp_path: Path) -> Path:
    """The catalog's file."""
    return tmp_path / "warehouse" / "catalog.db"


@contextmanager
def files_up_to(size: int, pid: int = 0) -> Iterator[None]:
    """No file of a process (0: this one) may grow beyond so many bytes, as when a disk or a quota is full."""
    kept = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, kept[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, kept)


def is_of_arrow(one: object) -> bool:
    """Whether it is an error of PyArrow's, but for a lack of memory."""
    kinds = (pa.ArrowException, pa.lib.ArrowIOError)
    return isinstance(one, type) and issubclass(one, kinds) and not issubclass(one, MemoryError)


@contextmanager
def without(file: Path) -> Iterator[None]:
    """A file is gone, and comes back."""
    away = file.with_suffix(".away")
    file.rename(away)
    try:
        yield
    finally:
        away.rename(file)


def named(error: type[LakeIngestError], text: str, act: Callable[[], object]) -> None:
    """The act ends with this error; its one line says so."""
    with pytest.raises(error, match=text) as raised:
        act()
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code in {3, 75}


@pytest.mark.parametrize("size", [100, 2_000, 6_000])
def test_no_space_in_a_step_of_ours_is_named(own: Lake, size: int, tmp_path: Path) -> None:
    """Where data files, manifests or metadata cannot be written, the step is not done; with space it is."""
    made = own.created()
    rows = [(number, "x" * 1_000) for number in range(20)]

    def wave() -> Staged:
        return own.wave(own.loaded(), rows)

    with files_up_to(size):
        full = f"^(file://)?{tmp_path}/warehouse.* (File too large|disk I/O error)"
        named(StorageFailed, full, wave)
        named(StorageFailed, full, lambda: own.open().mark(made, made.progress))
    assert own.loaded() == made
    staged = wave()
    assert own.loaded() == staged
    assert staged.progress.rows == len(rows)


@pytest.mark.parametrize("size", [100, 2_000, 6_000])
def test_no_space_in_a_merge_is_named(own: Lake, size: int, tmp_path: Path) -> None:
    """Wherever it breaks off, staging is as it was, and the merge passes afterwards."""
    staged = own.copied((1, "a"), (2, "b"))
    with files_up_to(size):
        full = f"^(file://)?{tmp_path}/warehouse.* (File too large|disk I/O error)"
        named(StorageFailed, full, lambda: own.merge(staged, (2, "B", False), (3, "c", False)))
    assert own.loaded() == staged
    assert own.merge(staged, (2, "B", False), (3, "c", False)) == own.loaded()


def test_a_warehouse_that_cannot_be_made_is_named(lake_config: Config, tmp_path: Path) -> None:
    """A file stands where it should be."""
    (tmp_path / "warehouse").touch()
    settings = lake_config.target.model_copy(update={"warehouse": Place.of(tmp_path / "warehouse" / "lake")})
    target, table = IcebergTarget(settings), TableId("shop", "orders")
    named(StorageFailed, f"^{settings.warehouse} cannot be read or written", lambda: target.recover(table))


def test_a_damaged_catalog_is_named(own: Lake, tmp_path: Path) -> None:
    """No database, no file, a broken one."""
    made = own.created()
    catalog = catalog_of(tmp_path)
    with without(catalog):
        catalog.write_text("this is no database " * 1_000)
        named(StorageFailed, f"^{catalog} .*file is not a database", own.loaded)
        catalog.unlink()
        catalog.mkdir()
        named(StorageFailed, f"^{catalog} .*unable to open database file", own.loaded)
        catalog.rmdir()
    with without(catalog):
        shutil.copy(catalog.with_suffix(".away"), catalog)
        with catalog.open("r+b") as file:
            file.seek(100)  # behind the header
            file.write(b"\xff" * (catalog.stat().st_size - 100))
        named(StorageFailed, f"^{catalog} .*malformed", own.loaded)
        catalog.unlink()
    assert own.loaded() == made


def test_a_read_only_catalog_is_named(own: Lake, tmp_path: Path) -> None:
    """It can be looked at; nothing can be committed, nor is anything."""
    made = own.created()
    with catalog_of(tmp_path).open("r+b") as file:
        file.seek(18)  # the version that is needed to write: SQLite lets a newer one be read only
        kept = file.read(1)
        file.seek(18)
        file.write(b"\3")
        file.flush()
        named(
            StorageFailed,
            f"^{catalog_of(tmp_path)} .*attempt to write a readonly database",
            lambda: own.open().mark(made, made.progress),
        )
        assert own.open().inspect(own.table) == made
        file.seek(18)
        file.write(kept)
    assert own.open().mark(made, made.progress).progress == made.progress


@pytest.mark.long("waits as long as a commit waits for the catalog, twice")
def test_a_catalog_that_others_hold_is_tried_again_later(lake: Lake, lake_config: Config) -> None:
    """Longer than a commit waits, in Python and in Spark: exit 75, and nothing was done."""
    staged = lake.merge(lake.copied((1, "a")), (2, "b", False))
    catalog = lake_config.target.catalog_file
    with closing(sqlite3.connect(catalog)) as other:
        other.execute("BEGIN IMMEDIATE")
        named(Retryable, f"^{catalog} is held by another process", lambda: lake.open().mark(staged, staged.progress))
        named(
            Retryable,
            f"^{catalog} is held by another process",
            lambda: lake.merge(staged, (3, "c", False), pos=30),
        )
    assert lake.loaded() == staged


FILES = ["metadata/*.metadata.json", "metadata/snap-*.avro", "data/*.parquet"]


def newest(raw: Raw, pattern: str) -> Path:
    """The last written of such files of the table that is being built."""
    folder = Path(raw(BUILDING).location().removeprefix("file:"))
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_gone_is_named(lake: Lake, raw: Raw, file: str) -> None:
    """Whoever meets it first, PyIceberg or Spark, says which; with the file back the same step passes."""
    staged = lake.copied((1, "a"))
    gone = newest(raw, file)
    with without(gone):
        named(StateUnreadable, gone.name, lambda: lake.merge(staged, (1, "b", False)))
        if "metadata" in file:
            named(StateUnreadable, gone.name, lambda: lake.open().mark(staged, staged.progress))
        if "json" in file:
            named(StateUnreadable, gone.name, lambda: lake.open().inspect(lake.table))
    assert lake.loaded() == staged
    assert lake.rows(lake.merge(staged, (1, "b", False))) == [(1, "b")]


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_cut_off_is_named(lake: Lake, raw: Raw, file: str) -> None:
    """As a crash of the machine leaves it."""
    staged = lake.copied((1, "a"))
    damaged = newest(raw, file)
    with without(damaged):
        shutil.copy(damaged.with_suffix(".away"), damaged)
        os.truncate(damaged, 100)
        named(StateUnreadable, "gone or damaged", lambda: lake.merge(staged, (1, "b", False)))
        damaged.unlink()
    assert lake.loaded() == staged


def test_a_file_whose_column_names_are_no_text_is_named(lake: Lake, raw: Raw) -> None:
    """So PyIceberg may find one that is cut off, since it reads on after its end."""
    staged = lake.copied((1, "a"))
    damaged = newest(raw, "metadata/snap-*.avro")
    with without(damaged):
        damaged.write_bytes(b"Obj\x01\x04\x1e" + b"\xc8" * 100)
        named(StateUnreadable, "gone or damaged", lambda: lake.merge(staged, (1, "b", False)))
        damaged.unlink()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [(0, "fnle:///m.avro", "fnle.*: Unrecognized filesystem"), (2, 4322, "partition specs .* lacks: .4322")],
)
def test_an_unknown_scheme_or_partition_spec_in_a_list_of_manifests_is_named(
    lake: Lake, raw: Raw, field: int, value: object, said: str
) -> None:
    """One wrong bit can leave the list well-formed."""
    staged, io = lake.copied((1, "a")), DurableFileIO()
    damaged = newest(raw, "metadata/snap-*.avro")
    whole, listed = damaged.read_bytes(), list(read_manifest_list(io.new_input(f"file:{damaged}")))
    for one in listed:
        one[field] = value
    damaged.unlink()
    number = listed[0].sequence_number
    with write_manifest_list(2, io.new_output(f"file:{damaged}"), 1, None, number, "null") as written:
        written.add_manifests(listed)
    named(StateUnreadable, said, lambda: lake.merge(staged, (1, "b", False)))
    damaged.write_bytes(whole)
    assert lake.loaded() == staged


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("pattern", ["metadata/snap-*.avro", "metadata/*-m0.avro"])
def test_whatever_is_damaged_in_a_manifest_is_named(own: Lake, pattern: str, tmp_path: Path) -> None:
    """PyIceberg has almost any error for it: of JSON, of zlib, of a key; of a bug of ours it would be exit 70."""
    staged = own.copied((1, "a"))
    chance = random.Random(1)
    [folder] = (tmp_path / "warehouse" / own.table.database).iterdir()
    damaged = max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    whole = damaged.read_bytes()
    named = 0
    for number in range(40):
        content = bytearray(whole)
        start = chance.randrange(len(whole))
        if number % 2:
            content[start : start + 20] = bytes(len(content[start : start + 20]))
        else:
            content[start] ^= 1 << chance.randrange(8)
        damaged.write_bytes(content)
        kept_files.forget()
        try:
            own.merge(staged, (1, "b", False), target=own.dying_before("commit"))
        except StateUnreadable:
            named += 1
        except Crash:
            pass
    damaged.write_bytes(whole)
    assert named > 10
    assert own.loaded() == staged


@pytest.mark.parametrize("error", [MemoryError("none left"), pa.ArrowMemoryError("malloc of size 64 failed")])
def test_a_lack_of_memory_is_tried_again_later(error: Exception, tmp_path: Path) -> None:
    """Exit 75: another job may have had it, and nothing is half done."""

    def fail() -> None:
        with storage_errors(tmp_path), parse_errors("file:/data.parquet"):
            raise error

    named(Retryable, f"^{tmp_path}: memory is short: ", fail)


@pytest.mark.parametrize(
    "kind", [one for one in vars(pa.lib).values() if is_of_arrow(one)], ids=lambda one: one.__name__
)
def test_errors_of_arrow_about_the_contents_of_a_file_are_named(kind: type[Exception]) -> None:
    """Whatever class it has: the line names the file."""

    def fail() -> None:
        with storage_errors("/warehouse"), parse_errors("file:/warehouse/data.parquet"):
            raise kind("Couldn't deserialize thrift")

    named(StateUnreadable, r"^file:/warehouse/data\.parquet: a file is gone or damaged: ", fail)


def test_errors_of_lazy_reads_are_named_where_they_happen(lake: Lake, raw: Raw, lake_config: Config) -> None:
    """Whoever works with the rows of `read` does so within `storage_errors`."""
    staged = lake.copied((1, "a"))
    [gone] = Path(raw(BUILDING).location().removeprefix("file:")).glob("data/*.parquet")

    def read() -> None:
        with storage_errors(str(lake_config.target.warehouse)):
            lake.rows(staged)

    with without(gone):
        named(StateUnreadable, gone.name, read)
    read()


@pytest.mark.long("takes seconds")
def test_errors_that_are_not_of_storage_pass_unchanged(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """A worker that dies breaks its stream, a name that is unknown is a mistake of ours: neither is a broken disk."""
    lake.created()
    mistakes: list[Callable[[], object]] = [
        lambda: spark.sparkContext.parallelize([1]).map(lambda _: os._exit(1)).collect(),
        lambda: spark.table(f"{CATALOG}.nowhere.none"),
        lambda: socket.create_connection(("127.0.0.1", 1), timeout=1),
        lambda: int("none"),
    ]
    for mistake in mistakes:
        with pytest.raises(Exception) as raised, storage_errors(tmp_path):  # noqa: PT011 - whatever it is, as it is
            mistake()
        assert not isinstance(raised.value, LakeIngestError)


@pytest.mark.parametrize("contents", [b"", b"PAR1 and no more"])
def test_a_damaged_file_of_rows_to_compare_is_named(tmp_path: Path, contents: bytes) -> None:
    """Spark wrote it for a comparison; it may have been cut since."""
    folder = Local(tmp_path)
    (folder / "part-0.parquet").put(contents)
    with pytest.raises(StateUnreadable, match=r"part-0\.parquet"):
        StagedRows(folder).read()
