"""What `maintain` leaves of a copy with deleted rows, and which readers read copies with many vectors alike."""

import random
from collections.abc import Callable

import pytest
from pyiceberg.table import Table

from tests.lake.iceberg.test_version_3 import Make, changed, listed, make, opened, random_changes
from tests.lake.iceberg.third import entries, read_by_duckdb, read_by_pyiceberg
from tests.lake.steps import Lake

__all__ = ["make", "opened"]  # fixtures
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("version", ["2", "3"])
def test_maintenance_leaves_no_deleted_row(make: Make, opened: Callable[[Lake], Table], version: str) -> None:
    """Also if there is one in a thousand."""
    lake, rows = make(version), dict.fromkeys(range(1_000), "a")
    lake.published(*rows.items())
    changed(lake, rows, {2: None}, 30)
    lake.publish(lake.open().maintain(lake.loaded()))
    files, deletes = entries(opened(lake))
    assert (len(files), deletes) == (1, [])
    assert read_by_pyiceberg(opened(lake)) == listed(rows)


def test_a_history_of_many_vectors_is_read_alike_by_duckdb(make: Make, opened: Callable[[Lake], Table]) -> None:
    """Its cache of files confuses vectors that stand in one file: each has a file of its own."""
    lake, rows, chance = make(), dict.fromkeys(range(3_000), "a"), random.Random(3)
    lake.published(*rows.items())
    for number in range(12):
        changed(lake, rows, random_changes(chance, 3_000, 60, f"v{number}"), 100 + number)
        files = [entry.data_file.file_path for entry in entries(opened(lake))[1]]
        assert len(set(files)) == len(files)
    assert read_by_duckdb(opened(lake)) == listed(rows)
