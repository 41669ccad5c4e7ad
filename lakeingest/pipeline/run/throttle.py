"""Whether chunks of the source may be read now: `throttle` of pipeline.yml. It never interrupts a wave."""

import time
from datetime import UTC, datetime

from lakeingest.config import Config
from lakeingest.config import Throttle as Limits
from lakeingest.core.figures.load import Load
from lakeingest.errors import of_table
from lakeingest.mysql.source import Source

_MEGABYTE = 1_000_000


class Throttle:
    """Says before each wave whether it may be read now."""

    def __init__(self, config: Config, source: Source) -> None:
        self._limits, self._source = config.throttle, source
        self._meter = source.load_meter(config.throttle.load)
        self.load = Load()  # as it was measured last; without values if it was never measured
        self._next = 0.0  # the time of the monotonic clock from which `mb_per_second` allows the next wave

    @property
    def is_set(self) -> bool:
        """Whether pipeline.yml has a limit. Then waves are short, because limits are looked at only between waves."""
        return self._limits != Limits()

    @property
    def seconds_left(self) -> float:
        """How many seconds `mb_per_second` lets the next wave wait; 0 if it may be read."""
        return max(0.0, self._next - time.monotonic())

    @property
    def is_window_closed(self) -> bool:
        """Whether it is a time of day at which no wave may be begun."""
        window = self._limits.window
        return window is not None and not window.contain(datetime.now(UTC))

    def bytes_per_second(self, at_once: int) -> float | None:
        """The bytes per second that `mb_per_second` leaves to each of `at_once` chunks; None without this limit."""
        rate = self._limits.mb_per_second
        return None if rate is None else rate * _MEGABYTE / at_once

    def reason_to_wait(self) -> str | None:
        """Why the next wave must wait; None if it may be read now. The source is asked about its load.

        The text has no measured number, so it stays the same while the reason does. Raises the errors of
        `LoadMeter.measure`.
        """
        if self.is_window_closed:
            return f"reads begin within {self._limits.window} (throttle.window)"
        if self.seconds_left:
            return f"rows are read at {self._limits.mb_per_second} MB/s (throttle.mb_per_second)"
        with of_table():  # the run goes on with the tables that need no read
            self.load = self._meter.measure(self._source.connection)
        return self.load.excess(self._limits.load)

    def may_read(self) -> bool:
        """Whether the next wave may be read now. Asks the source, and raises errors, as `reason_to_wait` does."""
        return self.reason_to_wait() is None

    def took(self, size: int, began: float) -> None:
        """Note the bytes of a wave that was read. `began`: the time of the monotonic clock at which the read began."""
        if self._limits.mb_per_second is not None:
            self._next = began + size / (self._limits.mb_per_second * _MEGABYTE)
