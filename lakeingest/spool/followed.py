"""DDL that the copy of a table has followed: what a reader of the changelog needs, to do the same with its rows.

It is part of the manifest of the segment that is the DDL, from before the copy is lifted on. The rows of the segments
before it have the definition `before`, those of the segments after it the definition `after`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyarrow import ipc

from lakeingest.core.alteration import Alteration
from lakeingest.core.history import Committed
from lakeingest.core.lift import Lift
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.state.definition import schema_from_json, schema_to_json


@dataclass(frozen=True, slots=True)
class Followed:
    """How the copy came over DDL, and the transaction that the DDL is.

    `origins` has for each column of `after` its name before; None: it is new, and old rows have in it what
    `fills` says, else NULL.
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
        """The lift over DDL: `last` is its transaction as the history has it, `transactions` the file that has it."""
        try:
            with files.parquet(transactions) as opened:
                [row] = opened.read().to_pylist()
        except (OSError, pa.ArrowException, ValueError) as error:
            raise StateUnreadable(f"{transactions} of the spool cannot be read: {error}") from error
        place, gtid = Place(row["epoch"], row["file"], row["pos"]), None if last is None else last.gtid
        return cls(lift.before, lift.after, lift.origins, fills, place, row["committed_at"], gtid)

    @property
    def read_to(self) -> ReadTo:
        """Where a reader is who has read it: DDL is a transaction of its own, without any row."""
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
        """The inverse of `to_json`; KeyError, TypeError or ValueError for anything else."""
        return cls(
            schema_from_json(doc["before"]),
            schema_from_json(doc["after"]),
            tuple(doc["origins"]),
            _unpacked(doc["fills"]),
            Place.parse(doc["place"]),
            datetime.fromisoformat(doc["committed_at"]),
            doc["gtid"],
        )


@dataclass(frozen=True, slots=True)
class Altered:
    """DDL as a part of the changelog: what it changed, and how the copy followed it."""

    alteration: Alteration
    followed: Followed


def _packed(fills: Mapping[str, pa.Scalar]) -> str:
    """One row of these values, in Arrow's stream format and base64: exact for each type."""
    row = pa.table({name: pa.repeat(value, 1) for name, value in fills.items()})
    out = pa.BufferOutputStream()
    with ipc.new_stream(out, row.schema) as stream:
        stream.write_table(row)
    return base64.b64encode(out.getvalue().to_pybytes()).decode()


def _unpacked(text: str) -> dict[str, pa.Scalar]:
    with ipc.open_stream(base64.b64decode(text, validate=True)) as stream:
        row = stream.read_all()
    return {name: row[name][0] for name in row.column_names}
