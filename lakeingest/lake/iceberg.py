"""Iceberg: files written on executors, commits on the branch `lakeingest`, one atomic publish.

Properties of a marked staging commit (its snapshot's summary), always complete:
`lakeingest.progress` all that the next step depends on · `lakeingest.base` the snapshot it builds on ·
`lakeingest.commit` its own name · `lakeingest.position`, `lakeingest.epoch` for people and queries. An unmarked
commit is not done: it is reset.
"""

import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest import config
from lakeingest.core.keys import quote
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import ForeignWrite, NotOurTable, StaleWriter, StateUnreadable
from lakeingest.lake.target import Staged
from lakeingest.lake.types import iceberg_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = "lakeingest"  # the branch
BUILDING = "__lakeingest_new"  # a table's suffix until its first publish
OWNER = "lakeingest.table"  # table property: the source table that this is the copy of
PROGRESS = "lakeingest.progress"
_PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    # a conflicting commit must fail: retried, it would be rebased on whatever another writer left
    "commit.retry.num-retries": "0",
}
_CHANGES = "lakeingest_changes"


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes Parquet files with the table's field ids and statistics."""

    metadata: TableMetadata

    def write(self, rows: pa.Table) -> bytes:
        """Pickled DataFiles. Every call names its own files, so a retried or speculative task harms nobody."""
        if not rows.num_rows:  # PyIceberg divides by their number
            return pickle.dumps([])
        target = self.metadata.schema().as_arrow()
        columns = [rows[field.name].cast(field.type) for field in target]
        return pickle.dumps(
            list(_dataframe_to_data_files(self.metadata, pa.table(columns, schema=target), PyArrowFileIO()))
        )


class IcebergTarget:
    """`lake.target.Target` on an Iceberg catalog."""

    def __init__(self, settings: config.Target) -> None:
        settings.warehouse.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._catalog: Catalog = SqlCatalog(config.CATALOG, **settings.pyiceberg_properties())

    def load(self, table: TableId) -> Staged | None:
        """The last marked commit; an unmarked tip is reset to it, an interrupted first publish is finished."""
        loaded = self._find(table)
        if loaded is None:
            return None
        if _unfinished(loaded):
            self._catalog.drop_table(loaded.name())  # its making was interrupted, it holds nothing
            return None
        staged = _newest(table, loaded)
        if staged.version != _tip(loaded, STAGING).snapshot_id:
            with loaded.transaction() as transaction:
                branches = ManageSnapshots(transaction=transaction)
                branches.remove_branch(STAGING).create_branch(staged.version, STAGING).commit()
        if loaded.name() == self._building(table) and staged.published is not None:
            self._catalog.rename_table(loaded.name(), self._name(table))
        return staged

    def look(self, table: TableId) -> Staged | None:
        """What `load` would answer; nothing is changed."""
        loaded = self._find(table)
        return None if loaded is None or _unfinished(loaded) else _newest(table, loaded)

    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Build the table aside, with an empty main to branch from and its first progress on the branch."""
        name = self._building(schema.table)
        self._catalog.create_namespace_if_not_exists(name[0])
        location = f"{self._settings.warehouse.as_uri()}/{name[0]}/{schema.table.name}-{uuid.uuid4().hex[:8]}"
        made = self._catalog.create_table(
            name, iceberg_schema(schema), location=location, properties={**_PROPERTIES, OWNER: str(schema.table)}
        )
        with made.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        empty = _tip(made.refresh(), "main")
        made.manage_snapshots().create_branch(empty.snapshot_id, STAGING).commit()
        return self._commit(Staged(progress, empty.snapshot_id, None), empty.snapshot_id, (), progress)

    def discard(self, table: TableId) -> None:
        """Drop the table that is being built; a published one is never dropped."""
        self._catalog.drop_table(self._building(table))

    def writer(self, table: TableId) -> IcebergWriter:
        """For the executors."""
        return IcebergWriter(self._table(table).metadata)

    def commit_wave(self, staged: Staged, files: Sequence[bytes], progress: Progress) -> Staged:
        """Append a wave's files and its progress in one commit."""
        return self._commit(staged, staged.version, files, progress)

    def merge(
        self, staged: Staged, spark: "SparkSession", changes: "DataFrame", key: Sequence[str], progress: Progress
    ) -> Staged:
        """MERGE INTO staging, then the mark: two commits, of which an unmarked first one is reset by `load`."""
        deleted = "_lakeingest_deleted"
        columns = [quote(name) for name in changes.columns if name != deleted]
        on = " AND ".join(f"t.{quote(name)} = c.{quote(name)}" for name in key)
        changes.createOrReplaceTempView(_CHANGES)
        name = self._spark_name(progress.table)
        spark.sql(
            f"MERGE INTO {name}.branch_{STAGING} t USING {_CHANGES} c ON {on}"
            f" WHEN MATCHED AND c.{deleted} THEN DELETE"
            f" WHEN MATCHED AND NOT c.{deleted} THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
            f" WHEN NOT MATCHED AND NOT c.{deleted} THEN INSERT ({', '.join(columns)})"
            f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
        )
        merged = _tip(self._table(progress.table), STAGING)
        ours = merged.summary is not None and merged.summary["spark.app.id"] == spark.sparkContext.applicationId
        if merged.snapshot_id != staged.version and not (ours and merged.parent_snapshot_id == staged.version):
            raise StaleWriter(f"{progress.table}: another writer is on its staging branch; run the same command again")
        return self._commit(staged, merged.snapshot_id, (), progress)

    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of nothing but progress."""
        return self._commit(staged, staged.version, (), progress)

    def read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """The rows of one commit."""
        return spark.read.format("iceberg").option("snapshot-id", version).load(self._spark_name(table))

    def publish(self, staged: Staged, properties: Mapping[str, str]) -> Staged:
        """Move main to the audited snapshot, never to "the tip"; the table property is a copy of the position."""
        table = staged.progress.table
        loaded = self._table(table)
        if _published(loaded) != staged.published:
            raise StaleWriter(f"{table}: another writer published it; run the same command again")
        position = staged.progress.position
        shown = {"lakeingest.position": "" if position is None else json.dumps(position.to_json()), **properties}
        try:
            with loaded.transaction() as transaction:
                transaction.set_properties(shown)
                ManageSnapshots(transaction=transaction).set_current_snapshot(snapshot_id=staged.version).commit()
        except CommitFailedException as error:
            raise StaleWriter(f"{table}: main moved while we published; run the same command again") from error
        if self._catalog.table_exists(self._building(table)):
            self._catalog.rename_table(self._building(table), self._name(table))
        return Staged(staged.progress, staged.version, staged.version)

    def properties(self, table: TableId) -> Mapping[str, str]:
        """The table's properties, for `status`."""
        return self._table(table).properties

    def name(self, table: TableId) -> str:
        """The table's name as users query it."""
        return ".".join((config.CATALOG, *self._name(table)))

    def _find(self, table: TableId) -> Table | None:
        """The table under its own name, else the one that is being built."""
        for name in (self._name(table), self._building(table)):
            if self._catalog.table_exists(name):
                loaded = self._catalog.load_table(name)
                if loaded.properties.get(OWNER) != str(table):
                    raise NotOurTable(
                        f"{'.'.join(name)} is there and is no copy of {table}; rename it or set target.table"
                    )
                return loaded
        return None

    def _commit(self, staged: Staged, tip: int, files: Sequence[bytes], progress: Progress) -> Staged:
        """One marked commit that builds on `staged`; the tip of staging must be the snapshot `tip`."""
        table = progress.table
        loaded = self._table(table)
        stale = StaleWriter(f"{table}: another writer is on its staging branch; run the same command again")
        if _tip(loaded, STAGING).snapshot_id != tip:
            raise stale
        position = progress.position
        marks = {
            PROGRESS: json.dumps(progress.to_json(), separators=(",", ":")),
            "lakeingest.base": str(staged.version),
            "lakeingest.commit": uuid.uuid4().hex,
            "lakeingest.epoch": str(progress.epoch),
            "lakeingest.position": "" if position is None else str(position.place),
        }
        try:
            with (
                loaded.transaction() as transaction,
                transaction.update_snapshot(snapshot_properties=marks, branch=STAGING).fast_append() as append,
            ):
                committed = append.snapshot_id
                for pickled in files:
                    for file in pickle.loads(pickled):  # noqa: S301 - written by our own executors
                        append.append_data_file(file)
        except CommitFailedException as error:
            raise stale from error
        # main is where it was when the table was loaded, or the publish is refused: never what it is by now
        return Staged(progress, committed, staged.published)

    def _table(self, table: TableId) -> Table:
        try:
            return self._catalog.load_table(self._building(table))
        except NoSuchTableError:
            return self._catalog.load_table(self._name(table))

    def _name(self, table: TableId) -> tuple[str, str]:
        return self._settings.identifier(table)

    def _building(self, table: TableId) -> tuple[str, str]:
        namespace, name = self._name(table)
        return namespace, name + BUILDING

    def _spark_name(self, table: TableId) -> str:
        return ".".join(quote(part) for part in (config.CATALOG, *self._table(table).name()))


def _unfinished(table: Table) -> bool:
    """Whether it is one of ours whose making was interrupted before its first progress."""
    return table.name()[-1].endswith(BUILDING) and not any(_marked(snapshot) for snapshot in table.metadata.snapshots)


def _newest(table: TableId, loaded: Table) -> Staged:
    """The newest marked commit of staging, which must descend from what readers see."""
    metadata = loaded.metadata
    if STAGING not in metadata.refs:
        raise ForeignWrite(f"{table}: its branch {STAGING} is gone; someone else writes to the table")
    tip: Snapshot | None = _tip(loaded, STAGING)
    newest, seen = None, set()
    while tip is not None:
        seen.add(tip.snapshot_id)
        if newest is None and _marked(tip):
            newest = tip
        tip = metadata.snapshot_by_id(tip.parent_snapshot_id) if tip.parent_snapshot_id is not None else None
    main = _tip(loaded, "main")
    if main.snapshot_id not in seen:
        raise ForeignWrite(f"{table}: someone else wrote snapshot {main.snapshot_id} to it; roll main back to ours")
    if newest is None:
        raise StateUnreadable(f"{table}: no commit of its staging branch carries our progress")
    return Staged(_progress(newest), newest.snapshot_id, _published(loaded))


def _tip(table: Table, branch: str) -> Snapshot:
    snapshot = table.metadata.snapshot_by_name(branch)
    if snapshot is None:
        raise StateUnreadable(f"{'.'.join(table.name())} has no branch {branch}")
    return snapshot


def _marked(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and PROGRESS in snapshot.summary.additional_properties


def _published(table: Table) -> int | None:
    """The snapshot that readers see, whoever made it; None for the empty first one."""
    main = _tip(table, "main")
    return main.snapshot_id if _marked(main) or main.parent_snapshot_id is not None else None


def _progress(snapshot: Snapshot) -> Progress:
    assert snapshot.summary is not None  # noqa: S101 - it is marked
    try:
        return Progress.from_json(json.loads(snapshot.summary.additional_properties[PROGRESS]))
    except ValueError as error:
        raise StateUnreadable(f"snapshot {snapshot.snapshot_id}: its progress is no JSON") from error
