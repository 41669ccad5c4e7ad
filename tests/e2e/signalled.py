"""What tests of signals share: waiting for something to hold, and the states of the signals of a job."""

import time
from collections.abc import Callable
from typing import Any

from lakeingest.state.signals import SignalFolder
from tests.e2e.job import Job

SOON_SECONDS = 90.0


def soon(what: Callable[[], Any]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + SOON_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def states(job: Job) -> list[tuple[str, str]]:
    """The action and state of each signal."""
    return [(one.signal.action.value, one.signal.state.value) for one in SignalFolder(job.state).read()]
