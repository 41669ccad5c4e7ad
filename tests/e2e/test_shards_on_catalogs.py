"""Shards on catalogs that are servers, and on S3, by the runs of a scheduler."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.test_catalogs import job_on, said
from tests.lake.shown import catalog_of
from tests.servers.catalog_servers import TARGETS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.local("each test starts the catalog that it needs"),
]

# a run that ends where a shard is published in its own table, and not yet shown to readers
DYING = (
    "import os, sys\n"
    "from lakeingest.lake.iceberg.shards.shared_tables import SharedTables\n"
    "SharedTables.show = lambda *_: os._exit(9)\n"
    "from lakeingest.cli import main\n"
    "sys.argv = ['lakeingest', *sys.argv[4:]]\n"
    "main()\n"
)


@pytest.mark.long("whole runs on each catalog; tests of the lake use each of them, too")
@pytest.mark.parametrize("kind", TARGETS)
def test_shards_are_copied_and_kept_equal(kind: str, tmp_path: Path, mysql_server: LocalServer) -> None:
    """Copied, changed, killed between the two commits of a publish, altered, verified; and one leaves."""
    with TARGETS[kind](tmp_path) as target:
        target["table"] = "shared.everything"
        with job_on(target, tmp_path / "job", mysql_server) as job:
            job.sql(
                f"USE {job.database}", "CREATE TABLE u (id INT PRIMARY KEY, v TEXT)", "INSERT INTO u VALUES (1, 'u')"
            )

            def seen() -> Mapping[str, list[tuple[object, ...]]]:
                with catalog_of(job.config.target) as catalog:
                    rows: pa.Table = catalog.load_table("shared.everything").scan().to_arrow()
                found: dict[str, list[tuple[object, ...]]] = {}
                for row in rows.to_pylist():
                    found.setdefault(row["_lakeingest_table"], []).append((row["id"], row["v"]))
                return {name: sorted(of_table) for name, of_table in found.items()}

            def source() -> Mapping[str, list[tuple[object, ...]]]:
                return {name: sorted(job.sql(f"SELECT id, v FROM {job.database}.{name}")) for name in ("t", "u")}

            assert job.run()[0] == 0
            assert seen() == (before := source())
            job.sql(
                f"USE {job.database}",
                "UPDATE t SET v = 'new' WHERE id < 9",
                "DELETE FROM u",
                "INSERT INTO u VALUES (2, '')",
            )
            assert job.run(before=(sys.executable, "-c", DYING))[0] == 9
            assert seen() == before
            assert job.run()[0] == 0
            assert seen() == source()
            job.sql(
                f"USE {job.database}",
                "ALTER TABLE t ADD COLUMN w INT FIRST, DROP COLUMN v",
                "ALTER TABLE t ADD COLUMN v TEXT",
                "UPDATE t SET w = id, v = 'again' WHERE id < 20",
            )
            code, output = said(job, "run")
            assert code == 0, output
            assert seen() == source()
            code, output = said(job, "verify")
            assert code == 0, output
            with catalog_of(job.config.target) as catalog:
                catalog.drop_table((f"shared_everything__lakeingest_{job.database}", "u"))
            code, output = said(job, "maintain", f"{job.database}.t")
            assert code == 0, output
            assert seen().keys() == {"t"}
