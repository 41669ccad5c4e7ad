"""The spool: the changelog since the first low watermark, as Parquet files under the state folder.

spool/opened.json            the position where the spool begins
spool/boundaries.json        later ends of transactions, where the binlog may be cut
spool/segments/000001.json   a segment exists when its manifest exists; each segment begins where the one before it ends
spool/archive/…              segments that only readers of the changelog need (spool/archive.py)
spool/data/…                 the files that manifests name; any other file was left by an interrupted task
spool/rereads/…              reread rows, which only readers of the changelog need (spool/reread_files.py)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from itertools import accumulate
from typing import Self

from lakeingest.core.binlog.position import FilePosition, Place, Position
from lakeingest.core.copies.prepared import Pending
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, SpoolGap, StaleWriter, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File, Head
from lakeingest.spool import archive, reread_files
from lakeingest.spool.boundaries import Boundaries
from lakeingest.spool.followed import Followed
from lakeingest.spool.joined import file_names
from lakeingest.spool.manifest import Manifest, Segments, manifests_in
from lakeingest.spool.segment_files import whole_file
from lakeingest.state import store

NO_TIME = timedelta(0)


class Spool:
    """The spool in a folder, with its manifests in memory.

    A run calls `guard` before its first write. An interruption of `append`, `widen` or `forget` loses no stored change.
    `forget` and `reach_back` raise StaleWriter if another run moved the start. Only `note` is safe in another thread.
    """

    def __init__(
        self,
        folder: File,
        opened: Position,
        segments: Mapping[int, Manifest],
        last: int,
        boundaries: Boundaries,
        skipped: Mapping[int, Manifest] | None = None,
        pending: Pending | None = None,
        *,
        head: Head,
    ) -> None:
        self.folder, self._head, self._boundaries = folder, head, boundaries
        self._opened, self._opened_pending = opened, pending  # `pending`: the XA transactions prepared at `opened`
        self._segments = Segments(segments)
        self._position = reduce(_position_after, self._segments.values(), opened)
        self._last = last  # the highest number of a manifest file, including those that `load` skipped
        self._skipped = dict(skipped or {})  # segments that end at or before the start, still to be archived
        self.assert_owned: Callable[[], None] = lambda: None  # readers write nothing

    def guard(self, assert_owner: Callable[[], None]) -> None:
        """Call `assert_owner` before each later write. It raises LeaseLost if another run owns the spool."""
        self.assert_owned = assert_owner

    @classmethod
    def load(cls, folder: File) -> "Spool | None":
        """The spool in the folder; None without a spool. Raises StateUnreadable if it is damaged, or has a gap."""
        path = folder / "opened.json"
        try:
            if not path.exists():
                return None
            head = Head(path)
            doc = head.read()
            opened = Position.from_json(doc)
            pending = None if doc.get("prepared") is None else Pending.from_json(doc["prepared"])
            manifests = manifests_in(folder)
            segments = {
                int(file.stem): Manifest.from_json(files.parsed(contents))
                for file, contents in zip(manifests, files.read_all(manifests), strict=True)
            }
            boundaries = Boundaries.load(folder)
        except (OSError, *DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"the spool in {folder} cannot be read: {error}") from error
        live = {  # segments that end after the start of the spool
            number: segment for number, segment in segments.items() if segment.stop.place(opened.epoch) > opened.place
        }
        skipped = {number: segment for number, segment in segments.items() if number not in live}
        end = opened.at  # where the segments before the present one end
        for number, segment in list(live.items()):
            if segment.stop.place(opened.epoch) <= end.place(opened.epoch):
                del live[number]  # it was joined into a segment before it
                continue
            if segment.start != end:
                raise StateUnreadable(
                    f"the spool in {folder} has a gap before segment {number}: {end} to {segment.start}"
                )
            end = segment.stop
        return cls(folder, opened, live, max(segments, default=0), boundaries, skipped, pending, head=head)

    @classmethod
    def open(cls, folder: File, opened: Position) -> Self:
        """Make a new, empty spool that begins at `opened`. It replaces an earlier spool in the folder."""
        archive.clear(folder)  # Step 1: delete the archive of the earlier spool
        with store.storage_errors(folder):
            # Step 2: delete the manifests, the last one first: an interruption leaves a shorter spool without a gap
            for manifest in reversed(manifests_in(folder)):
                manifest.delete()
            (folder / "boundaries.json").delete()
            for subfolder in (folder / "segments", folder / "data"):
                subfolder.make_folder()
            folder.sync()
            folder.parent.sync()
            head = Head(folder / "opened.json")
            head.begin(opened.to_json())  # Step 3: from now on the new spool exists
        archive.give_name(folder)  # Step 4: give the new changelog a name
        return cls(folder, opened, {}, last=0, boundaries=Boundaries(folder / "boundaries.json"), head=head)

    @property
    def start(self) -> Place:
        """The place where the spool begins. Each segment has every change of the tables that it watches."""
        return self._opened.place

    @property
    def opened(self) -> Position:
        """The position where the spool begins."""
        return self._opened

    @property
    def position(self) -> Position:
        """The position where the spool ends, and where the next segment begins."""
        return self._position

    @property
    def pending(self) -> Pending | None:
        """The XA transactions that are prepared at `position`, as far as the spool knows; None if it records none."""
        return next(reversed(self._segments.values())).pending if self._segments else self._opened_pending

    def has_same_history(self, position: Position) -> bool | None:
        """Whether the spool has recorded the history and the GTIDs of `position` at the same place of the binlog.

        None if nothing can be compared: the spool records no history at this place, or `position` has no history.
        """
        for boundary in accumulate(self._segments.values(), _position_after, initial=self._opened):
            if boundary.at == position.at and boundary.history is not None and position.history is not None:
                return (boundary.history, boundary.gtids) == (position.history, position.gtids)
        return None

    @property
    def boundaries(self) -> Mapping[FilePosition, int]:
        """The noted ends of transactions after `position`, each with the `began` that `note` stored."""
        return self._boundaries.after(self.position.place)

    def note(self, boundary: FilePosition, began: int) -> None:
        """Store the end of a transaction for `boundaries`, if it is after `position`, and drop ends up to `position`.

        `began` is the second (since 1970) in which the binlog file of `boundary` began.
        """
        if boundary.place(self._opened.epoch) > self.position.place and boundary not in self._boundaries.known:
            self.assert_owned()
            self._boundaries.note(boundary, began, self.position.place)

    def keep_boundaries(self, valid: Collection[FilePosition]) -> None:
        """Drop all boundaries except those in `valid`: the dropped ones are no ends of transactions any more."""
        self._boundaries.keep(valid)

    def append(self, segments: Sequence[Manifest]) -> None:
        """Add segments to the end of the spool, in order. Their files must be complete.

        Raises SpoolGap if a segment does not begin at the end of the spool. Raises StaleWriter if another run has
        appended a segment after this spool was loaded: the manifest of the other run is never replaced.
        """
        self.assert_owned()
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()  # makes the files' names durable before a manifest names them
        for new in segments:
            if new.start != self.position.at:
                raise SpoolGap(f"a segment from {new.start} does not continue {self.position.at}")
            pending_before = self.pending or Pending()
            pending = None if new.pending is None else new.pending.after(pending_before)
            segment = replace(new, pending=pending)  # with the XA transactions of earlier segments
            path = self._manifest(self._last + 1)
            if not store.create(path, segment.to_json()):
                raise StaleWriter(f"another run continued the spool with {path}; run the same command again")
            self._last += 1
            self._segments[self._last] = segment
            self._position = _position_after(self._position, segment)

    def count_transactions(self, segments: Iterable[Manifest]) -> int:
        """The number of transactions in these segments, from the metadata of their files."""
        return sum(files.parquet_metadata(self.folder / segment.transactions).num_rows for segment in segments)

    def widen(self, read: Manifest) -> None:
        """Let all segments after the start of `read` watch the tables of `read`, too.

        `read` has only their changes. Raises SpoolGap if it begins before the spool, or ends elsewhere. An interruption
        leaves segments that watch a table without a copy; the next call replaces the table's files in these segments.
        """
        epoch = self._opened.epoch
        if read.stop != self.position.at or read.start.place(epoch) < self.start:
            raise SpoolGap(
                f"{read.start} to {read.stop} is not the end of the spool, {self.start} to {self.position.at}"
            )
        self.assert_owned()
        for number, segment in list(self._segments.items()):
            if segment.stop.place(epoch) <= read.start.place(epoch):
                continue
            # All files of `read` go to the last segment, which each merge of these tables reads. Counts of these
            # tables that an interrupted call has stored are dropped.
            is_last = number == self._last
            entries = read.tables if is_last else dict.fromkeys(read.tables)  # None: no file of the table
            nulled = {table: count for table, count in segment.nulled.items() if table not in read.tables}
            nulled |= read.nulled if is_last else {}
            wider = replace(segment, tables={**segment.tables, **entries}, nulled=nulled)
            self._replace_manifest(number, wider)

    @property
    def segments(self) -> Collection[Manifest]:
        """The segments in order."""
        return self._segments.values()

    def parts(self) -> Iterator[tuple[int, Position, Manifest, Position]]:
        """Each segment in order, as (its number, the position before it, the segment, the position after it)."""
        start = self._opened
        for number, segment in self._segments.items():
            end = _position_after(start, segment)
            yield number, start, segment, end
            start = end

    def put_table(self, number: int, table: TableId, read: Manifest) -> None:
        """Let a segment watch one more table. `read` is the same part of the binlog, read for that table alone.

        Raises SpoolGap if `read` is another part of the binlog, or if the segment watches the table already.
        """
        segment = self._segments[number]
        if (read.start, read.stop) != (segment.start, segment.stop) or table in segment.tables:
            raise SpoolGap(f"no segment from {read.start} to {read.stop} waits for the changes of {table}")
        self.assert_owned()
        tables = {**segment.tables, table: read.tables[table]}
        wider = replace(segment, tables=tables, nulled={**segment.nulled, **read.nulled})
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        self._replace_manifest(number, wider)

    def reach_back(self, opened: Position, read: Manifest) -> None:
        """Move the start of the spool back to `opened`, for tables that join the pipeline.

        `read` is the new first segment, with these tables' changes from `opened` to the old start; else SpoolGap is
        raised. Other tables have a gap there. No reader can go on from archived segments before it: they are removed.
        """
        if read.stop != self._opened.at or read.start != opened.at or opened.place >= self.start:
            raise SpoolGap(f"{read.start} to {read.stop} does not lead to the start of the spool, {self._opened.at}")
        self.assert_owned()
        self._archive_or_delete(self._skipped)  # else `load` would take these manifests for a part of the spool again
        self._skipped = {}
        archive.remove_segments(self.folder)
        number = min(self._segments) - 1 if self._segments else self._last + 1  # the lowest: `load` sorts by it
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        # the manifest first: `load` passes over it until the start has moved back
        store.replace(self._manifest(number), read.to_json())
        self._move_start(opened, None)  # None: which XA transactions are prepared there is not recorded
        self._last = max(self._last, number)
        self._segments = Segments({number: read, **self._segments})

    def files(self, table: TableId, after: Place, stop: Place) -> list[File]:
        """The files that have the table's changes after the place `after`, up to `stop`, and perhaps other changes.

        Raises SpoolGap if the spool begins later or ends earlier, or if a segment between these places does not watch
        the table.
        """
        if after < self.start or self.position.place < stop:
            raise SpoolGap(
                f"{table} needs changes from {after} to {stop}; the spool holds {self.start} to {self.position.at}"
            )
        paths = []
        for segment in self._segments_between(after, stop):
            if table not in segment.tables:
                raise SpoolGap(f"{table} was not watched from {segment.start} to {segment.stop}")
            entry = segment.tables[table]
            if entry is not None:
                paths.append(whole_file(self.folder, *entry))
        return paths

    def watched_from(self, table: TableId) -> Place:
        """The place from which on all segments watch the table; the end of the spool if the last segment does not."""
        since = self.position.place if self._segments else self.start
        for segment in reversed(self._segments.values()):
            if table not in segment.tables:
                break
            since = segment.start.place(self._opened.epoch)
        return max(since, self.start)

    def backlog(self, table: TableId, after: Place, stop: Place | None = None) -> int:
        """The number of change rows of the table in segments with a part from `after` to `stop`; None: to the end."""
        end = self.position.place if stop is None else stop
        return sum(segment.rows_of(table) for segment in self._segments_between(after, end))

    def lacks_cascades(self, after: Place) -> bool:
        """True if a segment that ends after the place `after` lacks changes by foreign keys that the source can log."""
        return any(segment.lacks_cascades for segment in self._segments_between(after, self.position.place))

    def nulled(self, table: TableId, after: Place, stop: Place) -> int:
        """How many values in the table's new rows the user's choice has made NULL, in segments as in `backlog`."""
        return sum(segment.nulled.get(table, 0) for segment in self._segments_between(after, stop))

    def bytes_of(self, table: TableId, after: Place) -> int:
        """The size in bytes of the table's files in segments that end after the place `after`."""
        entries = (segment.tables.get(table) for segment in self._segments_between(after, self.position.place))
        paths = (self.folder / entry[0] for entry in entries if entry is not None)
        return files.total(paths)  # a file that a run has just removed counts as 0

    def forget(self, place: Place, keep: timedelta = NO_TIME) -> None:
        """Take the segments that end at or before this place out of the spool: no mark needs them any more.

        The archive keeps them for readers of the changelog, for the time `keep` after they were spooled.
        """
        epoch = self._opened.epoch
        ended = [number for number, segment in self._segments.items() if segment.stop.place(epoch) <= place]
        if not ended and not self._skipped:
            return
        self.assert_owned()
        opened = reduce(_position_after, (self._segments[number] for number in ended), self._opened)
        # The start moves first. If the process then ends, `load` skips the manifests that end at or before the start.
        pending = self._segments[ended[-1]].pending if ended else self._opened_pending
        self._move_start(opened, pending)
        dropped = self._skipped | {number: self._segments.pop(number) for number in ended}
        self._skipped = {}
        self._archive_or_delete(dropped, keep)
        if not reread_files.is_empty(self.folder):
            held_from = min([self.start, *(archived.start for archived in archive.all_archived(self.folder))])
            reread_files.trim(self.folder, held_from, archive.name_of(self.folder))

    def drop(self, number: int, tables: Collection[TableId]) -> None:
        """Take these tables out of a segment, and delete their files. The segment does not watch them any more."""
        self.assert_owned()
        segment = self._segments[number]
        watched = {table: entry for table, entry in segment.tables.items() if table not in tables}
        self._replace_manifest(number, replace(segment, tables=watched))
        with store.storage_errors(self.folder):
            for table in tables:
                if (entry := segment.tables[table]) is not None:
                    (self.folder / entry[0]).delete()

    def join(self, numbers: Sequence[int], whole: Manifest) -> None:
        """Replace neighbours by `whole`, which was joined from them. `numbers`: the numbers of the neighbours.

        An interruption leaves some of their manifests beside the manifest of `whole`; `load` passes over them.
        """
        self.assert_owned()
        first, *later_numbers = numbers
        parts = [self._segments[number] for number in numbers]
        self._replace_manifest(first, whole)
        with store.storage_errors(self.folder):
            for number in later_numbers:
                del self._segments[number]
                self._manifest(number).delete()
            (self.folder / "segments").sync()
            for name in (name for part in parts for name in file_names(part)):
                (self.folder / name).delete()

    def _manifest(self, number: int) -> File:
        return self.folder / "segments" / f"{number:06d}.json"

    def follow(self, number: int, table: TableId, followed: Followed) -> None:
        """Record how the copy of the table has followed DDL. `number`: the number of the segment that is the DDL."""
        self.assert_owned()
        segment = self._segments[number]
        self._replace_manifest(number, replace(segment, followed={**segment.followed, table: followed}))

    def _replace_manifest(self, number: int, segment: Manifest) -> None:
        """Store another manifest of a segment, and keep it in memory."""
        store.replace(self._manifest(number), segment.to_json())
        self._segments[number] = segment

    def _move_start(self, opened: Position, pending: Pending | None) -> None:
        """Let the spool begin at `opened`. Raises StaleWriter if another run has moved the start after the load."""
        doc = opened.to_json() | ({} if pending is None else {"prepared": pending.to_json()})
        with store.storage_errors(self.folder):
            if not self._head.move(doc):
                raise StaleWriter(f"another run moved {self.folder / 'opened.json'}; run the same command again")
        self._opened, self._opened_pending = opened, pending

    def _archive_or_delete(self, dropped: Mapping[int, Manifest], keep: timedelta = NO_TIME) -> None:
        """Archive segments that end at or before the start, or delete them, as `archive.archive_or_delete` does."""
        manifests = [(self._manifest(number), segment) for number, segment in dropped.items()]
        archive.archive_or_delete(self.folder, self._opened.epoch, manifests, keep)

    def _segments_between(self, after: Place, stop: Place) -> Iterable[Manifest]:
        """The segments with a part between the places `after` and `stop`, by bisection: there may be thousands."""
        epoch, segments = self._opened.epoch, list(self._segments.values())  # in the order of their places
        first = bisect_right(segments, after, key=lambda segment: segment.stop.place(epoch))
        end = bisect_left(segments, stop, key=lambda segment: segment.start.place(epoch))
        return segments[first:end]


def _position_after(position: Position, segment: Manifest) -> Position:
    """The position at the end of a segment that begins at `position`."""
    return position.moved(segment.stop, segment.gtids, segment.history)
