"""DDL that the copy of a table has followed, for readers of the changelog, who follow the DDL with their rows.

A record of the DDL is stored in its segment's manifest, before the copy is lifted. Segments before the DDL have rows
of the definition `before`, segments after the DDL have rows of the definition `after`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyarrow import ipc

from lakeingest.core.binlog.history import Committed
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.state.definition import schema_from_json, schema_to_json


@dataclass(frozen=True, slots=True)
class Followed:
    """How a copy followed DDL. `place`, `committed_at` and `gtid` are those of the DDL's transaction.

    `origins` has the old name of each column of `after`, None for a new column. `fills` has the values of new columns
    in old rows; a new column that `fills` does not name is NULL there.
    """

    before: TableSchema
    after: TableSchema
    origins: tuple[str | None, ...]
    fills: Mapping[str, pa.Scalar]
    place: Place
    committed_at: datetime
    gtid: str | None

    @classmethod
    def of(cls, lift: Lift, fills: Mapping[str, pa.Scalar], last: Committed | None, transactions: File) -> Self:
        """The record of a lift over DDL.

        `last` is the DDL's transaction as the history has it, or None if the history does not have it. `transactions`
        is the file with the transactions of the DDL's segment. Raises StateUnreadable if this file cannot be read, or
        has not exactly one transaction.
        """
        try:
            with files.parquet(transactions) as opened:
                [row] = opened.read().to_pylist()  # a ValueError unless the file has exactly one row
        except (OSError, pa.ArrowException, ValueError) as error:
            raise StateUnreadable(f"{transactions} of the spool cannot be read: {error}") from error
        place = Place(row["epoch"], row["file"], row["pos"])
        gtid = None if last is None else last.gtid
        return cls(lift.before, lift.after, lift.origins, fills, place, committed_at=row["committed_at"], gtid=gtid)

    @property
    def read_to(self) -> ReadTo:
        """The position of a reader that has read the DDL, which is a transaction of its own without rows."""
        return ReadTo(self.place, 0)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "before": schema_to_json(self.before),
            "after": schema_to_json(self.after),
            "origins": list(self.origins),
            "fills": _packed(self.fills),
            "place": str(self.place),
            "committed_at": self.committed_at.isoformat(),
            "gtid": self.gtid,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`.

        Raises StateUnreadable, OSError or an error of `errors.DAMAGED` for another document.
        """
        return cls(
            before=schema_from_json(doc["before"]),
            after=schema_from_json(doc["after"]),
            origins=tuple(doc["origins"]),
            fills=_unpacked(doc["fills"]),
            place=Place.parse(doc["place"]),
            committed_at=datetime.fromisoformat(doc["committed_at"]),
            gtid=doc["gtid"],
        )


@dataclass(frozen=True, slots=True)
class Altered:
    """DDL in the changelog: what it changed, and how the copy followed it."""

    alteration: Alteration
    followed: Followed


def _packed(fills: Mapping[str, pa.Scalar]) -> str:
    """These values as one row in Arrow's stream format and in base64, because that is exact for each type."""
    row = pa.table({name: pa.repeat(value, 1) for name, value in fills.items()})
    out = pa.BufferOutputStream()
    with ipc.new_stream(out, row.schema) as stream:
        stream.write_table(row)
    return base64.b64encode(out.getvalue().to_pybytes()).decode()


def _unpacked(text: str) -> dict[str, pa.Scalar]:
    """The inverse of `_packed`."""
    with ipc.open_stream(base64.b64decode(text, validate=True)) as stream:
        row = stream.read_all()
    return {name: row[name][0] for name in row.column_names}
