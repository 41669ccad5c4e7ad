"""Logs of Iceberg: rows are added and shown in one commit, get other columns, and leave by whole days."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import Place as BinlogPlace
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import begun, read_to_of, written
from lakeingest.core.companions.log_columns import LOGGED_AT, NUMBER, columns_of, followed, lift_of, new_log
from lakeingest.core.copies.counted import count_of
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.lake.iceberg import logs
from lakeingest.lake.iceberg.logs import IcebergLogs
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Staged
from lakeingest.rows import table_schema
from tests.lake.shown import catalog_of

NAME = TableId("shop", "orders__changelog")
ID = Column("id", Kind.INT32, SourceType("int", "int"))
AMOUNT = Column("amount", Kind.INT32, SourceType("int", "int"))
DAY = dt.datetime(2026, 2, 3, 12, tzinfo=dt.UTC)


def table_with(*columns: Column) -> TableSchema:
    """The definition of a copied table."""
    return TableSchema(TableId("shop", "orders"), columns, ("id",))


@dataclass
class Log:
    """A published log, and what a run does with it."""

    target: IcebergTarget
    logs: IcebergLogs
    staged: Staged
    schema: TableSchema

    def rows(self, first: int, count: int, day: dt.datetime = DAY, **values: Any) -> pa.Table:
        """Rows of the log with these numbers."""
        own = {"_lakeingest_op": "+I", "_lakeingest_position": "p", "_lakeingest_schema": "s", LOGGED_AT: day}
        rows = [{NUMBER: number, "id": number, **own, **values} for number in range(first, first + count)]
        return pa.Table.from_pylist(rows, table_schema(self.schema))

    def append(self, count: int, day: dt.datetime = DAY, after: TableSchema | None = None, **values: Any) -> None:
        """Add so many rows; with other columns if `after` has them."""
        lift = None if after is None else lift_of(self.schema, after)
        self.schema = after or self.schema
        last = count_of(self.staged.progress)
        read_to = ReadTo(BinlogPlace(1, 1, last + count), log="log")
        progress = written(self.staged.progress, read_to, inserted=count, steps=count)
        progress = replace(progress, fingerprint=self.schema.fingerprint)
        file = self.logs.writer(self.staged, lift).write(self.rows(last + 1, count, day, **values))
        self.staged = self.logs.append(self.staged, [file], progress, {"lakeingest.read_to": str(read_to)}, lift)

    def loaded(self) -> Table:
        """The table past our code."""
        return catalog_of(self.target.settings).load_table(("shop", NAME.name))

    def numbers(self) -> list[int]:
        """The numbers of the rows that readers see."""
        return sorted(self.loaded().scan().to_arrow()[NUMBER].to_pylist())


@pytest.fixture
def open_target(tmp_path: Path) -> Callable[[], IcebergTarget]:
    """Another run's target each time."""
    settings = config.Target(warehouse=Place.of(tmp_path / "lake"))
    options = TableOptions(partition_by=(f"day({LOGGED_AT})",))
    return lambda: IcebergTarget(settings, lambda _: options)


@pytest.fixture
def log(open_target: Callable[[], IcebergTarget], tmp_path: Path) -> Log:
    """A log whose first row is published."""
    (tmp_path / "lake").mkdir()
    target, schema = open_target(), new_log(NAME, table_with(ID))
    made = Log(target, IcebergLogs(target), target.create(schema, begun(schema)), schema)
    first = target.writer(NAME).write(made.rows(1, 1))
    progress = written(made.staged.progress, ReadTo(BinlogPlace(1, 1, 1), log="log"), inserted=1)
    staged = target.commit_wave(made.staged, [first], progress)
    shown = target.publish(replace(staged, progress=progress.audited()), schema, {})
    made.staged = replace(shown, progress=progress.audited().published())
    return made


def test_rows_are_shown_with_the_commit_that_adds_them(log: Log, open_target: Callable[[], IcebergTarget]) -> None:
    """One snapshot of Iceberg's kind `append`; another run goes on from there."""
    before = len(log.loaded().metadata.snapshots)
    log.append(3)
    log.append(2)
    loaded = log.loaded()
    assert log.numbers() == [1, 2, 3, 4, 5, 6]
    assert [one.summary.operation.value for one in loaded.metadata.snapshots[before:] if one.summary is not None] == [
        "append"
    ] * 2
    assert loaded.properties["lakeingest.read_to"] == str(read_to_of(log.staged.progress))
    recovered = open_target().recover(NAME)
    assert recovered is not None
    assert (recovered.version, recovered.published) == (log.staged.version, log.staged.version)
    assert (count_of(recovered.progress), recovered.progress.rows) == (6, 6)
    assert read_to_of(recovered.progress) == read_to_of(log.staged.progress)


def test_a_commit_can_add_columns_and_rows_at_once(log: Log) -> None:
    """Older rows have NULL in the new column; none is written anew."""
    log.append(2)
    definition = table_with(ID, AMOUNT)
    log.append(1, after=followed(log.schema, definition, columns_of(log.schema, definition, {"id": "id"})), amount=7)
    log.append(1, amount=8)
    rows = sorted(log.loaded().scan().to_arrow().to_pylist(), key=lambda row: row[NUMBER])
    assert [row["amount"] for row in rows] == [None, None, None, 7, 8]


def test_a_run_that_was_superseded_adds_nothing(log: Log, open_target: Callable[[], IcebergTarget]) -> None:
    """Readers see each row once."""
    late = replace(log)
    log.append(1)
    late.target = open_target()
    late.logs = IcebergLogs(late.target)
    with pytest.raises(StaleWriter):
        late.append(1)
    assert log.numbers() == [1, 2]


def test_old_days_leave_as_a_whole(log: Log) -> None:
    """Without a file that is read or written; the count of rows goes on."""
    log.append(2, DAY - dt.timedelta(days=9))
    log.append(2, DAY - dt.timedelta(days=8))
    progress = log.staged.progress

    def after(rows: int) -> Any:
        return written(progress, ReadTo(BinlogPlace(1, 1, 5), log="log"), inserted=0, deleted=rows)

    log.staged = log.logs.remove_before(log.staged, LOGGED_AT, (DAY - dt.timedelta(days=8)).date(), after)
    assert log.numbers() == [1, 4, 5]
    assert log.staged.progress.rows == 3
    snapshot = log.loaded().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "delete"
    assert log.logs.remove_before(log.staged, LOGGED_AT, (DAY - dt.timedelta(days=8)).date(), after) is log.staged
    log.append(1)
    assert log.numbers() == [1, 4, 5, 7]


def test_small_files_are_combined_day_by_day(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a commit that readers of a stream pass over; the rows are the same."""
    monkeypatch.setattr(logs, "MANY", 4)
    log.append(1)
    assert log.logs.combine(log.staged) is log.staged
    for days in (0, 1, 1, 2):
        log.append(1, DAY - dt.timedelta(days=days))
    log.staged = log.logs.combine(log.staged)
    loaded = log.loaded()
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary.operation.value, snapshot.summary["total-data-files"]) == ("replace", "3")
    assert log.numbers() == [1, 2, 3, 4, 5, 6]
    log.append(1)
    assert log.numbers() == [1, 2, 3, 4, 5, 6, 7]
