"""A pipeline changes its version: today's code continues what the previous release began."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeingest.core.copies.phases import Phase
from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job, descendants, signal_all
from tests.e2e.previous import previously, unpacked

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]

SECONDS = 600


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous release."""
    return unpacked(tmp_path_factory.mktemp("previous"))


@pytest.fixture
def make_job(mysql_server: LocalServer, tmp_path: Path) -> Callable[..., Job]:
    """Call it with what is other than the default: a pipeline of its own."""

    def make(**other: Any) -> Job:
        return Job(tmp_path / "job", mysql_server, f"d{secrets.token_hex(4)}", **other).write()

    return make


def ended(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """Wait until a process has ended with this code; what it said."""
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, said
    return said


def fill(job: Job, table: str, rows: int) -> None:
    """A table of numbers from 1 on."""
    job.sql(
        "SET SESSION cte_max_recursion_depth = 1000000",
        f"CREATE TABLE {job.database}.{table} (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO {job.database}.{table} WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n"
        f" WHERE id < {rows}) SELECT id, CONCAT('row ', id) FROM n",
    )


def change(job: Job, table: str) -> None:
    """An insert, updates and deletes of every kind of place."""
    name = f"{job.database}.{table}"
    job.sql(
        f"INSERT INTO {name} SELECT MAX(id) + 1, 'new' FROM {name}",
        f"UPDATE {name} SET v = CONCAT(v, '!') WHERE id % 7 = 0",
        f"DELETE FROM {name} WHERE id % 11 = 0",
        f"UPDATE {name} SET id = -id WHERE id % 13 = 0",
    )


def run(job: Job) -> None:
    """A run of today's code that brings every table up to date."""
    ended(job.start("run"))


def test_the_previous_release_is_other_code(code: Path, make_job: Callable[..., Job]) -> None:
    """Or these tests would show nothing."""
    asked = [sys.executable, "-c", "import lakeingest; print(lakeingest.__file__)"]
    found = subprocess.run(
        asked, cwd=code, env=os.environ | {"PYTHONPATH": str(code)}, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(code)
    assert "check" in ended(previously(code, make_job(), "--help"))


@pytest.mark.formats
@pytest.mark.long("six processes, one after the other")
def test_a_published_copy_is_continued(code: Path, make_job: Callable[..., Job], lake_format: str) -> None:
    """From its position, and not copied again. The previous release continues it too, or says what it cannot read."""
    job = make_job(lake_format=lake_format)
    fill(job, "t", 500)
    ended(previously(code, job, "run"))
    change(job, "t")
    ended(previously(code, job, "run"))
    before = job.progress("t")
    change(job, "t")
    run(job)
    after = job.progress("t")
    assert before is not None
    assert after is not None
    assert (after.wave, after.covered_from) == (before.wave, before.covered_from)
    assert job.published("t") == job.source("t")
    change(job, "t")
    downgraded = previously(code, job, "run")
    said, _ = downgraded.communicate(timeout=SECONDS)
    assert downgraded.returncode == 0 or "this version reads" in said, said
    run(job)
    assert job.published("t") == job.source("t")


@pytest.mark.long("processes of both versions")
def test_a_copy_that_was_killed_is_continued(code: Path, make_job: Callable[..., Job]) -> None:
    """Its waves stay, and the changes since then are merged from the spool that the previous release began."""
    job = make_job(chunk_rows=20)
    fill(job, "t", 20_000)
    process = previously(code, job, "run")
    deadline = time.monotonic() + SECONDS
    while (progress := job.progress("t")) is None or not progress.wave:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    signal_all(list(descendants(process.pid)), signal.SIGKILL)
    process.communicate()
    before = job.progress("t")
    assert before is not None
    assert before.phase is Phase.COPYING, "it was killed too late"
    change(job, "t")
    run(job)
    after = job.progress("t")
    assert after is not None
    assert after.covered_from == before.covered_from
    assert job.published("t") == job.source("t")
