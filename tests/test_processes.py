"""How two processes share the tests: tests/plugins/processes.py, tried with tests of its own."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
FILE = """
import os
import pytest
import time
from pathlib import Path

@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("lake_format", {formats})
def test_one(lake_format, number):
    time.sleep(0.05 if lake_format == "iceberg" else 0)
    with open(Path(__file__).with_name("done.txt"), "a") as done:
        done.write(lake_format + " " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


@pytest.fixture(autouse=True)
def _scheduler_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the inner pytest runs in a folder of its own


def processes_of(pytester: pytest.Pytester, *files: list[str]) -> dict[str, set[str]]:
    """The processes that ran tests of each format; `files` are the formats of the tests of each file."""
    pytester.makeconftest("from tests.plugins.processes import pytest_xdist_make_scheduler")
    pytester.makepyfile(**{f"test_{number}": FILE.format(formats=formats) for number, formats in enumerate(files)})
    result = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3 * sum(map(len, files)))
    found: dict[str, set[str]] = {}
    for line in (pytester.path / "done.txt").read_text().splitlines():
        lake_format, process = line.split()
        found.setdefault(lake_format, set()).add(process)
    return found


def test_one_process_has_all_tests_on_hudi(pytester: pytest.Pytester) -> None:
    """The other one begins on Iceberg, on which both go on."""
    found = processes_of(pytester, *[["iceberg", "hudi"]] * 4, *[["iceberg"]] * 6)
    assert {name: len(processes) for name, processes in found.items()} == {"hudi": 1, "iceberg": 2}


@pytest.mark.long("starts pytest once more")
def test_another_process_helps_where_nothing_else_is_left(pytester: pytest.Pytester) -> None:
    """Nobody waits for the end of the tests on Hudi."""
    assert len(processes_of(pytester, *[["hudi"]] * 8)["hudi"]) == 2
