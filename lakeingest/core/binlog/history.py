"""The history of a binlog: what distinguishes it from another binlog with the same file names, lengths and GTIDs.

A server whose binlog was reset, or that was restored from a backup, writes other transactions under the same names. A
saved position says to which history it belongs. The binlog is read from a position on only if the binlog has the
position's history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction: the file and the byte at which it begins, its GTID (None without GTIDs), and its commit time.

    `committed_at` is in µs since 1970, by the clock of the server that committed the transaction first
    (`original_commit_timestamp`). GTID and time are the same on every server of the history. MariaDB stores only whole
    seconds.
    """

    file: str
    pos: int
    gtid: str | None
    committed_at: int


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The event that ends at a position: the byte at which it begins in the same file, and the digest of its bytes."""

    pos: int
    digest: str


@dataclass(frozen=True, slots=True)
class History:
    """The parts of the binlog's history that a reader saw at a position. A part that is not known is None.

    `began`: the second (since 1970) in which the server began the position's file, from the header of the file's
    FORMAT_DESCRIPTION event. `event`: the event that ends at the position; None, too, at the start of a file. `last`:
    the last transaction that was read before the position, in the position's file or in an earlier file.
    """

    began: int | None = None
    event: LastEvent | None = None
    last: Committed | None = None

    def after(self, earlier: "History | None") -> Self:
        """The same history, with `last` of the `earlier` history if its own `last` is not known."""
        return self if self.last or earlier is None else replace(self, last=earlier.last)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        event, last = self.event, self.last
        return {
            "began": self.began,
            "event": event and [event.pos, event.digest],
            "last": last and [last.file, last.pos, last.gtid, last.committed_at],
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` if a part is missing or wrong."""
        began, event, last = (doc[part] for part in ("began", "event", "last"))
        return cls(
            None if began is None else int(began),
            None if event is None else _event(event),
            None if last is None else _committed(last),
        )


def _event(parts: Sequence[Any]) -> LastEvent:
    pos, digest = parts
    return LastEvent(int(pos), str(digest))


def _committed(parts: Sequence[Any]) -> Committed:
    file, pos, gtid, committed_at = parts
    return Committed(str(file), int(pos), None if gtid is None else str(gtid), int(committed_at))
