"""A lifted copy is staging's alone until its publish, which replaces all rows; Hudi and readers go on from there."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.hudi.table_form import PROPERTIES
from lakeingest.mysql.source_types import source_type
from tests.lake.hudi.test_row_delta import STEPS, With, alone, assert_no_leftovers, die, folder, having
from tests.lake.iceberg.test_lift import COLUMNS, NEW, lift_of, lifted
from tests.lake.steps import Crash, Lake
from tests.servers.engines import HUDI_RS

__all__ = ["having"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

TEXT_KEY = (Column("k", Kind.STRING, source_type("varchar(9)"), nullable=False), COLUMNS[1])


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table of two columns."""
    return lake_of(COLUMNS)


def shown(lake: Lake) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and rows that Spark's readers see."""
    found = lake.spark.read.format("hudi").load(str(lake.settings.folder(lake.table)))
    names = [name for name in found.columns if not name.startswith(("_hoodie", "_lakeingest_key"))]
    return names, sorted(tuple(row) for row in found.select(names).collect())


def read_by_hudi_rs(lake: Lake, *names: str) -> list[tuple[Any, ...]]:
    """The rows that hudi-rs sees, with these columns."""
    read = HUDI_RS.read("", str(lake.settings.folder(lake.table))).select(list(names)).to_pylist()
    return sorted(tuple(row.values()) for row in read)


def give_another_form(lake: Lake) -> None:
    """Let the table's properties lack one that lakeingest has written."""
    listed = folder(lake) / PROPERTIES
    lines = listed.read_text().splitlines(keepends=True)
    listed.write_text("".join(line for line in lines if "cdc.enabled" not in line))


BEFORE = (["id", "v"], [(1, 10), (2, 20)])


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_readers_see_the_lift_with_its_publish(lake: Lake, having: With, way: str) -> None:
    """Merges go on before it, also in the commits of staging that it builds on; and after it, by either way."""
    lake = having(lake, merge=way)
    before = lake.publish(lake.merge(lake.copied((1, 10), (2, 10), (3, 30)), (2, 20, False), (3, None, True)))
    staged = lake.merge(lake.merge(before, (4, 40, False), (1, None, True), pos=23), (1, 10, False), pos=25)
    lift = lift_of(lake)
    staged = lifted(lake, staged, lift, 30)
    assert shown(lake) == BEFORE
    assert lake.open().recover(lake.table) == staged
    assert lake.rows(staged) == [(1, 7, 10), (2, 7, 20), (4, 7, 40)]
    lake.schema = lift.after
    staged = lake.merge(staged, (2, None, 2**40, False), (3, 3, 30, False), pos=40)
    assert lake.open().count(lake.table, staged.version) == 4
    assert shown(lake) == BEFORE
    alone(lake, staged)
    after = [(1, 7, 10), (2, None, 2**40), (3, 3, 30), (4, 7, 40)]
    assert shown(lake) == (["id", "c", "w"], after)
    assert read_by_hudi_rs(lake, "id", "c", "w") == after
    lake.publish(lake.merge(lake.loaded(), (1, 1, 1, True), (9, 9, 2**50, False), pos=50))
    assert shown(lake)[1] == [*after[1:], (9, 9, 2**50)]
    assert lake.loaded().visible


@pytest.mark.long("publishes of Hudi", only=("statement",))
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_a_dropped_column_stays_without_values(lake: Lake, having: With, way: str) -> None:
    """New rows have none in it, either; a new column of its name takes its place."""
    lake = having(lake, merge=way)
    staged = lake.published((1, 10), (2, 20))
    after = replace(lake.schema, columns=(COLUMNS[0], NEW))
    staged = lifted(lake, staged, Lift(lake.schema, after, ("id", None)), 30)
    lake.schema = after
    lake.publish(lake.merge(staged, (2, 5, False), (3, 6, False), pos=40))
    assert shown(lake) == (["id", "c", "v"], [(1, 7, None), (2, 5, None), (3, 6, None)])
    lake.publish(lake.merge(lake.loaded(), (1, 8, False), (4, 9, False), pos=50))
    assert shown(lake)[1] == [(1, 8, None), (2, 5, None), (3, 6, None), (4, 9, None)]
    day = Column("v", Kind.DATE, source_type("date"), default=Value(None))
    last = replace(after, columns=(*after.columns, day))
    staged = lifted(lake, lake.loaded(), Lift(after, last, ("id", "c", None)), 60)
    lake.schema = last
    lake.publish(lake.merge(staged, (1, 8, date(2026, 1, 1), False), pos=70))
    assert shown(lake) == (
        ["id", "c", "v"],
        [(1, 8, date(2026, 1, 1)), (2, 5, None), (3, 6, None), (4, 9, None)],
    )


def test_an_empty_table_is_lifted(lake: Lake) -> None:
    """Its first row has the new columns."""
    staged = lake.published()
    lift = lift_of(lake)
    staged = lifted(lake, staged, lift, 30)
    lake.schema = lift.after
    lake.publish(lake.merge(staged, (1, 2, 3, False), pos=40))
    assert shown(lake) == (["id", "c", "w"], [(1, 2, 3)])


def test_a_text_key_may_get_another_name(lake_of: Callable[..., Lake]) -> None:
    """Its record key is a column that lakeingest adds, which keeps its name."""
    lake = lake_of(TEXT_KEY, ("k",))
    staged = lake.published(("a", 1), ("b", 2))
    named = replace(TEXT_KEY[0], name="code")
    after = replace(lake.schema, columns=(named, TEXT_KEY[1]), key=("code",))
    staged = lifted(lake, staged, Lift(lake.schema, after, ("k", "v"), frozenset()), 30)
    lake.schema = after
    lake.publish(lake.merge(staged, ("b", None, True), ("c", 3, False), pos=40))
    assert shown(lake) == (["code", "v"], [("a", 1), ("c", 3)])
    lake.publish(lake.merge(lake.loaded(), ("a", 11, False), pos=50))
    assert shown(lake)[1] == [("a", 11), ("c", 3)]


def test_a_lift_that_hudi_cannot_have_is_refused(lake: Lake) -> None:
    """A name that Avro has not."""
    staged = lake.published((1, 10), (2, 20))
    odd = replace(lake.schema, columns=(*COLUMNS, replace(NEW, name="größe")))
    with pytest.raises(UnsupportedTable, match="größe"):
        lifted(lake, staged, Lift(lake.schema, odd, ("id", "v", None)), 30)
    assert shown(lake) == BEFORE


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.long("one of the steps in turn", turn="step")
def test_a_lift_whose_publish_dies_is_published_again(lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Readers see the old columns and rows until then, or all of the new ones; no file of the dead run stays."""
    lift = lift_of(lake)
    staged = lifted(lake, lake.published(*((n, 10 * n) for n in range(20))), lift, 30)
    before, lake.schema = shown(lake), lift.after
    die(monkeypatch, *STEPS[step])
    with pytest.raises(Crash):
        alone(lake, staged)
    monkeypatch.undo()
    after = ["id", "c", "w"], [(n, 7, 10 * n) for n in range(20)]
    assert shown(lake) == (after if step.endswith(("gone", "swept")) else before)
    if not lake.loaded().visible:
        alone(lake, lake.loaded())
    assert shown(lake) == after
    assert_no_leftovers(lake)


def test_a_copy_is_read_again_with_other_columns(lake: Lake) -> None:
    """The rows of its new waves, however the old ones were."""
    lake.published((1, 10), (2, 20))
    lake.schema = lift_of(lake).after
    staged = lake.wave(lake.started_over(lake.loaded()), [(2, 1, 2**40), (3, None, 3)])
    alone(lake, lake.open().mark(staged, lake.leveled(staged, 60)))
    assert shown(lake) == (["id", "c", "w"], [(2, 1, 2**40), (3, None, 3)])
