"""Exporting: the figures of a run go where `metrics` of pipeline.yml says. Nothing of that can fail the run."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakeingest.config import Config
from lakeingest.errors import LakeIngestError, OperatorNeeded
from lakeingest.files.file import state_of
from lakeingest.monitoring.background import in_background
from lakeingest.monitoring.exposition import PUSH_SECONDS, push, registry_of, serve, write_textfile
from lakeingest.monitoring.figures import Figures
from lakeingest.pipeline.events import Event, Measured, Observer, Opened, Undelivered
from lakeingest.state.fresh import read_fresh, read_measures

if TYPE_CHECKING:
    from lakeingest.monitoring.telemetry import Telemetry

EVERY_SECONDS = 10.0  # between two deliveries while nothing is measured
EXPORT_SHARE = 0.002  # of a processor's time may go to deliveries; with many tables, deliveries are rarer


@dataclass(slots=True)
class _Remote:
    """A place to which figures are sent in the background: `send` sends them, at most once in `every` seconds."""

    send: Callable[[], None]
    every: float = 0.0
    sent_at: float = float("-inf")  # the time of the monotonic clock
    sending: Future[float] | None = None


class Export:
    """The figures of one run, and the places where they go."""

    def __init__(self, config: Config, observe: Observer, *, follow: bool) -> None:
        self._config, self._settings, self._follow = config, config.metrics, follow
        self._observe = observe
        self._began = time.time()
        self._figures = Figures()
        self._registry = registry_of(config.name, self._figures)
        self._remotes: dict[str, _Remote] = {}
        if self._settings.push is not None:
            self._remotes["push"] = _Remote(partial(push, self._settings, config.name, self._registry))
        self._telemetry: Telemetry | None = None
        self._reasons: dict[str, str] = {}  # by key, why the last delivery failed
        self._delivered_at = 0.0  # the time of the monotonic clock
        self._costs: dict[str, float] = {}  # by key, the CPU seconds of the last delivery
        self._stop_serving: Callable[[], None] | None = None

    def observe(self, event: Event) -> None:
        """Collect an event, pass it on, and deliver the figures if it is time."""
        self._figures.observe(event)
        self._observe(event)
        if isinstance(event, Opened):  # not before: another run may be at work, with this port
            if self._follow:
                self._try("port", self._serve)
            self._try("opentelemetry", self._begin_telemetry)
        if self._telemetry is not None:
            self._try("opentelemetry", partial(self._telemetry.observe, event), delivers=False)
        # a measurement is delivered at once, unless deliveries would take more than their share of the time
        pause = max(sum(self._costs.values()) / EXPORT_SHARE, 0.0 if isinstance(event, Measured) else EVERY_SECONDS)
        if time.monotonic() - self._delivered_at >= pause:
            self._deliver()

    def end(self, exit_code: int, *, caught_up: bool, stages: Iterable[Any], error: str = "") -> None:
        """Deliver the figures of the whole run: `stages` are the costs of its stages, `error` names what ended it."""
        self._figures.end(exit_code, caught_up=caught_up, stages=stages, error=error)
        if not self._figures.is_measured:  # no measurement yet: what readers see is as the last run left it
            with suppress(LakeIngestError):
                self._know_last()
        if self._telemetry is None:
            self._try("opentelemetry", self._begin_telemetry)
        if self._telemetry is not None:
            self._try("opentelemetry", partial(self._telemetry.end, exit_code, error), delivers=False)
        self._note_sent(2 * PUSH_SECONDS)  # so that no earlier delivery is still at work, and the last one can begin
        self._deliver(last=True)
        self._note_sent(2 * PUSH_SECONDS)

    def _know_last(self) -> None:
        """Take over what the last run has measured: rules must not forget a table because the source is away."""
        state, tables = state_of(self._config), self._config.tables
        measures, kept_until = read_measures(state)
        if measures:
            self._figures.know(measures, kept_until)
        else:  # the last run had no metrics: only times are stored; pipeline.yml has the objectives
            notes = read_fresh(state)
            objectives = {table: tables.of(table).max_staleness for table in notes}
            self._figures.know_fresh({table: note.as_of for table, note in notes.items()}, objectives)

    def close(self) -> None:
        """Answer no requests any more."""
        if self._stop_serving is not None:
            self._stop_serving()

    def _serve(self) -> None:
        """Answer requests for the figures, if `metrics` names a port."""
        if self._settings.port is not None:
            self._stop_serving = serve(self._settings.address, self._settings.port, self._registry)

    def _begin_telemetry(self) -> None:
        """Begin to send the figures by OpenTelemetry, if `metrics` asks for it."""
        if not self._settings.opentelemetry:
            return
        try:
            from lakeingest.monitoring.telemetry import Telemetry  # it imports OpenTelemetry, an extra
        except ModuleNotFoundError as error:
            raise OperatorNeeded(f"{error}: pip install 'lakeingest[otel]'") from error
        self._telemetry = Telemetry(self._config.name, self._figures, self._began)
        self._remotes["opentelemetry"] = _Remote(self._telemetry.send, self._telemetry.every)

    def _deliver(self, *, last: bool = False) -> None:
        """Write the text file, and begin to send to each place that is due and has no delivery at work."""
        self._delivered_at = now = time.monotonic()
        if self._settings.textfile is not None:
            self._try("textfile", self._write)
        self._note_sent()
        for remote in self._remotes.values():
            if remote.sending is None and (last or now - remote.sent_at >= remote.every):
                remote.sent_at, remote.sending = now, in_background(partial(_timed, remote.send))

    def _write(self) -> None:
        """Write the text file, and note the CPU seconds that it took."""
        if self._settings.textfile is not None:
            self._costs["textfile"] = _timed(partial(write_textfile, self._settings.textfile, self._registry))

    def _note_sent(self, seconds: float = 0.0) -> None:
        """Note how deliveries have ended. For those that are still at work, wait `seconds` in all; if 0, leave them."""
        deadline = time.monotonic() + seconds
        for key, remote in self._remotes.items():
            sending = remote.sending
            if sending is not None and (seconds or sending.done()):
                remote.sending = None
                self._try(key, partial(self._take, key, sending, max(0.0, deadline - time.monotonic())))

    def _take(self, key: str, sending: Future[float], seconds: float) -> None:
        """Wait for a delivery, and note its CPU seconds. Raises the error with which it failed."""
        self._costs[key] = sending.result(seconds)

    def _try(self, key: str, work: Callable[[], object], *, delivers: bool = True) -> None:
        """Do the work. If it fails, tell the observer, unless it failed for the same reason before.

        `delivers`: the work delivers figures, so its success shows that they arrive again.
        """
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
            if delivers:
                self._reasons.pop(key, None)


def _timed(send: Callable[[], None]) -> float:
    """Call `send`. Returns the CPU seconds that the call took in this thread."""
    cpu = time.thread_time()
    send()
    return time.thread_time() - cpu
