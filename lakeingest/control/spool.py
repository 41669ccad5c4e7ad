"""The spool: the changelog since the first low watermark, kept as Parquet files under the state folder.

spool/opened.json            where it begins
spool/segments/000001.json   a segment exists when its manifest does; manifests chain without a gap
spool/data/…                 what the manifests name; anything else is left of a task that did not finish
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.position import FilePosition, Gtid, GtidSet, Place, Position
from lakeingest.core.schema import TableId
from lakeingest.core.transactions import TransactionLog
from lakeingest.errors import OperatorNeeded, SpoolGap, StateUnreadable


@dataclass(frozen=True, slots=True)
class Manifest:
    """One spooled segment: what it covers, which tables it watched, and its files (relative to the spool's folder).

    `tables` names every watched table, with its file and row count, or None where the segment held no change of it.
    """

    start: FilePosition
    stop: FilePosition
    gtids: GtidSet
    transactions: str
    tables: Mapping[TableId, tuple[str, int] | None]

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "start": str(self.start),
            "stop": str(self.stop),
            "gtids": str(self.gtids),
            "transactions": self.transactions,
            "tables": {str(table): file for table, file in self.tables.items()},
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            FilePosition.parse(doc["start"]),
            FilePosition.parse(doc["stop"]),
            GtidSet.parse(doc["gtids"]),
            str(doc["transactions"]),
            {
                TableId.parse(table): None if file is None else (str(file[0]), int(file[1]))
                for table, file in doc["tables"].items()
            },
        )


class Spool:
    """An open spool. Only `append` and `forget` change it; both leave it whole wherever they are interrupted."""

    def __init__(self, folder: Path, opened: Position, segments: Mapping[int, Manifest]) -> None:
        self.folder = folder
        self._opened = opened
        self._segments = dict(segments)

    @classmethod
    def load(cls, folder: Path) -> "Spool | None":
        """The spool that is there, or None. StateUnreadable when it is damaged or has a gap."""
        path = folder / "opened.json"
        if not path.exists():
            return None
        try:
            opened = Position.from_json(json.loads(path.read_text()))
            segments = {
                int(file.stem): Manifest.from_json(json.loads(file.read_text()))
                for file in sorted((folder / "segments").glob("*.json"))
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StateUnreadable) as error:
            raise StateUnreadable(f"the spool in {folder} cannot be read: {error}") from error
        left = {number: one for number, one in segments.items() if one.stop.place(opened.epoch) > opened.place}
        stop = opened.at
        for number, segment in left.items():
            if segment.start != stop:
                raise StateUnreadable(
                    f"the spool in {folder} has a gap before segment {number}: {stop} to {segment.start}"
                )
            stop = segment.stop
        return cls(folder, opened, left)

    @classmethod
    def open(cls, folder: Path, opened: Position) -> Self:
        """A new, empty spool that begins at `opened`; what was in the folder is no longer part of it."""
        with _written(folder):
            # the last first: interrupted, this leaves a spool that ends earlier, and no gap
            for old in sorted((folder / "segments").glob("*.json"), reverse=True):
                old.unlink()
            (folder / "segments").mkdir(parents=True, exist_ok=True)
            (folder / "data").mkdir(exist_ok=True)
        _write(folder / "opened.json", opened.to_json())
        return cls(folder, opened, {})

    @property
    def start(self) -> Place:
        """Every change after this place is here, of the tables that were watched then."""
        return self._opened.place

    @property
    def opened(self) -> Position:
        """Where the spool begins."""
        return self._opened

    @property
    def position(self) -> Position:
        """The stop of the last segment: where the next one begins."""
        gtids, at = self._opened.gtids, self._opened.at
        for segment in self._segments.values():
            at = segment.stop
            gtids = None if gtids is None else gtids | segment.gtids
        return Position(self._opened.server_uuid, self._opened.epoch, at, gtids)

    def append(self, segments: Sequence[Manifest]) -> None:
        """Make segments part of the spool, in order. Their files are complete before this is called."""
        for segment in segments:
            if segment.start != self.position.at:
                raise SpoolGap(f"a segment from {segment.start} does not continue {self.position.at}")
            number = max(self._segments, default=0) + 1
            _write(self.folder / "segments" / f"{number:06d}.json", segment.to_json())
            self._segments[number] = segment

    def log(self) -> TransactionLog:
        """All spooled transactions that have GTIDs."""
        return TransactionLog(self._transactions(), self._opened.gtids or GtidSet())

    def files(self, table: TableId, after: Place, stop: Place) -> list[str]:
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
                path = self.folder / file[0]
                if not path.exists():
                    raise StateUnreadable(
                        f"the spool in {self.folder} lacks {file[0]}; remove the folder and run again"
                    )
                found.append(str(path))
        return found

    def backlog(self, table: TableId, after: Place) -> int:
        """How many change rows of the table are spooled in segments that end after `after`."""
        files = (segment.tables.get(table) for segment in self._between(after, self.position.place))
        return sum(file[1] for file in files if file is not None)

    def forget(self, before: Place) -> None:
        """Drop the segments that end at or before this place: no mark needs them any more."""
        for number, segment in list(self._segments.items()):
            if segment.stop.place(self._opened.epoch) > before:
                return
            gtids = None if self._opened.gtids is None else self._opened.gtids | segment.gtids
            opened = Position(self._opened.server_uuid, self._opened.epoch, segment.stop, gtids)
            # a crash in between leaves a manifest that ends where the spool begins: `load` passes it over
            _write(self.folder / "opened.json", opened.to_json())
            (self.folder / "segments" / f"{number:06d}.json").unlink()
            self._opened = opened
            del self._segments[number]
            for file in (segment.transactions, *(entry[0] for entry in segment.tables.values() if entry)):
                (self.folder / file).unlink(missing_ok=True)

    def _transactions(self) -> Iterator[tuple[Gtid, Place]]:
        for segment in self._segments.values():
            try:
                columns = pq.read_table(self.folder / segment.transactions).to_pydict()
            except (OSError, pa.ArrowException) as error:
                raise StateUnreadable(f"the spool in {self.folder} cannot be read: {error}") from error
            names = ("uuid", "tag", "number", "epoch", "file", "pos")
            for uuid, tag, number, epoch, file, pos in zip(*(columns[name] for name in names), strict=True):
                if uuid is not None:
                    yield Gtid(uuid, number, tag or ""), Place(epoch, file, pos)

    def _between(self, after: Place, stop: Place) -> Iterable[Manifest]:
        epoch = self._opened.epoch
        return [
            segment
            for segment in self._segments.values()
            if segment.stop.place(epoch) > after and segment.start.place(epoch) < stop
        ]


def _write(path: Path, doc: Mapping[str, Any]) -> None:
    """Replace a file so that a reader sees the old or the new one, whole, also after a crash."""
    new = path.with_suffix(".new")
    with _written(path):
        with new.open("w") as file:
            json.dump(doc, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperatorNeeded(f"the state folder cannot be written: {path}: {error.strerror}") from error
