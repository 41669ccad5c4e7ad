"""Measures the progress of the copies from time to time, stores it for `status`, and tells the observer."""

import time
from collections.abc import Mapping
from contextlib import suppress

from lakeingest.core.binlog.position import (
    FilePosition,
    Position,
    bytes_between,
    files_after,
    in_same_file,
    is_in_one_of,
)
from lakeingest.core.figures.freshness import Measure, committed_at, lag_seconds, noted_again
from lakeingest.core.figures.shown import SHOWN, Shown
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, Scope, SourceAway
from lakeingest.pipeline.events import Measured
from lakeingest.pipeline.rounds.counting import Counting
from lakeingest.pipeline.rounds.proving import Proving
from lakeingest.pipeline.run.current import is_current
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.fresh import read_fresh, store_fresh
from lakeingest.state.measures import store_measures

BUSY_SECONDS, IDLE_SECONDS = 1.0, 10.0  # between two measurements, after rounds with work and without
MEASURING_SHARE = 0.001  # of a processor's time: a run that follows uses a part of one
STORE_SECONDS = 300.0  # between two stores of measures: only a run that cannot measure reads them
ASK_AGAIN_SECONDS = 300.0  # how often the source is asked how long it keeps its binlog


class Measuring:
    """Measures all tables of a run: those that it brings up to date, and those of which it only spools the changes."""

    def __init__(self, run: OpenRun, proving: Proving, counting: Counting | None = None) -> None:
        """`counting`: counts what following costs; None: the run does not follow."""
        self._run, self._proving, self._counting = run, proving, counting
        self._notes = read_fresh(run.edges.state)
        self._shown = dict[tuple[TableId, int], Shown | None]()  # by table and version, what the lake says of a publish
        self._measured_at = self._pause = 0.0  # the time of the monotonic clock; the least pause after it
        self._retention: int | None = None  # of the source's binlog, in seconds
        self._stored_at, self._errors = float("-inf"), tuple[tuple[object, ...], ...]()  # of the stored measures
        self._asked_at = float("-inf")  # the time of the monotonic clock at which the source was asked

    def measure_if_due(self, *, worked: bool) -> None:
        """Measure if the last measurement is old enough. `worked`: the round had work."""
        pause = max(self._pause, BUSY_SECONDS if worked else IDLE_SECONDS)
        if time.monotonic() - self._measured_at >= pause:
            self.measure()

    def measure(self) -> None:
        """Measure the tables, store how fresh they are, and tell the observer.

        The source is asked for its written position, and for its binlog files if it has begun another file. If the
        source is away, nothing is measured, and no error is raised: if the run needs the source, its work raises one.
        """
        with suppress(SourceAway), self._run.edges.source.named_errors():
            self._measure()

    def _measure(self) -> None:
        """Do what `measure` says. Raises the driver's errors, and SourceAway, if the source does not answer."""
        cpu, edges, binlog = time.thread_time(), self._run.edges, self._run.binlog
        end, written = binlog.spool.position, edges.source.written()
        sizes = {} if in_same_file(end.at, written) else edges.source.files()
        measures = tuple(self._measured(table, written, sizes) for table in self._run.tables.values())
        kept = self._binlog_seconds(written, sizes)
        if self._notes:
            store_fresh(edges.writing, self._notes)
        if edges.config.metrics.is_set:
            self._store(measures, None if kept is None else time.time() + kept)
        followed = None if self._counting is None else self._counting.count_if_due()
        measured = Measured(measures, edges.throttle.load, kept, followed)
        self._measured_at, self._pause = time.monotonic(), (time.thread_time() - cpu) / MEASURING_SHARE
        edges.observe(measured)

    def _store(self, measures: tuple[Measure, ...], kept_until: float | None) -> None:
        """Store the measures if the run does not follow, if an error is new or gone, or if the stored ones are old."""
        errors = tuple((measure.table, measure.error, *measure.companions.values()) for measure in measures)
        is_old = time.monotonic() - self._stored_at >= STORE_SECONDS
        if self._counting is None or is_old or errors != self._errors:
            store_measures(self._run.edges.writing, measures, kept_until)
            self._stored_at, self._errors = time.monotonic(), errors

    def _measured(self, table: TableRun, written: FilePosition, sizes: Mapping[str, int]) -> Measure:
        """The measure of a table. The moment as of which readers see the table is noted for the next measurement.

        `sizes`: those of the binlog files; empty if the spool ends in the file that the source writes.
        """
        end, current = self._run.binlog.spool.position, is_current(self._run, table)
        shown = self._what_readers_see(table)
        position = None if shown is None else shown.position
        # times up to which readers see every change of the table
        moments = (self._run.binlog.complete_at, committed_at(end)) if current else ()
        note = noted_again(self._notes.get(table.id), position, *moments, complete=end if current else None)
        if note is not None:
            self._notes[table.id] = note
        seen_to = end if current else position
        staleness = table.options.max_staleness
        return Measure(
            table.id,
            rows=None if shown is None else shown.rows,
            position=None if position is None else str(position.at),
            as_of=None if note is None else note.as_of,
            lag_bytes=_unread_bytes(seen_to, end, written, sizes),
            lag_seconds=lag_seconds(position, end, current=current),
            error=self._error_of(table),
            paused=table.paused,
            max_staleness=None if staleness is None else staleness.total_seconds(),
            quarantined=None if table.copy is None else len(table.progress.quarantine),
            proven_since=self._proving.proven_since(table),
            companions=self._run.companions.errors_of(table),
        )

    def _what_readers_see(self, table: TableRun) -> Shown | None:
        """The state that readers see; None if nothing is published, or if it is not known."""
        if table.shown is not None:
            return Shown(table.shown.position, table.shown.rows)
        if table.copy is None or table.copy.published is None:
            return None
        publish = table.id, table.copy.published
        if publish not in self._shown:  # the run has loaded only staged rows, which are newer
            self._shown[publish] = Shown.of_text(self._properties(table.id).get(SHOWN, ""))
        return self._shown[publish]

    def _properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of a copy; none if only this copy cannot be read, which its next merge will report."""
        edges = self._run.edges
        try:
            with translate_errors(edges.source.settings, edges.target):
                return edges.target.properties(table)
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
                raise
            return {}

    def _error_of(self, table: TableRun) -> str:
        """The name of the error that has stopped the table; '' if none has. An earlier run may have stored it."""
        if table.failure is not None:
            return table.failure.error.runbook
        stopped = None if table.requested else self._run.edges.stopped.read(table.id)
        return "" if stopped is None else stopped.error

    def _binlog_seconds(self, written: FilePosition, sizes: Mapping[str, int]) -> int | None:
        """How long the source will still keep the binlog after the spool; None if for ever, or if unknown."""
        source, at = self._run.edges.source, self._run.binlog.spool.position.at
        if not self._run.edges.config.metrics.is_set:  # nobody wants to know
            return None
        if time.monotonic() - self._asked_at > ASK_AGAIN_SECONDS:
            self._retention, self._asked_at = source.shown_retention_seconds(), time.monotonic()
        retention = self._retention
        if retention is None or in_same_file(at, written):
            return retention  # a file is kept for so long after its end, and the source still writes this file
        if not is_in_one_of(at, sizes):
            return 0  # the source has purged the file
        # a file ends in the second in which the next file is begun
        ended_at = self._run.binlog.second_of(source, files_after(at, sizes)[0])
        return max(0, ended_at + retention - source.clock())


def _unread_bytes(
    seen_to: Position | None, end: Position, written: FilePosition, sizes: Mapping[str, int]
) -> int | None:
    """The length of the binlog after `seen_to`, up to `written`; None if the server's files cannot tell it.

    They cannot if there is no position, if it is of another server or epoch than `end`, or if its file is purged.
    """
    if seen_to is None or (seen_to.server_uuid, seen_to.epoch) != (end.server_uuid, end.epoch):
        return None
    if in_same_file(seen_to.at, written):
        return bytes_between(seen_to.at, written, {})
    return bytes_between(seen_to.at, written, sizes) if is_in_one_of(seen_to.at, sizes) else None
