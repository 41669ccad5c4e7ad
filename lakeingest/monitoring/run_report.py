"""The report of a run: a page in the state folder, stored every few minutes and at the end. Its errors fail no run."""

import time
from collections.abc import Callable
from concurrent.futures import Future

from lakeingest.config import Config
from lakeingest.errors import Retryable
from lakeingest.files.file import state_of
from lakeingest.monitoring.background import in_background
from lakeingest.monitoring.course import Course
from lakeingest.monitoring.ending import Ending
from lakeingest.pipeline.events import Event, Observer, Undelivered
from lakeingest.state.run_reports import FOLDER, Kind, report_name, store_report

EVERY_SECONDS = 300.0  # between two reports of a run that is at work
END_SECONDS = 10.0  # how long the end of a run waits until its report is stored


class RunReport:
    """Collects the course of a run from its events, and stores its report."""

    def __init__(self, config: Config, observe: Observer) -> None:
        self._config, self._observe = config, observe
        self._began_at, self._began = time.time(), time.monotonic()
        self._course = Course()
        self._stored: Future[None] | None = None
        self._due_at = self._began + EVERY_SECONDS  # when to store the next report, by the monotonic clock
        self._has_stored = False  # whether a report was stored while the run was at work
        self._is_whole = True  # whether the course has each event
        self._reason = ""  # why the last report could not be written

    def observe(self, event: Event) -> None:
        """Collect the event, and pass it on. Store a report if it is time."""
        if self._is_whole:
            self._is_whole = self._try(lambda: self._course.take(event, time.monotonic() - self._began, time.time()))
        self._observe(event)
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + EVERY_SECONDS
            self._has_stored = True
            self._try(lambda: self._write(None))

    def end(self, ending: Ending) -> None:
        """Store the report of the whole run, and wait for that."""
        self._try(lambda: self._note(END_SECONDS))
        self._try(lambda: self._write(ending))
        self._try(lambda: self._note(END_SECONDS))

    def _write(self, ending: Ending | None) -> None:
        """Draw the page, and begin to store it in the background, unless an earlier page is still on its way."""
        from lakeingest.monitoring.run_page import RunPage

        self._note(0.0)
        if self._stored is not None or not self._is_whole:
            return
        page = str(RunPage(self._config, self._course, self._began_at, time.monotonic() - self._began, ending))
        name = report_name(self._began_at, self._kind(ending))
        self._stored = in_background(lambda: store_report(state_of(self._config), name, page))

    def _kind(self, ending: Ending | None) -> Kind:
        """The kind of the run, for the report's name: whether it is to be tried again, or had nothing to do; else ''.

        If the run has stored a report before, the name stays the same.
        """
        if ending is None or self._has_stored:
            return ""
        if ending.code == Retryable.exit_code:
            return "to-retry"
        return "nothing-new" if not ending.code and self._course.is_idle else ""

    def _note(self, seconds: float) -> None:
        """Note how the last page was stored; if it is still on its way, wait for so many seconds."""
        stored = self._stored
        if stored is None or not (seconds or stored.done()):
            return
        self._stored = None
        stored.result(seconds)

    def _try(self, work: Callable[[], None]) -> bool:
        """Do the work. If it fails, return False, and tell the observer, unless it failed for that reason before."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not fail the run
            reason = f"{type(error).__name__}: {error}"
            if self._reason != reason:
                self._reason = reason
                self._observe(Undelivered(f"state/{FOLDER}", reason))
            return False
        return True
