"""A program that knows nothing of lakeingest, and replays the table of a changelog by the rules of its page.

Rows are taken in the order of `_lakeingest_number`. RESET and TRUNCATE empty the table, +I and +U put a row, -U and -D
take it away, and DDL gives all rows other columns.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakeingest.config import Target
from lakeingest.core.tables.schema import TableId
from tests.lake.shown import catalog_of

OWN = "_lakeingest_"
Rows = dict[tuple[Any, ...], dict[str, Any]]
Replayed = list[dict[str, Any]]


def log_of(target: Target, table: TableId) -> list[dict[str, Any]]:
    """All rows of the table of a changelog, by PyIceberg, in their order."""
    with catalog_of(target) as catalog:
        rows = catalog.load_table(target.identifier(TableId(table.database, f"{table.name}__changelog"))).scan()
        found: pa.Table = rows.to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["_lakeingest_number"])


def versions_of(target: Target, table: TableId) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What readers of a copy see or saw: for each place the last version, with the rows of it."""
    with catalog_of(target) as catalog:
        loaded = catalog.load_table(target.identifier(table))
        versions = dict[str, int]()
        for entry in loaded.metadata.snapshot_log:
            snapshot = loaded.snapshot_by_id(entry.snapshot_id)
            if snapshot is not None and snapshot.summary is not None and snapshot.summary["lakeingest.position"]:
                versions[snapshot.summary["lakeingest.position"]] = snapshot.snapshot_id
        for place, version in versions.items():
            yield place, loaded.scan(snapshot_id=version).to_arrow().to_pylist()


def replayed(
    log: Iterable[Mapping[str, Any]], place: str | None = None, *, strict: bool = True
) -> list[dict[str, Any]]:
    """The table as of a place, the end of a transaction; None: as of the last row of the log.

    `strict`: a change of the binlog takes away exactly the row that is there, and puts one only where none is.
    """
    rows: Rows = {}  # by key; each row by the columns of the log
    key: list[str] = []
    columns: dict[str, str] = {}  # of the table: the column of the log
    for row in log:
        if place is not None and row[f"{OWN}position"] > place:
            continue
        op = row[f"{OWN}op"]
        if op in {"RESET", "TRUNCATE"}:
            rows = {}
        if op in {"RESET", "DDL"}:
            doc = json.loads(row[f"{OWN}ddl"])
            key, columns = doc["key"], {each["name"]: each["column"] for each in doc["columns"]}
            if op == "DDL":
                rows = _lifted(rows, doc, row)
        if op in {"RESET", "TRUNCATE", "DDL"}:
            continue
        values = {column: row[column] for column in columns.values()}
        name = tuple(values[columns[part]] for part in key)
        is_change = strict and row[f"{OWN}origin"] == "binlog"
        if op in {"+I", "+U"}:
            assert not is_change or name not in rows, row
            rows[name] = values
        else:
            assert not is_change or rows[name] == values, (row, rows.get(name))
            rows.pop(name, None)
    return [{name: rows[each][column] for name, column in columns.items()} for each in sorted(rows)]


def _lifted(rows: Rows, doc: Mapping[str, Any], ddl: Mapping[str, Any]) -> Rows:
    """All rows with the columns after DDL. A column has the value of the one that it was, a new one that of `ddl`."""
    key = [each["column"] for name in doc["key"] for each in doc["columns"] if each["name"] == name]
    lifted: Rows = {}
    for old in rows.values():
        new = {
            each["column"]: ddl[each["column"]] if each["was"] is None else old[each["was"]] for each in doc["columns"]
        }
        lifted[tuple(new[column] for column in key)] = new
    return lifted


def assert_log_is_right(target: Target, table: TableId) -> int:
    """The log, replayed to the place of each version that readers of the copy can read, is that version.

    Returns the number of these versions.
    """
    log, checked = log_of(target, table), 0
    numbers = [row["_lakeingest_number"] for row in log]
    assert len(set(numbers)) == len(numbers)
    for place, rows in versions_of(target, table):
        found = replayed(log, place)
        names = sorted(found[0]) if found else []
        wanted = [{name: row[name] for name in names} for row in rows]
        assert sorted(map(repr, found and [{name: row[name] for name in names} for row in found])) == sorted(
            map(repr, wanted)
        ), place
        checked += 1
    return checked
