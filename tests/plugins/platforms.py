"""Records in docs/tested.json on which platforms tests passed: `python -m pytest -p tests.plugins.platforms tests/e2e`.

`docs/generate.py` makes the table of the documents of it. A run replaces what an earlier one said of the same platform.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.servers import lakes

RECORD = Path(__file__).parents[2] / "docs" / "tested.json"
_outcomes: Counter[tuple[str, str]] = Counter()  # by format and outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test once, by its worst outcome; in a run of several processes the first one is told of all."""
    lake_format = "Hudi" if "hudi" in report.nodeid else "Iceberg"
    if report.when == "call" or report.outcome == "failed":
        _outcomes[lake_format, report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add the counts to the record."""
    if not hasattr(session.config, "workerinput"):
        known = json.loads(RECORD.read_text()) if RECORD.exists() else []
        new = list(_rows())
        kept = [row for row in known if _platform(row) not in map(_platform, new)]
        lines = ",\n".join(f" {json.dumps(row)}" for row in sorted(kept + new, key=_platform))
        RECORD.write_text(f"[\n{lines}\n]\n")


def _rows() -> Iterator[dict[str, object]]:
    here = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "spark": version("pyspark").rpartition(".")[0],
        "executors": "a cluster of other users" if lakes.ON_CLUSTER else "this machine",
        "lake": lakes.NAME or "a folder",
    }
    for lake_format in sorted({lake_format for lake_format, _ in _outcomes}):
        passed, failed = (_outcomes[lake_format, outcome] for outcome in ("passed", "failed"))
        if passed:
            day = datetime.now(UTC).date().isoformat()
            yield {**here, "format": lake_format, "passed": passed, "failed": failed, "day": day}


def _platform(row: dict[str, object]) -> list[str]:
    return [str(row[name]) for name in ("format", "lake", "executors", "spark", "python")]
