"""The CPU seconds that the metrics of a run take, in all of its threads, and what follows for the next delivery."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.core.figures.budget import is_due


class Spending:
    """The CPU seconds of metrics from one delivery to the next, which `is_due` compares with those of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # the CPU seconds of the last delivery to each place
        self.begin_period()

    def begin_period(self) -> None:
        """Forget what was spent so far: a delivery begins, which is the first expense of the new period."""
        with self._lock:
            self._began, self._seconds = time.process_time(), 0.0

    def add(self, seconds: float) -> None:
        """Count so many CPU seconds."""
        with self._lock:
            self._seconds += seconds

    @contextmanager
    def counted(self, place: str | None = None) -> Iterator[None]:
        """Count this thread's CPU seconds within the block. If a place is named, the block delivers figures to it."""
        began = time.thread_time()
        try:
            yield
        finally:
            seconds = time.thread_time() - began
            self.add(seconds)
            if place is not None:
                self._last[place] = seconds

    def is_due(self, waited: float, *, is_news: bool) -> bool:
        """Whether to deliver now, so many seconds after the last delivery (`core.figures.budget`)."""
        run = time.process_time() - self._began
        return is_due(cost=sum(self._last.values()), spent=self._seconds, run=run, waited=waited, is_news=is_news)
