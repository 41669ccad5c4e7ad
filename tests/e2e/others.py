"""What others do with a table of the lake, in each format, past our code."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeingest.config import CATALOG
from lakeingest.config.formats import table_name
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from tests.e2e.pipe import Pipe


def make(pipe: Pipe, name: str, row: tuple[int, str]) -> None:
    """A table of theirs with one row."""
    if pipe.config.target.format == "hudi":
        _write(pipe, name, row)
        return
    if pipe.config.target.catalog.is_embedded:
        pipe.config.target.catalog_file.parent.mkdir(parents=True, exist_ok=True)
    pipe.spark.sql(f"CREATE NAMESPACE {CATALOG}.{pipe.database}")
    pipe.spark.sql(f"CREATE TABLE {CATALOG}.{pipe.database}.{name} AS SELECT {row[0]} AS id, '{row[1]}' AS v")


def insert(pipe: Pipe, name: str, row: tuple[object, ...]) -> None:
    """A row more in what readers see, by a job of theirs."""
    if pipe.config.target.format == "hudi":
        _write(pipe, name, row)
    else:
        pipe.spark.sql(f"INSERT INTO {table_name(pipe.config.target, TableId(pipe.database, name))} VALUES {row}")


def drop(pipe: Pipe, name: str) -> None:
    """Drop a table."""
    if pipe.config.target.format == "hudi":
        shutil.rmtree(_folder(pipe, name))
        return
    pipe.spark.sql(f"DROP TABLE {CATALOG}.{pipe.database}.{name}")


@contextmanager
def inserted(pipe: Pipe, name: str, row: tuple[object, ...]) -> Iterator[None]:
    """A row more within the block, in what readers see; then the table is brought back to what it was."""
    if pipe.config.target.format == "hudi":
        folder = _folder(pipe, name)
        backup = folder.with_name(f"{name}.backup")
        shutil.copytree(folder, backup)
        _write(pipe, name, row)
        yield
        shutil.rmtree(folder)
        backup.rename(folder)
        return
    table = f"{CATALOG}.{pipe.database}.{name}"
    before = pipe.spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()[0][0]
    pipe.spark.sql(f"INSERT INTO {table} VALUES {row}")
    yield
    pipe.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{pipe.database}.{name}', {before})")


def _folder(pipe: Pipe, name: str) -> Path:
    return _place(pipe, name).path


def _place(pipe: Pipe, name: str) -> Place:
    return pipe.config.target.folder(TableId(pipe.database, name))


def _write(pipe: Pipe, name: str, row: tuple[object, ...]) -> None:
    options = {"hoodie.table.name": name, "hoodie.datasource.write.recordkey.field": "id"}
    rows = pipe.spark.createDataFrame([row], "id int, v string")
    rows.write.format("hudi").options(**options).mode("append").save(_place(pipe, name).hadoop)
