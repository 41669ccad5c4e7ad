"""The least key that readers of a copy have had before them, read from the files of its format and nothing else."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

from lakeingest.core.tables.schema import TableId

_ADDED, _ROWS = 1, 0  # of an entry of a manifest, and of a manifest's content


class Iceberg:
    """A table of the catalog in a warehouse's `catalog.db`. Each snapshot of main is read once."""

    def __init__(self, warehouse: Path, table: TableId, key: str) -> None:
        self._catalog, self._table, self._key = f"file:{warehouse}/catalog.db?mode=ro", table, key
        self._read = ""
        self._snapshots = set[int]()
        self._least: int | None = None

    def least_key(self) -> int | None:
        """The least key that any published snapshot has added; None before there is one."""
        with closing(sqlite3.connect(self._catalog, uri=True, timeout=10)) as catalog:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            rows = catalog.execute(query, (self._table.database, self._table.name)).fetchall()
        if rows and rows[0][0] != self._read:
            self._read = rows[0][0]
            document = json.loads(_path(self._read).read_bytes())
            keys = [
                key for snapshot in self._new(document) for key in _added_keys(snapshot, _field(document, self._key))
            ]
            self._least = min([*keys, *([] if self._least is None else [self._least])], default=None)
        return self._least

    def _new(self, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The snapshots of main that were not read before, the newest first."""
        by_id = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
        snapshot = by_id.get(document["current-snapshot-id"])
        while snapshot is not None and snapshot["snapshot-id"] not in self._snapshots:
            self._snapshots.add(snapshot["snapshot-id"])
            yield snapshot
            snapshot = by_id.get(snapshot.get("parent-snapshot-id"))


def _field(document: dict[str, Any], name: str) -> int:
    """The id of a column."""
    [schema] = [one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"]]
    return next(int(field["id"]) for field in schema["fields"] if field["name"] == name)


def _added_keys(snapshot: dict[str, Any], field: int) -> Iterator[int]:
    """The least key of each data file that a snapshot added; it is a decimal, so its bytes have the high ones first."""
    for manifest in _avro(snapshot["manifest-list"]):
        if manifest["content"] == _ROWS and manifest["added_snapshot_id"] == snapshot["snapshot-id"]:
            for entry in _avro(manifest["manifest_path"]):
                if entry["status"] == _ADDED:
                    bounds = {bound["key"]: bound["value"] for bound in entry["data_file"]["lower_bounds"]}
                    yield int.from_bytes(bounds[field], "big", signed=True)


class Hudi:
    """A table in a folder. Each completed commit is read once."""

    def __init__(self, warehouse: Path, table: TableId, key: str) -> None:
        self._folder, self._key = warehouse / table.database / table.name, key
        self._commits = set[str]()
        self._least: int | None = None

    def least_key(self) -> int | None:
        """The least key of any file of a completed commit; None before there is one."""
        for commit in (self._folder / ".hoodie" / "timeline").glob("*_*commit"):
            if commit.name not in self._commits:
                self._commits.add(commit.name)
                [metadata] = _avro(str(commit))
                written = [
                    stat["path"] for stats in (metadata["partitionToWriteStats"] or {}).values() for stat in stats
                ]
                keys = [key for path in written for key in self._keys(self._folder / path)]
                self._least = min([*keys, *([] if self._least is None else [self._least])], default=None)
        return self._least

    def _keys(self, file: Path) -> Iterator[int]:
        metadata = pq.read_metadata(file)
        column = metadata.schema.to_arrow_schema().get_field_index(self._key)
        for group in range(metadata.num_row_groups):
            if (statistics := metadata.row_group(group).column(column).statistics) is not None:
                yield int(statistics.min)


def _avro(location: str) -> list[dict[str, Any]]:
    with _path(location).open("rb") as file:
        return list(fastavro.reader(file))  # type: ignore[arg-type] # records


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
