"""Which servers tests run on, and which of their failures block.

MySQL and a pinned MariaDB block. The newest MariaDB of Debian's suites moves, and may break tests that nobody touched:
a failure there is reported and named, and blocks only where the test did not pass on the pinned one. A test that
another lane runs on the pinned one is taken for passed: that lane fails where it does not pass.

With LAKEINGEST_IMAGE, such as `mysql:8.0`, that container image is the only server, and each of its failures blocks.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MARIADB_11_8, MYSQL, Flavor
from lakeingest.demo.server import LocalServer, local_server
from tests.servers import pinned

IMAGE = os.environ.get("LAKEINGEST_IMAGE", "")


def flavor_of(image: str) -> Flavor:
    """The flavor that an image is most like."""
    known = {flavor.image: flavor for flavor in (MYSQL, MARIADB_10_11, MARIADB_11_4, MARIADB_11_8)}
    return known.get(image, MARIADB_11_8 if "mariadb" in image else MYSQL)


# the pinned one before those that are compared with it
FLAVORS = (flavor_of(IMAGE),) if IMAGE else (MYSQL, MARIADB_11_4, MARIADB_10_11)
NEWEST = MARIADB_11_8  # only for tests that are marked `newest`
MOVING = {MARIADB_10_11, MARIADB_11_8}
PINNED = MARIADB_11_4
WITH_OWN_KEY = {MARIADB_11_4, MARIADB_11_8}  # an RSA key of 4096 bits, with which each connection takes 0.15 s

PASSED = pytest.StashKey[set[str]]()


@contextmanager
def server(
    folder: Path, settings: Mapping[str, str], flavor: Flavor, prepared: Path | None = None
) -> Iterator[LocalServer]:
    """A server of the flavor for tests; without one of that flavor in LAKEINGEST_IMAGE, the test is skipped.

    `prepared` is as in `local_server`.
    """
    if not IMAGE:
        program = pinned.program(flavor)
        with local_server(folder, settings, flavor=flavor, program=program, prepared=prepared) as running:
            yield running
    elif flavor not in FLAVORS:
        pytest.skip(f"LAKEINGEST_IMAGE is {IMAGE}, and the test is for {flavor.name}")
    else:
        with local_server(folder, settings, flavor=replace(flavor, image=IMAGE), in_container=True) as running:
            yield replace(running, flavor=flavor)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Let a test that takes any server run on each, if it does not say itself on which."""
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])}
    if "any_server" in metafunc.fixturenames and "any_server" not in own:
        is_newest = metafunc.definition.get_closest_marker("newest") is not None
        flavors = (*FLAVORS, *[NEWEST] * (is_newest and not IMAGE))
        ids = [flavor.name for flavor in flavors]
        metafunc.parametrize("any_server", flavors, ids=ids, indirect=True, scope="session")


def judge(item: pytest.Item, report: pytest.TestReport) -> None:
    """Make a failure on a moving server an expected one, if the same test passed on the pinned one."""
    passed = item.config.stash.setdefault(PASSED, set())
    flavor, case = _case_of(item)
    if flavor is PINNED and report.when == "call" and report.passed:
        passed.add(case)
    if flavor in MOVING and not IMAGE and report.failed and case in passed:
        report.outcome = "skipped"
        report.wasxfail = f"fails on the newest {flavor.name}, passes on the pinned {PINNED.name}: {_reason(report)}"


def leave_out(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Take these tests for passed where they are for the pinned server: another lane runs them."""
    cases = map(_case_of, items)
    config.stash.setdefault(PASSED, set()).update(case for flavor, case in cases if flavor is PINNED)


def is_moving(item: pytest.Item) -> bool:
    """Whether a test runs on a server that moves, so that its failure may not block."""
    return _case_of(item)[0] in MOVING and not IMAGE


def _case_of(item: pytest.Item) -> tuple[Flavor | None, str]:
    """The server that a test runs on, if it takes any, and what is the same on each server."""
    call = getattr(item, "callspec", None)
    flavor = call.params.get("any_server") if call else None
    if call is None or not isinstance(flavor, Flavor):
        return None, ""
    others = {name: repr(value) for name, value in call.params.items() if name != "any_server"}
    return flavor, f"{item.nodeid.partition('[')[0]} {sorted(others.items())}"


def _names(named: object) -> list[str]:
    return [name.strip() for name in named.split(",")] if isinstance(named, str) else list(named)  # type: ignore[call-overload]


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(crash.message if crash else report.longrepr).split())[:300]
