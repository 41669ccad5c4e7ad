"""Finds keys that two shards have, for a shared table with a global key (`core.tables.doubles`).

Up to now, readers see no double. So the search takes only keys in files that the shard has written since readers last
saw it. It finds rows with these keys as a merge does: in files whose bounds have them, by columns of the key alone.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from lakeingest.core.tables.change import DATABASE, DELETED, TABLE
from lakeingest.core.tables.doubles import Double, StillDoubled, shown_together
from lakeingest.core.tables.schema import TableId
from lakeingest.core.tables.shards import Showing, shard_of, text_of
from lakeingest.errors import KeyDoubled, StateUnreadable
from lakeingest.lake.iceberg.files.kept_files import read_columns
from lakeingest.lake.iceberg.files.rows import IcebergRows
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.merges.merger import IcebergMerger
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.history import MAIN, is_marked, tip

_ROWS = 1_000_000  # about so many keys are looked for at once


@dataclass(frozen=True, slots=True)
class Doubles:
    """The doubles that readers would see with the last publish of `shard`.

    `shared` is the shared table, whose commit `ours` shows the commits `showing`. `load` loads the own table of a shard
    by its name; `copies` has the tables that are loaded already.
    """

    shard: TableId
    shared: Table
    ours: Snapshot
    showing: Showing
    load: Callable[[str], Table]
    copies: MutableMapping[str, Table]

    def shown_together(self) -> frozenset[str]:
        """The names of the shards that one commit has to show. Raises KeyDoubled if two of them have one key."""
        try:
            return shown_together(text_of(self.shard), self._find)
        except StillDoubled as error:
            [double] = error.args
            raise KeyDoubled(
                f"{shard_of(double.shard)}: its key {double.key} is a key of {shard_of(double.other)}, too, and"
                f" target.global_key says that no two shards of {'.'.join(self.shared.name())} have one; delete one of"
                " the two rows"
            ) from error

    def copy(self, name: str) -> Table:
        """The own table of a shard."""
        if name not in self.copies:
            self.copies[name] = self.load(name)
        return self.copies[name]

    def _find(self, name: str, together: AbstractSet[str]) -> Iterator[Double]:
        """The doubles of a shard's last publish, as `core.tables.doubles.shown_together` asks for them."""
        names_of_key = _key(self.copy(name).schema())
        # what readers see now of these shards does not count: the same commit shows their last publishes
        left_out = {path for other in {name, *together} for path in self._seen(other)}
        for keys in self._new_keys(name, names_of_key):
            # in what readers see of the other shards
            of_shared = self._named(keys, names_of_key)
            tasks = _files(self.shared, self.ours.snapshot_id, of_shared)
            for found in _found(
                self.shared, [task for task in tasks if task.file.file_path not in left_out], of_shared
            ):
                yield from self._judged(name, found, names_of_key)
            # in the last publishes that are to be shown
            for other in sorted(together - {name}):
                for still in self._still(other, keys):
                    yield Double(name, other, _text(still), has_left=False)

    def _judged(self, name: str, found: pa.Table, names_of_key: Sequence[str]) -> Iterator[Double]:
        """A double for each shard that has rows in `found`: also whether its last publish lacks all of them."""
        rows = found.rename_columns([*names_of_key, DATABASE, TABLE])
        for pair in rows.select([DATABASE, TABLE]).group_by([DATABASE, TABLE]).aggregate([]).to_pylist():
            other = text_of(TableId(pair[DATABASE], pair[TABLE]))
            is_its = [row[DATABASE] == pair[DATABASE] and row[TABLE] == pair[TABLE] for row in rows.to_pylist()]
            keys = rows.filter(pa.array(is_its)).select(list(names_of_key))
            still = next(self._still(other, keys), None)
            yield Double(name, other, _text(keys if still is None else still), has_left=still is None)

    def _still(self, other: str, keys: pa.Table) -> Iterator[pa.Table]:
        """Those of these keys that are in the last publish of a shard, a part at a time."""
        copy, main = self.copy(other), tip(self.copy(other), MAIN)
        if not is_marked(main):  # someone else's commit, at which the shard's next run looks: all keys may be there
            yield keys
            return
        named = _cast(keys, self.shared.schema())
        named = named.rename_columns(_in_order(keys.column_names, _key(copy.schema())))
        for found in _found(copy, _files(copy, main.snapshot_id, named), named):
            yield found.rename_columns([*keys.column_names, DATABASE, TABLE])

    def _new_keys(self, name: str, names_of_key: Sequence[str]) -> Iterator[pa.Table]:
        """The keys in the last publish of a shard that readers may not see in this shard yet, a part at a time."""
        copy, seen = self.copy(name), self._seen(name)
        parts: list[list[FileScanTask]] = []
        rows = _ROWS  # so that the first file begins a part
        for task in files_with(copy, tip(copy, MAIN).snapshot_id, names_of_key[0], bounds=None):
            deletes = frozenset(identity(file) for file in task.delete_files)
            # `deletes | {None}`: for a file that readers do not see, so that the condition is false
            if seen.get(task.file.file_path, deletes | {None}) <= deletes:  # no row of it has come back since
                continue
            if rows >= _ROWS:
                parts.append([])
                rows = 0
            parts[-1].append(task)
            rows += task.file.record_count
        for part in parts:
            keys = IcebergRows(TableFiles.of(copy), tuple(names_of_key), tuple(part)).read()
            if keys.num_rows:
                yield _cast(keys, self.shared.schema())

    def _seen(self, name: str) -> dict[str, frozenset[object]]:
        """For each file of a shard that readers see, by its path: the deletes that apply to it."""
        if (shown := self.showing.commits.get(name)) is None:
            return {}
        copy = self.copy(name)
        if copy.metadata.snapshot_by_id(shown) is None:
            raise StateUnreadable(f"{shard_of(name)}: its commit {shown}, which readers see, is gone")
        tasks = files_with(copy, shown, _key(copy.schema())[0], bounds=None)
        return {task.file.file_path: frozenset(identity(file) for file in task.delete_files) for task in tasks}

    def _named(self, keys: pa.Table, names_of_key: Sequence[str]) -> pa.Table:
        """The keys with the names that their columns have in the shared table."""
        return keys.rename_columns(_in_order(names_of_key, [field.name for field in self.shared.schema().fields]))


def _key(schema: Schema) -> list[str]:
    """The names of a table's key."""
    return [field.name for field in schema.fields if field.field_id in schema.identifier_field_ids]


def _in_order(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names of another table for these columns: names that differ only in case are one name."""
    by_fold = {name.casefold(): name for name in others}
    return [by_fold[name.casefold()] for name in names]


def _cast(keys: pa.Table, shared: Schema) -> pa.Table:
    """The keys with types that hold every key of each shard: of integers and decimals the widest ones."""
    types = {field.name.casefold(): _widest(field.type) for field in shared.as_arrow()}
    return keys.cast(pa.schema([pa.field(name, types[name.casefold()]) for name in keys.column_names]))


def _widest(kind: pa.DataType) -> pa.DataType:
    """The widest type that a type of a shared table may be widened to."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def _files(table: Table, version: int, keys: pa.Table) -> tuple[FileScanTask, ...]:
    """The files of a commit that may have one of these keys, by the bounds of integers."""
    column = keys[0]
    bounds = None
    if pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        bounds = ends["min"], ends["max"]
    return files_with(table, version, keys.column_names[0], bounds)


def _found(table: Table, tasks: Sequence[FileScanTask], keys: pa.Table) -> Iterator[pa.Table]:
    """Yield a table for each file: those of the keys that its living rows have, with the names of the rows' shards."""
    files, names = TableFiles.of(table), (*keys.column_names, DATABASE, TABLE)
    merger = IcebergMerger(files, tuple(keys.column_names), tuple(tasks), takes_doubles=True)
    positions, _ = merger.find(keys.append_column(DELETED, pa.repeat(pa.scalar(value=False), keys.num_rows)))
    for task in tasks:
        if len(rows := positions.get(task.file.file_path, ())):
            yield read_columns(files, task.file, names).take(pa.array(rows))


def _text(keys: pa.Table) -> str:
    """The first of these keys, for people."""
    first = keys.slice(0, 1).to_pylist()[0]
    return ", ".join(f"{name} = {value!r}" for name, value in first.items() if name not in {DATABASE, TABLE})
