"""The record of where tests passed: by format and server, each test once, in the file that a variable names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins import platforms
from tests.test_docs import script

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer

@pytest.fixture(params=[(MYSQL, "8.4.6"), (MARIADB_11_4, "11.4.5-MariaDB-log")], ids=["my", "maria"])
def server(request):
    flavor, version = request.param
    return LocalServer("127.0.0.1", 1, "root", "", version, "here", None, flavor)

@pytest.fixture
def pipe(server):
    return object()

@pytest.mark.e2e
@pytest.mark.parametrize("lake_format", ["iceberg", "hudi"])
def test_copies(pipe, lake_format):
    pass

@pytest.mark.e2e
def test_fails_on_one(server):
    assert server.flavor is MYSQL

@pytest.mark.e2e
def test_starts_its_own():
    pass

def test_is_no_whole_run(server):
    pass
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the record, with a row of an earlier run on another Python."""
    path = tmp_path / "build" / "tested.json"
    path.parent.mkdir()
    old = dict.fromkeys(("format", "lake", "executors", "server", "spark"), "x") | {"python": "2.7", "passed": 1}
    path.write_text(json.dumps([old | {"failed": 0, "day": "2020-01-01"}]))
    monkeypatch.setattr(platforms, "RECORD", path)
    kept = platforms._outcomes.copy()  # noqa: SLF001 - this run itself may be recorded
    platforms._outcomes.clear()  # noqa: SLF001
    yield path
    platforms._outcomes.clear()  # noqa: SLF001
    platforms._outcomes.update(kept)  # noqa: SLF001


def test_each_format_and_server_has_a_row(pytester: pytest.Pytester, record: Path) -> None:
    """Rows of other platforms stay; the documents and CI make the same table of it."""
    pytester.makeini("[pytest]\nmarkers = e2e: whole runs")
    pytester.makepyfile(TESTS)
    for _ in range(2):  # the second run replaces the rows of the first
        platforms._outcomes.clear()  # noqa: SLF001
        pytester.inline_run("-p", "no:cacheprovider", plugins=[platforms])
    rows = json.loads(record.read_text())
    found = {(row["format"], row["server"], row["passed"], row["failed"]) for row in rows if row["python"] != "2.7"}
    assert found == {
        ("Hudi", "MariaDB 11.4", 1, 0),
        ("Hudi", "MySQL 8.4", 1, 0),
        ("Iceberg", "MariaDB 11.4", 1, 1),
        ("Iceberg", "MySQL 8.4", 2, 0),
        ("Iceberg", platforms.OWN, 1, 0),
    }
    assert len(rows) == len(found) + 1
    table = script("generate").platforms(record).splitlines()
    assert len(table) == len(rows) + 2
    assert any("| Hudi | a folder and SQLite | this machine | MariaDB 11.4 |" in line for line in table)
