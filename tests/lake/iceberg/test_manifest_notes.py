"""A run that begins checks the files of manifests that it need not read again, nor their list."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot

from lakeingest.config import Config
from lakeingest.files import file as files
from lakeingest.files.file import File, state_of
from lakeingest.lake.iceberg.commits import audit
from lakeingest.lake.iceberg.files import kept_files
from lakeingest.lake.iceberg.storage import manifest_notes
from tests.lake.iceberg.test_damage import added, empty, local, remove, shorten, start
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark


@pytest.fixture
def notes(lake_config: Config, lake: Lake) -> File:
    """The document of the table's notes."""
    return state_of(lake_config) / "manifests" / f"{lake.table}.json"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The manifests and lists of manifests that are read from now on."""
    names: list[str] = []
    read, read_list = manifest_notes.read_files, kept_files.manifests_read_anew

    def spy(manifest: ManifestFile, *arguments: Any, **options: Any) -> Any:
        names.append(manifest.manifest_path)
        return read(manifest, *arguments, **options)

    def spy_of_lists(snapshot: Snapshot, *arguments: Any) -> Any:
        names.append(snapshot.manifest_list)
        return read_list(snapshot, *arguments)

    monkeypatch.setattr(manifest_notes, "read_files", spy)
    monkeypatch.setattr(audit, "manifests_read_anew", spy_of_lists)
    return names


def manifests(raw: Raw) -> list[Path]:
    """The list of manifests of the commit that readers see, and its manifests."""
    table = raw()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        local(path) for path in (snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(table.io)))
    ]


def test_a_manifest_is_read_once(lake: Lake, reads: list[str]) -> None:
    """By the first run that begins after its commit."""
    start(lake)
    lake.loaded()
    reads.clear()
    lake.loaded()
    assert reads == []
    lake.publish(lake.merge(lake.loaded(), (4, "d", False), pos=40))
    reads.clear()
    lake.loaded()
    assert len(reads) == len(set(reads)) == 2  # the list, and the new manifest


@pytest.mark.parametrize("spoil", [empty, remove, shorten])
def test_a_noted_file_is_missed(lake: Lake, raw: Raw, spoil: Callable[[Path], None]) -> None:
    """A note says which files there must be, not that they are there."""
    first = lake.published((1, "a"), (2, "b"))
    second = lake.publish(lake.merge(lake.loaded(), (9, "c", False), pos=30))
    assert lake.loaded().lost == ""
    lost = added(raw, second)[0]
    spoil(lost)
    again = lake.loaded()
    assert lost.name in again.lost
    assert again.progress.position == first.progress.position


@pytest.mark.parametrize("of_list", [False, True], ids=["manifest", "list"])
@pytest.mark.parametrize("spoil", [empty, remove, shorten])
def test_a_noted_manifest_is_missed(lake: Lake, raw: Raw, spoil: Callable[[Path], None], of_list: bool) -> None:  # noqa: FBT001
    """It is not read, but readers need it."""
    lake.published((1, "a"), (2, "b"))
    before = set(manifests(raw))
    lake.publish(lake.merge(lake.loaded(), (9, "c", False), pos=30))
    assert lake.loaded().lost == ""
    new_list, new_manifest = (file for file in manifests(raw) if file not in before)
    new = new_list if of_list else new_manifest
    spoil(new)
    assert new.name in lake.loaded().lost


@pytest.mark.parametrize(
    "contents", [b"", b"{", b"[]", b"{}", b'{"a": 1}', b'{"a": [["b"]]}', b'{"a": [["b", "c"]]}', b"null"]
)
def test_damaged_notes_are_no_notes(lake: Lake, notes: File, reads: list[str], contents: bytes) -> None:
    """The manifests are read, and noted again."""
    start(lake)
    lake.loaded()
    good = files.document(notes)
    notes.put(contents)
    reads.clear()
    assert lake.loaded().lost == ""
    assert len(reads) == len(good) > 1
    assert files.document(notes) == good


def test_notes_name_manifests_that_the_table_has(lake: Lake, raw: Raw, notes: File) -> None:
    """Those of expired commits are forgotten."""
    start(lake)
    lake.loaded()
    notes.put_document({**files.document(notes), "file:///gone-m0.avro": [["file:///gone.parquet", 1]]})
    lake.publish(lake.merge(lake.loaded(), (4, "d", False), pos=40))
    lake.loaded()
    assert {local(path) for path in files.document(notes)} == set(manifests(raw))


def test_a_manifest_of_many_files_is_not_noted(
    lake: Lake, notes: File, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document stays small: a manifest for which it has no room is read each time."""
    monkeypatch.setattr(manifest_notes, "MOST_FILES", 1)
    start(lake)
    lake.loaded()
    assert len(files.document(notes)) == 1
    reads.clear()
    assert lake.loaded().lost == ""
    assert reads
