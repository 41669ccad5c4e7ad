"""The segments that the changelog holds at one moment, and the stretch of them with every change of one table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakeingest.core.position import GtidSet, Place, Position
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.spool.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Stretch:
    """The segments that have every change of a table after `start` and up to `end`, with the DDL that its copy follows.

    `stops`: the table is not watched after `end`. For example, it waits before DDL, or has stopped.
    """

    start: Place
    end: Place
    segments: tuple[Manifest, ...]
    stops: bool

    def lacks(self, since: ReadTo) -> bool:
        """Whether a change of the table after `since` may be missing: the stretch begins later."""
        return since.order < ReadTo(self.start).order


@dataclass(frozen=True, slots=True)
class Held:
    """All segments at one moment, in order, without a gap, up to the spool's end. `name` is the changelog's name."""

    name: str
    opened: Position  # where the spool begins, behind the archive
    end: Position
    segments: tuple[Manifest, ...]

    @property
    def start(self) -> Place:
        """Every change after this place is held, of the tables that were watched then."""
        return self._start(self.segments[0]) if self.segments else self.opened.place

    def stretch(self, table: TableId, shown: Place | None = None, lost: Collection[str] = ()) -> Stretch:
        """The last segments in a row that watch the table, or are DDL that its copy followed.

        `shown` is the newest place as of which readers of the lake see the copy. If the table is not watched after
        these segments and `shown` is later than their end, the changes in between are missing: the stretch is empty,
        and begins at `shown`. It is empty there, too, if no segment watches the table. `lost` names files that are
        missing.
        """
        last = len(self.segments)
        while last and not self._has(self.segments[last - 1], table, lost):
            last -= 1
        first = last
        while first and self._has(self.segments[first - 1], table, lost):
            first -= 1
        segments, stops = self.segments[first:last], last < len(self.segments)
        end = self._stop(segments[-1]) if segments else self.end.place
        if shown is not None and (not segments or (stops and shown > end)):
            return Stretch(shown, shown, (), stops)
        return Stretch(self._start(segments[0]) if segments else end, end, segments, stops)

    def after(self, since: ReadTo, segments: Sequence[Manifest]) -> list[Manifest]:
        """The segments that may have changes after `since`.

        `since` may be in the middle of a transaction that ends where its segment ends: that segment is included.
        """
        return [segment for segment in segments if since.order < ReadTo(self._stop(segment)).order]

    def definitions(self, table: TableId) -> list[TableSchema]:
        """The definitions before and after each DDL that the copy followed, in order."""
        ddl = [segment.followed[table] for segment in self.segments if table in segment.followed]
        return [schema for followed in ddl for schema in (followed.before, followed.after)]

    @property
    def gtids(self) -> GtidSet:
        """All GTIDs up to `start`: those before the spool, minus those of the archived segments."""
        archived = GtidSet()
        for segment in self.segments:
            if self._stop(segment) <= self.opened.place:
                archived |= segment.gtids
        return (self.opened.gtids or GtidSet()) - archived

    def _has(self, segment: Manifest, table: TableId, lost: Collection[str]) -> bool:
        if table not in segment.tables:
            return table in segment.followed
        entry = segment.tables[table]
        return entry is None or entry[0] not in lost

    def _start(self, segment: Manifest) -> Place:
        return segment.start.place(self.opened.epoch)

    def _stop(self, segment: Manifest) -> Place:
        return segment.stop.place(self.opened.epoch)


def chain(segments: Sequence[Manifest], opened: Position) -> list[Manifest]:
    """The segments that lead to the last one without a gap; of segments that overlap, the one that begins first."""
    epoch, chained = opened.epoch, list[Manifest]()
    # backwards: the segments from `end` on are chosen; `best` begins first of those that reach up to `end`
    end = max([opened.place, *(_stop(segment, opened) for segment in segments)])
    best: Manifest | None = None
    for segment in sorted(segments, key=lambda segment: segment.stop.place(epoch), reverse=True):
        if _stop(segment, opened) < end:
            if best is None:
                break
            chained.append(best)
            end, best = best.start.place(epoch), None
            if _stop(segment, opened) < end:
                break
        start = segment.start.place(epoch)
        if start < end and (best is None or start < best.start.place(epoch)):
            best = segment
    if best is not None:
        chained.append(best)
    chained.reverse()
    return chained


def _stop(segment: Manifest, opened: Position) -> Place:
    return segment.stop.place(opened.epoch)
