"""The comparison of a table while others write to it: of all rows or some chunks, until a difference is found twice.

The copy has the rows as of its published position. The source is read later, so some of its rows may be newer:

1. The checksums are compared. The result is a list of keys whose rows differ.
2. After that, the binlog from the published position to its present end is read. If it has no change of a key, the row
   of this key has been the same all the time, so its difference is real.
3. For a changed key, the binlog has the row as of the position, and this row is compared with the row of the copy.
4. Differences are found a second time, by all these steps, before they are reported.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakeingest.config import Config
from lakeingest.core.binlog.position import Position
from lakeingest.core.proofs.checksum import ONLY_IN_SOURCE, Difference
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import OperatorNeeded, SchemaChanged, SourceMoved
from lakeingest.lake.target import Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.key_values import key_table, values_of, values_of_texts
from lakeingest.pipeline.proving.comparison import ChunkPlan, Compared, Sides, compare
from lakeingest.pipeline.proving.published_copy import await_published
from lakeingest.pipeline.proving.rows_before import RowsBefore, rows_before
from lakeingest.pipeline.rereads.differences import differences
from lakeingest.rows import table_schema

COMPARISONS = 4  # the most of a table; two are enough if the same key differs in both
COMMIT_SECONDS = 11.0  # longer than replicas usually delay a commit on a semi-synchronous source (10 seconds)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What comparisons have found. `compared`: the last result. `differences`: those that two comparisons have found.

    `moved`: rows were changed meanwhile. Then the checksums of both sides are of different moments. `position`: the
    published position with which the source was compared. `plan`: the chunks that were compared.
    """

    compared: Compared
    differences: tuple[Difference, ...]
    moved: bool
    position: Position
    plan: ChunkPlan

    @property
    def differs(self) -> bool:
        """Whether source ≠ target in what was compared."""
        return bool(self.differences) or not (self.moved or _has_equal_sums(self.compared))


def always() -> bool:
    """Every chunk may be begun."""
    return True


@dataclass(frozen=True, slots=True)
class TableComparison:
    """A table whose source and copy are compared.

    `open_sides`: both sides, for a version of the copy and the chunks of a plan. `parents`: other tables whose changes
    can change its rows by foreign keys, outside the binlog. `is_own_parent`: changes of the table itself can do this.
    """

    config: Config
    source: BinlogSource
    target: Target
    schema: TableSchema
    open_sides: Callable[[int, ChunkPlan], Sides]
    parents: Sequence[TableSchema]
    is_own_parent: bool

    def confirmed(self, plan: ChunkPlan, may_begin: Callable[[], bool] = always) -> Confirmed:
        """Compare; if there are differences, compare again, and return those that two comparisons have found.

        The chosen chunks of the plan are compared, but none is begun after `may_begin` returns False. Later comparisons
        are of the same chunks as the first one. If the second comparison has found only other differences, a third one
        is made, and so on. Raises SourceMoved if COMPARISONS comparisons have found no difference twice, or if the
        definition is not that of the plan.
        """
        if plan.fingerprint != self.schema.fingerprint:
            raise self._moved()
        try:
            return self._confirmed(plan, may_begin)
        except SchemaChanged as error:  # the source does not have a column of the definition, or the table
            if self._has_another_definition():
                raise self._moved() from error
            raise

    def _moved(self) -> SourceMoved:
        """The error for a definition that was changed during the comparison."""
        return SourceMoved(f"{self.schema.table}: its definition was changed meanwhile; verify again")

    def _has_another_definition(self) -> bool:
        """Whether the source has the table with another definition. False if it does not have the table."""
        try:
            current = self.source.schema(self.schema.table, self.schema.choices)
        except (SchemaChanged, OperatorNeeded):
            return False
        return current.fingerprint != self.schema.fingerprint

    def _confirmed(self, plan: ChunkPlan, may_begin: Callable[[], bool]) -> Confirmed:
        """The result of `confirmed` for a plan of this definition."""
        found_before: Collection[Key] | None = None
        for _ in range(COMPARISONS):
            compared, moved, position = self._compare(plan, may_begin)
            plan, may_begin = replace(plan, chosen=compared.compared), always
            found = {difference.key: difference for difference in compared.differences}
            is_equal = not found and (moved or _has_equal_sums(compared))
            found_twice = [each for key, each in found.items() if key in (found_before or ())]
            # without keys, the checksums alone must be unequal twice
            is_confirmed = bool(found_twice) or (found_before is not None and not found_before and not found)
            if is_equal or is_confirmed:
                return Confirmed(compared, tuple(found_twice), moved, position, plan)
            found_before = found.keys()
            if position.gtids is None:  # a run may copy a transaction before the source has committed it: wait for that
                time.sleep(COMMIT_SECONDS)
        raise SourceMoved(
            f"{self.schema.table}: each of {COMPARISONS} comparisons has found other differences; verify again"
        )

    def _compare(self, plan: ChunkPlan, may_begin: Callable[[], bool]) -> tuple[Compared, bool, Position]:
        """Compare once, as of the position that is published now. `may_begin`: whether another chunk may be begun.

        Returns what was found, whether the table was changed after this position, and the position.

        Raises SourceMoved if rows were changed that cannot be compared.
        """
        schema = self.schema
        staged = await_published(self.config, self.target, schema)
        position = staged.progress.position
        assert position is not None  # noqa: S101 - it is published
        sides = self.open_sides(staged.version, plan)
        compared, listed = compare(sides, plan, may_begin), frozenset(staged.progress.quarantine)
        if compared.source == compared.target and not compared.differences:
            return compared, False, position
        keys = _values(schema, [difference.key for difference in compared.differences])
        with sides.spent.counted():
            before = rows_before(self.source, position, schema, key_table(schema, keys), self.parents)
        if not before.has_changes:
            # if rows that differ were left out, nobody knows whether they are rows in quarantine
            return _without(compared, listed) if compared.complete else compared, False, position
        by_key = {tuple(key.values()): each for key, each in zip(keys, compared.differences, strict=True)}
        changed = _as_tuples(before.changed)
        differing = {key: each for key, each in by_key.items() if key not in changed}
        changed_keys = [each.key for key, each in by_key.items() if key in changed]
        for key, where in self._differences_before(sides, before, changed_keys).items():
            differing[key] = replace(by_key[key], where=where)
        ordered = tuple(sorted(differing.values(), key=lambda each: each.key))
        compared = _without(replace(compared, differences=ordered), listed)
        if not compared.complete and not compared.differences:
            raise SourceMoved(
                f"{schema.table}: too many rows were changed after {position.at}, where it is published: run"
                " `lakeingest run`, and verify again"
            )
        if self.is_own_parent and compared.differences:
            raise SourceMoved(
                f"{schema.table} was changed after {position.at}, where it is published, and foreign keys may have"
                " changed more of its rows, which the source does not log: run `lakeingest run`, and verify while"
                " nobody writes to it"
            )
        return compared, True, position

    def _differences_before(
        self, sides: Sides, before: RowsBefore, changed: Sequence[Key]
    ) -> dict[tuple[Any, ...], str]:
        """The changed keys whose row as of the published position is not the row of the copy, and how it differs.

        `sides` have the copy as of this position. `changed`: the keys of `before.changed` in the form of a difference.
        """
        if not changed:
            return {}
        schema = sides.schema
        found_rows = sides.copy.with_keys(changed)
        # a damaged copy may have NULL where the source cannot have it
        fields = pa.schema([field.with_nullable(True) for field in table_schema(schema)])
        copy = fields.empty_table() if found_rows is None else found_rows.cast(fields)
        rows_before_changes = before.rows.select(schema.names).cast(fields)
        unequal, only_in_copy = differences(rows_before_changes, copy, schema.key)
        in_copy = _as_tuples(copy.select(schema.key))
        found = dict.fromkeys(_as_tuples(only_in_copy), "only in the target")
        for key in _as_tuples(unequal.select(schema.key)):
            found[key] = "differs" if key in in_copy else ONLY_IN_SOURCE
        return found


def _has_equal_sums(compared: Compared) -> bool:
    """Whether the checksums are equal, or differ only by rows in quarantine."""
    return compared.source == compared.target or bool(compared.quarantined)


def _without(compared: Compared, listed: Collection[Key]) -> Compared:
    """The comparison, without the differences that the quarantine explains.

    `listed`: the keys in quarantine. The copy must not have their rows: it is right that only the source has them.
    """
    missing = {each for each in compared.differences if each.key in listed and each.where == ONLY_IN_SOURCE}
    differences = tuple(each for each in compared.differences if each not in missing)
    return replace(compared, differences=differences, quarantined=tuple(sorted(each.key for each in missing)))


def _values(schema: TableSchema, keys: Sequence[Key]) -> list[dict[str, Any]]:
    """The values of keys that a comparison has found: for each key the values by column, as Arrow gives them back."""
    values = [
        values_of(schema, key) if schema.ordered else values_of_texts(schema, tuple(map(str, key))) for key in keys
    ]
    rows: list[dict[str, Any]] = pa.Table.from_pylist(values, key_table(schema, ()).schema).to_pylist()
    return rows


def _as_tuples(keys: pa.Table) -> set[tuple[Any, ...]]:
    """The keys as tuples of Python's values."""
    return {tuple(key.values()) for key in keys.to_pylist()}
