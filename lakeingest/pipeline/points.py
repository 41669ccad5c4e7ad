"""Makes and drops points: versions of all copies as of one place in the binlog are kept (`core.copies.points`).

A run makes a point between two rounds, when readers see each table as of the end of its spool. The document of a point
is stored first, and marked as complete last. So a run that dies in between leaves a point that readers do not use, and
that is made anew or dropped.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from lakeingest.core.copies.points import KeptVersion, Point, Standing, expired, is_due, left_out, name_at, waits_for
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, UsageError
from lakeingest.files.file import File
from lakeingest.lake.formats import open_points
from lakeingest.lake.points import Points
from lakeingest.pipeline.events import PointMade, Undelivered
from lakeingest.pipeline.run.current import is_current
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.points import delete_point, read_points, store_point

RETRY_SECONDS = 60.0


@dataclass(slots=True)
class Keeping:
    """The points that a run makes by itself every `points.every`, and drops once they are older than `points.keep`."""

    run: OpenRun
    _points: list[Point] | None = field(default=None, init=False)  # those of the state folder; None: not read yet
    _not_before: float = field(default=0.0, init=False)  # the time of the monotonic clock

    def keep_if_due(self) -> None:
        """Make a point if it is time, and if readers see all tables as of one place.

        An error is reported, and the next try is after RETRY_SECONDS.
        """
        every = self.run.edges.config.points.every
        if every is None or not self.run.takes_new or time.monotonic() < self._not_before:
            return  # points are for all tables, and a run for a few of them makes none
        now = datetime.now(UTC)
        try:
            points = self._points = read_points(self.run.edges.state) if self._points is None else self._points
            if is_due(points, every, now) and not waits_for(standings := _standings(self.run)):
                self._points = None  # they change now: read them again at the next call
                self._keep(now, standings)
        except LakeIngestError as error:
            self._not_before = time.monotonic() + RETRY_SECONDS
            self.run.edges.observe(Undelivered("points", error.line))

    def _keep(self, now: datetime, standings: list[Standing]) -> None:
        """Make a point that is named by the time `now`, then drop the points that are too old."""
        edges = self.run.edges
        with translate_errors(edges.source.settings, edges.target):
            lake = open_points(edges.config)
            _make(self.run, lake, name_at(now), standings)
            for point in expired(read_points(edges.state), edges.config.points.keep, now):
                drop_point(edges.writing, lake, point.name)


def make_point(run: OpenRun, name: str) -> Point | str:
    """Make a point and return it, or return what it waits for. Raises UsageError if a complete point has this name."""
    if not run.takes_new:
        return "this run is for other tables"
    standings = _standings(run)
    if waiting := waits_for(standings):
        return f"readers do not see {', '.join(map(str, waiting))} as of the end of the spool yet"
    with translate_errors(run.edges.source.settings, run.edges.target):
        return _make(run, open_points(run.edges.config), name, standings)


def drop_point(state: File, lake: Points, name: str) -> None:
    """Let the versions of a point go, then remove its document. Raises UsageError if there is no such point."""
    found = [point for point in read_points(state) if point.name == name]
    if not found:
        raise UsageError(f"there is no point {name}; `lakeingest points list` shows all")
    [point] = found
    if point.is_complete:  # before its versions go: from now on no reader uses the point
        store_point(state, replace(point, is_complete=False))
    _release(lake, point.tables, name)
    delete_point(state, name)


def _make(run: OpenRun, lake: Points, name: str, standings: list[Standing]) -> Point:
    """Make a point: keep the version of each table in `standings`, except those with a hindrance.

    An incomplete point of this name is dropped first. Raises UsageError if there is a complete point of this name.
    """
    edges, position = run.edges, run.binlog.spool.position
    earlier = [point for point in read_points(edges.state) if point.name == name]
    if any(point.is_complete for point in earlier):
        raise UsageError(f"there is a point {name} already; choose another name, or drop it")
    for point in earlier:  # a run died while it made it
        drop_point(edges.writing, lake, point.name)
    versions = {one.table: one.version for one in standings if not one.hindrance and one.version is not None}
    planned = {table: KeptVersion(version, name) for table, version in versions.items()}
    point = Point(name, position, datetime.now(UTC), planned, left_out(standings))
    store_point(edges.writing, point)
    kept = dict[TableId, KeptVersion]()
    try:
        for table, version in versions.items():
            edges.lease.assert_held()
            kept[table] = lake.keep(table, version, name)  # with the name by which engines read it
        point = replace(point, tables=kept, is_complete=True)
        store_point(edges.writing, point)
    except LakeIngestError:
        with suppress(LakeIngestError):  # what cannot be let go now is let go by a later run
            drop_point(edges.writing, lake, name)
        raise
    edges.observe(PointMade(name, str(position.at), len(kept), len(point.left_out)))
    return point


def _release(lake: Points, tables: Mapping[TableId, KeptVersion], name: str) -> None:
    """Keep the versions of the point `name` no more, so that they may expire."""
    for table, kept in tables.items():
        lake.release(table, kept, name)


def _standings(run: OpenRun) -> list[Standing]:
    """How far each table is, as readers see it."""
    return [
        Standing(
            table.id,
            None if table.copy is None else table.copy.published,
            is_current(run, table),
            _hindrance(table),
        )
        for table in run.tables.values()
    ]


def _hindrance(table: TableRun) -> str:
    """Why a table does not go on; '' if it does."""
    if table.failure is not None:
        return f"it has stopped, {table.failure.error.runbook}"
    if table.paused:
        return "it is paused"
    if table.copy is None or table.copy.published is None or table.has_missing_chunks:
        return "it is being copied"
    return ""
