"""The audit of a publish: a part of the commit is read back from its files, and compared with the spool.

The commit itself says which files it has. Nothing is taken from what executors have returned. A publish shows a commit
only after its audit, so what the audit finds never reaches readers.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from lakeingest.core.proofs.audit import (
    MOST_CHANGES,
    MOST_ROWS,
    Candidate,
    KeyLook,
    chosen,
    differing_columns,
    fault_of,
    is_full_due,
    miscount,
)
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import AuditFailed, SpoolGap, StateUnreadable
from lakeingest.lake.held import Held, HeldFile
from lakeingest.mysql.key_values import compared_keys
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.rows import THREADS_ROWS, few_integers
from lakeingest.spool.halts import halts
from lakeingest.spool.images import LastImages, last_images, reread_files
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import Definition

FAULTS_IN_MESSAGE = 3
MOST_FILES = 64  # at most so many old files are asked whether they may have a changed key
_VALUES = 20  # of so many rows whose keys are read, the other columns of one are read, too
_LEAST_VALUES = 1_000  # rows whose other columns are read at least
_LEAST_IMAGES = 200  # rows that are compared with the spool at least, if so many were changed
_PARTS = 4  # rows of so many files of the spool are compared
_NUMBER = "_lakeingest_number"


def audit(edges: Edges, spool: Spool, table: TableRun, held: Held, *, in_full: bool) -> None:
    """Read a part of the staged commit back, as much as the audit's time allows. Raises AuditFailed for faults in it.

    Nothing is read as long as earlier audits of the table have taken more than their share of the time. `in_full`:
    everything is read, up to MOST_ROWS rows.
    """
    began = time.monotonic()
    cost = edges.audit_costs[table.id]
    most = MOST_ROWS if in_full else cost.most_rows
    if not most:
        return
    with edges.profile.stage("audits"):
        changed = _without_quarantine(table, changed_since_shown(spool, table, min(most, MOST_CHANGES)))
        seed = table.staged.version
        reading = _Reading(held, table.schema, changed, _are_in_new_files(table), most, in_full, seed)
        try:
            faults = list(islice(reading.faults(), FAULTS_IN_MESSAGE + 1))
        except StateUnreadable as error:
            faults = [str(error)]
    edges.audit_costs[table.id] = cost.audited(reading.rows_read, time.monotonic() - began)
    if faults:
        more = "; and more" if len(faults) > FAULTS_IN_MESSAGE else ""
        # an audit in full may find a fault that smaller ones have missed
        seen = (
            "readers may have seen them since the last audit in full"
            if in_full
            else "readers keep the last published commit"
        )
        raise AuditFailed(
            f"{table.id} was not published: the audit of its commit {table.staged.version} found faults:"
            f" {'; '.join(faults[:FAULTS_IN_MESSAGE])}{more}; {seen}"
        )


def note_publish(edges: Edges, table: TableRun, seconds: float) -> None:
    """Note how long the publish of a table took, with its audit: the next audit may take a share of that."""
    edges.audit_costs[table.id] = edges.audit_costs[table.id].published(seconds)


def must_be_full(edges: Edges, table: TableRun, definition: Definition | None) -> bool:
    """Whether the next audit of the table must be in full: because such an audit is due, or the last audit has failed.

    After a failure, a smaller sample might let the commit pass. `definition`: the stored definition.
    """
    stopped = edges.stopped.read(table.id)
    if stopped is not None and stopped.error == AuditFailed.__name__:
        return True
    since = None if definition is None else (definition.audited_at or definition.first_at)
    seconds_since = None if since is None else time.time() - since
    return is_full_due(seconds_since, run_seconds=time.monotonic() - edges.began)


def changed_since_shown(spool: Spool, table: TableRun, most: int) -> LastImages | None:
    """The last images of the keys that were changed since the commit that readers see; None if they are not known.

    If there are more than about `most` changes, only the newest ones count.
    """
    progress, schema = table.progress, table.schema
    if progress.position is None:
        return None
    stop = progress.position.place
    shown = None if table.shown is None else table.shown.position
    since = max([spool.start, progress.covered_from, *([] if shown is None else [shown.place])])
    # rows from before DDL have another definition
    since = max([since, *(halt.after.place for halt in halts(spool, table.id, since) if halt.after.place <= stop)])
    if since >= stop:
        return None
    # `uncounted`: rows were read again since the last publish. If this run does not know this publish, rows that were
    # read again earlier may count, too
    may_have_rereads = progress.uncounted or (shown is None and table.staged.published is not None)
    rereads = reread_files(spool, table.id, since, stop) if may_have_rereads else []
    if progress.uncounted and shown is None and not rereads:  # their files may be lost with an earlier spool
        return None
    try:
        changed = spool.files(table.id, since, stop)
    except SpoolGap:  # at DDL that the copy cannot follow, the spool has only a part of the changes
        return None
    return last_images(changed, rereads, schema, since, stop, most)


def _without_quarantine(table: TableRun, changed: LastImages | None) -> LastImages | None:
    """The images `changed`, in which keys in quarantine count as deleted: the copy must have no row of them."""
    if changed is None or not table.progress.quarantine:
        return changed
    listed = compared_keys(table.schema, table.progress.quarantine)
    is_deleted = changed.keys[DELETED].to_numpy().copy()
    is_deleted[_numbers_of(listed, changed.keys.drop_columns(DELETED))] = True
    return replace(changed, keys=changed.keys.drop_columns(DELETED).append_column(DELETED, pa.array(is_deleted)))


def _are_in_new_files(table: TableRun) -> bool:
    """Whether each row of `changed_since_shown` must be in a file that readers do not see yet.

    False if this run does not know what readers see. Also False if the copy was started over or taken to another server
    since the last publish: then readers may see some of these rows already.
    """
    if table.staged.published is None:
        return True
    shown, progress = table.shown, table.progress
    return shown is not None and (shown.restarts, shown.epoch) == (progress.restarts, progress.epoch)


@dataclass(slots=True)
class _Reading:
    """One audit of a commit: `most` rows are read, and `seed` decides which.

    `in_full`: rows of all old files may be read, not only of the old files that may have a changed key.

    `changed`: the last images of changed keys; None: none are known. `are_in_new_files`: whether all of them are in
    files that readers do not see yet.
    """

    held: Held
    schema: TableSchema
    changed: LastImages | None
    are_in_new_files: bool
    most: int
    in_full: bool
    seed: int
    rows_read: int = 0

    def faults(self) -> Iterator[str]:
        """What is wrong with the commit. Files are read only as far as the caller asks for faults."""
        yield from self.held.faulty_deletes()
        files = self._candidates()
        numbers = chosen([Candidate(file.is_new, file.rows) for file in files], self.most)
        read = [files[number] for number in numbers]
        for file in read:
            if fault := miscount(file.name, file.rows, file.count()):
                yield fault
        yield from self._faults_of_keys(read, [file for file in files if file.is_new and file not in read])
        yield from self._faults_of_values([file for file in read if file.is_new])

    def _candidates(self) -> list[HeldFile]:
        """The new files, and old files that may have a changed key, in random order."""
        files = random.Random(self.seed).sample(self.held.files, len(self.held.files))  # noqa: S311 - no secret
        new = [file for file in files if file.is_new]
        old = [file for file in files if not file.is_new]
        if self.in_full:
            return [*new, *old]
        if self.changed is None:
            return new
        keys = self.changed.keys.select(list(self.schema.key))
        return [*new, *(file for file in old[:MOST_FILES] if file.may_have(keys).any())]

    def _faults_of_keys(self, read: Sequence[HeldFile], unread_new: Sequence[HeldFile]) -> Iterator[str]:
        """Keys that two rows of the files have, and changed keys that are not there as often as they must be."""
        names = list(self.schema.key)
        keys_by_file = [file.keys(names) for file in read]
        self.rows_read += sum(map(len, keys_by_file))
        if not keys_by_file:
            return
        all_keys = pa.concat_tables(keys_by_file, promote_options="default")
        if (twice := _keys_there_twice(all_keys)).num_rows:
            yield f"{_key_text(twice, 0)} is there more than once ({twice.num_rows} keys)"
        if self.changed is None:
            return
        keys = self.changed.keys.select(names)
        self.rows_read += keys.num_rows
        # by changed key, how many rows have it: in all files that were read, and in the new files among them
        times, new_times = np.zeros((2, keys.num_rows), np.int64)
        for file, file_keys in zip(read, keys_by_file, strict=True):
            numbers = _numbers_of(file_keys, keys)
            np.add.at(times, numbers, 1)
            if file.is_new:
                np.add.at(new_times, numbers, 1)
        can_search = self.are_in_new_files and len(unread_new) <= MOST_FILES
        is_searched = np.full(keys.num_rows, can_search)  # False for a key that an unread new file may have
        for file in unread_new if can_search else ():
            is_searched &= ~file.may_have(keys)
        is_deleted, keeps = self.changed.keys[DELETED].to_numpy(), self.schema.keeps_deleted
        facts = (
            is_deleted & (not keeps),
            is_deleted & keeps,
            np.minimum(times, 2),  # more than twice is the same fault as twice
            np.minimum(new_times, 2),
            is_searched,
        )
        looks = np.stack(facts, axis=1).astype(int)
        for values in np.unique(looks, axis=0):  # keys with equal facts have the same fault: look at them together
            gone, may_lack, all_times, in_new, searched = values.tolist()
            if fault := fault_of(KeyLook(bool(gone), bool(may_lack), all_times, in_new, bool(searched))):
                alike = np.flatnonzero((looks == values).all(axis=1))
                yield f"{_key_text(keys, int(alike[0]))} {fault} ({len(alike)} keys)"

    def _faults_of_values(self, read: Sequence[HeldFile]) -> Iterator[str]:
        """Changed rows of these files with a value other than the spool's. Only some of the rows are looked at."""
        names = [*self.schema.names, *([DELETED] if self.schema.keeps_deleted else [])]
        remaining = max(_LEAST_VALUES, self.most // _VALUES)
        for file in read:
            if remaining <= 0:
                return
            rows = file.first_rows(names, min(remaining, file.rows + 1))  # `+ 1`: never 0, also for a file without rows
            remaining -= rows.num_rows
            self.rows_read += rows.num_rows
            yield from self._differences(rows, names)

    def _differences(self, rows: pa.Table, names: Sequence[str]) -> Iterator[str]:
        """Yield a fault for each row that differs from the last image of its key.

        Without `in_full`, only some of the rows are compared.
        """
        if self.changed is None or not rows.num_rows:
            return
        keys = self.changed.keys.select(list(self.schema.key))
        held_numbers, numbers = key_pairs(rows.select(list(self.schema.key)), keys)
        # a seed of numpy must not be negative
        drawn = np.random.default_rng(self.seed & (2**63 - 1)).permutation(len(numbers))
        if not self.in_full:  # images for one of _VALUES of the rows whose other columns are read
            drawn = drawn[: max(_LEAST_IMAGES, self.most // _VALUES**2)]
            # only rows whose images are in the first _PARTS of the files
            parts = list(dict.fromkeys(self.changed.at[numbers[drawn]].tolist()))[:_PARTS]
            drawn = drawn[np.isin(self.changed.at[numbers[drawn]], parts)]
        if not len(drawn):
            return
        images = self.changed.images(numbers[drawn], self.schema.names).select(names).to_pylist()
        held_rows = rows.take(pa.array(held_numbers[drawn])).to_pylist()
        for number, (image, held) in enumerate(zip(images, held_rows, strict=True)):
            if columns := differing_columns(image, held):
                yield f"{_key_text(keys, int(numbers[drawn][number]))} has another value in {', '.join(columns)}"


def _keys_there_twice(keys: pa.Table) -> pa.Table:
    """Each key that more than one row has, once."""
    integers = few_integers(keys.columns)
    if integers is not None and len(np.unique(integers)) == len(integers):
        return keys.slice(0, 0)
    grouped = keys.group_by(keys.column_names, use_threads=len(keys) >= THREADS_ROWS)
    counts = grouped.aggregate([([], "count_all")])
    return counts.filter(pa.compute.greater(counts["count_all"], 1)).select(keys.column_names)


def _numbers_of(rows: pa.Table, keys: pa.Table) -> "np.ndarray":
    """For each row whose key is in `keys`, the number of this key."""
    return key_pairs(rows, keys)[1]


def key_pairs(rows: pa.Table, keys: pa.Table) -> tuple["np.ndarray", "np.ndarray"]:
    """For each row whose key is in `keys`: the numbers of the row and of the key. `keys` has no key twice."""
    # the types of the keys; a damaged file may have a NULL
    fields = pa.schema([field.with_nullable(True) for field in keys.schema])
    same_types = rows.cast(fields)
    integers, wanted = few_integers(same_types.columns), few_integers(keys.columns)
    if integers is not None and wanted is not None:
        return _integer_pairs(integers, wanted)
    numbered_rows = same_types.append_column(f"{_NUMBER}_row", pa.array(np.arange(rows.num_rows)))
    numbered_keys = keys.append_column(_NUMBER, pa.array(np.arange(keys.num_rows)))
    in_threads = rows.num_rows + keys.num_rows >= THREADS_ROWS
    pairs = numbered_rows.join(numbered_keys, keys=keys.column_names, join_type="inner", use_threads=in_threads)
    return pairs[f"{_NUMBER}_row"].to_numpy(), pairs[_NUMBER].to_numpy()


def _integer_pairs(rows: "np.ndarray", keys: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
    """As `key_pairs`, for keys of one integer."""
    order = np.argsort(keys)
    ascending = keys[order]
    places = np.searchsorted(ascending, rows)  # for each row, where its key is, if it is there
    is_there = places < len(ascending)  # False: the key of the row is greater than all `keys`
    is_there[is_there] = ascending[places[is_there]] == rows[is_there]
    return np.flatnonzero(is_there), order[places[is_there]]


def _key_text(keys: pa.Table, number: int) -> str:
    """A key as text: `id=7`."""
    return ", ".join(f"{name}={value}" for name, value in keys.slice(number, 1).to_pylist()[0].items())
