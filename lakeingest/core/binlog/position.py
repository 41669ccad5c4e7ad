"""Places and positions in a binlog, and GTID sets. Only this module compares the parts of a position.

A transaction is first *written*, then *visible*, then *executed*: written ⊇ visible ⊇ executed. A read view contains
what is visible. So a low watermark is a GTID set that is read from `gtid_executed`, and a high watermark is a place
that is read from the written position.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Self

from lakeingest.core.binlog.history import History
from lakeingest.errors import DAMAGED, StateUnreadable

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_FILE = re.compile(r"(?P<base>.+)\.(?P<number>\d+)")

FILE_START = 4  # a binlog file begins with four bytes that name its format
FIRST_EPOCH = 1  # of a pipeline; another server, or another history of the binlog, has the next epoch

GtidOrigin = tuple[str, str]  # (server uuid, tag); the tag is '' for a GTID without a tag
Intervals = tuple[tuple[int, int], ...]  # closed, ascending, with a gap between any two


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a transaction ends in the binlog of one epoch; places are totally ordered.

    On MariaDB, a place is the first byte of the transaction, because the first event does not say where the transaction
    ends. Watermarks are between transactions. So it makes no difference whether a watermark is compared with the first
    byte or with the end.

    `file` is the number at the end of the file name, compared as an integer (`.999999` < `.1000000`). `pos` is the byte
    in the file.
    """

    epoch: int
    file: int
    pos: int

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.file < 0 or self.pos < 0:
            raise ValueError(f"a place has no negative part: {self}")

    def __str__(self) -> str:
        """A text that sorts as the place does."""
        return f"{self.epoch:06d}.{self.file:010d}.{self.pos:020d}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises StateUnreadable for another text."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):  # noqa: PLR2004 - epoch, file, pos
            raise StateUnreadable(f"not a place: {text!r}")
        return cls(*(int(part) for part in parts))


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A file name and a byte position, as `SHOW BINARY LOG STATUS` gives them. Other modules compare its `place`.

    Raises ValueError if the name does not end with a point and a number, or if `pos` is negative.
    """

    file: str
    pos: int

    def __post_init__(self) -> None:
        if not _FILE.fullmatch(self.file) or self.pos < 0:
            raise ValueError(f"not a binlog position: {self.file!r}, {self.pos}")

    @property
    def number(self) -> int:
        """The number of the file."""
        return file_number(self.file)

    @property
    def start_of_file(self) -> Self:
        """Where the first event of its file starts."""
        return replace(self, pos=FILE_START)

    def place(self, epoch: int) -> Place:
        """The place of this position in the given epoch."""
        return Place(epoch, self.number, self.pos)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises StateUnreadable for another text."""
        file, colon, pos = text.rpartition(":")
        if not colon or not pos.isdecimal() or not _FILE.fullmatch(file):
            raise StateUnreadable(f"not a binlog position: {text!r}")
        return cls(file, int(pos))


def is_before(position: FilePosition, other: FilePosition) -> bool:
    """Whether `position` comes before `other` in the binlog."""
    return position.place(FIRST_EPOCH) < other.place(FIRST_EPOCH)


def latest(positions: Iterable[FilePosition]) -> FilePosition:
    """The last of these positions in the binlog; there is at least one."""
    return max(positions, key=lambda at: at.place(FIRST_EPOCH))


def in_same_file(position: FilePosition, other: FilePosition) -> bool:
    """Whether both positions are in the same binlog file."""
    return position.file == other.file


def file_start(file: str) -> FilePosition:
    """Where the first event of a binlog file starts."""
    return FilePosition(file, FILE_START)


def is_within(at: FilePosition, sizes: Mapping[str, int]) -> bool:
    """Whether `sizes` has the size of the position's file, and the position is not after the end of this file."""
    return at.pos <= sizes.get(at.file, -1)


def is_in_one_of(at: FilePosition, files: Collection[str]) -> bool:
    """Whether the position is in one of these binlog files."""
    return at.file in files


def files_after(at: FilePosition, files: Iterable[str]) -> list[str]:
    """The binlog files among `files` that come after the position's file."""
    return [file for file in files if file_number(file) > at.number]


def file_name(number: int, like: FilePosition) -> str:
    """The name of the binlog file of this number, in the form of the file name of the position `like`."""
    base, _, digits = like.file.rpartition(".")
    return f"{base}.{number:0{len(digits)}d}"


def bytes_between(start: FilePosition, stop: FilePosition, sizes: Mapping[str, int]) -> int:
    """The number of bytes of the binlog from `start` to `stop`.

    `sizes` has the number of bytes of each binlog file that ends between the two positions.
    """
    whole_files = sum(size for file, size in sizes.items() if start.number <= file_number(file) < stop.number)
    return whole_files - start.pos + stop.pos


def offsets(sizes: Mapping[str, int]) -> Callable[[FilePosition], int]:
    """A function from a position in one of these binlog files to the number of bytes that they have before it."""
    files = sorted(sizes, key=file_number)
    # not strict: there is one sum more than files, the sum of all sizes
    bytes_before = dict(zip(files, accumulate((sizes[file] for file in files), initial=0), strict=False))
    return lambda at: bytes_before[at.file] + at.pos


def file_number(file: str) -> int:
    """The number of a binlog file, from its name. Raises ValueError for another name."""
    match = _FILE.fullmatch(file)
    if not match:
        raise ValueError(f"not the name of a binlog file: {file!r}")
    return int(match["number"])


@dataclass(frozen=True, slots=True)
class Gtid:
    """The name of one transaction of MySQL. `uuid`: the server that committed it first. `tag`: '' if it has none."""

    uuid: str
    number: int
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag + ':' if self.tag else ''}{self.number}"


@dataclass(frozen=True, slots=True)
class DomainGtid:
    """The name of one transaction of MariaDB. It is never a watermark: MariaDB does not say which GTIDs are visible."""

    domain: int
    server: int
    number: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises StateUnreadable for anything else."""
        parts = text.strip().split("-")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):  # noqa: PLR2004 - domain, server, number
            raise StateUnreadable(f"not a GTID of MariaDB: {text!r}")
        return cls(*(int(part) for part in parts))


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A set of GTIDs. Gaps between numbers stay: if a gap were closed, the transactions in it would never be copied.

    Text form and tags: MySQL manual, "GTID Sets".
    """

    members: tuple[tuple[GtidOrigin, Intervals], ...] = ()

    def __post_init__(self) -> None:
        previous_origin: GtidOrigin | None = None
        for origin, intervals in self.members:
            if previous_origin is not None and origin <= previous_origin:
                raise ValueError("the sources of a GTID set are sorted and distinct")
            previous_origin = origin
            if not intervals:
                raise ValueError("a source without transactions is left out")
            touching = -1  # an interval that begins here would touch the previous interval
            for low, high in intervals:
                if low <= touching or low < 1 or high < low:
                    raise ValueError(f"intervals are ascending and apart: {intervals}")
                touching = high + 1

    @classmethod
    def of(cls, intervals: Mapping[GtidOrigin, Iterable[tuple[int, int]]]) -> Self:
        """The set of these closed intervals, which may be in any order, touch or overlap."""
        members = ((origin, _normal(ranges)) for origin, ranges in sorted(intervals.items()))
        return cls(tuple((origin, ranges) for origin, ranges in members if ranges))

    @classmethod
    def of_gtids(cls, gtids: Iterable[Gtid]) -> Self:
        """The set of these GTIDs."""
        by_origin: dict[GtidOrigin, list[tuple[int, int]]] = {}
        for gtid in gtids:
            by_origin.setdefault((gtid.uuid, gtid.tag), []).append((gtid.number, gtid.number))
        return cls.of(by_origin)

    @classmethod
    @lru_cache(maxsize=256)  # the positions of thousands of tables have one text
    def parse(cls, text: str) -> Self:
        """Read MySQL's text form, with or without line feeds and tags; '' is the empty set.

        Raises StateUnreadable for another text.
        """
        intervals: dict[GtidOrigin, list[tuple[int, int]]] = {}
        for entry in filter(None, (part.strip().lower() for part in text.replace("\n", "").split(","))):
            uuid, *parts = (part.strip() for part in entry.split(":"))  # the parts are intervals and tags
            if not _UUID.fullmatch(uuid) or not parts:
                raise StateUnreadable(f"not a GTID set: {text!r}")
            tag = ""
            for part in parts:
                if _TAG.fullmatch(part):
                    tag = part  # of the intervals that follow
                    continue
                low, dash, high = part.partition("-")
                if not low.isdecimal() or int(low) < 1 or (dash and not high.isdecimal()):
                    raise StateUnreadable(f"not a GTID set: {text!r}")
                if int(high or low) >= int(low):  # an interval that ends before it begins is empty
                    intervals.setdefault((uuid, tag), []).append((int(low), int(high or low)))
        return cls.of(intervals)

    def __str__(self) -> str:
        entries: dict[str, str] = {}
        for (uuid, tag), intervals in self.members:  # of each UUID, the intervals without a tag come first
            text = entries.get(uuid, uuid) + (f":{tag}" if tag else "")
            entries[uuid] = text + "".join(f":{low}" if low == high else f":{low}-{high}" for low, high in intervals)
        return ",".join(entries.values())

    def __contains__(self, gtid: Gtid) -> bool:
        intervals = dict(self.members).get((gtid.uuid, gtid.tag), ())
        return any(low <= gtid.number <= high for low, high in intervals)

    def __bool__(self) -> bool:
        return bool(self.members)

    @property
    def count(self) -> int:
        """The number of GTIDs in the set."""
        return sum(high - low + 1 for _, intervals in self.members for low, high in intervals)

    def __le__(self, other: Self) -> bool:
        """Whether every GTID of this set is in `other`."""
        return not self - other

    def __or__(self, other: Self) -> Self:
        """The GTIDs of either set."""
        merged: dict[GtidOrigin, list[tuple[int, int]]] = {}
        for origin, intervals in (*self.members, *other.members):
            merged.setdefault(origin, []).extend(intervals)
        return type(self).of(merged)

    def __and__(self, other: Self) -> Self:
        """The GTIDs of both sets."""
        return self - (self - other)

    def __sub__(self, other: Self) -> Self:
        """The GTIDs of this set that are not in `other`."""
        theirs = dict(other.members)
        return type(self).of({origin: _minus(ours, theirs.get(origin, ())) for origin, ours in self.members})


def _normal(ranges: Iterable[tuple[int, int]]) -> Intervals:
    """The intervals in order. Intervals that touch or overlap become one."""
    normal: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if normal and low <= normal[-1][1] + 1:
            last_low, last_high = normal[-1]
            normal[-1] = (last_low, max(last_high, high))
        else:
            normal.append((low, high))
    return tuple(normal)


def _minus(ours: Intervals, theirs: Intervals) -> list[tuple[int, int]]:
    """The parts of our intervals that are outside of all of their intervals."""
    outside = list(ours)
    for their_low, their_high in theirs:
        parts: list[tuple[int, int]] = []  # before and after their interval; a part may be empty
        for low, high in outside:
            parts += [(low, min(high, their_low - 1)), (max(low, their_high + 1), high)]
        outside = [(low, high) for low, high in parts if low <= high]
    return outside


@dataclass(frozen=True, slots=True)
class Position:
    """A saved position: the end of a batch on one server.

    `gtids`: every transaction up to the position; None if the source has no GTIDs of MySQL, so always on MariaDB. `at`
    is valid only on the server `server_uuid`, in this epoch, and in a binlog of this `history`. `history` is None if it
    is not known.
    """

    server_uuid: str
    epoch: int
    at: FilePosition
    gtids: GtidSet | None
    history: History | None = None

    @property
    def place(self) -> Place:
        """Where the batch ends."""
        return self.at.place(self.epoch)

    @property
    def start_of_file(self) -> Self:
        """The start of the position's file, as a position. Only for positions without GTIDs: `gtids` is not changed."""
        history = None if self.history is None else History(self.history.began)
        return replace(self, at=self.at.start_of_file, history=history)

    def moved(self, stop: FilePosition, gtids: GtidSet, history: History | None) -> Self:
        """The position after one more segment, which has these `gtids` and ends at `stop`.

        `history`: the history at `stop`. If it is None, which means unknown, only the old history's `last` is kept.
        """
        united = None if self.gtids is None else self.gtids | gtids
        unknown = History()  # no part of it is known
        history_at_stop = (history or unknown).after(self.history)
        return replace(self, at=stop, gtids=united, history=None if history_at_stop == unknown else history_at_stop)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        gtids = None if self.gtids is None else str(self.gtids)
        doc = {"server_uuid": self.server_uuid, "epoch": self.epoch, "at": str(self.at), "gtids": gtids}
        return doc if self.history is None else doc | {"history": self.history.to_json()}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable if a part is missing or wrong."""
        try:
            gtids = None if doc["gtids"] is None else GtidSet.parse(doc["gtids"])
            history = None if doc.get("history") is None else History.from_json(doc["history"])
            return cls(str(doc["server_uuid"]), int(doc["epoch"]), FilePosition.parse(doc["at"]), gtids, history)
        except DAMAGED as error:
            raise StateUnreadable(f"not a saved position: {doc!r}") from error


def later_of(first: Position | None, second: Position | None) -> Position | None:
    """The position with the later place, the first if both have one place, or the only one; None if there is none."""
    positions = [position for position in (first, second) if position is not None]
    return max(positions, key=lambda position: position.place, default=None)


Low = GtidSet | Place  # a low watermark: executed GTIDs; without GTIDs, the start of the file that the server writes


def low_to_json(low: Low) -> dict[str, str]:
    """A JSON document that `low_from_json` reads back."""
    return {"gtids": str(low)} if isinstance(low, GtidSet) else {"place": str(low)}


def low_from_json(doc: Mapping[str, str]) -> Low:
    """The inverse of `low_to_json`. Raises KeyError, TypeError, AttributeError or StateUnreadable for anything else."""
    return GtidSet.parse(doc["gtids"]) if "gtids" in doc else Place.parse(doc["place"])
