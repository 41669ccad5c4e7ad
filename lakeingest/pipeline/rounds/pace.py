"""The pace of a run that follows the source: how long the tables wait between two publishes."""

import time
from datetime import timedelta
from typing import Literal

from lakeingest.core.figures.pace import Round, pause


class Pace:
    """Says when the next round merges and publishes.

    If `every` is a duration, it is the time from the start of a round to the start of the next. If it is `auto`,
    `core.figures.pace` says how long the pause after a round is, from the seconds of recent rounds and from the CPU
    seconds of this process: a run that keeps up with its source computes half of the time at most, and a run that does
    not keep up hardly waits.
    """

    def __init__(self, every: timedelta | Literal["auto"]) -> None:
        self._every = every
        self._began = self._cpu = 0.0  # when the round began: the monotonic clock, and the CPU seconds
        self._usual: Round | None = None
        self._next = 0.0  # the time of the monotonic clock at which the next round is due

    @property
    def seconds_left(self) -> float:
        """How many seconds the next round has to wait; 0 if it is due."""
        return max(0.0, self._next - time.monotonic())

    def begin(self) -> None:
        """Note that a round begins."""
        self._began, self._cpu = time.monotonic(), time.process_time()

    def worked(self) -> None:
        """Note that the round has ended, and that it had work."""
        if self._every == "auto":
            now = time.monotonic()
            last = Round(now - self._began, time.process_time() - self._cpu)
            self._usual = last if self._usual is None else self._usual.then(last)
            self._next = now + pause(self._usual, last)
        else:
            self._next = self._began + self._every.total_seconds()

    def hurry(self) -> None:
        """Let the next round be due at once."""
        self._next = 0.0
