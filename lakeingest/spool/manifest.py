"""A manifest: the document that makes a segment of the binlog part of the spool."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.copies.prepared import Pending
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.core.file_names import inside
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.spool.followed import Followed


@dataclass(frozen=True, slots=True)
class Manifest:
    """One spooled segment: its part of the binlog, the tables that it watches, and the names of its files.

    The names are relative to the spool's folder. `tables` names every watched table, with its file and row count, or
    with None if the segment has no change of the table. `nulled` counts the values in new rows that are NULL by the
    user's choice. `history` identifies the binlog at `stop`; None if it is not known.

    `alterations` names the tables that a segment of DDL alters. Such a segment has no other transaction, and does not
    watch these tables. `followed` tells how copies of these tables followed the DDL.

    `pending` are the XA transactions that are prepared at `stop`, as far as the spool knows; None if it does not
    know. `lacks_cascades`: the source can log what foreign keys change, but did not.
    """

    start: FilePosition
    stop: FilePosition
    gtids: GtidSet
    transactions: str
    tables: Mapping[TableId, tuple[str, int] | None]
    nulled: Mapping[TableId, int] = field(default_factory=dict)
    history: History | None = None
    alterations: Mapping[TableId, Alteration] = field(default_factory=dict)
    pending: Pending | None = None
    lacks_cascades: bool = False
    followed: Mapping[TableId, Followed] = field(default_factory=dict)

    def rows_of(self, table: TableId) -> int:
        """The number of change rows of the table; 0, too, if the segment does not watch it."""
        file_and_rows = self.tables.get(table)
        return 0 if file_and_rows is None else file_and_rows[1]

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        doc: dict[str, Any] = {
            "start": str(self.start),
            "stop": str(self.stop),
            "gtids": str(self.gtids),
            "transactions": self.transactions,
            "tables": {str(table): file for table, file in self.tables.items()},
            "nulled": {str(table): count for table, count in self.nulled.items()},
            "history": None if self.history is None else self.history.to_json(),
        }
        altered = {str(table): alteration.to_json() for table, alteration in self.alterations.items()}
        doc |= {"alterations": altered} if altered else {}
        doc |= {"lacks_cascades": True} if self.lacks_cascades else {}
        followed = {str(table): ddl.to_json() for table, ddl in self.followed.items()}
        doc |= {"followed": followed} if followed else {}
        return doc | ({} if self.pending is None else {"prepared": self.pending.to_json()})

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises as `Followed.from_json` for another document."""
        return cls(
            FilePosition.parse(doc["start"]),
            FilePosition.parse(doc["stop"]),
            GtidSet.parse(doc["gtids"]),
            transactions=inside(str(doc["transactions"])),
            tables={
                TableId.parse(table): None if file is None else (inside(str(file[0])), int(file[1]))
                for table, file in doc["tables"].items()
            },
            nulled={TableId.parse(table): int(count) for table, count in doc.get("nulled", {}).items()},
            history=None if doc.get("history") is None else History.from_json(doc["history"]),
            alterations={
                TableId.parse(table): Alteration.from_json(altered)
                for table, altered in doc.get("alterations", {}).items()
            },
            pending=None if doc.get("prepared") is None else Pending.from_json(doc["prepared"]),
            lacks_cascades=doc.get("lacks_cascades") is True,
            followed={TableId.parse(table): Followed.from_json(ddl) for table, ddl in doc.get("followed", {}).items()},
        )


class Segments(dict[int, Manifest]):
    """Manifests by their numbers. Neighbours that watch the same tables share the names of these tables.

    Otherwise, with 10,000 tables and as many segments, the names take gigabytes.
    """

    def __init__(self, manifests: Mapping[int, Manifest]) -> None:
        super().__init__()
        self._names: Mapping[TableId, None] = {}
        for number, manifest in manifests.items():
            self[number] = manifest

    def __setitem__(self, number: int, manifest: Manifest) -> None:
        if manifest.tables.keys() != self._names.keys():
            self._names = dict.fromkeys(manifest.tables)
        super().__setitem__(number, replace(manifest, tables=_Watched(self._names, manifest.tables)))


class _Watched(Mapping[TableId, tuple[str, int] | None]):
    """The `tables` of a manifest: all `names`, and the files of those that have changes."""

    __slots__ = ("_files", "_names")

    def __init__(self, names: Mapping[TableId, None], tables: Mapping[TableId, tuple[str, int] | None]) -> None:
        self._names = names
        self._files = {table: file for table, file in tables.items() if file is not None}

    def __getitem__(self, table: TableId) -> tuple[str, int] | None:
        return self._files.get(table) or self._names[table]  # None without changes; KeyError if it is not watched

    def __contains__(self, table: object) -> bool:
        return table in self._names

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def manifests_in(folder: File) -> list[File]:
    """The files of a spool's manifests, in the order of their numbers, which `Spool.reach_back` may make negative."""
    return sorted((folder / "segments").listed("*.json"), key=lambda file: int(file.stem))
