"""Shards in an Iceberg catalog, without Spark: what readers of their table see, and that each changes alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.change import DATABASE, DELETED, TABLE
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Choices, Column, Kind, TableId, TableSchema
from lakeingest.errors import ForeignWrite, NotOurCopy, NotOurTable, UnsupportedTable
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.sharded_target import ShardedAdoptions, ShardedTarget
from lakeingest.lake.iceberg.shards.shared_tables import SharedTables
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.shown import catalog_of
from tests.lake.steps import PLAIN, UUID, Crash, Lake, Row

ORIGIN = (DATABASE, TABLE)


@dataclass
class Shard(Lake):
    """A shard, whose rows say where they come from."""

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as executors write them."""
        return self._marked(super().arrow(rows))

    def changes(self, rows: Sequence[Row]) -> pa.Table:
        """Changes as a merge collapses them."""
        return self._marked(super().changes(rows))

    def _marked(self, rows: pa.Table) -> pa.Table:
        for name, value in zip(ORIGIN, (self.table.database, self.table.name), strict=True):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
        return rows

    @contextmanager
    def shared(self) -> Iterator[Table]:
        """The table that readers query."""
        with catalog_of(self.settings) as catalog:
            yield catalog.load_table(self.settings.shown(self.table))

    def all_seen(self) -> list[dict[str, Any]]:
        """All rows that readers see, of this shard and of others."""
        with self.shared() as table:
            found = table.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row[DATABASE], row[TABLE], row["id"]))

    def own_seen(self) -> list[dict[str, Any]]:
        """The rows of this shard that readers see, without their origin."""
        rows = [row for row in self.all_seen() if (row[DATABASE], row[TABLE]) == (self.table.database, self.table.name)]
        return [{name: value for name, value in row.items() if name not in ORIGIN} for row in rows]

    def lifted(self, staged: Staged, lift: Lift, pos: int) -> Staged:
        """The lift, with what executors have written, is published."""
        target = self.open()
        position = Position(UUID, 1, FilePosition("binlog.000001", pos), GtidSet.parse(f"{UUID}:1-{pos}"))
        progress = staged.progress.lifted(position, lift.after.fingerprint)
        staged = target.lift(staged, lift, progress, [one.rewrite() for one in target.rewriters(staged, lift)])
        self.schema = lift.after
        return self.publish(staged)


@pytest.fixture
def shard_of(tmp_path: Path) -> Callable[..., Shard]:
    """A function that gives a shard of one table in the lake."""
    return shards_on(config.Target(warehouse=Place.of(tmp_path / "lake"), table="lake.all"), tmp_path)


@pytest.fixture
def unique_shard_of(tmp_path: Path) -> Callable[..., Shard]:
    """A function that gives a shard of one table in the lake, with a global key."""
    target = config.Target(warehouse=Place.of(tmp_path / "lake"), table="lake.all")
    return shards_on(target, tmp_path, global_key=True)


def shards_on(target: config.Target, folder: Path, *, global_key: bool = False) -> Callable[..., Shard]:
    """A function that gives a shard of the target's table. Removals wait in the folder."""
    history = config.History.model_validate({"keep": "0s", "least": 3, "readers": "0s"})
    settings = target.model_copy(update={"history": history, "global_key": global_key})

    def make(name: str, columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Shard:
        schema = TableSchema(TableId(*name.split(".")), columns, key, Choices(metadata=("database", "table")))
        return Shard(
            settings,
            lambda: ShardedTarget(settings, waiting=Local(folder / "waiting")),
            cast("SparkSession", None),
            schema,
            {"iceberg": {"show": "shared.show"}},
        )

    return make


def test_a_shard_changes_alone(shard_of: Callable[..., Shard]) -> None:
    """Its rows beside rows of another one with equal keys; a merge, a copy that starts over, and one more shard."""
    one, other = shard_of("a.t"), shard_of("b.t")
    staged = one.published((1, "a"), (2, "a"))
    assert one.own_seen() == one_rows(("a", "a"))
    other.published((1, "b"), (2, "b"))
    one.publish(one.merge(staged, (2, "new", False), (1, "", True), pos=30))
    assert one.own_seen() == [{"id": 2, "v": "new"}]
    assert other.own_seen() == one_rows(("b", "b"))
    again = one.started_over(one.loaded())
    assert one.own_seen() == [{"id": 2, "v": "new"}]  # until the next publish
    staged = one.wave(again, [(7, "again")])
    one.publish(one.open().mark(staged, one.leveled(staged, 40)))
    assert one.own_seen() == [{"id": 7, "v": "again"}]
    assert len(one.all_seen()) == 3
    with one.shared() as table:
        assert {table.schema().find_column_name(number) for number in table.schema().identifier_field_ids} == {
            "id",
            *ORIGIN,
        }
        assert table.properties["gc.enabled"] == "false"
        assert table.current_snapshot().summary["total-records"] == "3"  # type: ignore[union-attr,index]


def one_rows(values: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of PLAIN, with keys from 1 on."""
    return [{"id": key, "v": value} for key, value in enumerate(values, 1)]


def test_what_a_killed_publish_has_not_shown_is_shown_by_the_next_run(shard_of: Callable[..., Shard]) -> None:
    """Readers see the shard as it was before; files that they need stay meanwhile."""
    one, other = shard_of("a.t"), shard_of("b.t")
    staged = one.published((1, "a"))
    other.published((1, "b"))
    merged = one.merge(staged, (1, "new", False), pos=30)
    with pytest.raises(Crash):
        one.publish(merged, one.dying_before("show"))
    assert one.own_seen() == one_rows(["a"])
    assert one.loaded().visible
    assert one.own_seen() == one_rows(["new"])
    with one.shared() as table:
        before = len(table.metadata.snapshots)
    one.loaded()
    with one.shared() as table:
        assert len(table.metadata.snapshots) == before  # nothing is to do any more
    assert other.own_seen() == one_rows(["b"])


def test_a_first_publish_that_was_killed_shows_the_shard_later(shard_of: Callable[..., Shard]) -> None:
    """Before, no reader finds a table."""
    one = shard_of("a.t")
    copied = one.copied((1, "a"))
    staged = one.open().mark(copied, one.leveled(copied, 20))
    with pytest.raises(Crash):
        one.publish(staged, one.dying_before("show"))
    with catalog_of(one.settings) as catalog:
        assert not catalog.table_exists(one.settings.shown(one.table))
    one.loaded()
    assert one.own_seen() == one_rows(["a"])


TEXTS = (PLAIN[0], replace(PLAIN[1], charset="utf8mb4", collation="utf8mb4_bin"))
NUMBER = Column("n", Kind.INT32, source_type("int"), default=Value(None))
FULL = Column("n", Kind.INT32, source_type("int"), default=Value(7))


def test_a_lift_of_a_shard_meets_columns_of_others_by_name(shard_of: Callable[..., Shard]) -> None:
    """A dropped column is NULL in its rows, also if it gets one of this name again; a new name has the values."""
    one, other = shard_of("a.t", TEXTS), shard_of("b.t", (*TEXTS[::-1], NUMBER))
    staged = one.published((1, "a"), (2, "a"))
    other.published(("b", 1, 11))
    assert one.own_seen() == [{"id": key, "v": "a", "n": None} for key in (1, 2)]
    schema = one.schema
    # ADD with a default: rows are written again
    staged = one.lifted(staged, Lift(schema, replace(schema, columns=(*TEXTS, FULL)), ("id", "v", None)), 30)
    assert one.own_seen() == [{"id": key, "v": "a", "n": 7} for key in (1, 2)]
    # DROP, then ADD without a value
    staged = one.lifted(staged, Lift(one.schema, schema, ("id", "v")), 31)
    assert one.own_seen() == [{"id": key, "v": "a", "n": None} for key in (1, 2)]
    staged = one.lifted(staged, Lift(schema, replace(schema, columns=(*TEXTS, NUMBER)), ("id", "v", None)), 32)
    assert one.own_seen() == [{"id": key, "v": "a", "n": None} for key in (1, 2)]
    # names are exchanged with a new one, and a type grows
    renamed = replace(one.schema, columns=(TEXTS[0], replace(TEXTS[1], name="w"), NUMBER))
    staged = one.lifted(staged, Lift(one.schema, renamed, ("id", "v", "n")), 33)
    assert one.own_seen() == [{"id": key, "v": None, "n": None, "w": "a"} for key in (1, 2)]
    # one name is given to another column, and the old one to a new column
    both = replace(renamed, columns=(TEXTS[0], replace(TEXTS[1], name="x"), NUMBER, replace(TEXTS[1], name="w")))
    with_default = replace(both, columns=(*both.columns[:3], replace(both.columns[3], default=Value(None))))
    staged = one.lifted(staged, Lift(renamed, with_default, ("id", "w", "n", None)), 34)
    assert one.own_seen() == [{"id": key, "v": None, "n": None, "w": None, "x": "a"} for key in (1, 2)]
    staged = one.lifted(staged, Lift(one.schema, renamed, ("id", "x", "n")), 35)
    assert one.own_seen() == [{"id": key, "v": None, "n": None, "w": "a", "x": None} for key in (1, 2)]
    longer = replace(NUMBER, kind=Kind.INT64, source_type=source_type("bigint"))
    wider = replace(renamed, columns=(*renamed.columns[:2], longer))
    staged = one.lifted(staged, Lift(renamed, wider, ("id", "w", "n")), 36)
    staged = one.publish(one.merge(staged, (3, "w", 2**40, False), pos=50))
    assert one.own_seen()[2] == {"id": 3, "v": None, "n": 2**40, "w": "w", "x": None}
    assert other.own_seen() == [{"id": 1, "v": "b", "n": 11, "w": None, "x": None}]
    # a column gets a name that the other shard has; an empty copy has no files to write again
    back = replace(wider, columns=(TEXTS[0], TEXTS[1], longer))
    staged = one.lifted(staged, Lift(wider, back, ("id", "w", "n")), 60)
    assert [row["v"] for row in one.own_seen()] == ["a", "a", "w"]
    assert {row["w"] for row in one.own_seen()} == {None}
    staged = one.started_over(staged)
    staged = one.wave(staged, [])
    staged = one.publish(one.open().mark(staged, one.leveled(staged, 70)))
    one.lifted(staged, Lift(back, wider, ("id", "v", "n")), 80)
    assert one.own_seen() == []
    assert len(other.own_seen()) == 1


@pytest.mark.parametrize(
    ("columns", "key", "reason"),
    [
        ((PLAIN[0], replace(PLAIN[1], kind=Kind.INT32)), ("id",), "v is int, and string in the other shards"),
        ((PLAIN[0], replace(PLAIN[1], nullable=False)), ("id", "v"), "its key is"),
    ],
)
def test_a_shard_that_differs_is_refused_before_it_is_made(
    shard_of: Callable[..., Shard], columns: tuple[Column, ...], key: tuple[str, ...], reason: str
) -> None:
    """Also beside a shard that the same run has only begun to copy; and at its publish at the latest."""
    one, other = shard_of("a.t"), shard_of("b.t", columns, key)
    target = one.open()
    one.open, other.open = (lambda: target), (lambda: target)
    started = one.copied((1, "a"))
    with pytest.raises(UnsupportedTable, match=reason):
        other.created()
    other.open = shard_of("b.t").open  # another run, which does not know it
    row = (1, 5) if columns[1].kind is Kind.INT32 else (1, "b")
    staged = other.wave(other.created(), [row])
    one.publish(target.mark(started, one.leveled(started, 20)))
    staged = other.open().mark(staged, other.leveled(staged, 20))
    with pytest.raises(UnsupportedTable, match=reason):
        other.publish(staged)
    with pytest.raises(UnsupportedTable, match=reason):
        shard_of("c.t", columns, key).created()
    assert len(one.all_seen()) == 1


def test_snapshots_of_the_shared_table_can_be_read_while_it_has_them(
    shard_of: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard's own commits are removed, but none that one of these snapshots shows; later their files go."""
    monkeypatch.setattr(expiry, "WORTH", 2)
    monkeypatch.setattr("lakeingest.lake.iceberg.shards.shared_tables.WORTH", 8)  # it removes its own ones later
    one, other = shard_of("a.t"), shard_of("b.t")
    staged, quiet = one.published((1, "a")), other.published((1, "b"))
    versions = {staged.version}
    for number in range(14):
        staged = one.publish(one.merge(staged, (1, f"n{number}", False), pos=100 + number))
        versions.add(staged.version)
        if number % 10 == 5:
            quiet = other.publish(other.merge(quiet, (1, f"n{number}", False), pos=100 + number))
        with one.shared() as table:
            assert len(table.metadata.snapshots) <= 12
            for snapshot in table.metadata.snapshots:
                assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows in {1, 2}
    assert one.own_seen() == one_rows(["n13"])
    assert other.own_seen() == one_rows(["n5"])
    with catalog_of(one.settings) as catalog:
        kept = {each.snapshot_id for each in catalog.load_table(one.settings.identifier(one.table)).metadata.snapshots}
    assert versions - kept  # those that no snapshot shows any more are removed


def test_what_others_do_to_the_shared_table_is_found(shard_of: Callable[..., Shard]) -> None:
    """Rows that they write, columns that they add; if they move main back, the next runs move it on."""
    one, other = shard_of("a.t"), shard_of("b.t")
    staged = one.published((1, "a"))
    other.published((1, "b"))
    with one.shared() as table:
        first = table.metadata.snapshots[0].snapshot_id
        table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert len(one.all_seen()) == 1
    staged = one.publish(one.merge(staged, (1, "new", False), pos=30))
    assert one.own_seen() == one_rows(["new"])
    other.loaded()
    assert other.own_seen() == one_rows(["b"])
    with one.shared() as table:
        ours = table.metadata.current_snapshot_id
        table.append(table.scan().to_arrow().slice(0, 1))
    for act in (one.loaded, lambda: one.publish(one.merge(one_staged(one), (1, "x", False), pos=40))):
        with pytest.raises(ForeignWrite, match=f"set its branch main back to snapshot {ours}"):
            act()
    with one.shared() as table:
        table.manage_snapshots().set_current_snapshot(snapshot_id=ours).commit()
    one.loaded()
    with one.shared() as table, table.update_schema() as update:
        update.add_column("theirs", table.schema().find_type("v"))
    with pytest.raises(ForeignWrite, match=r"someone else changed the columns of lake\.all: theirs was added"):
        one.loaded()


def one_staged(shard: Shard) -> Staged:
    """The shard as its own table has it."""
    staged = super(ShardedTarget, cast("ShardedTarget", shard.open())).recover(shard.table)
    assert staged is not None
    return staged


def test_a_table_of_others_with_the_name_is_left_alone(shard_of: Callable[..., Shard]) -> None:
    """Nothing is made of it, and no shard is copied."""
    one = shard_of("a.t")
    if one.settings.catalog.is_embedded:
        one.settings.warehouse.path.mkdir()
    with catalog_of(one.settings) as catalog:
        catalog.create_namespace("lake")
        catalog.create_table("lake.all", pa.schema([pa.field("id", pa.int32())]))
    with pytest.raises(NotOurTable, match=r"lake\.all exists and is no copy of a\.t"):
        one.created()


def test_a_shard_whose_columns_lost_their_ids_is_not_shown(shard_of: Callable[..., Shard]) -> None:
    """Someone has removed the property by which a shard is known; readers would find NULL in a new column."""
    one = shard_of("a.t", TEXTS)
    staged = one.published((1, "a"))
    with (
        catalog_of(one.settings) as catalog,
        catalog.load_table(one.settings.identifier(one.table)).transaction() as tx,
    ):
        tx.remove_properties("lakeingest.shard")
    lift = Lift(one.schema, replace(one.schema, columns=(*TEXTS, FULL)), ("id", "v", None))
    with pytest.raises(ForeignWrite, match=r"column n of lake_all__lakeingest_a\.t has an id of its own"):
        one.lifted(staged, lift, 30)
    assert one.own_seen() == one_rows(["a"])


def test_the_table_that_readers_query_is_handed_over_with_a_shard(shard_of: Callable[..., Shard]) -> None:
    """Until then another pipeline is refused; after that, the former one."""
    one = shard_of("a.t")
    owners = [Owner(name, f"/state/{name}", name) for name in ("first", "second")]
    first, second = [
        ShardedTarget(one.settings, ownership=Ownership(partial(same, owner), lambda _: False)) for owner in owners
    ]
    one.open = lambda: first
    one.published((1, "a"))
    with pytest.raises(NotOurCopy, match="belongs to the pipeline first"):
        second.recover(one.table)
    other = shard_of("b.t")
    other.open = lambda: second
    with pytest.raises(NotOurCopy, match="belongs to the pipeline first"):  # it may have no shard there
        other.created()
    adoptions = ShardedAdoptions(ShardedTarget(one.settings), owners[1])
    adoptions.adopt(one.table)
    adoptions.adopt(one.table)
    one.open = lambda: second
    one.publish(one.merge(one.loaded(), (1, "new", False), pos=30))
    assert one.own_seen() == one_rows(["new"])
    other.published((1, "b"))
    with pytest.raises(NotOurCopy, match="belongs to the pipeline second"):
        first.recover(one.table)


def same(owner: Owner) -> Owner:
    """The owner."""
    return owner


def test_rows_of_a_dropped_shard_leave_by_maintenance(shard_of: Callable[..., Shard]) -> None:
    """Not before; and rows of others stay."""
    one, other = shard_of("a.t"), shard_of("b.t")
    staged = one.published((1, "a"))
    other.published((1, "b"))
    with catalog_of(one.settings) as catalog:
        catalog.drop_table(one.settings.identifier(other.table))
    one.publish(one.merge(staged, (1, "new", False), pos=30))
    assert len(one.all_seen()) == 2
    one.open().remove_leftovers(one.table, one.settings.history.readers)
    assert one.all_seen() == [{"id": 1, "v": "new", DATABASE: "a", TABLE: "t"}]
    other.published((1, "b"), (2, "b"))
    assert len(one.all_seen()) == 3
    assert DELETED not in one.all_seen()[0]
    assert SharedTables.held(cast("ShardedTarget", one.open()).shared, other.table)
