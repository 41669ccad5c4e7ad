"""Queries that take long: each begins on a commit and reads it when as many commits have followed.

LAKEINGEST_QUERIES sets the number of commits. Of the history no more than the last two are kept, so all that is read is
files that wait. Every tenth commit is read by Spark, the others without it: by PyIceberg, or by Arrow from the files
that a query on Hudi's table has found when it began.
"""

import os
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.table import DataScan
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.demo.s3 import LocalS3
from lakeingest.files import file as files
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.statement import rows_at
from lakeingest.lake.iceberg.tables import expiry
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake, Row
from tests.servers.catalog_servers import TARGETS, add_catalog
from tests.servers.stores import forget_kept, hadoop_reaches, storage_of

pytestmark = [pytest.mark.spark, pytest.mark.formats]

COMMITS = int(os.environ.get("LAKEINGEST_QUERIES", "12"))
KEYS = 50
HISTORY = {"keep": "0s", "least": 2, "most": 2, "readers": "6h"}
Query = Callable[[], list[Row]]


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.long("the same on a store"))])
def lake(request: pytest.FixtureRequest, lake_config: Config, lake_format: str, spark: SparkSession) -> Iterator[Lake]:
    """A table with warehouse and state in one kind of place."""
    history = lake_config.target.history.model_validate(HISTORY)
    target, state = lake_config.target.model_copy(update={"history": history}), lake_config.state
    if request.param == "disk":
        yield lake_in(lake_config, target, state, spark)
        return
    store: LocalS3 = request.getfixturevalue("s3")
    if lake_format == "hudi":
        place = {"warehouse": Place.of(f"s3://{store.bucket}/slow"), "storage": storage_of(store)}
        target, state = target.model_copy(update=place), Place.of(f"s3://{store.bucket}/slow_state")
        hadoop_reaches(spark, target)
        yield lake_in(lake_config, target, state, spark)
        return
    with TARGETS["rest on s3"](request.getfixturevalue("tmp_path")) as doc:
        doc["catalog"]["name"] = "slow_in_s3"
        target = Target.model_validate({**doc, "history": HISTORY})
        add_catalog(spark, target)
        yield lake_in(lake_config, target, target.warehouse / "state", spark)


def lake_in(lake_config: Config, target: Target, state: Place, spark: SparkSession) -> Lake:
    """The table of a pipeline."""
    config = lake_config.model_copy(update={"target": target, "state": state})
    schema = TableSchema(TableId("slow", f"t{time.time_ns()}"), PLAIN, ("id",))
    return Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)


def sorted_rows(rows: pa.Table) -> list[Row]:
    """The key and the text of each row."""
    return sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def begun_on_iceberg(lake: Lake, *, by_spark: bool) -> Query:
    """A query on what readers see now."""
    table = lake.open()._table(lake.table)  # type: ignore[attr-defined] # noqa: SLF001
    snapshot = table.current_snapshot()
    if by_spark:
        name = f"{lake.settings.catalog.name}.{lake.table.database}.{lake.table.name}"
        rows = lake.spark.sql(f"SELECT id, v FROM {name} VERSION AS OF {snapshot.snapshot_id}")
        rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 - a query that runs has its plan
        return lambda: sorted(tuple(row) for row in rows.collect())
    # a query holds its own snapshot alone
    alone = {"snapshots": [snapshot], "snapshot_log": [], "metadata_log": []}
    table.metadata = table.metadata.model_copy(update=alone)
    scan: DataScan = table.scan(snapshot_id=snapshot.snapshot_id)
    return lambda: sorted_rows(scan.to_arrow())


def begun_on_hudi(lake: Lake, *, by_spark: bool) -> Query:
    """A query on what readers see now."""
    folder = files.at(lake.settings.folder(lake.table), lake.settings.storage)
    found = our_last_commit(lake.table, folder)
    assert found is not None
    if by_spark:
        rows = rows_at(folder, found.time, lake.spark)
        rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 - a query that runs has its plan
        return lambda: sorted(tuple(row) for row in rows.collect())
    names = visible_files(folder, found.time)

    def read() -> list[Row]:
        forget_kept()  # what this process wrote is to be read from the store
        parts = []
        for name in names:
            with files.parquet(name) as opened:
                parts.append(opened.read(["id", "v"]))
        return sorted_rows(pa.concat_tables(parts))

    return read


def expected(number: int) -> list[Row]:
    """The rows after the publish of this number."""
    return sorted((dict.fromkeys(range(KEYS), "a") | {one % KEYS: f"n{one}" for one in range(number + 1)}).items())


@pytest.mark.long("publishes of Hudi by Spark", only=("hudi",))
def test_each_commit_can_be_read_while_as_many_are_published(
    lake: Lake, lake_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the oldest on; the last publishes take no longer than the first ones."""
    monkeypatch.setattr(expiry, "WORTH", min(expiry.WORTH, max(2, COMMITS // 4)))
    begin = begun_on_hudi if lake_format == "hudi" else begun_on_iceberg
    staged, target = lake.published(*((key, "a") for key in range(KEYS))), lake.open()
    queries: list[Query] = []
    seconds = []
    for number in range(2 * COMMITS):
        began = time.process_time()
        merged = lake.merge(staged, (number % KEYS, f"n{number}", False), pos=100 + number, target=target)
        staged = lake.publish(merged, target)
        seconds.append(time.process_time() - began)
        if number < COMMITS:
            queries.append(begin(lake, by_spark=number % 10 == 5))
        else:
            assert queries[number - COMMITS]() == expected(number - COMMITS), f"commit {number - COMMITS}"
    first, last = (sorted(seconds[half])[COMMITS // 2] for half in (slice(COMMITS), slice(COMMITS, None)))
    print(f"median of CPU seconds of a publish: {first:.3f}, then {last:.3f}; ratio {last / first:.2f}")  # noqa: T201
    assert COMMITS < 100 or last < 1.2 * first
