"""How two processes share the tests, each with its own servers and Spark: `pytest -n 2`.

The tests of one file on one lake format stay together: they share fixtures, and Spark's JVM has the jars of one format.
All groups on one format come one after the other, because each change of the format starts another JVM. Those on Hudi
come in the first process that has taken one; another process helps only once nothing else is left.
"""

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_FORMAT = re.compile(r"[\[-](iceberg|hudi)(?=[\]-])")  # in the id of a test's parameters
_ORDER = ("hudi", "iceberg", "")  # the slowest groups first, so that both processes end at about the same time
_OF_ONE = {"hudi"}  # a format with few quick tests: a second JVM for it would take longer to start than it saves


class _ByFileAndFormat(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._owners: dict[str, WorkerController] = {}  # by format: the process that runs it

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        following = min(self.workqueue, key=lambda group: self._rank(node, format_of(group)))
        self._owners.setdefault(format_of(following), node)
        self.workqueue.move_to_end(following, last=False)  # the first one is assigned
        super()._assign_work_unit(node)

    def _rank(self, node: WorkerController, lake_format: str) -> tuple[bool, int]:
        is_of_another = lake_format in _OF_ONE and self._owners.get(lake_format, node) is not node
        return is_of_another, _ORDER.index(lake_format)


def group_of(nodeid: str) -> str:
    """What a test is grouped by: its file, and the lake format that it runs on."""
    found = _FORMAT.search(nodeid)
    return f"{nodeid.partition('::')[0]} {found[1] if found else ''}".strip()


def format_of(group: str) -> str:
    """The lake format of a group; empty for tests that have none."""
    return group.partition(" ")[2]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Deal out whole groups."""
    return _ByFileAndFormat(config, log)
