"""The spool: the changelog since the first low watermark, as Parquet files under the state folder.

spool/opened.json            the position where the spool begins
spool/boundaries.json        later ends of transactions, where the binlog may be cut
spool/segments/000001.json   a segment exists when its manifest does; manifests chain without a gap
spool/archive/…              segments that only readers of the changelog need (spool/archive.py)
spool/data/…                 the files of the manifests; any other file is the rest of an interrupted task
spool/rereads/…              rows that were read again, which only readers need (spool/reread_files.py)
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Self

from lakeingest.core.position import FilePosition, Place, Position
from lakeingest.core.prepared import Pending
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, SpoolGap, StaleWriter, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File, Head
from lakeingest.spool import archive, reread_files
from lakeingest.spool.boundaries import Boundaries
from lakeingest.spool.followed import Followed
from lakeingest.spool.joined import file_names
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import whole_file
from lakeingest.state import store

NO_TIME = timedelta(0)


class Spool:
    """An open spool. An interruption of `append`, `widen` or `forget` leaves it complete.

    A run calls `guard` before it writes. Another thread may call `note`.
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
        self.folder = folder
        self._head = head
        self._boundaries = boundaries
        self._opened, self._opened_pending = opened, pending
        self._segments = dict(segments)
        self._position = reduce(_after, self._segments.values(), opened)
        self._last = last  # number of the last manifest file, also if `load` skipped it
        self._skipped = dict(skipped or {})
        self.assert_owned: Callable[[], None] = lambda: None  # readers write nothing

    def guard(self, assert_owner: Callable[[], None]) -> None:
        """Let each write begin with this question. It raises LeaseLost where another run owns the spool by now."""
        self.assert_owned = assert_owner

    @classmethod
    def load(cls, folder: File) -> "Spool | None":
        """The spool in the folder, None if there is none. Raises StateUnreadable when it is damaged or has a gap."""
        path = folder / "opened.json"
        try:
            if not path.exists():
                return None
            head = Head(path)
            doc = head.read()
            opened = Position.from_json(doc)
            pending = None if doc.get("prepared") is None else Pending.from_json(doc["prepared"])
            manifests = (folder / "segments").listed("*.json")
            segments = {
                int(file.stem): Manifest.from_json(files.parsed(contents))
                for file, contents in zip(manifests, files.read_all(manifests), strict=True)
            }
            boundaries = Boundaries.load(folder)
        except (OSError, *DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"the spool in {folder} cannot be read: {error}") from error
        live = {
            number: segment for number, segment in segments.items() if segment.stop.place(opened.epoch) > opened.place
        }
        skipped = {number: segment for number, segment in segments.items() if number not in live}
        stop = opened.at
        for number, segment in list(live.items()):
            if segment.stop.place(opened.epoch) <= stop.place(opened.epoch):
                del live[number]  # an earlier segment covers it: they were joined
                continue
            if segment.start != stop:
                raise StateUnreadable(
                    f"the spool in {folder} has a gap before segment {number}: {stop} to {segment.start}"
                )
            stop = segment.stop
        return cls(folder, opened, live, max(segments, default=0), boundaries, skipped, pending, head=head)

    @classmethod
    def open(cls, folder: File, opened: Position) -> Self:
        """A new, empty spool that begins at `opened`; other files of the folder are not part of it."""
        archive.clear(folder)  # Step 1: the name of the old changelog goes before its segments do
        with store.storage_errors(folder):
            # Step 2: delete the last manifest first. An interruption leaves a shorter spool without a gap.
            for manifest in reversed((folder / "segments").listed("*.json")):
                manifest.delete()
            (folder / "boundaries.json").delete()
            for subfolder in (folder / "segments", folder / "data"):
                subfolder.make_folder()
            folder.sync()
            folder.parent.sync()
            head = Head(folder / "opened.json")
            head.begin(opened.to_json())  # Step 3: the new spool exists
        archive.begin(folder)  # Step 4: its changelog gets a name
        return cls(folder, opened, {}, 0, Boundaries(folder / "boundaries.json"), head=head)

    @property
    def start(self) -> Place:
        """The spool has every change after this place, of the tables that were watched then."""
        return self._opened.place

    @property
    def opened(self) -> Position:
        """Where the spool begins."""
        return self._opened

    @property
    def position(self) -> Position:
        """The stop of the last segment: where the next one begins."""
        return self._position

    @property
    def pending(self) -> Pending | None:
        """The XA transactions that are prepared at `position`, as far as the spool has seen; None without a record."""
        return next(reversed(self._segments.values())).pending if self._segments else self._opened_pending

    def agrees(self, position: Position) -> bool | None:
        """Whether the spool starts, or a segment ends, at the position, with the same history and the same GTIDs.

        None if the spool cannot tell: it has no such end, or the history was not recorded.
        """
        end = self._opened
        for segment in (None, *self._segments.values()):
            end = end if segment is None else _after(end, segment)
            if end.at == position.at and end.history is not None and position.history is not None:
                return (end.history, end.gtids) == (position.history, position.gtids)
        return None

    @property
    def boundaries(self) -> Mapping[FilePosition, int]:
        """The noted ends of transactions after `position`, each with the second (since 1970) when its file began."""
        return self._boundaries.after(self.position.place)

    def note(self, boundary: FilePosition, began: int) -> None:
        """Record the end of a transaction for `boundaries`, also for the next run. Ends before `position` are dropped.

        `began` is the second (since 1970) in which its file began.
        """
        if boundary.place(self._opened.epoch) > self.position.place and boundary not in self._boundaries.known:
            self.assert_owned()
            self._boundaries.note(boundary, began, self.position.place)

    def keep_boundaries(self, valid: Collection[FilePosition]) -> None:
        """Drop all boundaries but these: at the others no transaction ends any more."""
        self._boundaries.keep(valid)

    def append(self, segments: Sequence[Manifest]) -> None:
        """Add segments to the spool, in order. Their files must be complete.

        Raises SpoolGap where a segment does not begin at the end of the spool. Raises StaleWriter where another run has
        appended since this spool was loaded: its manifests are never replaced.
        """
        self.assert_owned()
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()  # makes the files' names durable before a manifest names them
        for segment in segments:
            if segment.start != self.position.at:
                raise SpoolGap(f"a segment from {segment.start} does not continue {self.position.at}")
            pending = segment.pending and segment.pending.after(self.pending or Pending())
            segment = replace(segment, pending=pending)  # noqa: PLW2901 - it is completed
            path = self._manifest(self._last + 1)
            if not store.create(path, segment.to_json()):
                raise StaleWriter(f"another run continued the spool with {path}; run the same command again")
            self._last += 1
            self._segments[self._last] = segment
            self._position = _after(self._position, segment)

    def count_transactions(self, segments: Iterable[Manifest]) -> int:
        """How many transactions these segments hold, by the metadata of their files."""
        return sum(files.parquet_metadata(self.folder / segment.transactions).num_rows for segment in segments)

    def widen(self, read: Manifest) -> None:
        """Add the tables of `read` to all segments after its start. It was read for these tables alone, up to the end.

        An interruption leaves segments that watch a table without a copy; the next call corrects them.
        """
        epoch = self._opened.epoch
        if read.stop != self.position.at or read.start.place(epoch) < self.start:
            raise SpoolGap(
                f"{read.start} to {read.stop} is not the end of the spool, {self.start} to {self.position.at}"
            )
        self.assert_owned()
        later = [
            number for number, segment in self._segments.items() if segment.stop.place(epoch) > read.start.place(epoch)
        ]
        for number in later:
            # all rows go into the last segment, because each merge reads it
            is_last = number == self._last
            segment, tables = self._segments[number], read.tables if is_last else dict.fromkeys(read.tables)
            nulled = {table: count for table, count in segment.nulled.items() if table not in read.tables}
            nulled |= read.nulled if is_last else {}
            wider = replace(segment, tables={**segment.tables, **tables}, nulled=nulled)
            self._put(number, wider)

    @property
    def segments(self) -> Collection[Manifest]:
        """The segments in order."""
        return self._segments.values()

    def parts(self) -> Iterator[tuple[int, Position, Manifest, Position]]:
        """The segments in order: the number of each, the position before it, the segment, and the position after it."""
        start = self._opened
        for number, segment in self._segments.items():
            end = _after(start, segment)
            yield number, start, segment, end
            start = end

    def put_table(self, number: int, table: TableId, read: Manifest) -> None:
        """Let a segment watch one more table. `read` is the same segment, read for that table alone."""
        segment = self._segments[number]
        if (read.start, read.stop) != (segment.start, segment.stop) or table in segment.tables:
            raise SpoolGap(f"{read.start} to {read.stop} is not what the spool lacks of {table}")
        self.assert_owned()
        wider = replace(
            segment,
            tables={**segment.tables, table: read.tables[table]},
            nulled={**segment.nulled, **read.nulled},
        )
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        self._put(number, wider)

    def reach_back(self, opened: Position, read: Manifest) -> None:
        """Begin the spool earlier, at `opened`, for tables that join. `read` has their changes from there to its start.

        The other tables are not watched in that part: they need no change that old. Their changelog begins after it. So
        no reader could reach the archive, and it is emptied.
        """
        if read.stop != self._opened.at or read.start != opened.at or opened.place >= self.start:
            raise SpoolGap(f"{read.start} to {read.stop} does not lead to the start of the spool, {self._opened.at}")
        self.assert_owned()
        self._put_away(self._skipped)  # these manifests would be part of the spool once it begins earlier
        self._skipped = {}
        archive.empty(self.folder)
        number = min(self._segments) - 1 if self._segments else self._last + 1
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        # the manifest first: `load` passes over it until the spool begins earlier
        store.replace(self._manifest(number), read.to_json())
        self._move(opened, None)
        self._last = max(self._last, number)
        self._segments = {number: read, **self._segments}

    def files(self, table: TableId, after: Place, stop: Place) -> list[File]:
        """The files with the table's changes after `after`, up to `stop`.

        Raises SpoolGap where the spool does not hold all of that part, or a segment of it did not watch the table.
        """
        if after < self.start or self.position.place < stop:
            raise SpoolGap(
                f"{table} needs changes from {after} to {stop}; the spool holds {self.start} to {self.position.at}"
            )
        paths = []
        for segment in self._between(after, stop):
            if table not in segment.tables:
                raise SpoolGap(f"{table} was not watched from {segment.start} to {segment.stop}")
            file = segment.tables[table]
            if file is not None:
                paths.append(whole_file(self.folder, *file))
        return paths

    def watched_from(self, table: TableId) -> Place:
        """The place after which every segment has watched the table; in an empty spool its start."""
        since = self.start if not self._segments else self.position.place
        for segment in reversed(self._segments.values()):
            if table not in segment.tables:
                break
            since = segment.start.place(self._opened.epoch)
        return max(since, self.start)

    def backlog(self, table: TableId, after: Place) -> int:
        """How many change rows of the table are spooled in segments that end after `after`."""
        entries = (segment.tables.get(table) for segment in self._between(after, self.position.place))
        return sum(entry[1] for entry in entries if entry is not None)

    def lacks_cascades(self, after: Place) -> bool:
        """Whether the source did not log changes by foreign keys, in some segment that ends after `after`."""
        return any(segment.lacks_cascades for segment in self._between(after, self.position.place))

    def nulled(self, table: TableId, after: Place, stop: Place) -> int:
        """How many values in new rows of the table are NULL by the user's choice, in segments between these places."""
        return sum(segment.nulled.get(table, 0) for segment in self._between(after, stop))

    def bytes_of(self, table: TableId, after: Place) -> int:
        """The size in bytes of the table's files in segments that end after this place."""
        entries = (segment.tables.get(table) for segment in self._between(after, self.position.place))
        paths = (self.folder / entry[0] for entry in entries if entry is not None)
        return files.total(paths)  # a run may remove a file meanwhile

    def forget(self, place: Place, keep: timedelta = NO_TIME) -> None:
        """Take the segments that end at or before this place out of the spool: no mark needs them any more.

        Readers of the changelog can read them for the time `keep`, counted from when they were spooled.
        """
        ended = [
            number for number, segment in self._segments.items() if segment.stop.place(self._opened.epoch) <= place
        ]
        if not ended and not self._skipped:
            return
        self.assert_owned()
        opened = reduce(_after, (self._segments[number] for number in ended), self._opened)
        # the start moves first: a crash then leaves manifests that end at or before it, and `load` skips those
        self._move(opened, self._segments[ended[-1]].pending if ended else self._opened_pending)
        dropped = self._skipped | {number: self._segments.pop(number) for number in ended}
        self._skipped = {}
        self._put_away(dropped, keep)
        if not reread_files.is_empty(self.folder):
            held_from = min([self.start, *(archived.start for archived in archive.listed(self.folder))])
            reread_files.trim(self.folder, held_from, archive.name_of(self.folder))

    def drop(self, number: int, tables: Collection[TableId]) -> None:
        """Take these tables out of a segment, and remove their files."""
        self.assert_owned()
        segment = self._segments[number]
        watched = {table: file for table, file in segment.tables.items() if table not in tables}
        self._put(number, replace(segment, tables=watched))
        with store.storage_errors(self.folder):
            for file in (segment.tables[table] for table in tables):
                if file is not None:
                    (self.folder / file[0]).delete()

    def join(self, numbers: Sequence[int], whole: Manifest) -> None:
        """Replace neighbours by `whole`, one segment for all of them.

        An interruption leaves some of the neighbours beside it; `load` passes over them.
        """
        self.assert_owned()
        first, *others = numbers
        parts = [self._segments[number] for number in numbers]
        self._put(first, whole)
        with store.storage_errors(self.folder):
            for number in others:
                del self._segments[number]
                self._manifest(number).delete()
            (self.folder / "segments").sync()
            for name in (name for part in parts for name in file_names(part)):
                (self.folder / name).delete()

    def _manifest(self, number: int) -> File:
        return self.folder / "segments" / f"{number:06d}.json"

    def follow(self, number: int, table: TableId, followed: Followed) -> None:
        """Record in a segment of DDL how the copy of the table has followed it."""
        self.assert_owned()
        segment = self._segments[number]
        self._put(number, replace(segment, followed={**segment.followed, table: followed}))

    def _put(self, number: int, segment: Manifest) -> None:
        """Replace the manifest of a segment: it has other tables now, or includes its neighbours."""
        store.replace(self._manifest(number), segment.to_json())
        self._segments[number] = segment

    def _move(self, opened: Position, pending: Pending | None) -> None:
        """Move the start of the spool. Raises StaleWriter when another run has moved it since this spool was loaded."""
        doc = opened.to_json() | ({} if pending is None else {"prepared": pending.to_json()})
        with store.storage_errors(self.folder):
            if not self._head.move(doc):
                raise StaleWriter(f"another run moved {self.folder / 'opened.json'}; run the same command again")
        self._opened, self._opened_pending = opened, pending

    def _put_away(self, dropped: Mapping[int, Manifest], keep: timedelta = NO_TIME) -> None:
        """Move segments that ended before the start of the spool to the archive, or remove them."""
        manifests = [(self._manifest(number), segment) for number, segment in dropped.items()]
        archive.keep(self.folder, self._opened.epoch, manifests, keep)

    def _between(self, after: Place, stop: Place) -> Iterable[Manifest]:
        epoch = self._opened.epoch
        return [
            segment
            for segment in self._segments.values()
            if segment.stop.place(epoch) > after and segment.start.place(epoch) < stop
        ]


def _after(position: Position, segment: Manifest) -> Position:
    """The position with one more segment."""
    return position.moved(segment.stop, segment.gtids, segment.history)
