"""The stored changelog as its readers see it: archive, spool and rows that were read again, while a run writes them.

A reader takes no lock. A run may move, join or remove a listed file before the reader opens it; then the reader lists
again. It finds segments by the places that they cover, not by their names. So it never sees a gap, or a change twice.
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
    """The changelog in a spool's folder. It can be read while a run writes it.

    `shown` returns the newest place as of which readers of the lake see the table; None if they do not see it. `suffix`
    is appended to the changelog's name in positions of the table.
    """

    folder: File
    shown: Callable[[], Place | None] = lambda: None
    suffix: str = ""
    _known: dict[File, tuple[Hashable, Manifest]] = field(default_factory=dict)  # manifests that were read
    _lost: set[str] = field(default_factory=set)  # files that manifests name, and that are not there

    def held(self) -> Held | None:
        """All segments that are stored now; None where there is no spool. Raises StateUnreadable for a damaged one."""
        for _ in range(_TRIES):
            with suppress(_Moved):
                return self._held(whole=True)
            time.sleep(_PAUSE_SECONDS)
        return _persistently(lambda: self._held(whole=False))

    def _held(self, *, whole: bool) -> Held | None:
        """The segments of one listing. Raises `_Moved` if a run changed the folder meanwhile.

        `whole`: a gap counts as such a change.
        """
        path = self.folder / "opened.json"
        if not path.exists():
            return None
        # segments move from the spool to the archive: listed in this order, none is missed
        name = name_of(self.folder)
        paths = (self.folder / "segments").listed("*.json")
        paths += [segment.file for segment in listed(self.folder)]
        manifests = {file: self._read(file) for file in paths}
        self._known = {file: entry for file, entry in self._known.items() if file in manifests}
        try:
            opened = Position.from_json(files.document(path))
        except (OSError, ValueError) as error:
            raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
        segments = chain(list(manifests.values()), opened)
        end = opened
        for segment in segments:
            if segment.stop.place(opened.epoch) > opened.place:
                end = end.moved(segment.stop, segment.gtids, segment.history)
        starts = [manifest.start.place(opened.epoch) for manifest in manifests.values()]
        has_gap = bool(manifests) and (not segments or min(starts) < segments[0].start.place(opened.epoch))
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
        """All segments held now, and the stretch of them that has every change of the table.

        If the table is not watched up to the end, readers of the lake may see a newer version of it than the stretch
        has. That version is asked for first, and the segments are listed after that: so a version that is published
        meanwhile does not look like a gap. Raises ChangelogGone without a spool.
        """
        held = self._found(table)
        stretch = held.stretch(table, lost=self._lost)
        if stretch.stops or not stretch.segments:
            shown = self.shown()
            held = self._found(table)
            stretch = held.stretch(table, shown, self._lost)
        return held, stretch

    def _found(self, table: TableId) -> Held:
        held = self.held()
        if held is None:
            raise ChangelogGone(
                f"{table}: there is no spool any more; run once, then read the changelog from its beginning"
            )
        return held

    @contextmanager
    def opened(self, table: TableId, since: ReadTo, name: str) -> Iterator[Changes]:
        """The table's changes after `since`, up to the end at this moment. They stay readable within the block.

        Raises ChangelogGone where some of them are no longer held, or where the changelog has another name than `name`
        now.
        """
        with ExitStack() as opened:
            yield _persistently(lambda: self._opened(table, since, name, opened), self._lost.add)

    def _opened(self, table: TableId, since: ReadTo, name: str, opened: ExitStack) -> Changes:
        held, stretch = self.stretch(table)
        if held.name != name:
            raise ChangelogGone(
                f"{table}: the spool was begun anew since position {since}; read the changelog from its beginning, into"
                " an empty table"
            )
        if stretch.lacks(since):
            raise gone(table, since, stretch, name + self.suffix)
        parts: list[Stored | Altered] = []
        # Step 1: open the files, the last one first: a file without a definition has the one before the next DDL
        unmarked = ""
        for segment in reversed(held.after(since, stretch.segments)):
            if table in segment.followed:
                parts.append(Altered(segment.alterations[table], segment.followed[table]))
                unmarked = segment.followed[table].before.fingerprint
            elif entry := segment.tables[table]:
                try:
                    # an open file can still be read after a run removes it
                    part = pq.ParquetFile(opened.enter_context((self.folder / entry[0]).lasting()))
                except FileNotFoundError as error:
                    raise _Moved(entry[0]) from error
                except (OSError, pa.ArrowException) as error:
                    raise StateUnreadable(f"{self.folder / entry[0]} cannot be read: {error}") from error
                parts.append(Stored(part, definition_of(part) or unmarked))
        try:
            # Step 2: list rows that were read again. Those as of a place are stored before a segment that begins there:
            # no segment of step 1 is without them
            rereads = RereadFolder.of(self.folder, table).listed(replace(since, log=name), stretch.end)
        except FileNotFoundError as error:
            raise _Moved from error
        # Step 3: look at the segments again. Rows as of a segment's start are removed after it: with it, they are here
        later, later_stretch = self.stretch(table)
        if later.name != name or later_stretch.lacks(since):
            raise _Moved
        return Changes(table, since, stretch.end, tuple(reversed(parts)), tuple(rereads), stretch.stops)

    def place_of_gtids(self, held: Held, gtids: GtidSet) -> Place | None:
        """The place up to which all transactions are in the set; None if that may be before the first held segment."""
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

        `is_after` tells for each transaction of a batch whether it is after the sought place; `is_before` tells of a
        whole segment whether it is before that place.
        """
        place, current = held.start, self.held()
        # a run may have joined segments since they were listed
        segments = held.segments if current is None or current.start > held.start else current.segments
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


def gone(table: TableId, since: object, stretch: Stretch, name: str) -> ChangelogGone:
    """The error for a reader whose position is older than the held changes."""
    return ChangelogGone(
        f"{table}: the changes after {since} are no longer held, the oldest position is"
        f" {ReadTo(stretch.start, log=name)}; read the changelog from its beginning, into an empty table"
    )


def _persistently(look: Callable[[], Result], lose: Callable[[str], None] = lambda _: None) -> Result:
    """The result of `look`, which is called again when it raises `_Moved`.

    A file that is missing each time is lost: `lose` is called with its name, and `look` is called again. Raises
    StateUnreadable where `look` still needs that file, or no name is known.
    """
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
    """Whether the last transaction of a history was committed at or before this time, in µs since 1970."""
    return history is not None and history.last is not None and history.last.committed_at <= micros


def _lacking(batch: pa.RecordBatch, gtids: GtidSet) -> "np.ndarray":
    """For each transaction, whether it is not in the set. One without a GTID counts as being in it."""
    columns = (batch[name].to_pylist() for name in ("uuid", "number", "tag"))
    return np.array(
        [
            server is not None and Gtid(server, number, tag or "") not in gtids
            for server, number, tag in zip(*columns, strict=True)
        ],
        bool,
    )
