"""What a Hudi table does whose files are damaged: a stop by name, and nothing is published on it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite, NotOurTable, StateUnreadable
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.hudi import timeline
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.statement import session_settings
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

DAMAGES: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut short": lambda file: file.write_bytes(file.read_bytes()[:-1]),
}


def folder(lake: Lake) -> Local:
    """Where readers find the table."""
    return Local(lake.settings.folder(lake.table).path)


def commits(lake: Lake) -> list[Path]:
    """The completed commits of the timeline, the oldest first."""
    return sorted((folder(lake) / ".hoodie" / "timeline").glob("*_*.commit"))


def written(lake: Lake, commit: Path) -> list[Path]:
    """The files that a commit wrote."""
    with commit.open("rb") as opened:
        metadata: Any = next(iter(fastavro.reader(opened)))
    return [folder(lake) / one["path"] for files in metadata["partitionToWriteStats"].values() for one in files]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.long("commits to Hudi many times", only=("gone", "cut short"))
def test_a_damaged_file_of_the_table_stops_it(lake: Lake, damage: str) -> None:
    """It is found when the table is loaded, and before a publish; with the file restored the table goes on."""
    lake.published((1, "a"), (2, "b"))
    staged = lake.merge(lake.loaded(), (1, "A", False), pos=30)
    file = written(lake, commits(lake)[0])[0]
    whole = file.read_bytes()
    DAMAGES[damage](file)
    for step in (lake.open().recover, lake.open().inspect):
        with pytest.raises(StateUnreadable, match=rf"{lake.table}: {file} (is|has) .* remove {folder(lake)} to copy"):
            step(lake.table)
    with pytest.raises(StateUnreadable, match=f"{file} .*nothing is published on it"):
        lake.publish(staged)
    assert len(commits(lake)) == 1
    file.write_bytes(whole)
    lake.publish(staged)
    assert lake.seen() == [(1, "A"), (2, "b")]


@pytest.mark.long("commits to Hudi many times")
def test_a_damaged_file_that_was_replaced_since_does_no_harm(lake: Lake) -> None:
    """Readers of the newest commit do not need it, and the next publish neither."""
    lake.published((1, "a"))
    lake.publish(lake.merge(lake.loaded(), (1, "b", False), pos=30))
    for file in written(lake, commits(lake)[0]):
        file.write_bytes(b"")
    lake.publish(lake.merge(lake.loaded(), (1, "c", False), pos=40))
    assert lake.seen() == [(1, "c")]


def test_a_table_with_a_damaged_file_is_copied_again_once_its_folder_is_removed(lake: Lake) -> None:
    """That is what the message names as the last resort."""
    lake.published((1, "a"))
    written(lake, commits(lake)[0])[0].unlink()
    shutil.rmtree(folder(lake))
    assert lake.open().recover(lake.table) is None
    lake.publish(lake.open().mark(lake.copied((1, "new")), lake.leveled(lake.loaded(), 40)))
    assert lake.seen() == [(1, "new")]


@pytest.mark.long("commits to Hudi many times")
def test_a_commit_with_a_damaged_file_may_be_rolled_back(lake: Lake) -> None:
    """Hudi's own procedure takes the newest commit back; the table goes on from the one before it."""
    lake.published((1, "a"), pos=20)
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (2, "b", False), pos=30))
    commit = commits(lake)[-1]
    written(lake, commit)[0].write_bytes(b"")
    instant, name = commit.name.partition("_")[0], f"damaged_{lake.table.name}"
    with pytest.raises(StateUnreadable, match=f"it is of commit {instant}"):
        lake.open().recover(lake.table)
    lake.spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{folder(lake).as_uri()}'")
    with session_settings(lake.spark, {"hoodie.metadata.enable": "false"}):  # else it reads the damaged file first
        lake.spark.sql(f"CALL rollback_to_instant(table => '{name}', instant_time => '{instant}')").collect()
    lake.spark.sql(f"DROP TABLE {name}")
    position = lake.loaded().progress.position
    assert position is not None
    assert str(position.at) == "binlog.000001:20"
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "A"), (2, "b")]


def test_a_damaged_commit_of_the_table_is_named_for_any_bytes(lake: Lake, tmp_path: Local) -> None:
    """Bytes that are cut, changed, zeroed or random are never an internal error."""
    lake.published((1, "a"))
    [commit] = commits(lake)
    whole, random = commit.read_bytes(), Random(1)
    file = tmp_path / ".hoodie" / "timeline" / commit.name
    file.parent.mkdir(parents=True)
    refused = 0
    for _ in range(1000):
        broken, at = bytearray(whole), random.randrange(len(whole))
        length = random.choice([1, 3, 200])
        broken[at : at + length] = random.choice([b"", bytes(length), random.randbytes(length)])
        file.write_bytes(broken)
        try:
            our_last_commit(TableId("another", "table"), tmp_path)
        except StateUnreadable:
            refused += 1
        except NotOurTable:  # its properties could be read
            continue
    assert refused > 500


def test_a_table_that_someone_emptied_stops(lake: Lake) -> None:
    """TRUNCATE leaves no commit: a copy is not made in its place unseen, nor merged into what is left of it."""
    lake.published((1, "a"))
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    name = f"emptied_{lake.table.name}"
    lake.spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{folder(lake).as_uri()}'")
    lake.spark.sql(f"TRUNCATE TABLE {name}")
    lake.spark.sql(f"DROP TABLE {name}")
    for step in (lake.open().recover, lake.open().inspect):
        with pytest.raises(ForeignWrite, match=f"{lake.table}: {folder(lake)} has no commit.* remove it to copy"):
            step(lake.table)
    with pytest.raises(ForeignWrite, match=str(lake.table)):
        lake.publish(staged)
    shutil.rmtree(folder(lake))
    assert lake.open().recover(lake.table) is None


@pytest.mark.long("commits to Hudi many times")
def test_a_commit_that_is_archived_while_the_table_is_looked_at_is_no_damage(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` looks while a run publishes: a name of the timeline may be gone before its file is read."""
    lake.published((1, "a"))
    lake.publish(lake.merge(lake.loaded(), (1, "b", False), pos=30))
    first = commits(lake)[0]

    def archiving(path: File) -> list[tuple[str, str, File]]:
        names = timeline.commits_of(path)
        first.unlink()
        return names

    with monkeypatch.context() as patch:
        patch.setattr("lakeingest.lake.hudi.file_groups.commits_of", archiving)
        found = lake.open().inspect(lake.table)
    assert found == lake.loaded()
