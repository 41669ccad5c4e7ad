"""SIGTERM: what a scheduler sends to end a run."""

import signal
from collections.abc import Callable
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM came. It is no Exception, because a library would take it for a failure of its call."""


def terminate(*_: object) -> NoReturn:
    """End the work at once; a handler of SIGTERM."""
    raise Terminated


def drain() -> Callable[[], bool]:
    """Handle SIGTERM: the answer says whether it came, so that a run ends at its next commit; a second one ends it."""
    came = []

    def note(*_: object) -> None:
        came.append(True)
        signal.signal(signal.SIGTERM, terminate)

    signal.signal(signal.SIGTERM, note)
    return lambda: bool(came)
