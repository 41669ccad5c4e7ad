"""Files of an Iceberg table that are gone or damaged: nothing is published, the next run goes back to what is whole.

And that a power loss leaves none: each file is on the disk before anything refers to it.
"""

import os
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.splits import Split
from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.commits import audit
from lakeingest.lake.iceberg.files.data_files import as_integers
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.target import Staged
from tests.faults.catalog_commits import at_commits
from tests.lake.steps import START, Lake, Raw, Row

pytestmark = pytest.mark.spark

Spoil = Callable[[Path], None]


def empty(file: Path) -> None:
    """As a power loss leaves a file that was not synced."""
    file.write_bytes(b"")


def remove(file: Path) -> None:
    """As one leaves a folder that was not synced."""
    file.unlink()


def shorten(file: Path) -> None:
    """Its last byte is missing."""
    os.truncate(file, file.stat().st_size - 1)


spoils = pytest.mark.parametrize("spoil", [empty, remove])


def local(location: str) -> Path:
    """The file of a URI."""
    return Path(unquote(urlsplit(location).path))


def added(raw: Raw, staged: Staged) -> list[Path]:
    """The files of rows and of deletes that a commit added."""
    table = raw()
    snapshot = table.snapshot_by_id(staged.version)
    assert snapshot is not None
    entries = (entry for one in snapshot.manifests(table.io) for entry in one.fetch_manifest_entry(table.io))
    return [local(one.data_file.file_path) for one in entries if one.snapshot_id == staged.version]


def start(lake: Lake) -> Staged:
    """A table that was published twice."""
    lake.published((1, "a"), (2, "b"))
    return lake.publish(lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30))


@pytest.mark.parametrize(("spoil", "which"), [(empty, 0), (remove, 0), (shorten, 0), (remove, 1)])
@pytest.mark.long("one damage in turn", turn=("spoil", "which"))
def test_a_commit_with_a_damaged_file_is_not_published(lake: Lake, raw: Raw, spoil: Spoil, which: int) -> None:
    """Readers keep what they see; the next run drops the commit, and merges its changes again."""
    before = start(lake)
    staged = lake.merge(lake.loaded(), (1, "A", False), (3, None, True), pos=40)
    spoiled = sorted(added(raw, staged), key=lambda file: file.name.endswith("-deletes.parquet"))[which]
    spoil(spoiled)
    with pytest.raises(StateUnreadable, match=f"{lake.table}: .*{spoiled.name}.* not published: run the same command"):
        lake.publish(staged)
    assert lake.seen() == [(1, "a"), (2, "B"), (3, "c")]
    again = lake.loaded()
    assert spoiled.name in again.lost
    assert (again.progress.position, again.published) == (before.progress.position, before.version)
    assert lake.loaded().lost == ""
    lake.publish(lake.merge(again, (1, "A", False), (3, None, True), pos=40))
    assert lake.seen() == [(1, "A"), (2, "B")]


@spoils
def test_a_table_with_a_damaged_file_of_an_older_commit_is_not_published(lake: Lake, raw: Raw, spoil: Spoil) -> None:
    """A merge need not read it. The next run lets readers see the commit before that one, and goes on from there."""
    first = lake.published((1, "a"), (2, "b"))
    second = lake.publish(lake.merge(lake.loaded(), (9, "c", False), pos=30))
    spoil(added(raw, second)[0])
    staged = lake.merge(second, (1, "A", False), pos=40)
    with pytest.raises(StateUnreadable, match="not published"):
        lake.publish(staged)
    again = lake.loaded()
    assert again.lost
    assert again.published == first.version
    assert again.progress.position == first.progress.position
    assert lake.seen() == [(1, "a"), (2, "b")]
    lake.publish(lake.merge(again, (9, "c", False), (1, "A", False), pos=40))
    assert lake.seen() == [(1, "A"), (2, "b"), (9, "c")]


def test_recovery_goes_back_also_if_someone_removed_the_branch_of_lakeingest(lake: Lake, raw: Raw) -> None:
    """To the commit before the damaged one that readers saw: a branch that is gone has nothing newer."""
    first = lake.published((1, "a"), (2, "b"))
    second = lake.publish(lake.merge(lake.loaded(), (9, "c", False), pos=30))
    raw().manage_snapshots().remove_branch(STAGING).commit()
    remove(added(raw, second)[0])
    again = lake.loaded()
    assert again.lost
    assert again.published == first.version
    lake.publish(lake.merge(again, (9, "c", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b"), (9, "c")]


@spoils
@pytest.mark.parametrize("kind", ["snap-*.avro", "*-m0.avro"], ids=["manifest list", "manifest"])
def test_recovery_goes_back_from_a_damaged_manifest(lake: Lake, raw: Raw, spoil: Spoil, kind: str) -> None:
    """Of the last commit of staging."""
    start(lake)
    folder = local(raw().metadata_location).parent
    there = set(folder.glob(kind))
    lake.merge(lake.loaded(), (1, "A", False), pos=40)
    (new,) = set(folder.glob(kind)) - there
    spoil(new)
    again = lake.loaded()
    assert new.name in again.lost
    lake.publish(lake.merge(again, (1, "A", False), pos=40))
    assert lake.seen() == [(1, "A"), (2, "B"), (3, "c")]


@pytest.mark.parametrize(("spoil", "times"), [(empty, 1), (remove, 2)])
def test_recovery_goes_back_from_a_damaged_metadata_json(lake: Lake, raw: Raw, spoil: Spoil, times: int) -> None:
    """The catalog names the newest that can be read; what came after it is merged again."""
    start(lake)
    lake.merge(lake.loaded(), (1, "A", False), pos=40)
    newest = sorted(local(raw().metadata_location).parent.glob("*.metadata.json"))[-times:]
    for file in newest:
        spoil(file)
    again = lake.loaded()
    assert newest[-1].name in again.lost
    assert again.progress.position is not None
    behind = [(2, "B", False), (3, "c", False)] if again.progress.position.at.pos < 30 else []
    lake.publish(lake.merge(again, *behind, (1, "A", False), pos=40))
    assert lake.seen() == [(1, "A"), (2, "B"), (3, "c")]


def test_recovery_never_goes_back_to_metadata_of_a_refused_writer(lake: Lake, raw: Raw) -> None:
    """It lies beside the one that was committed, and nobody but the log of the next one tells them apart."""
    start(lake)
    newest, before = sorted(local(raw().metadata_location).parent.glob("*.metadata.json"), reverse=True)[:2]
    refused = before.read_text().replace("lakeingest.gate", "lakeingest.refused")
    for number in (before.name[:5], newest.name[:5]):
        (before.parent / f"{number}-00000000-refused.metadata.json").write_text(refused)
        (before.parent / f"{number}-ffffffff-refused.metadata.json").write_text(refused)
    remove(newest)
    remove(before)
    assert lake.loaded().lost
    assert "lakeingest.refused" not in raw().properties


def test_an_unpublished_table_is_made_again(lake: Lake, raw: Raw) -> None:
    """When its first file is gone, and so the only wave."""
    lake.copied((1, "a"))
    table = raw(BUILDING)
    for task in table.scan(snapshot_id=table.metadata.refs["lakeingest"].snapshot_id).plan_files():
        remove(local(task.file.file_path))
    loaded = lake.open().recover(lake.table)
    assert loaded is None or not loaded.progress.splits.all


def test_a_table_without_a_complete_commit_stops_with_a_way_out(lake: Lake, raw: Raw) -> None:
    """Copying it again is for a person to decide."""
    start(lake)
    for task in raw().scan().plan_files():
        remove(local(task.file.file_path))
    with pytest.raises(StateUnreadable, match="restore it, or drop the table to copy it again"):
        lake.open().recover(lake.table)


def test_a_table_with_a_key_twice_is_not_published(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two files, where no look at one of them can find it; of a large table a part is compared each time."""
    staged = lake.created()
    target = lake.open()
    writer: Any = target.writer(lake.table)
    parts: list[list[Row]] = [[(1, "a"), (5, "e")], [(5, "e")], [(8, "h"), (9, "i")]]
    files = [writer.write(lake.arrow(part)) for part in parts]
    progress = staged.progress.wave_committed((Split(KeyRange(), START, Place(1, 1, 10)),), 5)
    staged = target.commit_wave(staged, files, progress)
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    with pytest.raises(StateUnreadable, match=rf"{lake.table}: the key \(5,\) is in it twice"):
        lake.publish(staged)
    monkeypatch.setattr(audit, "ROWS", 3)
    found = {audit.repeated_key(raw(BUILDING), staged.version) for _ in range(60)}
    assert found == {None, (5,)}


def test_keys_become_machine_integers_where_all_of_them_fit() -> None:
    """A BIGINT UNSIGNED is a decimal in the lake; a DECIMAL(20,0) may have values that are too large, or negative."""
    greatest = pa.chunked_array([pa.array([2**64 - 1, 0], pa.uint64()).cast(pa.decimal128(20, 0))])
    found = as_integers(greatest)
    assert found is not None
    assert found.to_pylist() == [2**64 - 1, 0]
    for text in ("99999999999999999999", "-1", "1.5"):
        assert as_integers(pa.chunked_array([pa.array([Decimal(text)])])) is None
    assert as_integers(pa.chunked_array([pa.array(["1"])])) is None


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """By inode: the size, or the newest time of change of a folder, as of the last sync."""
    found: dict[int, float] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        found[status.st_ino] = status.st_mtime_ns

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_all_files_are_on_the_disk_before_the_catalog_names_them(
    lake: Lake, raw: Raw, synced: dict[int, float]
) -> None:
    """Data, deletes, manifests, their lists and metadata.json, with their names; and SQLite syncs what it answers."""
    commits: list[int] = []

    def look(connection: sqlite3.Connection) -> None:
        commits.extend(connection.execute("PRAGMA synchronous").fetchone())
        for folder in lake.settings.warehouse.path.glob(f"{lake.table.database}/{lake.table.name}-*"):
            for file in (folder, *folder.rglob("*")):
                status = file.stat()
                assert synced.get(status.st_ino) == status.st_mtime_ns, f"{file} was not synced"

    with at_commits(before=look):
        start(lake)
        lake.merge(lake.loaded(), (1, None, True), pos=40)
    assert len(commits) > 5
    assert set(commits) == {3}  # EXTRA
