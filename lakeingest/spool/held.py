"""What the stored changelog holds at one moment, and which stretch of it has every change of one table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakeingest.core.position import GtidSet, Place, Position
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.spool.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Stretch:
    """The segments that have every change of a table after `start` and up to `end`, with the DDL that it has followed.

    `stops`: the table is not watched from the end on. It waits before DDL, say, or has stopped.
    """

    start: Place
    end: Place
    segments: tuple[Manifest, ...]
    stops: bool

    def lacks(self, since: ReadTo) -> bool:
        """Whether a change of the table after `since` may be no longer here."""
        return since.order < ReadTo(self.start).order


@dataclass(frozen=True, slots=True)
class Held:
    """All segments at one moment, in order, without a gap, up to the spool's end. `name` is that of the changelog."""

    name: str
    opened: Position  # where the spool begins, behind the archive
    end: Position
    segments: tuple[Manifest, ...]

    @property
    def start(self) -> Place:
        """Every change after this place is here, of the tables that were watched then."""
        return self._start(self.segments[0]) if self.segments else self.opened.place

    def stretch(self, table: TableId, shown: Place | None = None, lost: Collection[str] = ()) -> Stretch:
        """The last segments in a row that watched the table, or are DDL that its copy has followed.

        `shown` is the newest place as of which readers of the lake see the copy. Where it is after these segments, and
        the table is not watched after them, the changes in between are not here: nothing is held but that copy. `lost`
        are files that are not there.
        """
        last = len(self.segments)
        while last and not self._has(self.segments[last - 1], table, lost):
            last -= 1
        first = last
        while first and self._has(self.segments[first - 1], table, lost):
            first -= 1
        found, stops = self.segments[first:last], last < len(self.segments)
        end = self._stop(found[-1]) if found else self.end.place
        if shown is not None and (not found or (stops and shown > end)):
            return Stretch(shown, shown, (), stops)
        return Stretch(self._start(found[0]) if found else end, end, found, stops)

    def after(self, since: ReadTo, segments: Sequence[Manifest]) -> list[Manifest]:
        """The segments that may have changes after `since`.

        That may be the rest of a transaction, whose place may be the very end of its segment.
        """
        return [one for one in segments if since.order < ReadTo(self._stop(one)).order]

    def definitions(self, table: TableId) -> list[TableSchema]:
        """The definitions that the copy was lifted from and to, in order."""
        followed = [one.followed[table] for one in self.segments if table in one.followed]
        return [schema for one in followed for schema in (one.before, one.after)]

    @property
    def gtids(self) -> GtidSet:
        """All GTIDs up to `start`: the GTIDs before the spool, without those of the archive."""
        archived = GtidSet()
        for one in self.segments:
            if self._stop(one) <= self.opened.place:
                archived |= one.gtids
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
    """The segments that lead to the last one without a gap; of two for one part of the binlog the larger one."""
    epoch, found = opened.epoch, list[Manifest]()
    end = max([opened.place, *(_stop(one, opened) for one in segments)])
    best: Manifest | None = None
    for one in sorted(segments, key=lambda one: one.stop.place(epoch), reverse=True):
        if _stop(one, opened) < end:
            if best is None:
                break
            found.append(best)
            end, best = best.start.place(epoch), None
            if _stop(one, opened) < end:
                break
        if one.start.place(epoch) < end and (best is None or one.start.place(epoch) < best.start.place(epoch)):
            best = one
    if best is not None:
        found.append(best)
    found.reverse()
    return found


def _stop(segment: Manifest, opened: Position) -> Place:
    return segment.stop.place(opened.epoch)
