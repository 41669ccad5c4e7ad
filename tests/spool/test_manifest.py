"""Manifests in memory: segments share the names of the tables that they watch."""

import pickle
import tracemalloc
from dataclasses import replace

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.tables.schema import TableId
from lakeingest.spool.manifest import Manifest, Segments

Tables = dict[TableId, tuple[str, int] | None]


def manifest(number: int, tables: Tables) -> Manifest:
    """That of one segment of many."""
    start, stop = (FilePosition("binlog.000001", 4 + end) for end in (number, number + 1))
    return Manifest(start, stop, GtidSet(), "data/t.parquet", tables)


def named(count: int, *changed: int) -> Tables:
    """So many tables, of which some have a file; no two calls share an object."""
    return {TableId(f"d{n % 7}", f"t{n}"): (f"data/{n}.parquet", n + 1) if n in changed else None for n in range(count)}


def test_manifests_stay_what_they_are() -> None:
    """Each with its own files, also one that watches other tables; as a document, and for a task."""
    given = {1: manifest(1, named(5, 0, 3)), 2: manifest(2, named(5)), 3: manifest(3, named(4, 1)), 9: manifest(4, {})}
    segments = Segments(given)
    segments[10] = manifest(5, named(5, 2))
    assert dict(segments) == {**given, 10: manifest(5, named(5, 2))}
    assert list(segments) == [1, 2, 3, 9, 10]
    for number, expected in given.items():
        tables = segments[number].tables
        assert dict(tables) == expected.tables
        assert (len(tables), list(tables)) == (len(expected.tables), list(expected.tables))
        assert segments[number].to_json() == expected.to_json()
        assert pickle.loads(pickle.dumps(segments[number])) == expected  # noqa: S301 - our own
    assert TableId("d4", "t4") in segments[1].tables
    assert TableId("d4", "t4") not in segments[3].tables
    assert segments[3].tables.get(TableId("d4", "t4")) is None
    wider = replace(segments[3], tables={**segments[3].tables, TableId("x", "y"): ("data/y.parquet", 7)})
    assert wider.tables == {**named(4, 1), TableId("x", "y"): ("data/y.parquet", 7)}


def test_memory_grows_with_changes_and_not_with_tables() -> None:
    """200 segments of 1,000 tables with one change each take less than 2 bytes for each table that has none."""
    tracemalloc.start()
    try:
        segments = Segments({})
        segments[0] = manifest(0, named(1_000, 1))
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, 201):
            segments[number] = manifest(number, named(1_000, 1))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 200 < 2_000
