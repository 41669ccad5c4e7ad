"""The stored changelog as its readers get it: archive, spool and reread rows, while a run writes them.

A reader takes no lock. If a run moves, joins or removes a listed file before the reader opens it, the reader lists the
folder once more. A reader finds segments by the places that they cover, not by their names. So a reader misses no
change, and gets no change twice.
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

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import Gtid, GtidSet, Place, Position
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, ChangelogGone, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.archive import all_archived, name_of
from lakeingest.spool.changes import BATCH_ROWS, ChangeFile, Changes, definition_of
from lakeingest.spool.followed import Altered
from lakeingest.spool.held import Held, Stretch, chain
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.reread_files import RereadFolder
from lakeingest.spool.spool import Spool

_TRIES = 20  # how often the folder is listed at most, if a run changes it during each listing
_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


class _Moved(Exception):
    """A run changed the folder after it was listed: a listed file may be moved or removed."""


@dataclass(slots=True)
class StoredChangelog:
    """The changelog in a spool's folder. It can be read while a run writes it.

    `shown` returns the newest place as of which readers of the lake see the table; None if they do not see the table.
    `suffix` is appended to the changelog's name in positions of the table.
    """

    folder: File
    shown: Callable[[], Place | None] = lambda: None
    suffix: str = ""
    _known: dict[File, tuple[Hashable, Manifest]] = field(default_factory=dict)  # manifests that were read
    _lost: set[str] = field(default_factory=set)  # missing files that manifests name

    def held(self) -> Held | None:
        """All segments that are stored now; None without a spool. Raises StateUnreadable if the spool is damaged."""
        for _ in range(_TRIES):
            with suppress(_Moved):
                return self._held(allow_gap=False)
            time.sleep(_PAUSE_SECONDS)
        # a gap in every listing was not caused by a run at work, so it is real: only the segments after it are held
        return _retried(lambda: self._held(allow_gap=True))

    def _held(self, *, allow_gap: bool) -> Held | None:
        """The segments of one listing of the folder; None without a spool.

        If there is a gap and `allow_gap` is true, the result has only the segments after the last gap. Raises `_Moved`
        if there is a gap and `allow_gap` is false, or if a run changed the folder during the listing.
        """
        path = self.folder / "opened.json"
        if not path.exists():
            return None
        name = name_of(self.folder)
        # the spool is listed before the archive: a segment that moves to the archive in between is not missed
        paths = (self.folder / "segments").listed("*.json")
        paths += [segment.file for segment in all_archived(self.folder)]
        manifests = {file: self._read(file) for file in paths}
        # forget the manifests that are gone
        self._known = {file: entry for file, entry in self._known.items() if file in manifests}
        try:
            opened = Position.from_json(files.document(path))
        except (OSError, ValueError) as error:
            raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
        segments = chain(list(manifests.values()), opened)
        end = opened  # moved on by each segment of the spool; those of the archive end at or before `opened`
        for segment in segments:
            if segment.stop.place(opened.epoch) > opened.place:
                end = end.moved(segment.stop, segment.gtids, segment.history)
        # a gap: the chain of segments does not reach back to the first listed manifest
        starts = [manifest.start.place(opened.epoch) for manifest in manifests.values()]
        has_gap = bool(manifests) and (not segments or min(starts) < segments[0].start.place(opened.epoch))
        is_begun_anew = name != name_of(self.folder)  # during the listing: it may have segments of both spools
        if is_begun_anew or (has_gap and not allow_gap):
            raise _Moved
        return Held(name, opened, end, tuple(segments))

    def _read(self, file: File) -> Manifest:
        """The manifest in a file; from `_known` if the file is unchanged. Raises `_Moved` if the file was removed."""
        try:
            version = file.version()
            known_version, known = self._known.get(file, (None, None))
            if known is not None and known_version == version:
                return known
            manifest = Manifest.from_json(files.document(file))
            self._known[file] = version, manifest
            return manifest
        except FileNotFoundError as error:
            raise _Moved from error
        except (OSError, *DAMAGED) as error:
            raise StateUnreadable(f"{file} of the spool cannot be read: {error}") from error

    def stretch(self, table: TableId) -> tuple[Held, Stretch]:
        """All segments that are held now, and the stretch of them that has every change of the table.

        The stretch is empty if readers see a copy that is newer than the last segment that watches the table, because
        changes between the two are missing. This is possible only if later segments do not watch the table.

        Raises ChangelogGone without a spool.
        """
        held = self._held_or_gone(table)
        stretch = held.stretch(table, lost=self._lost)
        if stretch.ends_watch or not stretch.segments:
            # The result depends on the place that readers see. Once this place is known, the segments are listed again:
            # the first list may end before a commit that was published after it, and seem to lack changes.
            shown = self.shown()
            held = self._held_or_gone(table)
            stretch = held.stretch(table, shown, self._lost)
        return held, stretch

    def _held_or_gone(self, table: TableId) -> Held:
        """All segments that are held now. Raises ChangelogGone without a spool."""
        held = self.held()
        if held is None:
            raise ChangelogGone(
                f"{table}: there is no spool any more; run once, then read the changelog from its beginning"
            )
        return held

    @contextmanager
    def opened(self, table: TableId, since: ReadTo, name: str) -> Iterator[Changes]:
        """The table's changes after `since`, up to the present end of the changelog.

        The files of change rows stay open, and so readable, within the block. Raises ChangelogGone if some of the
        changes are no longer held, or if the changelog now has another name than `name`.
        """
        with ExitStack() as stack:
            yield _retried(lambda: self._open_changes(table, since, name, stack), self._lost.add)

    def _open_changes(self, table: TableId, since: ReadTo, name: str, stack: ExitStack) -> Changes:
        """The changes that `opened` yields. `stack` closes their files. Raises `_Moved` if a run changed the folder."""
        held, stretch = self.stretch(table)
        if held.name != name:
            raise ChangelogGone(
                f"{table}: the spool was begun anew since position {since}; read the changelog from its beginning, into"
                " an empty table"
            )
        if stretch.begins_after(since):
            raise changelog_gone(table, since, stretch, name + self.suffix)
        parts: list[ChangeFile | Altered] = []
        # Step 1: open the files, the last one first. A file of an earlier version does not name the definition of its
        # rows, which is the definition before the next DDL.
        definition_before_ddl = ""
        for segment in reversed(held.segments_after(since, stretch.segments)):
            if table in segment.followed:
                parts.append(Altered(segment.alterations[table], segment.followed[table]))
                definition_before_ddl = segment.followed[table].before.fingerprint
            elif entry := segment.tables[table]:  # else the segment has no change of the table
                file_name, _ = entry
                part = self._open_file(file_name, stack)
                parts.append(ChangeFile(part, definition_of(part) or definition_before_ddl))
        try:
            # Step 2: list the reread rows, after the segments. A run stores a segment only after the reread rows as of
            # the segment's start. So all reread rows that precede a segment of step 1 exist.
            rereads = RereadFolder.of(self.folder, table).files_after(replace(since, log=name), stretch.end)
        except FileNotFoundError as error:
            raise _Moved from error
        # Step 3: list the segments once more. A run removes a segment before it removes the reread rows as of the
        # segment's start. So if the segments are still held, step 2 has found their reread rows.
        later, later_stretch = self.stretch(table)
        if later.name != name or later_stretch.begins_after(since):
            raise _Moved
        parts.reverse()
        return Changes(table, since, stretch.end, tuple(parts), rereads=tuple(rereads), ends_watch=stretch.ends_watch)

    def _open_file(self, name: str, stack: ExitStack) -> pq.ParquetFile:
        """A file of change rows, which `stack` closes. Raises `_Moved` if the file is missing."""
        path = self.folder / name
        try:
            # an open file can still be read after a run removes it
            return pq.ParquetFile(stack.enter_context(path.open_lasting()))
        except FileNotFoundError as error:
            raise _Moved(name) from error
        except (OSError, pa.ArrowException) as error:
            raise StateUnreadable(f"{path} cannot be read: {error}") from error

    def place_of_gtids(self, held: Held, gtids: GtidSet) -> Place | None:
        """The place up to which every transaction is in the set.

        None if this place is not known: a transaction before the held segments is not in the set, or the place may be
        in a lost file.
        """
        if not held.gtids <= gtids:  # the place is before the held segments
            return None

        def search() -> Place | None:
            return self._last_place_before(
                held, lambda batch: _is_outside(batch, gtids), lambda segment: segment.gtids <= gtids
            )

        return _retried(search, self._lost.add)

    def place_of_time(self, held: Held, moment: datetime) -> Place | None:
        """The place of the last transaction before the first one that was committed after `moment`.

        None if the place cannot be known: it may be before the held segments, or in a lost file.
        """
        micros = int(moment.timestamp() * 1_000_000)
        if _ends_by(held.end.history, micros):  # no held transaction is after the moment
            return held.end.place

        def search() -> Place | None:
            return self._last_place_before(
                held,
                lambda batch: batch["committed_at"].cast(pa.int64()).to_numpy() > micros,
                lambda segment: _ends_by(segment.history, micros),
            )

        place = _retried(search, self._lost.add)
        # at the start, the first held transaction is already after the moment, and earlier transactions are not known
        return None if place == held.start else place

    def time_of(self, held: Held, place: Place) -> int | None:
        """The time by which the transactions up to this place were committed, in µs since 1970.

        It is the latest time of these transactions in the last held segment that has one of them. If no held segment
        has one, it is the time of the last transaction before the spool. None if that transaction is not known, if the
        spool begins after the place, or if a file that must be read is lost.
        """

        def search() -> int | None:
            epoch = held.opened.epoch
            for segment in reversed([each for each in held.segments if each.start.place(epoch) < place]):
                if segment.transactions in self._lost:
                    return None
                with _opened_transactions(self.folder, segment) as opened:
                    rows = opened.read()
                places = zip(*(rows[name].to_pylist() for name in ("epoch", "file", "pos")), strict=True)
                times: list[int] = rows["committed_at"].cast(pa.int64()).to_pylist()
                before = [micros for parts, micros in zip(places, times, strict=True) if Place(*parts) <= place]
                if before:
                    return max(before)
            last = None if held.opened.history is None else held.opened.history.last
            return None if last is None or held.opened.place > place else last.committed_at

        return _retried(search, self._lost.add)

    def _last_place_before(
        self,
        held: Held,
        are_sought: "Callable[[pa.RecordBatch], np.ndarray]",
        has_none_sought: Callable[[Manifest], bool],
    ) -> Place | None:
        """The place of the last held transaction before the first sought transaction.

        `are_sought` tells for each transaction of a batch whether it is sought, `has_none_sought` whether a segment has
        no such transaction. Returns the start of `held` if the first held transaction is sought, the end of `held` if
        none is sought, and None if a lost file may have the first sought transaction.
        """
        place = held.start  # the place up to which no transaction is sought
        # The present segments are searched, because a run may have joined the segments of `held`. But if the
        # present segments begin later, the first segments of `held` were removed: then `held` itself is searched.
        present = self.held()
        segments = held.segments if present is None or present.start > held.start else present.segments
        for segment in segments:
            if segment.transactions in self._lost:
                if not has_none_sought(segment):
                    return None
                place = segment.stop.place(held.opened.epoch)
                continue
            with _opened_transactions(self.folder, segment) as opened:
                for batch in opened.iter_batches(BATCH_ROWS):
                    sought = are_sought(batch)
                    # `argmax` gives the number of transactions before the first sought one
                    count_before = int(np.argmax(sought)) if sought.any() else len(sought)
                    if count_before:
                        last = count_before - 1  # the index of the last transaction before the first sought one
                        place = Place(*(batch[name][last].as_py() for name in ("epoch", "file", "pos")))
                    if count_before < len(sought):
                        return place
        return held.end.place

    def spool(self) -> Spool:
        """The spool without the archive, as a run loads it.

        If the spool cannot be loaded, a run may be changing the folder, so it is tried again, up to `_TRIES` times.
        Raises StateUnreadable if the last try fails, or if there is no spool.
        """

        def load() -> Spool:
            try:
                loaded = Spool.load(self.folder)
            except StateUnreadable as error:
                raise _Moved from error
            if loaded is None:
                raise _Moved
            return loaded

        return _retried(load)


@contextmanager
def _opened_transactions(folder: File, segment: Manifest) -> Iterator[pq.ParquetFile]:
    """The file with the transactions of a segment, in order. Raises `_Moved` if the file was removed."""
    try:
        with files.parquet(folder / segment.transactions) as opened:
            yield opened
    except FileNotFoundError as error:
        raise _Moved(segment.transactions) from error
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(f"the spool in {folder} cannot be read: {error}") from error


def changelog_gone(table: TableId, since: object, stretch: Stretch, name: str) -> ChangelogGone:
    """The error for a reader whose position `since` is before the held changes of the table.

    `name` is the changelog's name in positions of the table.
    """
    return ChangelogGone(
        f"{table}: the changes after {since} are no longer held, the oldest position is"
        f" {ReadTo(stretch.start, log=name)}; read the changelog from its beginning, into an empty table"
    )


def _retried(read: Callable[[], Result], note_lost: Callable[[str], None] = lambda _: None) -> Result:
    """The result of `read`, which is called up to `_TRIES` times while it raises `_Moved`.

    If the last `_Moved` names a file, the file is lost: `note_lost` is called with its name, and the tries begin anew.
    Raises StateUnreadable if `_Moved` names no file, or a file that is already noted as lost.
    """
    lost = set[str]()
    while True:
        try:
            return _with_tries(read)
        except _Moved as error:
            name = next(iter(error.args), None)
            if name is None or name in lost:
                raise StateUnreadable(
                    f"the spool lacks a file that it names: {error.__cause__}; run once, then try again"
                ) from error
            lost.add(name)
            note_lost(name)


def _with_tries(read: Callable[[], Result]) -> Result:
    """The result of `read`, which is called up to `_TRIES` times, with pauses, while it raises `_Moved`.

    Raises `_Moved` if the last call raises it.
    """
    for _ in range(_TRIES - 1):
        with suppress(_Moved):
            return read()
        time.sleep(_PAUSE_SECONDS)
    return read()


def _ends_by(history: History | None, micros: int) -> bool:
    """Whether the last transaction of a history was committed at or before this time, in µs since 1970.

    False if the history or its last transaction is not known.
    """
    return history is not None and history.last is not None and history.last.committed_at <= micros


def _is_outside(batch: pa.RecordBatch, gtids: GtidSet) -> "np.ndarray":
    """For each transaction of a batch, whether its GTID is not in the set; False if it has no GTID."""
    columns = (batch[name].to_pylist() for name in ("uuid", "number", "tag"))
    return np.array(
        [
            server is not None and Gtid(server, number, tag or "") not in gtids
            for server, number, tag in zip(*columns, strict=True)
        ],
        bool,
    )
