"""Exporting: the figures of a run go where `metrics` of pipeline.yml says. No error here fails the run."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakeingest.config import Config
from lakeingest.errors import LakeIngestError, OperatorNeeded
from lakeingest.files.file import state_of
from lakeingest.monitoring.background import in_background
from lakeingest.monitoring.exposition import CONTENT_TYPE, Exposition, write_textfile
from lakeingest.monitoring.figures import Figures
from lakeingest.monitoring.spending import Spending
from lakeingest.pipeline.events import Event, Measured, Observer, Opened, Undelivered
from lakeingest.state.fresh import read_fresh
from lakeingest.state.measures import read_measures

if TYPE_CHECKING:
    from lakeingest.monitoring.endpoint import Endpoint
    from lakeingest.monitoring.telemetry import Telemetry

EVERY_SECONDS = 10.0  # between two deliveries while nothing is measured
LAST_SECONDS = 10.0  # how long the end of a run waits for deliveries that are at work, and then for the last one

_Errors = tuple[tuple[object, ...], ...]


@dataclass(slots=True)
class _Remote:
    """A place to which figures are sent in the background: `send` sends them, at most once in `every` seconds.

    The last delivery of a run does not wait for `every`.

    `lacks_news`: there was news while it was sending, and it gets news without a pause, because `every` is 0.
    """

    send: Callable[[], None]
    every: float = 0.0
    sent_at: float = float("-inf")  # when `send` began last, by the monotonic clock
    sending: Future[None] | None = None
    lacks_news: bool = False

    @property
    def has_to_catch_up(self) -> bool:
        """Whether it lacks news, and can get the news now, because it is not sending."""
        return self.lacks_news and self.sending is None


class Export:
    """The figures of one run, and the places where they go."""

    def __init__(self, config: Config, observe: Observer, *, follow: bool) -> None:
        self._config, self._settings, self._follow = config, config.metrics, follow
        self._observe = observe
        self._began, self._spending = time.time(), Spending()
        self._figures = Figures()
        self._exposition = Exposition(config.name, self._figures)
        self._remotes: dict[str, _Remote] = {}
        if self._settings.push is not None:
            self._remotes["push"] = _Remote(self._push)
        self._telemetry: Telemetry | None = None
        self._reasons: dict[str, str] = {}  # by key, why the last delivery failed
        self._delivered_at = 0.0  # when the last delivery began, by the monotonic clock
        self._errors: _Errors | None = None  # of the last measurement
        self._delivered: _Errors | None = None  # the errors at the last delivery
        self._endpoint: Endpoint | None = None

    def observe(self, event: Event) -> None:
        """Collect an event, pass it on, and deliver the figures if it is time."""
        began = time.thread_time()
        self._figures.observe(event)
        if isinstance(event, Measured):
            self._errors = _errors_of(event)
        self._spending.add(time.thread_time() - began)
        self._observe(event)
        if isinstance(event, Opened):  # not before: another run may be at work, with this port
            if self._follow:
                self._try("port", self._serve)
            self._try("opentelemetry", self._begin_telemetry)
        if self._telemetry is not None:
            with self._spending.counted():
                self._try("opentelemetry", partial(self._telemetry.observe, event), delivers=False)
        self._note_sent()
        is_news = self._errors != self._delivered or any(remote.has_to_catch_up for remote in self._remotes.values())
        waited = time.monotonic() - self._delivered_at
        least = 0.0 if is_news or isinstance(event, Measured) else EVERY_SECONDS  # other events change little
        if waited >= least and self._spending.is_due(waited, is_news=is_news):
            self._deliver(is_news=is_news)

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
        self._note_sent(LAST_SECONDS)  # so that no earlier delivery is still at work, and the last one can begin
        self._deliver(is_last=True)
        self._note_sent(LAST_SECONDS)

    def _know_last(self) -> None:
        """Take over what the last run has measured: rules must not forget a table because the source is away."""
        state, tables = state_of(self._config), self._config.tables
        measures, kept_until = read_measures(state)
        notes = read_fresh(state)
        if measures:
            newer = {table: note.as_of for table, note in notes.items()}  # notes are stored more often
            known = (replace(one, as_of=newer.get(one.table, one.as_of)) for one in measures)
            self._figures.know(known, kept_until)
        else:  # the last run had no metrics: only times are stored; pipeline.yml has the objectives
            objectives = {table: tables.of(table).max_staleness for table in notes}
            self._figures.know_fresh({table: note.as_of for table, note in notes.items()}, objectives)

    def close(self) -> None:
        """Answer no requests any more."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _serve(self) -> None:
        """Answer requests for the figures, if `metrics` names a port."""
        address, port = self._settings.address, self._settings.port
        if port is not None:
            from lakeingest.monitoring.endpoint import Endpoint  # only runs that follow have a port

            self._endpoint = Endpoint(address, port, self._exposition.text, CONTENT_TYPE, self._spending.add)

    def _push(self) -> None:
        """Send the figures to the push gateway. Raises OSError."""
        from lakeingest.monitoring.gateway import push, registry_of  # it imports the library of Prometheus

        push(self._settings, self._config.name, registry_of(self._config.name, self._figures))

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

    def _deliver(self, *, is_news: bool = False, is_last: bool = False) -> None:
        """Write the text file, and begin to send to each place that is due and has no delivery at work."""
        self._delivered_at, self._delivered = time.monotonic(), self._errors
        self._spending.begin_period()
        if self._settings.textfile is not None:
            with self._spending.counted("textfile"):
                self._try("textfile", partial(write_textfile, self._settings.textfile, self._exposition))
        for key, remote in self._remotes.items():
            if remote.sending is not None:
                remote.lacks_news |= is_news and not remote.every
            elif is_last or self._delivered_at - remote.sent_at >= remote.every:
                remote.sent_at, remote.lacks_news = self._delivered_at, False
                remote.sending = in_background(partial(self._send, key, remote))

    def _send(self, key: str, remote: _Remote) -> None:
        """Send, and count the CPU seconds that it takes."""
        with self._spending.counted(key):
            remote.send()

    def _note_sent(self, seconds: float = 0.0) -> None:
        """Note how deliveries have ended. For those that are still at work, wait `seconds` in all; if 0, leave them."""
        deadline = time.monotonic() + seconds
        for key, remote in self._remotes.items():
            sending = remote.sending
            if sending is not None and (seconds or sending.done()):
                self._try(key, partial(sending.result, max(0.0, deadline - time.monotonic())))
                if sending.done():  # else its thread still uses the remote, so that nothing else may begin there
                    remote.sending = None

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


def _errors_of(event: Measured) -> _Errors:
    """Each table with the name of its error, and the names of its companions' errors; '' stands for no error."""
    return tuple((one.table, one.error, *one.companions.values()) for one in event.tables)
