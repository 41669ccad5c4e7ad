"""SIGTERM: what a scheduler sends to end a run."""

import signal
from collections.abc import Callable
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM came. Not an Exception: libraries in whose calls it comes would take it for a failure of their own."""


def terminate(*_: object) -> NoReturn:
    """End what is at work at once; a handler of SIGTERM."""
    raise Terminated


def drain() -> Callable[[], bool]:
    """Whether SIGTERM came, which ends a run at its next commit from now on; a second one ends it at once."""
    came = []

    def note(*_: object) -> None:
        came.append(True)
        signal.signal(signal.SIGTERM, terminate)

    signal.signal(signal.SIGTERM, note)
    return lambda: bool(came)
