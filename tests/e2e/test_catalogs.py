"""Runs as a scheduler starts them, on catalogs that are servers, and on S3."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job, until
from tests.e2e.signalled import soon
from tests.servers.catalog_servers import TARGETS, rest_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.local("each test starts the catalog that it needs"),
]

ROWS = 300


@contextmanager
def job_on(target: dict[str, Any], folder: Path, server: LocalServer) -> Iterator[Job]:
    """A pipeline with a table of a few waves, whose copy is where `target` of its pipeline.yml says."""
    target["catalog"]["name"] = "served"
    job = Job(folder, server, f"on_{target['catalog']['type']}", 50, target=target).write()
    values = ", ".join(f"({number}, 'row {number}')" for number in range(ROWS))
    job.sql(f"USE {job.database}", "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO t VALUES {values}")
    yield job
    job.sql(f"DROP DATABASE {job.database}")


def on_rest(uri: str) -> dict[str, Any]:
    """`target` of a pipeline whose catalog has this URI."""
    return {"catalog": {"type": "rest", "uri": uri}}


def said(job: Job, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
    process = job.start(*arguments)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.long("whole runs on each catalog; tests of the lake use each of them, too")
def test_a_table_is_copied_and_kept_equal(kind: str, tmp_path: Path, mysql_server: LocalServer) -> None:
    """Check, run, catch up, re-snapshot, verify: nothing is in the warehouse but the tables' files."""
    with TARGETS[kind](tmp_path) as target, job_on(target, tmp_path / "job", mysql_server) as job:
        code, output = said(job, "check")
        assert code == 0, output
        assert job.run()[0] == 0
        assert job.published("t") == job.source("t")
        job.sql(
            f"USE {job.database}",
            "UPDATE t SET v = 'changed' WHERE id % 7 = 0",
            "DELETE FROM t WHERE id % 11 = 0",
            "INSERT INTO t VALUES (1000, 'new')",
        )
        assert job.run()[0] == 0
        job.unlogged(f"UPDATE {job.database}.t SET v = 'lost' WHERE id = 1")
        assert said(job, "resnapshot", f"{job.database}.t")[0] == 0
        assert job.published("t") == job.source("t")
        code, output = said(job, "verify")
        assert code == 0, output
        code, output = said(job, "status")
        assert code == 0, output
        assert not (job.folder / "warehouse").exists()


@pytest.mark.long("starts several processes with a Spark each")
def test_a_run_without_its_catalog_ends_and_goes_on_later(tmp_path: Path, mysql_server: LocalServer) -> None:
    """The run ends with 75 and names the catalog; with the server back the same command goes on."""
    with ExitStack() as stack:
        with rest_server(tmp_path) as uri:
            job = stack.enter_context(job_on(on_rest(uri), tmp_path / "job", mysql_server))
            assert job.run()[0] == 0
        job.sql(f"UPDATE {job.database}.t SET v = 'changed'")
        code, output = said(job, "run")
        assert code == 75, output
        assert f"{uri} does not answer" in output
        assert "CatalogAway" in output
        with rest_server(tmp_path, urlsplit(uri).port):
            assert job.run()[0] == 0
            assert job.published("t") == job.source("t")


@pytest.mark.long("starts several processes with a Spark each")
def test_a_run_that_follows_goes_on_when_its_catalog_is_back(tmp_path: Path, mysql_server: LocalServer) -> None:
    """It says that the catalog does not answer, and publishes what came meanwhile; SIGTERM ends it with 0."""
    with ExitStack() as stack:
        with rest_server(tmp_path) as uri:
            job = stack.enter_context(job_on(on_rest(uri), tmp_path / "job", mysql_server))
            process = job.start("run", "--follow")
            stack.callback(process.kill)
            until(process, "caught up")
        job.sql(f"UPDATE {job.database}.t SET v = 'changed'")
        until(process, "does not answer")
        with rest_server(tmp_path, urlsplit(uri).port):
            soon(lambda: job.published("t") == job.source("t"))
            process.terminate()
            output, _ = process.communicate(timeout=200)
            assert process.returncode == 0, output
