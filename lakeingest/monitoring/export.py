"""Exporting: the figures of a run go where `metrics` of pipeline.yml says. Nothing of that can fail the run."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from lakeingest.config import Config
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.monitoring.background import in_background
from lakeingest.monitoring.exposition import PUSH_SECONDS, push, registry_of, serve, write_textfile
from lakeingest.monitoring.figures import Figures
from lakeingest.pipeline.events import Event, Measured, Observer, Opened, Undelivered
from lakeingest.state.fresh import read_fresh

EVERY_SECONDS = 10.0  # between two deliveries while nothing is measured
EXPORT_SHARE = 0.002  # of a processor's time for deliveries, so that many tables make them rarer


class Export:
    """The figures of one run, and the places where they go."""

    def __init__(self, config: Config, observe: Observer, *, follow: bool) -> None:
        self._config, self._settings, self._follow = config, config.metrics, follow
        self._observe = observe
        self._figures = Figures()
        self._registry = registry_of(config.name, self._figures)
        self._pushed: Future[float] | None = None
        self._reasons: dict[str, str] = {}  # by key, why the last delivery failed
        self._delivered_at = 0.0  # the time of the monotonic clock
        self._costs = {"textfile": 0.0, "push": 0.0}  # the CPU seconds of the last delivery
        self._stop_serving: Callable[[], None] | None = None

    def observe(self, event: Event) -> None:
        """Collect an event, pass it on, and deliver the figures if it is time."""
        self._figures.observe(event)
        self._observe(event)
        if isinstance(event, Opened) and self._follow:  # not before: another run may be at work, with this port
            self._try("port", self._serve)
        pause = max(sum(self._costs.values()) / EXPORT_SHARE, 0.0 if isinstance(event, Measured) else EVERY_SECONDS)
        if time.monotonic() - self._delivered_at >= pause:
            self._deliver()

    def end(self, exit_code: int, *, caught_up: bool, stages: Iterable[Any]) -> None:
        """Deliver the figures of the whole run. `stages` are the costs of its stages."""
        self._figures.end(exit_code, caught_up=caught_up, stages=stages)
        if not self._figures.is_measured:  # the run has ended before that: what readers see is as the last run left it
            with suppress(LakeIngestError):
                notes = read_fresh(state_of(self._config))
                self._figures.know({table: note.as_of for table, note in notes.items()})
        self._note_push(2 * PUSH_SECONDS)
        self._deliver()
        self._note_push(2 * PUSH_SECONDS)

    def close(self) -> None:
        """Answer no requests any more."""
        if self._stop_serving is not None:
            self._stop_serving()

    def _serve(self) -> None:
        if self._settings.port is not None:
            self._stop_serving = serve(self._settings.address, self._settings.port, self._registry)

    def _deliver(self) -> None:
        """Write the text file, and begin to push unless the last push is still at work."""
        self._delivered_at = time.monotonic()
        if self._settings.textfile is not None:
            self._try("textfile", lambda: self._count_cost("textfile", self._write()))
        self._note_push()
        if self._settings.push is not None and self._pushed is None:
            self._pushed = in_background(self._push)

    def _write(self) -> float:
        """Write the text file. Returns the CPU seconds that it took."""
        cpu = time.thread_time()
        if self._settings.textfile is not None:
            write_textfile(self._settings.textfile, self._registry)
        return time.thread_time() - cpu

    def _push(self) -> float:
        """Push, in another thread. Returns the CPU seconds that it took."""
        cpu = time.thread_time()
        push(self._settings, self._config.name, self._registry)
        return time.thread_time() - cpu

    def _note_push(self, seconds: float = 0.0) -> None:
        """Note how the last push has ended; if it is still at work, wait for so many seconds."""
        pushed = self._pushed
        if pushed is None or not (seconds or pushed.done()):
            return
        self._pushed = None
        self._try("push", lambda: self._count_cost("push", pushed.result(seconds)))

    def _count_cost(self, place: str, cpu: float) -> None:
        self._costs[place] = cpu

    def _try(self, key: str, work: Callable[[], object]) -> None:
        """Do the work. If it fails, tell the observer, unless it failed for the same reason before."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not fail the run
            reason = f"{type(error).__name__}: {error}"
            if self._reasons.get(key) != reason:
                self._reasons[key] = reason
                undelivered = Undelivered(f"metrics.{key}", reason)
                self._figures.observe(undelivered)
                self._observe(undelivered)
        else:
            self._reasons.pop(key, None)
