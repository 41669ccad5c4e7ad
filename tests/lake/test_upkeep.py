"""Maintenance by hand, of every format: the rows stay, what nobody needs goes, and nothing of a live commit is lost."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote as encode

import pytest

from lakeingest.config import Config
from lakeingest.errors import StaleWriter
from lakeingest.lake.target import Staged
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats]

DAY = timedelta(days=1)


def merged(lake: Lake, numbers: range) -> Staged:
    """A published table with a small file and a file of deletes for each number."""
    staged = lake.published(*((number, "old") for number in range(100)))
    for number in numbers:
        change = [(number, "new", False), (number + 50, None, True)]
        staged = lake.publish(lake.merge(lake.loaded(), *change, pos=30 + number))
    return staged


def age(files: Iterator[Path], by: timedelta) -> None:
    """Let files look as if they had been written so long ago."""
    moment = time.time() - by.total_seconds()
    for file in files:
        os.utime(file, (moment, moment))


def folder_of(lake: Lake, config: Config) -> Path:
    """Where the table's leftovers are: its own folder, or that of its staging."""
    if config.target.format == "hudi":
        return config.state.path / "staging" / encode(str(lake.table), safe=" ")
    [folder] = config.target.warehouse.path.glob(f"{lake.table.database}/{lake.table.name}-*")
    return folder


@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_maintenance_changes_no_row(lake: Lake, lake_format: str) -> None:
    """It is one commit that carries the progress; readers see the same rows before its publish and after it."""
    merged(lake, range(5))
    before, staged, size = lake.seen(), lake.loaded(), lake.open().inventory(lake.table)
    tidy = lake.open().maintain(staged)
    assert (tidy.version != staged.version, tidy.progress) == (True, staged.progress)
    assert lake.loaded() == tidy
    assert lake.rows(tidy) == before
    assert lake.seen() == before
    lake.publish(tidy)
    assert lake.seen() == before
    after = lake.open().inventory(lake.table)
    if lake_format == "iceberg":
        assert (size.files, size.deletes) == (6, 5)
        assert (after.files, after.deletes) == (1, 0)
        assert lake.open().maintain(lake.loaded()) == lake.loaded()  # there is nothing left to do
    merge = lake.publish(lake.merge(lake.loaded(), (1, "later", False), (2, None, True), pos=90))
    expected = [(1, "later") if key == 1 else (key, text) for key, text in before if key != 2]
    assert lake.rows(merge) == lake.seen() == expected


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_run_that_is_killed_before_the_publish_loses_nothing(lake: Lake) -> None:
    """The commit stays on staging, and the next run goes on from it."""
    merged(lake, range(3))
    before = lake.seen()
    lake.open().maintain(lake.loaded())
    staged = lake.merge(lake.loaded(), (7, "after", False), pos=80)
    lake.publish(staged)
    assert lake.seen() == [(key, "after" if key == 7 else text) for key, text in before]


@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_a_stale_maintenance_is_refused(lake: Lake) -> None:
    """A zombie that tidies up what another run has merged meanwhile changes nothing."""
    stale = merged(lake, range(3))
    current = lake.merge(lake.loaded(), (9, "theirs", False), pos=80)
    with pytest.raises(StaleWriter):
        lake.open().maintain(stale)
    assert lake.loaded() == current


@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_only_old_leftovers_are_removed(lake: Lake, lake_config: Config) -> None:
    """What a killed task left goes when it is old enough, whatever its age a file that is referred to stays."""
    merged(lake, range(3))
    staged = lake.merge(lake.loaded(), (9, "staged", False), pos=80)
    rows, folder, target = lake.seen(), folder_of(lake, lake_config), lake.open()
    orphan = target.writer(lake.table).write(lake.arrow([(1, "killed")]))
    assert orphan
    assert target.remove_leftovers(lake.table, DAY) == (0, 0)
    before = {path for path in folder.rglob("*") if path.is_file()}
    age(iter(before), 2 * DAY)
    removed, freed = target.remove_leftovers(lake.table, DAY)
    left = {path for path in folder.rglob("*") if path.is_file()}
    assert (removed, len(before - left)) == (1, 1)
    assert freed > 0
    assert lake.rows(staged) == [(key, "staged" if key == 9 else text) for key, text in rows]
    lake.publish(staged)
    assert lake.seen() == lake.rows(staged)
