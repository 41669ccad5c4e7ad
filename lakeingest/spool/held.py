"""The segments that the changelog holds at one moment, and the stretch of them with every change of one table."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakeingest.core.binlog.position import GtidSet, Place, Position
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.spool.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Stretch:
    """The segments with every change of a table after `start` and up to `end`, and with the DDL that its copy followed.

    `ends_watch`: the table is not watched after `end`. For example, it waits at a halt, or is stopped.
    """

    start: Place
    end: Place
    segments: tuple[Manifest, ...]
    ends_watch: bool

    def begins_after(self, since: ReadTo) -> bool:
        """Whether the stretch begins after the position `since`, so that changes between the two may be missing."""
        return since.order < ReadTo(self.start).order


@dataclass(frozen=True, slots=True)
class Held:
    """All segments that were held at one moment, in order and without a gap. `name` is the changelog's name."""

    name: str
    opened: Position  # where the archive ends and the spool begins
    end: Position
    segments: tuple[Manifest, ...]

    @property
    def start(self) -> Place:
        """The place where the held segments begin."""
        return self._start(self.segments[0]) if self.segments else self.opened.place

    def stretch(self, table: TableId, shown: Place | None = None, lost: Collection[str] = ()) -> Stretch:
        """The latest uninterrupted segments that watch the table, or are DDL that its copy followed.

        `shown` is the newest place as of which readers of the lake see the copy. `lost` names missing files: a segment
        with such a file of the table counts as an interruption.

        An empty stretch is returned in two cases:

        1. No segment watches the table.
        2. `shown` is after the last segment that watches the table, and later segments do not watch it. Then the
           changes up to `shown` are missing, so earlier changes are of no use.

        An empty stretch begins at `shown`; without `shown`, at the changelog's end.
        """
        last = len(self.segments)  # the stretch is `segments[first:last]`
        while last and not self._has(self.segments[last - 1], table, lost):
            last -= 1
        first = last
        while first and self._has(self.segments[first - 1], table, lost):
            first -= 1
        segments = self.segments[first:last]
        ends_watch = last < len(self.segments)  # later segments do not watch the table
        end = self._stop(segments[-1]) if segments else self.end.place
        if shown is not None:
            lacks_changes = ends_watch and shown > end
            if lacks_changes or not segments:
                return Stretch(shown, shown, (), ends_watch)
        start = self._start(segments[0]) if segments else end
        return Stretch(start, end, segments, ends_watch)

    def segments_after(self, since: ReadTo, segments: Sequence[Manifest]) -> list[Manifest]:
        """The segments among `segments` that may have changes after the position `since`.

        If `since` is in the middle of the last transaction of a segment, that segment is included.
        """
        return [segment for segment in segments if since.order < ReadTo(self._stop(segment)).order]

    def definitions(self, table: TableId) -> list[TableSchema]:
        """The table's definitions before and after each DDL that the copy followed, in order."""
        ddl = [segment.followed[table] for segment in self.segments if table in segment.followed]
        return [schema for followed in ddl for schema in (followed.before, followed.after)]

    @property
    def gtids(self) -> GtidSet:
        """All GTIDs up to `start`: those up to `opened`, minus those of archived segments, which begin at `start`."""
        archived = GtidSet()
        for segment in self.segments:
            if self._stop(segment) <= self.opened.place:
                archived |= segment.gtids
        return (self.opened.gtids or GtidSet()) - archived

    def _has(self, segment: Manifest, table: TableId, lost: Collection[str]) -> bool:
        """Whether a segment has every change of the table, or is DDL that the table's copy followed."""
        if table not in segment.tables:
            return table in segment.followed
        entry = segment.tables[table]
        return entry is None or entry[0] not in lost

    def _start(self, segment: Manifest) -> Place:
        return segment.start.place(self.opened.epoch)

    def _stop(self, segment: Manifest) -> Place:
        return segment.stop.place(self.opened.epoch)


def chain(segments: Sequence[Manifest], opened: Position) -> list[Manifest]:
    """The segments that lead without a gap to the latest stop. Of overlapping segments, the one that begins first."""
    epoch = opened.epoch
    chained: list[Manifest] = []
    # The chain is built from its last segment back to its first one. `end` is the place that its next segment must
    # reach. A segment that reached the `end` of an earlier step is of no more use: it begins at or after the new `end`.
    end = max([opened.place, *(_stop(segment, opened) for segment in segments)])
    waiting = deque(sorted(segments, key=lambda segment: _stop(segment, opened), reverse=True))
    while True:
        reaching: list[Manifest] = []
        while waiting and _stop(waiting[0], opened) >= end:
            reaching.append(waiting.popleft())
        leading = [segment for segment in reaching if segment.start.place(epoch) < end]
        if not leading:  # no segment is left, or there is a gap before `end`
            break
        earliest = min(leading, key=lambda segment: segment.start.place(epoch))
        chained.append(earliest)
        end = earliest.start.place(epoch)
    chained.reverse()
    return chained


def _stop(segment: Manifest, opened: Position) -> Place:
    return segment.stop.place(opened.epoch)
