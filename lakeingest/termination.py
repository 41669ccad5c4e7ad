"""SIGTERM: the signal by which a scheduler asks a run to end."""

import signal
from collections.abc import Callable
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM has come. It is no subclass of Exception, because libraries catch every Exception as a failed call."""


def terminate(*_: object) -> NoReturn:
    """Handle SIGTERM: end the work at once."""
    raise Terminated


def watch_sigterm() -> Callable[[], bool]:
    """Handle the first SIGTERM without ending the work. Returns a function that says whether SIGTERM has come.

    With this function a run can end after its next commit. A second SIGTERM ends the work at once.
    """
    signals = []

    def note(*_: object) -> None:
        """Note a SIGTERM. The next one is handled by `terminate`."""
        signals.append(True)
        signal.signal(signal.SIGTERM, terminate)

    signal.signal(signal.SIGTERM, note)
    return lambda: bool(signals)
