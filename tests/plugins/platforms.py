"""Records on which platforms tests passed: `python -m pytest -p tests.plugins.platforms tests/e2e`.

A platform is a format, a place for tables and catalog, executors, a server, a Spark and a Python. The record is
docs/tested.json, or the file that LAKEINGEST_TESTED names, as in CI. `docs/generate.py` makes the table of the
documents of it. A run replaces what an earlier one said of the same platform.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from tests.servers import lakes

VARIABLE = "LAKEINGEST_TESTED"
RECORD = Path(os.environ.get(VARIABLE) or Path(__file__).parents[2] / "docs" / "tested.json").absolute()
OWN = "MySQL and others, with settings of the test"  # tests that start servers themselves
_KEYS = "format", "lake", "executors", "server", "spark", "python"
_SERVER = "server"  # the property of a report that names the servers of its test
_outcomes: Counter[tuple[str, str, str]] = Counter()  # by format, server and outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the servers that the fixtures of a test of whole runs have given to it."""
    report = yield
    if item.get_closest_marker("e2e") is not None:
        fixtures = getattr(item, "funcargs", {}).values()
        servers = sorted({name_of(one) for one in fixtures if isinstance(one, LocalServer)})
        report.user_properties.append((_SERVER, " and ".join(servers) or OWN))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test once, by its worst outcome; in a run of several processes the first one is told of all."""
    lake_format = "Hudi" if "hudi" in report.nodeid else "Iceberg"
    server = dict(report.user_properties).get(_SERVER)
    if server is not None and (report.when == "call" or report.outcome == "failed"):
        _outcomes[lake_format, str(server), report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add the counts to the record, unless no test of whole runs was among them."""
    if _outcomes and not hasattr(session.config, "workerinput"):
        known = json.loads(RECORD.read_text()) if RECORD.exists() else []
        new = list(_rows())
        kept = [row for row in known if _platform(row) not in map(_platform, new)]
        lines = ",\n".join(f" {json.dumps(row)}" for row in sorted(kept + new, key=_platform))
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(f"[\n{lines}\n]\n")


def name_of(server: LocalServer) -> str:
    """The kind of a server, and the two first numbers of its version."""
    kind = "MariaDB" if server.flavor.is_mariadb else "MySQL"
    return f"{kind} {'.'.join(server.version.split('.')[:2])}"


def _rows() -> Iterator[dict[str, object]]:
    here = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "spark": version("pyspark").rpartition(".")[0],
        "executors": "a cluster of other users" if lakes.ON_CLUSTER else "this machine",
        "lake": lakes.NAME or "a folder",
    }
    for lake_format, server in sorted({(lake_format, server) for lake_format, server, _ in _outcomes}):
        passed, failed = (_outcomes[lake_format, server, outcome] for outcome in ("passed", "failed"))
        if passed:
            day = datetime.now(UTC).date().isoformat()
            yield {**here, "format": lake_format, "server": server, "passed": passed, "failed": failed, "day": day}


def _platform(row: dict[str, object]) -> list[str]:
    return [str(row[name]) for name in _KEYS]
