"""Two million rows of another tool: a run takes them over, and writes what differs.

Source and lake are compared by their own SQL: MySQL's and Spark's sums over the same texts of all rows.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.demo.server import LocalServer
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from tests.e2e.job import Job
from tests.e2e.other_tools import delete_by_equality

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS, DIFFERENT, DELETED = 2_000_000, 100, 10_000
ORDERS = (
    "CREATE TABLE orders (id INT PRIMARY KEY, customer INT NOT NULL, amount DECIMAL(12,2), note VARCHAR(60),"
    " created DATETIME NOT NULL)"
)
AS_MYSQL = (
    "{id}, {id} % 1000, CAST(({id} * 37 % 100000) / 100 AS DECIMAL(12,2)), CONCAT('note ', {id} % 97),"
    " TIMESTAMPADD(SECOND, {id}, '2026-01-01')"
)
AS_SPARK = (
    "CAST(id AS int) id",
    "CAST(id % 1000 AS int) customer",
    "CAST((id * 37 % 100000) / 100 AS decimal(12,2)) amount",
    "concat('note ', id % 97) note",
    "timestamp_ntz'2026-01-01' + make_dt_interval(0, 0, 0, id) created",
)
TEXTS = "COUNT(*), SUM(CRC32(CONCAT_WS('|', id, customer, amount, note, {created})))"


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_config: Config, spark: SparkSession) -> Iterator[Job]:
    """A pipeline, as a scheduler starts it, with a table of two million rows; the tool's table is in the lake."""
    target = lake_config.target
    job = Job(tmp_path / "job", mysql_server, "taken_over_large", None, str(target.warehouse), target.format).write()
    job.sql(f"USE {job.database}", ORDERS, f"INSERT INTO orders SELECT {AS_MYSQL.format(id=0)}")
    rows = 1
    while rows < ROWS:
        more = min(rows, ROWS - rows)
        of_new = AS_MYSQL.format(id=f"(id + {rows})")
        job.sql(f"USE {job.database}", f"INSERT INTO orders SELECT {of_new} FROM orders WHERE id < {more}")
        rows += more
    open_catalog(target).close()  # the embedded one makes its file
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{job.database}")
    made(spark).writeTo(f"{CATALOG}.{job.database}.orders").create()
    yield job
    job.sql(f"DROP DATABASE {job.database}")
    for name in ("orders", "orders_copy"):
        spark.sql(f"DROP TABLE IF EXISTS {CATALOG}.{job.database}.{name}")


def made(spark: SparkSession, ids: str = "true") -> DataFrame:
    """The rows as the other tool has them."""
    return spark.range(ROWS).where(ids).selectExpr(*AS_SPARK)


@dataclass(frozen=True)
class Timed:
    """The wall seconds of a command, and the CPU seconds of all its processes and of the server meanwhile."""

    wall: float
    ours: float
    server: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.ours:.1f} CPU seconds, and {self.server:.1f} of the server"


def timed(job: Job, command: str, **keys: Any) -> Timed:
    """A command of the pipeline with these keys."""
    doc = json.loads((job.folder / "pipeline.yml").read_text())
    for key, value in keys.items():
        doc[key] = {**doc.get(key, {}), **value} if isinstance(value, dict) else value
    (job.folder / "pipeline.yml").write_text(json.dumps(doc))
    began, used, before = time.monotonic(), dict[int, int](), server_ticks(job)
    process = job.start(command, start_new_session=True, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        used |= ticks_of(process.pid)
        time.sleep(0.1)
    assert process.returncode == 0
    second = os.sysconf("SC_CLK_TCK")
    return Timed(time.monotonic() - began, sum(used.values()) / second, (server_ticks(job) - before) / second)


def server_ticks(job: Job) -> int:
    """The ticks of a processor that the server has used so far."""
    fields = Path(f"/proc/{job.server.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def ticks_of(session: int) -> dict[int, int]:
    """The ticks of a processor that each process of a session has used so far."""
    found = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    return found


def assert_same(job: Job, spark: SparkSession) -> None:
    """By the sums of both sides."""
    [in_source] = job.sql(f"SELECT {TEXTS.format(created='created')} FROM {job.database}.orders")
    asked = f"SELECT {TEXTS.format(created='CAST(created AS string)')} FROM {CATALOG}.{job.database}.orders"
    [in_lake] = spark.sql(asked).collect()
    assert tuple(map(int, in_lake)) == tuple(map(int, in_source))


@pytest.mark.long("two million rows")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deletes", [False, True])
def test_two_million_rows_are_taken_over(
    job: Job, spark: SparkSession, record_property: Callable[[str, str], None], *, deletes: bool
) -> None:
    """Only what differs is written: 100 rows, also where a sink of Flink has left 10,000 deletes by equality.

    A comparison and a copy in the same minutes tell what it costs.
    """
    if deletes:  # it has updated rows: their keys as deletes, then the new rows
        step = ROWS // DELETED
        delete_by_equality(spark, f"{CATALOG}.{job.database}.orders", ["id"], ((n,) for n in range(0, ROWS, step)))
        made(spark, f"id % {step} = 0").writeTo(f"{CATALOG}.{job.database}.orders").append()
    job.sql(f"UPDATE {job.database}.orders SET amount = amount + 1 WHERE id % {ROWS // DIFFERENT} = 7")
    job.sql("FLUSH BINARY LOGS")
    tables = {"startup": "adopt", "options": {"*.*": {"adopt": {"stopped": "a job of Spark"}}}}
    taken = timed(job, "run", name="job", state="./state", tables=tables, target={"table": "{database}.{table}"})
    assert_same(job, spark)
    verified = timed(job, "verify")
    initial, beside = {"startup": "initial", "options": {}}, {"table": "{database}.{table}_copy"}
    copied = timed(job, "run", name="copy", state="./state-of-copy", tables=initial, target=beside)
    for what, figures in (("taken over", taken), ("verified", verified), ("copied", copied)):
        record_property(f"two million rows, deletes by equality: {deletes}", f"{what}: {figures}")
    query = f"SELECT SUM(record_count) FROM {CATALOG}.{job.database}.orders.files WHERE content = 0"
    [[stored]] = spark.sql(query).collect()
    assert stored == ROWS + DIFFERENT + (DELETED if deletes else 0)
