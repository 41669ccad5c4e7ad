"""Checks that the files of a snapshot exist with the lengths in its manifests, and that no two rows have the same key.

A run checks a table when it opens the table, and before each publish. It checks the files of the newest manifests,
except manifests that it has found complete before. At some publishes it checks all files, and compares keys.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.held import Auditing
from lakeingest.lake.iceberg.files.data_files import as_integers, bounds_of, drop_deleted, read_deletes, read_rows
from lakeingest.lake.iceberg.files.held import IcebergHeld
from lakeingest.lake.iceberg.files.kept_files import manifests_read_anew
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.manifest_notes import ManifestNotes, read_files
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.storage.store import in_threads
from lakeingest.lake.known_copies import MOST_FILES, ListedFile, Listings
from lakeingest.lake.target import Staged

NEWEST = 64  # the files of so many manifests, the newest ones, are checked by default
EVERY = 16  # of so many commits, the first one that is published has all its files checked, and keys compared
ROWS = 2_000_000  # the keys of about so many rows at most are compared


class Audit:
    """The checks of a run's tables. It remembers which manifests were complete, and short listings."""

    def __init__(self, notes: File | None) -> None:
        """`notes` is the folder of the notes of manifests; None: every manifest is read."""
        self._notes = notes
        self._complete: defaultdict[TableId, set[str]] = defaultdict(set)  # as in the function `find_damage`
        self._listings: defaultdict[TableId, dict[str, Sequence[ListedFile]]] = defaultdict(dict)  # as in `find_damage`

    def trust(self, table: TableId, listings: Listings) -> None:
        """Note that all files in these listings exist. The caller has looked at them."""
        self._complete[table] |= listings.keys()
        self._listings[table] |= listings

    def listings(self, table: TableId, loaded: Table, version: int) -> Listings | None:
        """What a snapshot and its manifests list, if the table's last check has found all these files; else None."""
        snapshot, noted = loaded.metadata.snapshot_by_id(version), self._listings[table]
        if snapshot is None:
            return None
        path = snapshot.manifest_list
        if (manifests := noted.get(path)) is None:
            return None
        others = [manifest for manifest in manifests if manifest[0] != path]  # a note of a list names the list, too
        if not noted.keys() >= {other for other, _ in others}:
            return None
        length = len(loaded.io.new_input(path))
        return {path: [(path, length), *others], **{other: noted[other] for other, _ in others}}

    def find_damage(self, table: TableId, loaded: Table, version: int) -> str | None:
        """Check a snapshot when the run opens its table. Returns the problem with a file; None if none was found."""
        complete, listings = self._complete[table], self._listings[table]
        if self._notes is None:
            return find_damage(loaded, version, complete, listings=listings)
        notes = ManifestNotes.read(self._notes, table)
        problem = find_damage(loaded, version, complete, notes=notes, listings=listings)
        if problem is None:
            notes.store()
        return problem

    def assert_publishable(self, table: TableId, loaded: Table, staged: Staged, audit: Auditing) -> None:
        """Check a snapshot. Raises StateUnreadable if a file is missing or damaged, or if two rows have the same key.

        Raises AuditFailed if `audit` does. `audit` is called with what the snapshot holds.

        The first publish, and the first one of each later group of commits, check all files and compare keys.
        """
        version, published = staged.version, staged.published

        def group(snapshot_id: int) -> int:
            """The number of the group of EVERY commits that has this snapshot."""
            offset = loaded.metadata.table_uuid.int  # so that not all tables of a run are checked in the same round
            return (_sequence_number(loaded, snapshot_id) + offset) // EVERY

        # the first publish, and the first publish of each later group
        thorough = published is None or group(version) > group(published)
        complete, listings = self._complete[table], self._listings[table]
        if problem := find_damage(loaded, version, complete, thorough=thorough, listings=listings):
            raise StateUnreadable(
                f"{table}: {problem}; it was not published: run the same command again, which goes back to the newest"
                " commit whose files are whole"
            )
        audit(IcebergHeld(loaded, version, published))
        if thorough and (key := repeated_key(loaded, version)) is not None:
            raise StateUnreadable(
                f"{table}: the key {key} is in it twice; it was not published: drop the copy to copy it again"
            )


def find_damage(
    loaded: Table,
    version: int,
    complete: set[str] | None = None,
    *,
    thorough: bool = False,
    notes: ManifestNotes | None = None,
    listings: dict[str, Sequence[ListedFile]] | None = None,
) -> str | None:
    """The problem with a file of a snapshot; None if no problem was found.

    `complete` names manifests whose files were all found before; None: none is known. With `thorough`, the files of all
    manifests are checked. Without `thorough`, only the `NEWEST` manifests are checked, except those in `complete`.
    Manifests that are found complete now are added to this set; if no problem was found, manifests that this snapshot
    does not have are removed from the set. With `notes`, a manifest or a list of them that has a note is not read.
    `listings` gets what the list of manifests and each manifest lists, if these are few files. For manifests that
    are not read, `listings` keeps what it had.
    """
    snapshot = loaded.metadata.snapshot_by_id(version)
    assert snapshot is not None  # noqa: S101 - the table was loaded with it
    complete = set() if complete is None else complete
    listings = {} if listings is None else listings
    if notes is not None and (noted := notes.all_under(snapshot.manifest_list)) is not None:
        problem = _problem_with(loaded, [file for listed in noted.values() for file in listed])
        if problem is None:
            complete |= noted.keys()
            _keep_few(listings, noted)
        return problem
    found: dict[str, Sequence[ListedFile]] = {}
    read_path = snapshot.manifest_list  # the file that is being read: an error names it
    try:
        # the newest first
        all_manifests = manifests_read_anew(snapshot, loaded.io)
        manifests = sorted(all_manifests, key=lambda each: each.sequence_number or 0, reverse=True)
        to_check = manifests if thorough else manifests[:NEWEST]
        if notes is not None:
            notes.note_list(read_path, len(loaded.io.new_input(read_path)), to_check)
        for manifest in to_check:
            if not thorough and manifest.manifest_path in complete:
                if notes is not None:
                    notes.keep(manifest)
                continue
            read_path = manifest.manifest_path
            listed = read_files(manifest, loaded.io) if notes is None else notes.files_of(manifest, loaded.io)
            # the manifest's own length is checked, too, because a manifest with a note is not read
            if problem := _problem_with(loaded, [(read_path, manifest.manifest_length), *listed]):
                return problem
            complete.add(manifest.manifest_path)
            found[read_path] = listed
    except FileNotFoundError:
        return f"{read_path} is gone"
    except (EOFError, ValueError) as error:
        return f"{read_path} is damaged: {error}"
    # forget manifests that the snapshot does not have, so that the set does not grow for ever
    complete.intersection_update(manifest.manifest_path for manifest in manifests)
    lists = [(manifest.manifest_path, manifest.manifest_length) for manifest in manifests]
    earlier = {path: listings[path] for path, _ in lists if path in listings}
    _keep_few(listings, {snapshot.manifest_list: lists, **earlier, **found})
    return None


def _keep_few(listings: dict[str, Sequence[ListedFile]], found: Listings) -> None:
    """Let `listings` have what was found, or nothing if these are more than MOST_FILES files."""
    listings.clear()
    if sum(map(len, found.values())) <= MOST_FILES:
        listings |= found


def _problem_with(loaded: Table, files: Sequence[ListedFile]) -> str | None:
    """The problem with the first of these files that is gone or has another length; None if all are complete."""
    sizes = in_threads(files[0][0], lambda file: _size(loaded, file[0]), files)
    for (path, length), size in zip(files, sizes, strict=True):
        if size is None:
            return f"{path} is gone"
        if size != length:
            return f"{path} has {size} bytes, not {length}"
    return None


def _size(loaded: Table, path: str) -> int | None:
    """The length of a file in bytes; None if the file is gone."""
    try:
        return len(loaded.io.new_input(path))
    except FileNotFoundError:
        return None


def repeated_key(loaded: Table, version: int) -> tuple[object, ...] | None:
    """A key that two rows of a snapshot have; None if no such key was found.

    In a table of up to `ROWS` rows, all keys are compared. In a larger table, about `ROWS` keys are compared: those in
    files whose keys overlap with the keys of a random file.
    """
    names = [loaded.schema().find_field(field_id).name for field_id in sorted(loaded.schema().identifier_field_ids)]
    if not names:  # someone removed the identifier of the table
        return None
    tasks = list(_files_to_compare(loaded, version, names[0]))
    files = TableFiles.of(loaded)
    deletes = {identity(file): file for task in tasks for file in task.delete_files}  # each file once
    dead = read_deletes(files, deletes.values())
    key_schema = pa.schema([loaded.schema().as_arrow().field(name).remove_metadata() for name in names])
    key_tables = [key_schema.empty_table()]
    for task in tasks:
        living_keys = drop_deleted(read_rows(files, task.file, names), task.file, dead)
        key_tables.append(living_keys.cast(key_schema))
    keys = pa.concat_tables(key_tables)
    # keys of one integer: sorting is seven times faster than `group_by`, in a fifth of the memory
    if len(names) == 1 and (integers := as_integers(keys.column(0))) is not None:
        numbers = np.sort(integers.to_numpy())
        is_repeated = numbers[1:] == numbers[:-1]  # for each number from the second on: it equals the one before it
        repeated = numbers[1:][is_repeated]
        return (int(repeated[0]),) if len(repeated) else None
    # all other keys: count the rows of each key
    counts = keys.group_by(names).aggregate([([], "count_all")])
    if counts.num_rows == keys.num_rows:
        return None
    first_repeated = counts.filter(pa.compute.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()[0]
    return tuple(first_repeated[name] for name in names)


def _files_to_compare(loaded: Table, version: int, name: str) -> Iterator[FileScanTask]:
    """All data files of a snapshot; in a large table, files with about `ROWS` rows whose keys overlap.

    `name` is the first column of the key. Its bounds in each file tell which files overlap with a random file.
    """
    tasks = list(files_with(loaded, version, name, bounds=None))
    if sum(task.file.record_count for task in tasks) > ROWS:
        field = loaded.schema().find_field(name)
        chosen = bounds_of(random.choice(tasks).file, field)  # noqa: S311 - another part of the table each time
        near_files = [task for task in tasks if _overlap(bounds_of(task.file, field), chosen)]
        tasks = random.sample(near_files, len(near_files))  # all of them, in random order
    remaining_rows = ROWS
    for task in tasks:
        if remaining_rows <= 0:
            return
        yield task
        remaining_rows -= task.file.record_count


def _overlap(first: tuple[Any, Any] | None, second: tuple[Any, Any] | None) -> bool:
    """Whether two files may have a common value, by the bounds of each; True if the bounds of one are unknown."""
    return first is None or second is None or bool(first[0] <= second[1] and second[0] <= first[1])


def _sequence_number(loaded: Table, version: int) -> int:
    """The sequence number of a snapshot; 0 if the table does not have the snapshot."""
    snapshot = loaded.metadata.snapshot_by_id(version)
    return 0 if snapshot is None else snapshot.sequence_number or 0
