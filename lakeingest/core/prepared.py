"""Prepared transactions (XA): what is prepared at a place of the binlog, and where its rows are. Pure.

XA PREPARE and XA COMMIT, or XA ROLLBACK, are two transactions in the binlog, perhaps in different segments. The rows
are at XA PREPARE, and count where XA COMMIT stands. So a segment says what is prepared at its end, for those after it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from lakeingest.core.position import FilePosition
from lakeingest.core.schema import TableId


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction. It can be used again once the transaction has ended."""

    global_part: bytes
    branch: bytes
    format: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a prepared transaction is in the binlog: from its GTID event to the end of its XA_PREPARE event.

    `tables` are those that it changes; None if that is not known, because it has a change in statement format.
    """

    start: FilePosition
    stop: FilePosition
    tables: frozenset[TableId] | None

    def changed(self, tables: Collection[TableId]) -> frozenset[TableId]:
        """Those of these tables that it may change."""
        return frozenset(tables) if self.tables is None else self.tables.intersection(tables)


@dataclass(slots=True)
class Pending:
    """The transactions that are prepared at some place of the binlog, as far as they were seen before it.

    `ended` are those that have ended and were prepared before the reader began; those that are `sought` in any case.
    One that is also in `prepared` was prepared again after that.
    """

    prepared: dict[Xid, Prepared] = field(default_factory=dict)
    ended: set[Xid] = field(default_factory=set)
    sought: frozenset[Xid] = frozenset()

    def prepare(self, xid: Xid, found: Prepared) -> None:
        """The transaction is prepared from here on."""
        self.prepared[xid] = found

    def end(self, xid: Xid) -> Prepared | None:
        """The transaction has ended; where it was prepared, None if that was not seen."""
        found = self.prepared.pop(xid, None)
        if found is None or xid in self.sought:
            self.ended.add(xid)
        return found

    def after(self, older: Self) -> Self:
        """The transactions prepared here. `older`: those that were prepared where the reader began."""
        left = {xid: found for xid, found in older.prepared.items() if xid not in self.ended}
        return type(self)(left | self.prepared, self.ended | older.ended)

    def to_json(self) -> list[Any]:
        """A JSON document that `from_json` reads back: what is prepared, not what has ended."""
        return [
            [
                [xid.global_part.hex(), xid.branch.hex(), xid.format],
                [str(found.start), str(found.stop)],
                None if found.tables is None else sorted([table.database, table.name] for table in found.tables),
            ]
            for xid, found in self.prepared.items()
        ]

    @classmethod
    def from_json(cls, doc: Sequence[Any]) -> Self:
        """The inverse of `to_json`; TypeError, ValueError or StateUnreadable when a part is missing or wrong."""
        return cls({_xid(*xid): _prepared(start, stop, tables) for xid, (start, stop), tables in doc})


@dataclass(frozen=True, slots=True)
class PreparedAt:
    """The transactions prepared at a position, as far as they were seen: not those from before anyone looked."""

    at: FilePosition
    prepared: Mapping[Xid, Prepared]


def _xid(global_part: str, branch: str, format_: int) -> Xid:
    return Xid(bytes.fromhex(global_part), bytes.fromhex(branch), int(format_))


def _prepared(start: str, stop: str, names: Sequence[tuple[str, str]] | None) -> Prepared:
    tables = None if names is None else frozenset(TableId(*name) for name in names)
    return Prepared(FilePosition.parse(start), FilePosition.parse(stop), tables)
