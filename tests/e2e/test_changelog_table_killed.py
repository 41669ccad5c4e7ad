"""`kill -9` of runs that follow a busy table and write its changes into a table: no row is missing, none comes twice.

LAKEINGEST_KILLS sets the number of kills.
"""

import json
import os
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job
from tests.e2e.logged_rows import assert_log_is_right, log_of, replayed
from tests.e2e.signalled import soon
from tests.e2e.test_kills import ROWS, TABLE, written_to
from tests.lake.shown import catalog_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "3"))
LIST = "_lakeingest_killed"


@pytest.mark.long("kills processes that follow a busy table")
def test_killed_runs_leave_no_gap_and_no_row_twice(
    tmp_path: Path, mysql_server: LocalServer, lake_config: Config, spark: SparkSession
) -> None:
    """Each is killed a moment after it has written some changes; the list of transactions has each once, too."""
    target, chance = lake_config.target, random.Random(49)
    job = Job(tmp_path / "job", mysql_server, "killed_logs", 500, str(target.warehouse), target.format).write()
    path = job.folder / "pipeline.yml"
    changelog = {"table": True, "transactions": LIST}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"changelog": changelog}))
    rows = ", ".join(f"({i}, 'v{i}', {i} / 3)" for i in range(1, ROWS // 8))
    job.sql(f"USE {job.database}", TABLE, f"INSERT INTO items VALUES {rows}")
    table = TableId(job.database, "items")

    def read_to() -> str:
        if target.catalog.is_embedded and not target.catalog_file.exists():
            return ""
        with catalog_of(target) as catalog:
            try:
                loaded = catalog.load_table((table.database, f"{table.name}__changelog"))
            except NoSuchTableError:
                return ""
            return str(loaded.properties["lakeingest.read_to"])

    def is_after(before: str) -> bool:
        return read_to() > before

    with written_to(job, chance):
        for _ in range(KILLS):
            before, process = read_to(), job.start("run", "--follow")
            soon(partial(is_after, before))
            time.sleep(chance.random() * 3)
            process.kill()
            process.communicate(timeout=60)
    assert run(job.config, spark=spark).caught_up
    log = log_of(target, table)
    assert [row["_lakeingest_op"] for row in log].count("RESET") == 1
    changes = [row for row in log if row["_lakeingest_origin"] == "binlog"]
    times = Counter((row["_lakeingest_position"], row["_lakeingest_ordinal"]) for row in changes)
    assert set(times.values()) == {1}
    assert [tuple(row.values()) for row in replayed(log)] == sorted(job.source("items"))
    assert assert_log_is_right(target, table) > KILLS
    with catalog_of(target) as catalog:
        listed = catalog.load_table((LIST, "transactions")).scan().to_arrow().to_pylist()
    of_list = {row["_lakeingest_position"]: row["change_rows"] for row in listed if not row["gap"]}
    assert len(of_list) == len([row for row in listed if not row["gap"]])
    of_logs = Counter(row["_lakeingest_position"] for row in changes)
    assert of_list.items() <= of_logs.items()
    assert max(of_list) == max(of_logs)
