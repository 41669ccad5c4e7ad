"""The notifier: what has changed since the last notice goes to the webhook, in a thread in the background."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress

from lakeingest.config import Config
from lakeingest.core.figures.notices import RUN, Known, Notice, notices_of_run, notices_of_tables
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.monitoring.background import in_background, outcomes
from lakeingest.monitoring.webhook import document, post, slack
from lakeingest.pipeline.events import Event, Measured, Observer, Undelivered
from lakeingest.state.notified import read_notified, store_notified
from lakeingest.state.stopped import read_stopped

MOST = 50  # notices at a time; the others come with the next measurement, or with the next run
AGAIN_SECONDS = 60.0  # the pause after notices that did not arrive
END_SECONDS = 30.0  # how long the end of a run waits for notices to arrive


class Notifier:
    """Sends notices to the webhook, one group at a time. What has not arrived is sent again."""

    def __init__(self, config: Config, observe: Observer) -> None:
        self._config, self._observe = config, observe
        self._known: dict[str, Known] | None = None
        self._sent: Future[list[Exception | None]] | None = None
        self._sending: list[Notice] = []
        self._next: Mapping[str, Known] = {}  # what is known once all of `_sending` has arrived
        self._not_before = 0.0  # the time, by the monotonic clock, before which nothing is sent

    def observe(self, event: Event) -> None:
        """Pass the event on. If it is a measurement, send what has changed, unless notices are still on their way."""
        self._observe(event)
        if isinstance(event, Measured):
            self._note_arrivals()
            if self._sent is None and time.monotonic() >= self._not_before:
                self._send(*notices_of_tables(self._told(), event.tables, time.time()))

    def end(self, error: str = "", message: str = "") -> None:
        """Send notices of how the run has ended, and wait until they have arrived, for END_SECONDS at most.

        `error` names the error that has ended the run at once, and `message` is its message; '' without such an error.
        """
        self._note_arrivals(END_SECONDS)
        self._send(*notices_of_run(self._told(), error), message)
        self._note_arrivals(END_SECONDS)

    def _told(self) -> dict[str, Known]:
        """By table, what notices have told, as far as they have arrived. The first call reads the state folder."""
        if self._known is None:
            self._known = {}
            with suppress(LakeIngestError):
                self._known = read_notified(state_of(self._config))
        return self._known

    def _send(self, notices: list[Notice], after: Mapping[str, Known], message: str = "") -> None:
        """Begin to send the notices whose occasions are in `notify.on`. `after`: what is known once all arrive."""
        webhook = self._config.notify.webhook
        all_wanted = [notice for notice in notices if notice.occasion in self._config.notify.on]
        # `left`: the tables whose notices are not sent this time
        wanted, left = all_wanted[:MOST], {notice.table for notice in all_wanted[MOST:]}
        self._next = {table: known for table, known in after.items() if table not in left}
        self._sending = wanted
        if not wanted or webhook is None:  # nothing is sent, so nothing can fail to arrive
            self._arrived(set())
            return
        docs = [document(self._config.name, notice, message or self._message(notice)) for notice in wanted]
        bodies = [slack(doc) for doc in docs] if self._config.notify.format == "slack" else docs
        url = webhook.get_secret_value()
        self._sent = in_background(lambda: post(url, bodies))

    def _message(self, notice: Notice) -> str:
        """The message of the error that has stopped the table; '' if it is not known."""
        if notice.occasion == "recovered" or not notice.error or notice.table == RUN:
            return ""
        with suppress(LakeIngestError):
            stopped = read_stopped(state_of(self._config), TableId.parse(notice.table))
            return "" if stopped is None else stopped.message
        return ""

    def _note_arrivals(self, seconds: float = 0.0) -> None:
        """Note which notices have arrived; if some are on their way, wait for so many seconds."""
        if self._sent is None or not (seconds or self._sent.done()):
            return
        results = outcomes(self._sent, len(self._sending), seconds)
        self._sent = None
        failed = {notice.table for notice, result in zip(self._sending, results, strict=True) if result is not None}
        if failed:
            self._not_before = time.monotonic() + AGAIN_SECONDS
            reason = next(result for result in results if result is not None)
            self._observe(Undelivered("notify.webhook", f"{type(reason).__name__}: {reason}"))
        self._arrived(failed)

    def _arrived(self, failed: set[str]) -> None:
        """Store what was told, now that all notices have arrived, except those of the tables in `failed`."""
        before = self._told()
        arrived = {table: told for table, told in self._next.items() if table not in failed}
        after = before | arrived
        if after != before:
            self._known = after
            with suppress(LakeIngestError):
                store_notified(state_of(self._config), after)
