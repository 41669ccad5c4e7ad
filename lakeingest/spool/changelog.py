"""The stored changelog as its readers see it: archive, spool and rows that were read again, while a run writes them.

A reader takes no lock. What it has listed may be moved, put together or removed before it opens it; then it lists
again. Segments are found by the places that they cover, wherever they are by then: never a gap, never a change twice.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.history import History
from lakeingest.core.position import Gtid, GtidSet, Place, Position
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, ChangelogGone, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.archive import listed, name_of
from lakeingest.spool.changes import BATCH_ROWS, Changes, Stored, definition_of
from lakeingest.spool.followed import Altered
from lakeingest.spool.held import Held, Stretch, chain
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.reread_files import RereadFolder
from lakeingest.spool.spool import Spool

_TRIES = 20  # of a listing, which a run may change meanwhile
_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


class _Moved(Exception):
    """A listed file has been moved or removed meanwhile."""


@dataclass(slots=True)
class StoredChangelog:
    """The changelog in a spool's folder, read beside whoever writes it.

    `shown` tells the newest place as of which readers of the lake see the table; None where they see none. `suffix` is
    what positions of the table have behind the name.
    """

    folder: File
    shown: Callable[[], Place | None] = lambda: None
    suffix: str = ""
    _known: dict[File, tuple[Hashable, Manifest]] = field(default_factory=dict)  # manifests that were read
    _lost: set[str] = field(default_factory=set)  # files that manifests name, and that are not there

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
        if not path.exists():
            return None
        # what is moved goes from the spool to the archive: in this order nothing is missed
        name = name_of(self.folder)
        named = [*(self.folder / "segments").listed("*.json"), *(one.file for one in listed(self.folder))]
        found = {file: self._read(file) for file in named}
        self._known = {file: one for file, one in self._known.items() if file in found}
        try:
            opened = Position.from_json(files.document(path))
        except (OSError, ValueError) as error:
            raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
        segments = chain(list(found.values()), opened)
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
            version = file.version()
            if self._known.get(file, (None,))[0] != version:
                self._known[file] = version, Manifest.from_json(files.document(file))
            return self._known[file][1]
        except FileNotFoundError as error:
            raise _Moved from error
        except (OSError, *DAMAGED) as error:
            raise StateUnreadable(f"{file} of the spool cannot be read: {error}") from error

    def stretch(self, table: TableId) -> tuple[Held, Stretch]:
        """What is held now, and the part of it that has every change of the table. ChangelogGone without a spool.

        Where the table is not watched up to the end, readers of the lake may see more of it than is held. Their version
        is asked for first, and the segments are listed after it: so a version that is published meanwhile is no gap.
        """
        held = self._found(table)
        found = held.stretch(table, lost=self._lost)
        if found.stops or not found.segments:
            shown = self.shown()
            held = self._found(table)
            found = held.stretch(table, shown, self._lost)
        return held, found

    def _found(self, table: TableId) -> Held:
        held = self.held()
        if held is None:
            raise ChangelogGone(
                f"{table}: there is no spool any more; run once, then read the changelog from its beginning"
            )
        return held

    @contextmanager
    def opened(self, table: TableId, since: ReadTo, name: str) -> Iterator[Changes]:
        """The table's changes after `since` up to the end at this moment; they stay readable within the block.

        ChangelogGone where not all of them are held, or the changelog is not the one of this name any more.
        """
        with ExitStack() as opened:
            yield _persistently(lambda: self._opened(table, since, name, opened), self._lost.add)

    def _opened(self, table: TableId, since: ReadTo, name: str, opened: ExitStack) -> Changes:
        held, found = self.stretch(table)
        if held.name != name:
            raise ChangelogGone(
                f"{table}: the spool was begun anew since position {since}; read the changelog from its beginning, into"
                " an empty table"
            )
        if found.lacks(since):
            raise gone(table, since, found, name + self.suffix)
        parts: list[Stored | Altered] = []
        unmarked = ""  # the definition of rows that do not say by which one they were read
        for segment in reversed(held.after(since, found.segments)):
            if table in segment.followed:
                parts.append(Altered(segment.alterations[table], segment.followed[table]))
                unmarked = segment.followed[table].before.fingerprint
            elif entry := segment.tables[table]:
                try:
                    # an open file can still be read when it is removed
                    part = pq.ParquetFile(opened.enter_context((self.folder / entry[0]).lasting()))
                except FileNotFoundError as error:
                    raise _Moved(entry[0]) from error
                except (OSError, pa.ArrowException) as error:
                    raise StateUnreadable(f"{self.folder / entry[0]} cannot be read: {error}") from error
                parts.append(Stored(part, definition_of(part) or unmarked))
        try:
            # after the segments: rows that were read again as of a place are here before any segment that begins there
            rereads = RereadFolder.of(self.folder, table).listed(replace(since, log=name), found.end)
        except FileNotFoundError as error:
            raise _Moved from error
        # rows that were read again as of a segment's start are removed after it: with the segment here, all are here
        again, left = self.stretch(table)
        if again.name != name or left.lacks(since):
            raise _Moved
        return Changes(table, since, found.end, tuple(reversed(parts)), tuple(rereads), found.stops)

    def place_of_gtids(self, held: Held, gtids: GtidSet) -> Place | None:
        """The place up to which all transactions are in a set; None where that may be before what is held."""
        if not held.gtids <= gtids:
            return None

        def look() -> Place | None:
            return self._until(held, lambda batch: _lacking(batch, gtids), lambda segment: segment.gtids <= gtids)

        return _persistently(look, self._lost.add)

    def place_of_time(self, held: Held, moment: datetime) -> Place | None:
        """The place before the first transaction that was committed after a moment; None as in `place_of_gtids`."""
        micros = int(moment.timestamp() * 1_000_000)
        if _is_over(held.end.history, micros):
            return held.end.place

        def look() -> Place | None:
            return self._until(
                held,
                lambda batch: batch["committed_at"].cast(pa.int64()).to_numpy() > micros,
                lambda segment: _is_over(segment.history, micros),
            )

        place = _persistently(look, self._lost.add)
        return None if place == held.start else place

    def _until(
        self,
        held: Held,
        is_after: "Callable[[pa.RecordBatch], np.ndarray]",
        is_before: Callable[[Manifest], bool],
    ) -> Place | None:
        """The place of the last transaction before the first one that `is_after`; None where a lost file may have it.

        `is_before` tells it of a whole segment.
        """
        place, moved = held.start, self.held()
        # listed segments may have been joined meanwhile
        segments = held.segments if moved is None or moved.start > held.start else moved.segments
        for segment in segments:
            if segment.transactions in self._lost:
                if not is_before(segment):
                    return None
                place = segment.stop.place(held.opened.epoch)
                continue
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
                raise _Moved(segment.transactions) from error
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


def gone(table: TableId, since: object, found: Stretch, name: str) -> ChangelogGone:
    """The error for a reader that is behind what is held."""
    return ChangelogGone(
        f"{table}: the changes after {since} are no longer held, the oldest position is"
        f" {ReadTo(found.start, log=name)}; read the changelog from its beginning, into an empty table"
    )


def _persistently(look: Callable[[], Result], lose: Callable[[str], None] = lambda _: None) -> Result:
    """Look again where something was moved meanwhile. A file that is never found is lost: `lose` is called with it."""
    lost = set[str]()
    while True:
        for tries_left in reversed(range(_TRIES)):
            try:
                return look()
            except _Moved as error:
                name = next(iter(error.args), None)
                if tries_left:
                    time.sleep(_PAUSE_SECONDS)
                elif name is None or name in lost:
                    raise StateUnreadable(
                        f"the spool lacks a file that it names: {error.__cause__}; run once, then try again"
                    ) from error
                else:
                    lost.add(name)
                    lose(name)


def _is_over(history: History | None, micros: int) -> bool:
    """Whether the last transaction before a position was committed by then."""
    return history is not None and history.last is not None and history.last.committed_at <= micros


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
