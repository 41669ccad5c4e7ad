"""Maintenance of Iceberg tables: which snapshots go, and which files never do."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.merges import compaction, folding
from lakeingest.lake.iceberg.tables.leftovers import path_of
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/data/a:b/t/data/f.parquet", "/data/a:b/t/data/f.parquet"),  # other engines write a path without a scheme
        ("/data/a%20b/f.parquet", "/data/a%20b/f.parquet"),
        ("file:/data/a%20b:c/f.parquet", "/data/a b:c/f.parquet"),
        ("file:///data/f.parquet", "/data/f.parquet"),
        ("s3://lake/a:b/f.parquet", "lake/a:b/f.parquet"),
    ],
)
def test_a_colon_in_a_path_is_no_scheme(name: str, path: str) -> None:
    """A file that a table needs must be recognised by any form of its name."""
    assert path_of(name) == path


@pytest.fixture
def short(lake: Lake, tmp_path: Local) -> Lake:
    """A table that keeps its last published commit only."""
    settings = lake.settings.model_copy(
        update={"history": lake.settings.history.model_validate({"keep": "0s", "least": 1, "readers": "0s"})}
    )
    return replace(
        lake, settings=settings, open=lambda: IcebergTarget(settings, waiting=tmp_path, open_spark=lambda: lake.spark)
    )


def grown(lake: Lake, rounds: int) -> list[int]:
    """A table with so many published commits; their versions."""
    versions = [lake.published(*((key, "a") for key in range(10))).version]
    for number in range(rounds):
        staged = lake.publish(lake.merge(lake.loaded(), (number, f"n{number}", False), pos=30 + number))
        versions.append(staged.version)
    return versions


def aged(table: Table) -> set[Path]:
    """All files of the table, which look old from now on."""
    folder = Path(unquote(urlsplit(table.location()).path))
    files = {path for path in folder.rglob("*") if path.is_file()}
    for path in files:
        os.utime(path, (time.time() - 10**7,) * 2)
    return files


@pytest.mark.long("takes seconds")
def test_every_snapshot_that_is_due_goes_at_once(short: Lake, raw: Raw) -> None:
    """Those that a tag or a branch of others names stay, with their files; what is left can be read."""
    versions = grown(short, 6)
    raw().manage_snapshots().create_tag(versions[2], "theirs").create_branch(versions[3], "work").commit()
    rows = {version: raw().scan(snapshot_id=version).to_arrow().sort_by("id").to_pylist() for version in versions[2:4]}
    before = len(raw().metadata.snapshots)
    short.publish(short.open().maintain(short.loaded()))
    table = raw()
    left = {one.snapshot_id for one in table.metadata.snapshots}
    assert len(left) < before
    assert {versions[2], versions[3]} <= left
    assert not {versions[0], versions[1], versions[4]} & left
    aged(table)
    short.open().remove_leftovers(short.table, timedelta(days=1))
    for version, found in rows.items():
        assert raw().scan(snapshot_id=version).to_arrow().sort_by("id").to_pylist() == found
    assert short.seen() == short.rows(short.loaded())


@pytest.mark.parametrize("properties", [{"gc.enabled": "false"}])
def test_nothing_is_deleted_where_others_may_use_the_files(lake: Lake, raw: Raw, properties: dict[str, str]) -> None:
    """`gc.enabled` says so."""
    grown(lake, 2)
    lake.open().writer(lake.table).write(lake.arrow([(1, "killed")]))
    raw().transaction().set_properties(properties).commit_transaction()
    aged(raw())
    assert lake.open().remove_leftovers(lake.table, timedelta(days=1)) == (0, 0)


def test_nothing_is_deleted_where_a_file_is_lost(lake: Lake, raw: Raw) -> None:
    """Where a file that the table refers to is not found, no one can say that another one is left over."""
    grown(lake, 2)
    lake.open().writer(lake.table).write(lake.arrow([(1, "killed")]))
    files = aged(raw())
    table = raw()
    lost = unquote(urlsplit(next(iter(table.scan().plan_files())).file.file_path).path)
    Path(lost).rename(f"{lost}.away")
    assert lake.open().remove_leftovers(lake.table, timedelta(days=1)) == (0, 0)
    Path(f"{lost}.away").rename(lost)
    assert {path for path in files if path.exists()} == files
    checksums = sum(path.suffix == ".crc" for path in files)  # of Hadoop, beside the files that Spark wrote
    assert lake.open().remove_leftovers(lake.table, timedelta(days=1))[0] == 1 + checksums


@pytest.mark.long("takes seconds")
def test_spark_reads_what_others_files_became(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """Files that Spark's own compaction wrote are no leftovers, however it writes their names."""
    grown(lake, 2)
    spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => map('rewrite-all', 'true'))"
    ).collect()
    rows = lake.seen()
    aged(raw())
    lake.open().remove_leftovers(lake.table, timedelta(days=1))
    assert lake.seen() == rows
    lake.publish(lake.open().maintain(lake.loaded()))
    assert lake.seen() == rows


@pytest.mark.long("takes seconds")
def test_files_are_put_together_many_rows_at_a_time(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more rows are held at once than a commit would; large files with many dead rows are written anew, too."""
    monkeypatch.setattr(compaction, "FILES", 100)  # merges combine none
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(folding, "SMALL_ROWS", 8)
    lake.published(*((key, "a") for key in range(20)))
    for key in range(12):
        lake.publish(lake.merge(lake.loaded(), (100 + key, "b", False), (key, None, True), pos=30 + key))
    lake.publish(lake.open().maintain(lake.loaded()))
    counts = sorted(task.file.record_count for task in raw().scan().plan_files())
    assert counts == [2, 8, 10]
    assert len(lake.seen()) == 20
    assert lake.open().inventory(lake.table).deletes == 0
