"""Old snapshots of an Iceberg table: which of them go, and that what is left can be read."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyiceberg.table import Table

from lakeingest.files.local import Local
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.iceberg.tables.expiry import EXPIRED
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.target import Staged
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

WORTH = 4  # fewer than in use, so that the tests are quick


@pytest.fixture(autouse=True)
def _removes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are removed a few at a time."""
    monkeypatch.setattr(expiry, "WORTH", WORTH)


@pytest.fixture
def short(lake: Lake, tmp_path: Local) -> Lake:
    """A table that keeps its last three published commits, however young the others are."""
    history = lake.settings.history.model_validate({"keep": "0s", "least": 3, "readers": "0s"})
    settings = lake.settings.model_copy(update={"history": history})
    return replace(
        lake, settings=settings, open=lambda: IcebergTarget(settings, waiting=tmp_path, open_spark=lambda: lake.spark)
    )


def publishes(lake: Lake, staged: Staged, numbers: range) -> dict[int, int]:
    """Merge and publish once for each number; the number of each version."""
    target, found = lake.open(), {}
    for number in numbers:
        merged = lake.merge(staged, (number % 7, f"n{number}", False), pos=100 + number, target=target)
        staged = lake.publish(merged, target)
        found[staged.version] = number
    return found


def read(table: Table, version: int) -> dict[int, str]:
    """What a reader of this snapshot sees."""
    return {row["id"]: row["v"] for row in table.scan(snapshot_id=version).to_arrow().to_pylist()}


def expected(number: int) -> dict[int, str]:
    """The rows after the publish of this number."""
    rows = dict.fromkeys(range(7), "a")
    return rows | {one % 7: f"n{one}" for one in range(number + 1)}


def local(location: str) -> Path:
    """The file of a URI."""
    return Path(unquote(urlsplit(location).path))


def files(table: Table) -> set[str]:
    """The names of all files of a table; those of Spark have checksums of Hadoop beside them, which are left out."""
    found = {file.name for file in local(table.location()).rglob("*") if file.is_file()}
    return {name for name in found if not name.endswith(".crc")}


def referenced(table: Table) -> set[str]:
    """The names of all files that a table refers to."""
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        manifests = snapshot.manifests(table.io)
        found |= {snapshot.manifest_list, *(one.manifest_path for one in manifests)}
        found |= {entry.data_file.file_path for one in manifests for entry in one.fetch_manifest_entry(table.io)}
    return {local(one).name for one in found}


def start(lake: Lake) -> Staged:
    """A published table of seven rows."""
    return lake.published(*((key, "a") for key in range(7)))


@pytest.mark.long("makes hundreds of commits")
def test_a_table_does_not_grow_with_its_commits(short: Lake, raw: Raw) -> None:
    """After forty publishes it has as many snapshots, files and bytes of metadata as after twenty."""
    staged = start(short)
    sizes = []
    for first in (0, 20):
        publishes(short, short.loaded() if first else staged, range(first, first + 20))
        table = raw()
        sizes.append((len(table.metadata.snapshots), len(files(table)), local(table.metadata_location).stat().st_size))
    for before, after in zip(*sizes, strict=True):
        assert after < before * 1.4
    assert len(raw().metadata.snapshots) <= 3 + WORTH + 1
    assert len(list(local(raw().location()).rglob("*.metadata.json"))) <= 31
    assert files(raw()) == referenced(raw())


@pytest.mark.long("takes seconds")
def test_every_snapshot_that_is_left_can_be_read(short: Lake, raw: Raw) -> None:
    """The last published ones, those with someone's tag and those on someone's branch; no file of theirs is deleted."""
    versions = publishes(short, start(short), range(5))
    tagged, branched = list(versions)[1], list(versions)[3]
    raw().manage_snapshots().create_tag(tagged, "audit").create_branch(branched, "theirs").commit()
    versions |= publishes(short, short.loaded(), range(5, 17))
    table = raw()
    left = {one.snapshot_id for one in table.metadata.snapshots}
    assert {tagged, branched, *list(versions)[-3:]} <= left
    assert len(left) <= 3 + 2 + WORTH + 1
    for version in left & versions.keys():
        assert read(table, version) == expected(versions[version])
    table.manage_snapshots().remove_tag("audit").remove_branch("theirs").commit()
    versions |= publishes(short, short.loaded(), range(17, 26))
    left = {one.snapshot_id for one in raw().metadata.snapshots}
    assert not {tagged, branched} & left
    assert files(raw()) == referenced(raw())
    for version in left & versions.keys():
        assert read(raw(), version) == expected(versions[version])


@pytest.mark.long("makes dozens of commits")
def test_a_file_of_ours_that_someone_added_to_a_snapshot_of_theirs_stays(
    short: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that snapshot is not the end of a branch, and all that had the file before are removed at once."""
    monkeypatch.setattr(expiry, "WORTH", 24)
    versions = publishes(short, start(short), range(3))
    table = raw()
    [newest, *_] = [one["file_path"] for one in table.inspect.files().to_pylist() if one["content"] == 0]
    root = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(root, "theirs").create_tag(root, "kept").commit()
    for _ in range(2):
        table.add_files([newest], branch="theirs", check_duplicate_files=False)
    theirs = table.metadata.snapshot_by_name("theirs")
    assert theirs is not None
    assert theirs.parent_snapshot_id is not None
    table.manage_snapshots().remove_branch("theirs").commit()
    rows = table.scan(snapshot_id=theirs.parent_snapshot_id).to_arrow().num_rows
    publishes(short, short.loaded(), range(3, 32))
    assert newest not in {one["file_path"] for one in raw().inspect.files().to_pylist()}
    assert not versions.keys() & {one.snapshot_id for one in raw().metadata.snapshots}
    assert raw().scan(snapshot_id=theirs.parent_snapshot_id).to_arrow().num_rows == rows


@pytest.mark.long("takes seconds")
def test_published_commits_are_retained_as_configured(lake: Lake, raw: Raw) -> None:
    """With the default history nothing that readers saw today goes; waves before the first publish do."""
    staged = lake.created()
    for number in range(WORTH + 4):
        staged = lake.wave(staged, [(number, "a")], upper=(number + 1,))
    assert len(raw(BUILDING).metadata.snapshots) <= WORTH + 2
    staged = lake.wave(staged, [(number + 1, "a")])
    staged = lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    versions = publishes(lake, staged, range(8))
    assert versions.keys() <= {one.snapshot_id for one in raw().metadata.snapshots}


def test_a_table_of_an_older_release_gets_the_limits_with_its_next_commit(short: Lake, raw: Raw) -> None:
    """What a user set stays."""
    start(short)
    names = ("write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled")
    with raw().transaction() as transaction:
        transaction.remove_properties(*names)
    short.merge(short.loaded(), (1, "b", False), pos=30)
    assert [raw().properties[name] for name in names] == ["30", "true"]
    with raw().transaction() as transaction:
        transaction.set_properties({names[0]: "3", names[1]: "false"})
    before = files(raw())
    publishes(short, short.loaded(), range(3))
    assert [raw().properties[name] for name in names] == ["3", "false"]
    assert {name for name in before if name.endswith(".metadata.json")} <= files(raw())


@pytest.mark.long("takes seconds")
def test_a_removal_that_was_interrupted_is_finished_by_the_next_one(
    short: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended after the commit and before, or within, the deletion of files."""
    staged = start(short)
    real, calls = expiry._unneeded, []  # noqa: SLF001

    def half(loaded: Table, gone: list[object]) -> list[str]:
        calls.append(len(gone))
        found = real(loaded, gone)  # type: ignore[arg-type]
        for path in found[: len(found) // 2]:
            loaded.io.delete(path)
        raise OSError("the process ended")

    with monkeypatch.context() as patch:
        patch.setattr(expiry, "_unneeded", half)
        publishes(short, staged, range(10))
    assert calls
    assert files(raw()) != referenced(raw())
    assert len(json.loads(raw().properties[EXPIRED])) >= WORTH
    versions = publishes(short, short.loaded(), range(10, 20))
    assert files(raw()) == referenced(raw())
    last = list(versions)[-1]
    assert read(raw(), last) == expected(versions[last])


@pytest.mark.long("takes seconds")
def test_a_tag_that_is_made_at_the_very_moment_is_kept(short: Lake, raw: Raw) -> None:
    """It refers to a snapshot that this commit was about to remove: the commit is made without that."""
    versions = publishes(short, start(short), range(WORTH + 1))
    oldest, target = next(iter(versions)), short.open()
    real: Callable[..., object] = target._finish  # type: ignore[attr-defined] # noqa: SLF001

    def late(table: object, loaded: Table, build: Callable[[Table], object]) -> object:
        prepared = build(loaded)
        raw().manage_snapshots().create_tag(oldest, "late").commit()
        return real(table, loaded, lambda found: prepared if found is loaded else build(found))

    target._finish = late  # type: ignore[attr-defined] # noqa: SLF001
    short.merge(short.loaded(), (1, "x", False), pos=110, target=target)
    assert raw().metadata.refs["late"].snapshot_id == oldest
    assert read(raw(), oldest) == expected(0)
    publishes(short, short.loaded(), range(20, 28))
    assert read(raw(), oldest) == expected(0)


@pytest.mark.long("takes seconds")
def test_snapshots_of_others_that_main_never_pointed_to_stay(short: Lake, raw: Raw) -> None:
    """Someone works on a branch of their own."""
    staged = start(short)
    raw().manage_snapshots().create_branch(staged.version, "theirs").commit()
    for _ in range(2):
        with raw().transaction() as transaction, transaction.update_snapshot(branch="theirs").fast_append():
            pass
    theirs = {one.snapshot_id for one in raw().metadata.snapshots if one.snapshot_id != staged.version}
    theirs = {one for one in theirs if raw().snapshot_by_id(one).summary.additional_properties == {}}  # type: ignore[union-attr]
    publishes(short, short.loaded(), range(12))
    assert theirs <= {one.snapshot_id for one in raw().metadata.snapshots}


def test_staging_continues_after_main_was_rolled_back_to_a_retained_commit(short: Lake, raw: Raw) -> None:
    """Also to the oldest that is kept."""
    versions = publishes(short, start(short), range(12))
    oldest = list(versions)[-3]
    raw().manage_snapshots().set_current_snapshot(oldest).commit()
    loaded = short.loaded()
    assert loaded.published == oldest
    assert loaded.version == list(versions)[-1]
    assert raw().metadata.refs[STAGING].snapshot_id == loaded.version


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("most", [3, 6])
def test_not_more_than_the_most_are_retained(lake: Lake, raw: Raw, most: int, tmp_path: Local) -> None:
    """However young they are: the list of them is written with each commit."""
    history = lake.settings.history.model_validate({"least": 2, "most": most, "readers": "0s"})
    settings = lake.settings.model_copy(update={"history": history})
    few = replace(
        lake, settings=settings, open=lambda: IcebergTarget(settings, waiting=tmp_path, open_spark=lambda: lake.spark)
    )
    versions = publishes(few, few.published(*((key, "a") for key in range(7))), range(20))
    left = [version for version in versions if raw().metadata.snapshot_by_id(version) is not None]
    assert left == list(versions)[-len(left) :]
    assert most <= len(left) <= most + WORTH
    assert read(raw(), left[0]) == expected(versions[left[0]])
