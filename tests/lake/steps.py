"""What a test of the lake drives: one table of a target, and the steps that a pipeline takes with it."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.core.binlog.position import FilePosition, GtidSet, Place, Position
from lakeingest.core.binlog.transactions import TransactionLog
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.core.waves.splits import Split
from lakeingest.core.waves.wave import plan_merge
from lakeingest.lake.target import OpenSpark, Staged, Target
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import table_schema
from tests.lake.shown import shown

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = Place(1, 1, 4)
PLAIN = (Column("id", Kind.INT32, source_type("int"), nullable=False), Column("v", Kind.STRING, source_type("text")))

Row = tuple[Any, ...]
Raw = Callable[..., Table]


class Crash(Exception):
    """The end of a process in between."""


@dataclass
class Lake:
    """One table of a target, and the steps that a pipeline takes with it."""

    settings: config.Target
    open: Callable[[], Target]
    spark: SparkSession
    schema: TableSchema
    boundaries: Mapping[str, Mapping[str, str]]  # what each format does in steps: the method of its target

    @property
    def table(self) -> TableId:
        """The source's table."""
        return self.schema.table

    def dying_before(self, boundary: str) -> Target:
        """A process that ends there."""

        def crash(*_: object, **__: object) -> NoReturn:
            raise Crash

        target = self.open()
        *path, method = self.boundaries[self.settings.format][boundary].split(".")
        owner = attrgetter(*path)(target) if path else target
        assert hasattr(owner, method)
        setattr(owner, method, crash)
        return target

    def without_spark(self) -> Target:
        """A process in which it is a failure to open Spark."""

        def no_spark() -> NoReturn:
            pytest.fail("Spark was started")

        return self.opened_with(no_spark)

    def opened_with(self, open_spark: OpenSpark) -> Target:
        """A process that opens Spark in this way."""
        target = self.open()
        vars(target)["_open_spark"] = open_spark
        return target

    def created(self) -> Staged:
        """The empty table."""
        progress = Progress(self.table, self.schema.fingerprint, UUID, 1, START)
        return self.open().create(self.schema, progress.created())

    def copied(self, *rows: Row) -> Staged:
        """All rows in one wave, one chunk without bounds."""
        return self.wave(self.created(), rows)

    def wave(
        self, staged: Staged, rows: Sequence[Row], upper: Key | None = None, target: Target | None = None
    ) -> Staged:
        """One more chunk up to a key; its file is written by a writer that was pickled, as on an executor."""
        target = target or self.open()
        writer = pickle.loads(pickle.dumps(target.writer(self.table)))  # noqa: S301 - our own
        chunk = Split(KeyRange(staged.progress.splits.copied_up_to, upper), START, Place(1, 1, 10))
        progress = staged.progress.wave_committed((chunk,), len(rows))
        return target.commit_wave(staged, [writer.write(self.arrow(rows))], progress)

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as a reader of chunks gives them."""
        names = self.schema.names
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], table_schema(self.schema))

    def leveled(self, staged: Staged, pos: int) -> Progress:
        """The progress after a merge to a position."""
        at = FilePosition("binlog.000001", pos)
        plan = plan_merge(staged.progress.splits, at.place(1), TransactionLog((), GtidSet()), START)
        return staged.progress.merged(plan, Position(UUID, 1, at, GtidSet.parse(f"{UUID}:1-{pos}")), 0, 0)

    def merge(self, staged: Staged, *rows: Row, pos: int = 20, target: Target | None = None) -> Staged:
        """Merge changes (the columns, then whether the key is deleted) and stand at a position."""
        target, key = target or self.open(), self.schema.key
        changes = self.changes(rows)
        ends = [row[self.schema.names.index(key[0])] for row in rows]
        bounds = (int(min(ends)), int(max(ends))) if ends and self.schema.ordered else None
        merger = pickle.loads(pickle.dumps(target.merger(staged, key, bounds)))  # noqa: S301 - our own
        is_whole = target.capabilities.merges_by == "changes"
        new = changes if is_whole else changes.filter(pc.invert(changes[DELETED])).drop(DELETED)
        merged = [merger.replace(changes.select([*key, DELETED])), merger.write(new)]
        return target.commit_merge(staged, merged, lambda _: self.leveled(staged, pos))[0]

    def changes(self, rows: Sequence[Row]) -> pa.Table:
        """Changes (the columns, then whether the key is deleted) as a merge collapses them."""
        fields = table_schema(self.schema).append(pa.field(DELETED, pa.bool_()))
        return pa.Table.from_pylist([dict(zip(fields.names, row, strict=True)) for row in rows], fields)

    def published(self, *rows: Row, pos: int = 20) -> Staged:
        """A table that readers see."""
        staged = self.copied(*rows)
        return self.publish(self.open().mark(staged, self.leveled(staged, pos)))

    def started_over(self, staged: Staged, target: Target | None = None) -> Staged:
        """The copy begins again on staging, for signal 1."""
        new = Progress(self.table, self.schema.fingerprint, UUID, 1, START)
        progress = staged.progress.started_over(new, signals=[1])
        return (target or self.open()).start_over(staged, self.schema, progress, None)

    def publish(self, staged: Staged, target: Target | None = None) -> Staged:
        """Through the gates, and visible."""
        audited = replace(staged, progress=staged.progress.audited())
        return (target or self.open()).publish(audited, self.schema, {"lakeingest.gate": "{}"})

    def rows(self, staged: Staged) -> list[Row]:
        """What a commit holds."""
        found = self.open().read(self.table, staged.version).collect()
        return sorted(tuple(row) for row in found)

    def seen(self) -> list[Row]:
        """What readers see, by the name that users query."""
        return sorted(tuple(row) for row in shown(self.spark, self.settings, self.schema.table).collect())

    def loaded(self) -> Staged:
        """The table as another process finds it."""
        staged = self.open().recover(self.table)
        assert staged is not None
        return staged
