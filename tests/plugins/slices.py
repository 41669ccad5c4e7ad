"""Which tests a run takes, and how long it may take.

A test is long by its marker: `long("why")`, or `long("why", only=("hudi",))` with these parameters alone. With
`long("why", turn="any_server")` one of the tests that differ in nothing but this parameter is quick, and the others
are long: so each of the other parameters is tried in every run, and the servers take turns.
`--take quick` leaves out the tests that are marked `long`. `--take SLICE/SLICES` takes only long ones: those of one
slice, so that runs with different slices share the work. Without the option every test runs.
"""

import time
import zlib
from collections.abc import Iterable

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
    long = _long_ones(items)
    taken, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (taken if _is_taken(take, item, is_long=item in long) else left_out).append(item)
    if left_out:
        lanes.leave_out(config, left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = taken


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


def _is_taken(take: str, item: pytest.Item, *, is_long: bool) -> bool:
    if take == "all":
        return True
    if take == "quick":
        return not is_long
    number, _, slices = take.partition("/")
    # not `hash`, which differs from process to process
    return is_long and zlib.crc32(item.nodeid.encode()) % int(slices) == int(number) % int(slices)


def _long_ones(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The long ones; where some take turns, all of them but the one whose turn it is."""
    long: set[pytest.Item] = set()
    turns: dict[object, list[pytest.Item]] = {}
    for item in items:
        for marker in item.iter_markers("long"):
            if not marker.args:
                raise pytest.UsageError(f"{item.nodeid}: the marker `long` needs a reason")
            if "turn" in marker.kwargs:
                turns.setdefault(_but_for(item, marker.kwargs["turn"]), []).append(item)
            elif _names(item, marker):
                long.add(item)
    for alike in turns.values():
        able = [item for item in alike if item not in long and not lanes.is_moving(item)]
        able.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        long.update(item for item in alike if item not in able[:1])
    return long


def _but_for(item: pytest.Item, turn: str | tuple[str, ...]) -> object:
    """What tests have in common that differ in these parameters alone."""
    given = getattr(item, "callspec", None)
    parameters = given.params if given else {}
    names = {turn} if isinstance(turn, str) else {*turn}
    if not names <= parameters.keys():
        raise pytest.UsageError(f"{item.nodeid}: `turn` names {sorted(names)}, of which some are no parameters")
    others = sorted((name, repr(value)) for name, value in parameters.items() if name not in names)
    return item.nodeid.partition("[")[0], turn, tuple(others)


def _names(item: pytest.Item, marker: pytest.Mark) -> bool:
    """Whether the marker is for this test, with these parameters."""
    if "only" not in marker.kwargs:
        return True
    if any("-" in one for one in marker.kwargs["only"]):
        raise pytest.UsageError(f"{item.nodeid}: `only` names single parameters, and a name has a - between them")
    parameters = item.name.partition("[")[2].rstrip("]").split("-")
    return not {*parameters}.isdisjoint(marker.kwargs["only"])
