"""Worn copies are tidied without being asked, as far as their commits have paid for it: the rows stay."""

import random
from collections.abc import Callable

import pytest
from pyiceberg.table import Table

from lakeingest.core.copies import wear
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.iceberg.tables.history import MAIN, tip
from lakeingest.lake.iceberg.tables.wear import PAID, wear_of
from tests.lake.iceberg.test_version_3 import Make, changed, listed, make, opened, random_changes
from tests.lake.iceberg.third import entries, read_by_duckdb, read_by_pyiceberg
from tests.lake.steps import Lake

__all__ = ["make", "opened"]  # fixtures
pytestmark = pytest.mark.spark


def noted(table: Table) -> int:
    """Up to which commit the credit is spent, by the commit that readers see."""
    summary = tip(table, MAIN).summary
    assert summary is not None
    return int(summary.additional_properties[PAID])


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.long("another version of the format", only=("2",))
def test_a_worn_copy_is_tidied_for_what_its_commits_have_paid(
    make: Make, opened: Callable[[Lake], Table], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Each fourth commit looks; a look without enough credit changes nothing; a tidying spends the credit."""
    monkeypatch.setattr(wear, "LOOK_EVERY", 4)
    monkeypatch.setattr(wear, "ROWS_A_COMMIT", 5)
    monkeypatch.setattr(compaction, "SMALL_ROWS", 100)
    lake, rows, chance = make(version), dict.fromkeys(range(400), "a"), random.Random(1)
    lake.published(*rows.items())
    looks = tidied = 0
    for number in range(24):
        staged = changed(lake, rows, random_changes(chance, 400, 6, f"v{number}"), 100 + number)
        if not staged.worn:
            continue
        looks += 1
        before = opened(lake)
        again = lake.open().maintain(lake.loaded(), unasked=True)
        if again.version == staged.version:
            assert noted(opened(lake)) == noted(before)
            continue
        tidied += 1
        assert lake.seen() == listed(rows)  # readers see the commit before, with the same rows
        lake.publish(again)
        found = opened(lake)
        old, new = wear_of(before.metadata, staged.version), wear_of(found.metadata, again.version)
        assert new.commits <= old.commits + 1  # the credit is not given again
        assert (new.files, new.dead) < (old.files, old.dead)
        assert read_by_pyiceberg(found) == read_by_duckdb(found) == listed(rows)
        assert not lake.open().maintain(lake.loaded(), unasked=True).worn
    assert looks > tidied > 0
    assert lake.seen() == listed(rows)


def test_a_tidying_that_somebody_asks_for_leaves_no_dead_rows(make: Make, opened: Callable[[Lake], Table]) -> None:
    """Also if there is one in a thousand; it spends all the credit, however little that is."""
    lake, rows = make(), dict.fromkeys(range(1_000), "a")
    lake.published(*rows.items())
    changed(lake, rows, {2: None}, 30)
    lake.publish(lake.open().maintain(lake.loaded()))
    files, deletes = entries(opened(lake))
    assert (len(files), deletes) == (1, [])
    assert wear_of(opened(lake).metadata, tip(opened(lake), MAIN).snapshot_id).commits == 1  # its own
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
