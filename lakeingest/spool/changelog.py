"""The stored changelog as its readers see it: archive, spool and rows that were read again, while a run writes them.

A reader takes no lock. What it has listed may be moved, put together or removed before it opens it; then it lists
again. Segments are found by the places that they cover, wherever they are by then: never a gap, never a change twice.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.position import Gtid, GtidSet, Place, Position
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import ChangelogGone, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.archive import listed, name_of
from lakeingest.spool.changes import BATCH_ROWS, Changes
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.reread_files import RereadFolder
from lakeingest.spool.spool import Spool

_TRIES = 20  # of a listing, which a run may change meanwhile
_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


class _Moved(Exception):
    """What was listed has been moved or removed meanwhile."""


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
        return self._place(self.segments[0]) if self.segments else self.opened.place

    def covers(self, table: TableId) -> Place:
        """The place after which every change of the table is here, up to where it was watched last."""
        watched = self._watched(table)
        return self._place(watched[0]) if watched else self.end.place

    def watched_to(self, table: TableId) -> Place:
        """Where the table was watched last: the end, unless it has stopped."""
        watched = self._watched(table)
        return watched[-1].stop.place(self.opened.epoch) if watched else self.end.place

    def is_gone(self, since: ReadTo, table: TableId) -> bool:
        """Whether a change of the table after `since` may be no longer here."""
        return since.order < ReadTo(self.covers(table)).order

    def after(self, since: ReadTo, table: TableId) -> list[Manifest]:
        """The segments that watched the table last, and may have changes after `since`.

        That may be the rest of a transaction, whose place may be the very end of its segment.
        """
        epoch = self.opened.epoch
        return [one for one in self._watched(table) if since.order < ReadTo(one.stop.place(epoch)).order]

    def _watched(self, table: TableId) -> list[Manifest]:
        """The last segments in a row that watched the table."""
        watched: list[Manifest] = []
        for segment in reversed(self.segments):
            if table in segment.tables:
                watched.append(segment)
            elif watched:
                break
        return watched[::-1]

    @property
    def gtids(self) -> GtidSet:
        """All GTIDs up to `start`: those of before the spool without those of the archive."""
        archived = GtidSet()
        for one in self.segments:
            if one.stop.place(self.opened.epoch) <= self.opened.place:
                archived |= one.gtids
        return (self.opened.gtids or GtidSet()) - archived

    def _place(self, segment: Manifest) -> Place:
        return segment.start.place(self.opened.epoch)


@dataclass(slots=True)
class StoredChangelog:
    """The changelog in a spool's folder, read beside whoever writes it."""

    folder: File
    _known: dict[File, tuple[Hashable, Manifest]] = field(default_factory=dict)  # manifests that were read

    def held(self) -> Held | None:
        """What is there now; None where there is no spool. StateUnreadable where it is damaged."""
        for _ in range(_TRIES):
            with suppress(_Moved):
                return self._held(whole=True)
            time.sleep(_PAUSE_SECONDS)
        return _persistently(lambda: self._held(whole=False))

    def _held(self, *, whole: bool) -> Held | None:
        """`whole`: a gap is taken for a listing that a run has changed meanwhile."""
        path = self.folder / "opened.json"
        if not files.exists(path):
            return None
        # what is moved goes from the spool to the archive: in this order nothing is missed
        name = name_of(self.folder)
        named = [*files.listed(self.folder / "segments", "*.json"), *(one.file for one in listed(self.folder))]
        found = {file: self._read(file) for file in named}
        self._known = {file: one for file, one in self._known.items() if file in found}
        try:
            opened = Position.from_json(files.document(path))
        except (OSError, ValueError) as error:
            raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
        segments = _chain(list(found.values()), opened)
        end = opened
        for one in segments:
            if one.stop.place(opened.epoch) > opened.place:
                end = end.moved(one.stop, one.gtids, one.history)
        starts = [one.start.place(opened.epoch) for one in found.values()]
        has_gap = bool(found) and (not segments or min(starts) < segments[0].start.place(opened.epoch))
        if name != name_of(self.folder) or (whole and has_gap):
            raise _Moved
        return Held(name, opened, end, tuple(segments))

    def _read(self, file: File) -> Manifest:
        try:
            version = files.version(file)
            if self._known.get(file, (None,))[0] != version:
                self._known[file] = version, Manifest.from_json(files.document(file))
            return self._known[file][1]
        except FileNotFoundError as error:
            raise _Moved from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateUnreadable(f"{file} of the spool cannot be read: {error}") from error

    @contextmanager
    def opened(self, table: TableId, since: ReadTo, name: str) -> Iterator[Changes]:
        """The table's changes after `since` up to the end at this moment; they stay readable within the block.

        ChangelogGone where not all of them are held, or the changelog is not the one of this name any more.
        """
        with ExitStack() as opened:
            yield _persistently(lambda: self._opened(table, since, name, opened))

    def _opened(self, table: TableId, since: ReadTo, name: str, opened: ExitStack) -> Changes:
        held = self.held()
        if held is None or held.name != name:
            raise ChangelogGone(
                f"{table}: the spool was begun anew since position {since}; read the changelog from its beginning, into"
                " an empty table"
            )
        if held.is_gone(since, table):
            raise gone(table, since, held)
        parts = []
        for segment in held.after(since, table):
            if entry := segment.tables[table]:
                try:
                    # an open file can still be read when it is removed
                    part = pq.ParquetFile(opened.enter_context(files.lasting(self.folder / entry[0])))
                except FileNotFoundError as error:
                    raise _Moved from error
                except (OSError, pa.ArrowException) as error:
                    raise StateUnreadable(f"{self.folder / entry[0]} cannot be read: {error}") from error
                parts.append(part)
        end = held.watched_to(table)
        try:
            # after the segments: what was read again as of a place is here before any segment that begins there
            rereads = RereadFolder.of(self.folder, table).listed(replace(since, log=name), end)
        except FileNotFoundError as error:
            raise _Moved from error
        # a segment goes before what was read again as of its start: with the segment here, nothing of that was missed
        again = self.held()
        if again is None or again.name != name or again.is_gone(since, table):
            raise _Moved
        return Changes(table, since, end, tuple(parts), tuple(rereads))

    def place_of_gtids(self, held: Held, gtids: GtidSet) -> Place | None:
        """The place up to which all transactions are in a set; None where that may be before what is held."""
        if not held.gtids <= gtids:
            return None
        return _persistently(lambda: self._until(held, lambda batch: _lacking(batch, gtids)))

    def place_of_time(self, held: Held, moment: datetime) -> Place | None:
        """The place before the first transaction that was committed after a moment; None as in `place_of_gtids`."""
        micros = int(moment.timestamp() * 1_000_000)
        last = None if held.end.history is None else held.end.history.last
        if last is not None and last.committed_at <= micros:
            return held.end.place
        place = _persistently(
            lambda: self._until(held, lambda batch: batch["committed_at"].cast(pa.int64()).to_numpy() > micros)
        )
        return None if place == held.start else place

    def _until(self, held: Held, is_after: "Callable[[pa.RecordBatch], np.ndarray]") -> Place:
        """The place of the last transaction before the first one that `is_after`."""
        place, moved = held.start, self.held()
        # what was listed may have been put together meanwhile
        segments = held.segments if moved is None or moved.start > held.start else moved.segments
        for segment in segments:
            try:
                with files.parquet(self.folder / segment.transactions) as opened:
                    for batch in opened.iter_batches(BATCH_ROWS):
                        after = is_after(batch)
                        first = int(np.argmax(after)) if after.any() else len(after)
                        if first:
                            place = Place(*(batch[name][first - 1].as_py() for name in ("epoch", "file", "pos")))
                        if first < len(after):
                            return place
            except FileNotFoundError as error:
                raise _Moved from error
            except (OSError, pa.ArrowException) as error:
                raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
        return held.end.place

    def spool(self) -> Spool:
        """The spool without the archive, as a run loads it."""

        def load() -> Spool:
            try:
                loaded = Spool.load(self.folder)
            except StateUnreadable as error:
                raise _Moved from error
            if loaded is None:
                raise _Moved
            return loaded

        return _persistently(load)


def gone(table: TableId, since: object, held: Held) -> ChangelogGone:
    """The error for a reader that is behind what is held."""
    oldest = ReadTo(held.covers(table), log=held.name)
    return ChangelogGone(
        f"{table}: the changes after {since} are no longer held, the oldest position is {oldest}; read the changelog"
        " from its beginning, into an empty table"
    )


def _chain(segments: Sequence[Manifest], opened: Position) -> list[Manifest]:
    """The segments that lead to the last one without a gap; of two for one part of the binlog the larger one."""
    epoch, chain = opened.epoch, list[Manifest]()
    end = max([opened.place, *(_stop(one, opened) for one in segments)])
    best: Manifest | None = None
    for one in sorted(segments, key=lambda one: one.stop.place(epoch), reverse=True):
        if _stop(one, opened) < end:
            if best is None:
                break
            chain.append(best)
            end, best = best.start.place(epoch), None
            if _stop(one, opened) < end:
                break
        if one.start.place(epoch) < end and (best is None or one.start.place(epoch) < best.start.place(epoch)):
            best = one
    if best is not None:
        chain.append(best)
    chain.reverse()
    return chain


def _stop(segment: Manifest, opened: Position) -> Place:
    return segment.stop.place(opened.epoch)


def _persistently(look: Callable[[], Result]) -> Result:
    for _ in range(_TRIES - 1):
        try:
            return look()
        except _Moved:
            time.sleep(_PAUSE_SECONDS)
    try:
        return look()
    except _Moved as error:
        raise StateUnreadable(
            f"the spool lacks a file that it names: {error.__cause__}; run once, then try again"
        ) from error


def _lacking(batch: pa.RecordBatch, gtids: GtidSet) -> "np.ndarray":
    """Which transactions are not in a set; those without a GTID are in each."""
    columns = (batch[name].to_pylist() for name in ("uuid", "number", "tag"))
    return np.array(
        [
            server is not None and Gtid(server, number, tag or "") not in gtids
            for server, number, tag in zip(*columns, strict=True)
        ],
        bool,
    )
