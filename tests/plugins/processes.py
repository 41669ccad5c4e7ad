"""How two processes share the tests, each with its own servers and Spark: `pytest -n 2`.

The tests of one file on one lake format stay together: they share fixtures, and Spark's JVM has the jars of one format.
All groups on one format come one after the other, because each change of the format starts another JVM.
"""

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_FORMAT = re.compile(r"[\[-](iceberg|hudi)(?=[\]-])")  # in the id of a test's parameters
_ORDER = ("hudi", "iceberg", "")  # the slowest groups first, so that both processes end at about the same time


class _ByFileAndFormat(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        following = min(self.workqueue, key=lambda group: _ORDER.index(group.partition(" ")[2]))
        self.workqueue.move_to_end(following, last=False)  # the first one is assigned
        super()._assign_work_unit(node)


def group_of(nodeid: str) -> str:
    """What a test is grouped by: its file, and the lake format that it runs on."""
    found = _FORMAT.search(nodeid)
    return f"{nodeid.partition('::')[0]} {found[1] if found else ''}".strip()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Deal out whole groups."""
    return _ByFileAndFormat(config, log)
