"""Tables in a store are opened, merged and published side by side, and each ends as if it had been alone."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.commands.status import status
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError
from lakeingest.pipeline.events import Event, Merged, Published, TableStopped
from lakeingest.pipeline.opening import opening
from tests.e2e.job import Job
from tests.servers.catalog_servers import add_catalog, hudi_on_s3, rest_on_s3

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

NUMBERS = itertools.count(1)
TABLES = [f"t{number}" for number in range(12)]


@dataclass
class Watcher:
    """The threads that published, and whether two events were ever told at the same time."""

    published: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    overlap: bool = False
    _telling: bool = False

    def __call__(self, event: Event) -> None:
        """Take an event."""
        self.overlap |= self._telling
        self._telling = True
        if isinstance(event, Published):
            self.published[event.table.name] = threading.current_thread().name
        if isinstance(event, TableStopped):
            self.stopped[event.table.name] = event.error.runbook
        self._telling = False


@pytest.fixture(params=["iceberg", "hudi"])
def job(request: pytest.FixtureRequest, tmp_path: Path, mysql_server: LocalServer) -> Iterator[Job]:
    """A pipeline with many small tables, two of which have a foreign key; catalog, tables and state are in a store."""
    with (rest_on_s3 if request.param == "iceberg" else hudi_on_s3)(tmp_path) as target:
        if request.param == "iceberg":
            target["catalog"]["name"] = f"beside{next(NUMBERS)}"  # new to the session of Spark
        stored = target["warehouse"].replace("warehouse", "state")
        lake = request.param
        job = Job(tmp_path / "job", mysql_server, f"beside_{lake}", lake_format=lake, target=target, stored=stored)
        job.write()
        job.sql(f"USE {job.database}", "CREATE TABLE parent (id INT PRIMARY KEY, v TEXT)")
        job.sql(
            f"USE {job.database}",
            "CREATE TABLE child (id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES parent (id) ON DELETE CASCADE)",
        )
        job.sql(f"USE {job.database}", "INSERT INTO parent VALUES (1, 'a'), (2, 'b')")
        job.sql(f"USE {job.database}", "INSERT INTO child VALUES (1, 1), (2, 2), (3, 2)")
        for table in TABLES:
            job.sql(f"USE {job.database}", f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT, d DATE)")
            job.sql(f"USE {job.database}", f"INSERT INTO {table} VALUES (1, 'a', '2026-01-01'), (2, 'b', NULL)")
        yield job
        job.sql(f"DROP DATABASE {job.database}")


def assert_equal(job: Job, *tables: str) -> None:
    """Readers see the rows of the source."""
    for table in tables:
        assert job.published(table) == job.source(f"{table}"), table


@pytest.mark.long("a catalog and a store of its own; test_at_once publishes many tables in every run")
def test_tables_are_published_side_by_side(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """By several threads; a table with DDL is published by the run's own, and one with a refused change by none."""
    monkeypatch.setattr(opening, "is_session_due", lambda: False)  # the session of other tests has other settings
    first = Watcher()
    run(job.config, observe=first)
    assert_equal(job, *TABLES, "parent", "child")
    assert len({first.published[name] for name in TABLES}) > 1
    assert not first.overlap

    use = f"USE {job.database}"
    for table in TABLES:
        job.sql(use, f"UPDATE {table} SET v = 'changed' WHERE id = 1", f"INSERT INTO {table} VALUES (3, NULL, NULL)")
    job.sql(use, "DELETE FROM parent WHERE id = 2")
    job.sql(use, "ALTER TABLE t1 ADD COLUMN w INT DEFAULT 7", "INSERT INTO t1 VALUES (4, 'new', NULL, 8)")
    job.sql(use, "SET SESSION sql_mode = ''", "INSERT INTO t2 VALUES (4, 'zero', '0000-00-00')")
    second = Watcher()
    with pytest.raises(LakeIngestError):
        run(job.config, observe=second)
    assert set(second.stopped) == {"t2"}
    assert_equal(job, *(table for table in TABLES if table != "t2"), "parent", "child")
    assert second.published["t1"] == threading.main_thread().name
    assert len({second.published[name] for name in TABLES if name not in {"t1", "t2"}}) > 1
    [stopped] = [state for state in status(job.config) if state.stopped is not None]
    assert stopped.table.name == "t2"

    # the record of the stop is removed as soon as the table goes on
    job.sql(use, "DELETE FROM t2 WHERE id = 4")
    with pytest.raises(LakeIngestError):  # the change with the zero date is still in the binlog
        run(job.config)
    assert not second.overlap


@pytest.mark.long("starts Spark; test_races has the same commits of others")
def test_a_table_that_someone_compacts_meanwhile_is_published_in_the_end(job: Job, spark: SparkSession) -> None:
    """Its publish is refused in its thread, and tried again once the others are done."""
    if job.lake_format == "hudi":
        pytest.skip("no commit of others that changes no row is followed on Hudi")
    add_catalog(spark, job.config.target)
    run(job.config)
    for table in TABLES:
        job.sql(f"USE {job.database}", f"INSERT INTO {table} VALUES (3, 'c', NULL)")
    watcher, compacted = Watcher(), list[str]()

    def compact(event: Event) -> None:
        watcher(event)
        if isinstance(event, Merged) and event.table.name == "t3" and not compacted:
            compacted.append(threading.current_thread().name)
            name = f"{job.config.target.catalog.name}.{job.database}.t3"
            options = "options => map('rewrite-all', 'true')"
            spark.sql(f"CALL {job.config.target.catalog.name}.system.rewrite_data_files(table => '{name}', {options})")

    run(job.config, observe=compact)
    assert compacted != [threading.main_thread().name]
    assert watcher.published["t3"] == threading.main_thread().name
    assert_equal(job, *TABLES)
