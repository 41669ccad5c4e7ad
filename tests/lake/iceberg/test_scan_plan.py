"""Our plan of the files that a merge reads has each file that PyIceberg's plan has, with the same deletes."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table

from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.files import kept_files
from lakeingest.lake.iceberg.files.kept_files import KeptManifest, manifests_of
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.tables.history import STAGING, tip
from lakeingest.lake.target import Bounds
from tests.lake.steps import Lake, Raw

KEYS = 200
SEEDS = range(3)


def theirs(table: Table, version: int, bounds: Bounds) -> list[FileScanTask]:
    """The plan of PyIceberg."""
    limits: list[tuple[Any, Any]] = list(zip((GreaterThanOrEqual, LessThanOrEqual), bounds, strict=True))
    scan = table.scan(snapshot_id=version)
    for condition, bound in limits:
        scan = scan if bound is None else scan.filter(condition("id", bound))
    return list(scan.plan_files())


def states(
    manifest: KeptManifest, *, anew: bool = False
) -> list[tuple[ManifestEntryStatus, int | None, int | None, str]]:
    """The state of each entry of a manifest, with its snapshot, its sequence number and its file."""
    if anew:
        kept_files.forget()
    entries = manifest.fetch_manifest_entry(DurableFileIO())
    return [(one.status, one.snapshot_id, one.sequence_number, one.data_file.file_path) for one in entries]


def deletes_by_file(tasks: list[FileScanTask] | tuple[FileScanTask, ...]) -> dict[str, set[str]]:
    """The paths of the deletes of each data file."""
    return {task.file.file_path: {delete.file_path for delete in task.delete_files} for task in tasks}


def merged(lake: Lake, chance: random.Random) -> Iterator[int]:
    """The versions of a table into which random changes are merged."""
    lake.published(*((key, "a") for key in range(0, KEYS, 2)))
    for number in range(8):
        keys = chance.sample(range(KEYS), chance.choice([1, 3, 30]))
        changes = [(key, None, True) if chance.random() < 0.4 else (key, f"v{number}", False) for key in keys]
        staged = lake.merge(lake.loaded(), *changes, pos=100 + number)
        lake.publish(staged)
        yield staged.version


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.long("more of the same tables", only=tuple(map(str, SEEDS[1:])))
def test_the_plan_is_that_of_pyiceberg(lake: Lake, raw: Raw, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all bounds; also for tables whose files are put together now and then."""
    chance = random.Random(seed)
    monkeypatch.setattr(compaction, "FILES", chance.choice([3, 16]))
    plans = 0
    for version in merged(lake, chance):
        loaded = raw()
        lower, upper = sorted(chance.sample(range(-9, KEYS + 9), 2))
        all_bounds: list[Bounds] = [(None, None), (lower, None), (None, upper), (lower, upper), (-(2**40), 2**40)]
        for bounds in all_bounds:
            ours = deletes_by_file(files_with(loaded, version, "id", bounds))
            assert ours == deletes_by_file(theirs(loaded, version, bounds)), bounds
            plans += len(ours)
        assert files_with(loaded, version, "id", None) != ()
    assert plans > 20


def test_a_manifest_is_read_once(lake: Lake, raw: Raw) -> None:
    """After somebody deletes the manifests, the plan stays the same, and the next publish stops with an error."""
    lake.published((1, "a"), (2, "b"))
    staged = lake.merge(lake.loaded(), (1, "c", False), pos=30)
    planned = deletes_by_file(files_with(raw(), staged.version, "id", None))
    for manifest in manifests_of(tip(raw(), STAGING), raw().io):
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert deletes_by_file(files_with(raw(), staged.version, "id", None)) == planned
    with pytest.raises(StateUnreadable, match="is gone"):
        lake.publish(staged)


def test_a_commit_that_removes_files_changes_no_kept_entry(lake: Lake, raw: Raw) -> None:
    """It writes such a manifest again, with other states of its entries."""
    lake.published((1, "a"), (2, "b"))
    lake.publish(lake.merge(lake.loaded(), (1, "c", False), (2, None, True), pos=30))
    manifests = manifests_of(tip(raw(), STAGING), raw().io)
    before = [states(manifest) for manifest in manifests]
    lake.publish(lake.open().maintain(lake.loaded()))
    assert [states(manifest) for manifest in manifests] == before
    assert [states(manifest, anew=True) for manifest in manifests] == before
    [now] = [state for manifest in manifests_of(tip(raw(), STAGING), raw().io) for state in states(manifest)]
    assert now[-1] not in {path for listed in before for *_, path in listed}  # the file of the compaction


def test_what_is_kept_has_a_limit() -> None:
    """The least recent values go first, and a large one is never kept."""
    kept: kept_files.Kept[int, str] = kept_files.Kept(16, len)
    reads: list[int] = []

    def read(key: int) -> str:
        reads.append(key)
        return "x" * key

    for key in (2, 2, 3, 3, 2):
        assert kept.get(key, lambda: read(key)) == "x" * key  # noqa: B023 - it is called at once
    assert reads == [2, 3, 3]  # more than an eighth of the size is not kept
    for value in range(100, 108):
        kept.put(value, "xx")
    kept.get(2, lambda: read(2))
    assert reads == [2, 3, 3, 2]
