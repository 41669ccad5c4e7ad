"""Which tests a run takes, and how long it may take.

A test is long by its marker: `long("why")`, or `long("why", only=("hudi",))` with these parameters alone.
`--take quick` leaves out the tests that are marked `long`. `--take SLICE/SLICES` takes only long ones: those of one
slice, so that runs with different slices share the work. Without the option every test runs.
"""

import time
import zlib

import pytest

from tests.plugins import lanes
from tests.servers import lakes

_began = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which tests, and for how long."""
    group = parser.getgroup("slices")
    group.addoption("--take", default="all", help="quick, all, or one slice of the long tests as SLICE/SLICES")
    group.addoption("--minutes", type=float, help="the run fails when it takes longer than this")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not to be taken, and skip what cannot run where the lake is."""
    lakes.leave_out(items)
    take = config.getoption("take")
    left_out = [item for item in items if not _is_taken(take, item)]
    if left_out:
        lanes.leave_out(config, left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that took longer than it may; a slice without tests has passed."""
    if hasattr(session.config, "workerinput"):
        return  # the process that deals out the tests judges
    minutes, limit = (time.monotonic() - _began) / 60, session.config.getoption("minutes")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and "/" in session.config.getoption("take"):
        session.exitstatus = pytest.ExitCode.OK
    if limit is not None and minutes > limit and exitstatus == pytest.ExitCode.OK:
        print(f"\nThe tests took {minutes:.1f} minutes; the limit is {limit:.0f}.")  # noqa: T201 - pytest has ended its report
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_taken(take: str, item: pytest.Item) -> bool:
    is_long = _is_long(item)
    if take == "all":
        return True
    if take == "quick":
        return not is_long
    number, _, slices = take.partition("/")
    # not `hash`, which differs from process to process
    return is_long and zlib.crc32(item.nodeid.encode()) % int(slices) == int(number) % int(slices)


def _is_long(item: pytest.Item) -> bool:
    parameters = item.name.partition("[")[2].rstrip("]").split("-")
    markers = list(item.iter_markers("long"))
    if any(not marker.args for marker in markers):
        raise pytest.UsageError(f"{item.nodeid}: the marker `long` needs a reason")
    if any("-" in one for marker in markers for one in marker.kwargs.get("only", ())):
        raise pytest.UsageError(f"{item.nodeid}: `only` names single parameters, and a name has a - between them")
    return any("only" not in marker.kwargs or not {*parameters}.isdisjoint(marker.kwargs["only"]) for marker in markers)
