"""The pace of a run that follows the source: how long the tables wait between two publishes."""

import time
from datetime import timedelta
from typing import Literal

MOST_SECONDS = 5.0  # the longest pause of the pace `auto`


class Pace:
    """Says when the next round merges and publishes.

    With a duration, rounds begin so far apart. With `auto`, the pause after a round is as long as the round was, and at
    most MOST_SECONDS: so a run that keeps up with its source works half of the time, and a run that does not keep up
    hardly waits.
    """

    def __init__(self, every: timedelta | Literal["auto"]) -> None:
        self._every = every
        self._next = 0.0  # the time of the monotonic clock at which the next round is due

    @property
    def seconds_left(self) -> float:
        """How many seconds the next round has to wait; 0 if it is due."""
        return max(0.0, self._next - time.monotonic())

    def worked(self, began: float) -> None:
        """Note that a round with work, which began at this time of the monotonic clock, has ended."""
        now = time.monotonic()
        if self._every == "auto":
            self._next = now + min(now - began, MOST_SECONDS)
        else:
            self._next = began + self._every.total_seconds()

    def hurry(self) -> None:
        """Let the next round be due at once."""
        self._next = 0.0
