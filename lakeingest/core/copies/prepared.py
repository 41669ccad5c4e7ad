"""Prepared transactions (XA): which transactions are prepared at a place of the binlog, and where their rows are.

In the binlog, an XA PREPARE and its XA COMMIT or XA ROLLBACK are two transactions, perhaps in two segments. The rows
are stored at XA PREPARE, and take effect at XA COMMIT. So the reader of a segment tells the readers of later segments
which transactions are prepared at the segment's end.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.tables.schema import TableId


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction. The name can be used again once the transaction has ended."""

    global_part: bytes
    branch: bytes
    format: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a prepared transaction is in the binlog: from its GTID event to the end of its XA_PREPARE event.

    `tables`: the tables that the transaction changes; None if they are not known, because the transaction has a change
    in statement format.
    """

    start: FilePosition
    stop: FilePosition
    tables: frozenset[TableId] | None

    def changed(self, tables: Collection[TableId]) -> frozenset[TableId]:
        """Those of the given tables that the transaction may change."""
        return frozenset(tables) if self.tables is None else self.tables.intersection(tables)


@dataclass(slots=True)
class Pending:
    """The transactions that are prepared at a place of the binlog, as far as a reader has seen them.

    `prepared`: the transactions that the reader saw prepared, but not ended.
    `ended`: the transactions that the reader saw ended, if they were prepared before the reader began or are `sought`.
    `sought`: the names of transactions whose end is always noted.
    If a name is in `ended` and in `prepared`, another transaction was prepared under this name after the first had
    ended.
    """

    prepared: dict[Xid, Prepared] = field(default_factory=dict)
    ended: set[Xid] = field(default_factory=set)
    sought: frozenset[Xid] = frozenset()

    def prepare(self, xid: Xid, where: Prepared) -> None:
        """Note that the transaction is prepared from here on."""
        self.prepared[xid] = where

    def end(self, xid: Xid) -> Prepared | None:
        """Note that the transaction has ended. Returns where it was prepared; None if the reader did not see that."""
        where = self.prepared.pop(xid, None)
        if where is None or xid in self.sought:
            self.ended.add(xid)
        return where

    def after(self, older: Self) -> Self:
        """The transactions that are prepared at this place, whether or not the reader saw their XA PREPARE.

        `older`: the transactions that were prepared where the reader began.
        """
        still_prepared = {xid: where for xid, where in older.prepared.items() if xid not in self.ended}
        return type(self)(still_prepared | self.prepared, self.ended | older.ended)

    def to_json(self) -> list[Any]:
        """A JSON document that `from_json` reads back: the prepared transactions, without the ended ones."""
        return [
            [
                [xid.global_part.hex(), xid.branch.hex(), xid.format],
                [str(where.start), str(where.stop)],
                None if where.tables is None else sorted([table.database, table.name] for table in where.tables),
            ]
            for xid, where in self.prepared.items()
        ]

    @classmethod
    def from_json(cls, doc: Sequence[Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable or an error of `errors.DAMAGED` for another document."""
        return cls({_xid(*xid): _prepared(start, stop, tables) for xid, (start, stop), tables in doc})


@dataclass(frozen=True, slots=True)
class PreparedAt:
    """The transactions that are prepared at a position, without those that were prepared before the spool began."""

    at: FilePosition
    prepared: Mapping[Xid, Prepared]


def _xid(global_part: str, branch: str, format_: int) -> Xid:
    return Xid(bytes.fromhex(global_part), bytes.fromhex(branch), int(format_))


def _prepared(start: str, stop: str, names: Sequence[tuple[str, str]] | None) -> Prepared:
    tables = None if names is None else frozenset(TableId(*name) for name in names)
    return Prepared(FilePosition.parse(start), FilePosition.parse(stop), tables)
