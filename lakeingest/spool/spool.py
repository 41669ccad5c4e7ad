"""The spool: the changelog since the first low watermark, as Parquet files under the state folder.

spool/opened.json            where it begins
spool/boundaries.json        ends of transactions that come after it, where the binlog may be cut
spool/segments/000001.json   a segment exists when its manifest does; manifests chain without a gap
spool/archive/…              segments that only readers of the changelog need (spool/archive.py)
spool/data/…                 the files of the manifests; any other file is the rest of an interrupted task
spool/rereads/…              rows that were read again, which only readers need (spool/reread_files.py)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Self

import pyarrow as pa

from lakeingest.core.position import FilePosition, Place, Position
from lakeingest.core.prepared import Pending
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, SpoolGap, StaleWriter, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File, Head
from lakeingest.spool import archive, reread_files
from lakeingest.spool.joined import file_names
from lakeingest.spool.manifest import Manifest
from lakeingest.state import store

NO_TIME = timedelta(0)


class Spool:
    """An open spool. `append`, `widen` and `forget` leave it complete wherever they are interrupted.

    Another thread may call `note`.
    """

    def __init__(
        self,
        folder: File,
        opened: Position,
        segments: Mapping[int, Manifest],
        last: int,
        boundaries: Mapping[FilePosition, int] | None = None,
        skipped: Mapping[int, Manifest] | None = None,
        pending: Pending | None = None,
        *,
        head: Head,
    ) -> None:
        self.folder = folder
        self._head = head
        self._boundaries = dict(boundaries or {})
        self._opened, self._opened_pending = opened, pending
        self._segments = dict(segments)
        self._position = reduce(_after, self._segments.values(), opened)
        self._last = last  # number of the last manifest file, also if `load` skipped it
        self._skipped = dict(skipped or {})

    @classmethod
    def load(cls, folder: File) -> "Spool | None":
        """The spool in the folder, None if there is none. StateUnreadable when it is damaged or has a gap."""
        path = folder / "opened.json"
        try:
            if not path.exists():
                return None
            head = Head(path)
            doc = head.read()
            opened = Position.from_json(doc)
            pending = None if doc.get("prepared") is None else Pending.from_json(doc["prepared"])
            found = (folder / "segments").listed("*.json")
            segments = {
                int(file.stem): Manifest.from_json(files.parsed(contents))
                for file, contents in zip(found, files.read_all(found), strict=True)
            }
            noted = folder / "boundaries.json"
            boundaries = _boundaries(store.read(noted)) if noted.exists() else {}
        except (OSError, *DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"the spool in {folder} cannot be read: {error}") from error
        left = {
            number: segment for number, segment in segments.items() if segment.stop.place(opened.epoch) > opened.place
        }
        skipped = {number: segment for number, segment in segments.items() if number not in left}
        stop = opened.at
        for number, segment in list(left.items()):
            if segment.stop.place(opened.epoch) <= stop.place(opened.epoch):
                del left[number]  # it was joined with one before it
                continue
            if segment.start != stop:
                raise StateUnreadable(
                    f"the spool in {folder} has a gap before segment {number}: {stop} to {segment.start}"
                )
            stop = segment.stop
        return cls(folder, opened, left, max(segments, default=0), boundaries, skipped, pending, head=head)

    @classmethod
    def open(cls, folder: File, opened: Position) -> Self:
        """A new, empty spool that begins at `opened`; other files of the folder are not part of it."""
        archive.clear(folder)
        with store.storage_errors(folder):
            # last first: an interruption leaves a spool that ends earlier, without a gap
            for old in reversed((folder / "segments").listed("*.json")):
                old.delete()
            (folder / "boundaries.json").delete()
            for subfolder in (folder / "segments", folder / "data"):
                subfolder.make_folder()
            folder.sync()
            folder.parent.sync()
            head = Head(folder / "opened.json")
            head.begin(opened.to_json())
        archive.begin(folder)
        return cls(folder, opened, {}, 0, head=head)

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
        """What is prepared (XA) at the position, as far as the spool has seen; None before it has seen anything."""
        return next(reversed(self._segments.values())).pending if self._segments else self._opened_pending

    def agrees(self, position: Position) -> bool | None:
        """Whether a segment ends at the position, or the spool begins there, and was read from the same history.

        None if the spool cannot tell: no segment ends there, or the history was not recorded.
        """
        here = self._opened
        for segment in (None, *self._segments.values()):
            here = here if segment is None else _after(here, segment)
            if here.at == position.at and here.history is not None and position.history is not None:
                return (here.history, here.gtids) == (position.history, position.gtids)
        return None

    @property
    def boundaries(self) -> Mapping[FilePosition, int]:
        """The noted ends of transactions after the position, each with the second in which its file began."""
        epoch, place = self._opened.epoch, self.position.place
        return {at: began for at, began in self._boundaries.items() if at.place(epoch) > place}

    def note(self, boundary: FilePosition, began: int) -> None:
        """Record the end of a transaction for `boundaries`, also for the next run; passed ones are dropped.

        `began` is the second (since 1970) in which its file began.
        """
        if boundary.place(self._opened.epoch) > self.position.place and boundary not in self._boundaries:
            self._boundaries = {**self.boundaries, boundary: began}
            store.replace(self.folder / "boundaries.json", {str(at): second for at, second in self._boundaries.items()})

    def keep_boundaries(self, valid: Collection[FilePosition]) -> None:
        """Drop the other boundaries: no transaction ends at them any more."""
        self._boundaries = {at: began for at, began in self._boundaries.items() if at in valid}

    def append(self, segments: Sequence[Manifest]) -> None:
        """Make segments part of the spool, in order. Their files are complete before this is called.

        StaleWriter when another run has appended since this spool was loaded: its manifests are never replaced.
        """
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()  # the names of the files; their contents are durable already
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
        """Add tables to all segments after the start of `read`, which was read for these tables alone.

        An interruption leaves segments that watch a table without a copy; the next call corrects them.
        """
        epoch = self._opened.epoch
        if read.stop != self.position.at or read.start.place(epoch) < self.start:
            raise SpoolGap(
                f"{read.start} to {read.stop} is not the end of the spool, {self.start} to {self.position.at}"
            )
        later = [
            number for number, segment in self._segments.items() if segment.stop.place(epoch) > read.start.place(epoch)
        ]
        for number in later:
            # the last segment has all rows: each merge reads it
            is_last = number == self._last
            segment, tables = self._segments[number], read.tables if is_last else dict.fromkeys(read.tables)
            nulled = {table: count for table, count in segment.nulled.items() if table not in read.tables}
            nulled |= read.nulled if is_last else {}
            wider = replace(segment, tables={**segment.tables, **tables}, nulled=nulled)
            self.put(number, wider)

    @property
    def segments(self) -> Collection[Manifest]:
        """The segments in order."""
        return self._segments.values()

    def parts(self) -> Iterator[tuple[int, Position, Manifest, Position]]:
        """The segments in order, each with its number, and the positions before and after it."""
        before = self._opened
        for number, segment in self._segments.items():
            after = _after(before, segment)
            yield number, before, segment, after
            before = after

    def put_table(self, number: int, table: TableId, read: Manifest) -> None:
        """Let a segment watch a table that it did not watch; `read` is the same segment, read for that table alone."""
        segment = self._segments[number]
        if (read.start, read.stop) != (segment.start, segment.stop) or table in segment.tables:
            raise SpoolGap(f"{read.start} to {read.stop} is not what the spool lacks of {table}")
        wider = replace(
            segment,
            tables={**segment.tables, table: read.tables[table]},
            nulled={**segment.nulled, **read.nulled},
        )
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        self.put(number, wider)

    def reach_back(self, opened: Position, read: Manifest) -> None:
        """Begin the spool earlier, at `opened`, with the changes from there up to its start, for tables that join.

        The other tables are not watched in that part: they need nothing that is so old. Their changelog begins after
        it, so that the archive has nothing any more that a reader could reach.
        """
        if read.stop != self._opened.at or read.start != opened.at or opened.place >= self.start:
            raise SpoolGap(f"{read.start} to {read.stop} does not lead to the start of the spool, {self._opened.at}")
        self._put_away(self._skipped)  # they would be part of the spool once it begins earlier
        self._skipped = {}
        archive.empty(self.folder)
        number = min(self._segments) - 1 if self._segments else self._last + 1
        with store.storage_errors(self.folder):
            (self.folder / "data").sync()
        # a manifest that ends where the spool begins is passed over, until the spool begins earlier
        store.replace(self._manifest(number), read.to_json())
        self._move(opened, None)
        self._last = max(self._last, number)
        self._segments = {number: read, **self._segments}

    def files(self, table: TableId, after: Place, stop: Place) -> list[File]:
        """The files with the table's changes after `after`, up to `stop`.

        SpoolGap when the spool does not reach back that far, or a segment in between did not watch the table.
        """
        if after < self.start or self.position.place < stop:
            raise SpoolGap(
                f"{table} needs changes from {after} to {stop}; the spool holds {self.start} to {self.position.at}"
            )
        found = []
        for segment in self._between(after, stop):
            if table not in segment.tables:
                raise SpoolGap(f"{table} was not watched from {segment.start} to {segment.stop}")
            file = segment.tables[table]
            if file is not None:
                found.append(self._whole_file(*file))
        return found

    def watched_from(self, table: TableId) -> Place:
        """The place from which on every segment has watched the table; the start of an empty spool."""
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
        """Whether the source did not log what foreign keys changed in segments that end after `after`."""
        return any(segment.lacks_cascades for segment in self._between(after, self.position.place))

    def nulled(self, table: TableId, after: Place, stop: Place) -> int:
        """How many values of new rows of the table the user chose to be NULL, in segments between these places."""
        return sum(segment.nulled.get(table, 0) for segment in self._between(after, stop))

    def bytes_of(self, table: TableId, after: Place) -> int:
        """How many bytes the segments have that end after this place, of the table's files."""
        entries = (segment.tables.get(table) for segment in self._between(after, self.position.place))
        paths = (self.folder / entry[0] for entry in entries if entry is not None)
        return files.total(paths)  # a run may forget one meanwhile

    def forget(self, before: Place, keep: timedelta = NO_TIME) -> None:
        """Drop the segments that end at or before this place, which no mark needs any more.

        Readers of the changelog can read them for the time `keep`, counted from when they were spooled.
        """
        ended = [
            number for number, segment in self._segments.items() if segment.stop.place(self._opened.epoch) <= before
        ]
        if not ended and not self._skipped:
            return
        opened = reduce(_after, (self._segments[number] for number in ended), self._opened)
        # a crash leaves manifests that end at or before the start of the spool: `load` skips them
        self._move(opened, self._segments[ended[-1]].pending if ended else self._opened_pending)
        dropped, self._skipped = self._skipped | {number: self._segments.pop(number) for number in ended}, {}
        self._put_away(dropped, keep)
        if not reread_files.is_empty(self.folder):
            held_from = min([self.start, *(one.start for one in archive.listed(self.folder))])
            reread_files.trim(self.folder, held_from, archive.name_of(self.folder))

    def drop(self, number: int, tables: Collection[TableId]) -> None:
        """Let a segment watch these tables no longer, and remove their files."""
        segment = self._segments[number]
        watched = {table: file for table, file in segment.tables.items() if table not in tables}
        self.put(number, replace(segment, tables=watched))
        with store.storage_errors(self.folder):
            for file in (segment.tables[table] for table in tables):
                if file is not None:
                    (self.folder / file[0]).delete()

    def join(self, numbers: Sequence[int], whole: Manifest) -> None:
        """Let one segment stand for these neighbours, which are removed.

        An interruption leaves some of them beside it; `load` passes over them.
        """
        first, *others = numbers
        parts = [self._segments[number] for number in numbers]
        self.put(first, whole)
        with store.storage_errors(self.folder):
            for number in others:
                del self._segments[number]
                self._manifest(number).delete()
            (self.folder / "segments").sync()
            for name in (name for part in parts for name in file_names(part)):
                (self.folder / name).delete()

    def _manifest(self, number: int) -> File:
        return self.folder / "segments" / f"{number:06d}.json"

    def put(self, number: int, segment: Manifest) -> None:
        """Replace a segment by the same one, with other tables or more of its neighbours."""
        store.replace(self._manifest(number), segment.to_json())
        self._segments[number] = segment

    def _move(self, opened: Position, pending: Pending | None) -> None:
        """Let the spool begin at another position; StaleWriter when another run has done that since."""
        doc = opened.to_json() | ({} if pending is None else {"prepared": pending.to_json()})
        with store.storage_errors(self.folder):
            if not self._head.move(doc):
                raise StaleWriter(f"another run moved {self.folder / 'opened.json'}; run the same command again")
        self._opened, self._opened_pending = opened, pending

    def _put_away(self, dropped: Mapping[int, Manifest], keep: timedelta = NO_TIME) -> None:
        """Move segments that ended before the start of the spool to the archive, or remove them."""
        manifests = [(self._manifest(number), one) for number, one in dropped.items()]
        archive.keep(self.folder, self._opened.epoch, manifests, keep)

    def _whole_file(self, name: str, rows: int) -> File:
        """A file with the row count of its manifest; a truncated file has no footer, and cannot be read."""
        try:
            found = files.parquet_metadata(self.folder / name).num_rows
        except (OSError, pa.ArrowException) as error:
            raise StateUnreadable(
                f"the spool in {self.folder} lacks {name}, or it is damaged: {error}; remove the folder and run again"
            ) from error
        if found != rows:
            raise StateUnreadable(f"{self.folder / name} has {found} rows, not {rows}; remove the folder and run again")
        return self.folder / name

    def _between(self, after: Place, stop: Place) -> Iterable[Manifest]:
        epoch = self._opened.epoch
        return [
            segment
            for segment in self._segments.values()
            if segment.stop.place(epoch) > after and segment.start.place(epoch) < stop
        ]


def _boundaries(doc: Mapping[str, int] | Sequence[str]) -> dict[FilePosition, int]:
    """The noted boundaries; the list of the previous version does not distinguish histories, so it is dropped."""
    return {FilePosition.parse(at): int(began) for at, began in doc.items()} if isinstance(doc, Mapping) else {}


def _after(position: Position, segment: Manifest) -> Position:
    """The position with one more segment."""
    return position.moved(segment.stop, segment.gtids, segment.history)
