"""`watch` with a picture: lag, throughput and freshness below the cell, while a run follows its source."""

import math
import threading
from collections.abc import Sequence
from contextlib import nullcontext

from lakeingest.commands.watch import Look, Watched, watch
from lakeingest.config import Config
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.printable import printable
from lakeingest.drawing.chart import Points, lines
from lakeingest.drawing.frontend import drawn_again, in_notebook


class Picture:
    """The looks so far, as charts. Other threads may draw it while a look is added."""

    def __init__(self) -> None:
        self._looks: list[Look] = []
        self._lock = threading.Lock()

    def add(self, look: Look) -> None:
        """Add a look."""
        with self._lock:
            self._looks.append(look)

    def __repr__(self) -> str:
        with self._lock:
            return self._headline

    def _repr_html_(self) -> str:
        with self._lock:
            charts = (
                lines("lag of the slowest table, bytes", self._points("lag_bytes"), "seconds"),
                lines(
                    "throughput, bytes of the binlog a second", self._points("bytes_per_second", "orange"), "seconds"
                ),
                lines("freshness, seconds", self._points("freshness"), "seconds"),
            )
            return f"<div><b>{self._headline}</b></div>{''.join(charts)}"

    @property
    def _headline(self) -> str:
        """The last look in one line. The caller holds the lock."""
        if not self._looks:
            return "watching"
        look = self._looks[-1]
        run = "a run is at work" if look.is_at_work else "no run is at work"
        lag = "the lag is not known" if look.lag_bytes is None else f"{look.lag_bytes:,} bytes behind"
        return printable(f"{spoken(look.seconds)}: {run}, {lag}")

    def _points(self, field: str, colour: str = "blue") -> Points:
        """The values of a field of the looks; NaN for a value that is not known."""
        values = (getattr(look, field) for look in self._looks)
        return Points(
            tuple(look.seconds for look in self._looks),
            tuple(math.nan if value is None else float(value) for value in values),
            colour,
        )


def watch_in_picture(config: Config, tables: Sequence[str], *, max_minutes: float | None, every: float) -> Watched:
    """Watch as `commands.watch.watch` does. In a notebook, charts below the cell are drawn again after each look."""
    picture = Picture()
    drawing = drawn_again(picture) if in_notebook() else nullcontext(_nothing)
    with drawing as draw_soon:

        def saw(look: Look) -> None:
            picture.add(look)
            draw_soon()

        max_seconds = None if max_minutes is None else max_minutes * 60
        return watch(config, tables, max_seconds=max_seconds, every=every, saw=saw)


def _nothing() -> None:
    """Draw nothing."""
