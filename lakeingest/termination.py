"""SIGTERM, the signal with which a scheduler ends a run."""

import signal
from collections.abc import Callable
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM has come. This is not an Exception, because libraries take an Exception for a failure of their call."""


def terminate(*_: object) -> NoReturn:
    """End the work at once; a handler of SIGTERM."""
    raise Terminated


def drain() -> Callable[[], bool]:
    """Handle SIGTERM. Returns a function that says whether it has come, so that a run can end at its next commit.

    A second SIGTERM ends the work at once.
    """
    signals = []

    def note(*_: object) -> None:
        signals.append(True)
        signal.signal(signal.SIGTERM, terminate)

    signal.signal(signal.SIGTERM, note)
    return lambda: bool(signals)
