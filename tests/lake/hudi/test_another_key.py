"""A table gets another key, or its key another name: Hudi knows each row by its new key from the publish on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.lake.hudi import all_rows
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.table_form import declare_record_key, record_key_of
from lakeingest.lake.hudi.timeline import writes
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.hudi.test_lift import give_another_form, read_by_hudi_rs, shown
from tests.lake.hudi.test_row_delta import (
    STEPS,
    With,
    alone,
    assert_no_leftovers,
    die,
    folder,
    having,
)
from tests.lake.iceberg.test_lift import lifted
from tests.lake.steps import Crash, Lake

__all__ = ["having"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False),
    Column("n", Kind.INT64, source_type("bigint"), nullable=False),
    Column("t", Kind.STRING, source_type("varchar(9)"), nullable=False),
)
BEFORE = [(n, 100 + n % 7, f"t{n}") for n in range(20)]
KEYS = {"another integer": ("n",), "a text": ("t",), "two integers": ("n", "id"), "as before": ("id",)}


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table that readers see, with the key `id`."""
    lake = lake_of(COLUMNS)
    lake.published(*BEFORE)
    return lake


def renamed(lake: Lake) -> Staged:
    """The copy after its key got the name `number`, and changes after that."""
    columns = (replace(COLUMNS[0], name="number"), *COLUMNS[1:])
    after = replace(lake.schema, columns=columns, key=("number",))
    staged = lifted(lake, lake.loaded(), Lift(lake.schema, after, lake.schema.names, frozenset()), 30)
    lake.schema = after
    return lake.merge(staged, (3, 1, "up", False), (4, 0, "", True), (50, 5, "in", False), pos=40)


RENAMED = sorted([row for row in BEFORE if row[0] not in {3, 4}] + [(3, 1, "up"), (50, 5, "in")])


def with_key(lake: Lake, schema: TableSchema) -> Staged:
    """The copy whose rows were read again with another key: as many as the new key has values for."""
    lake.schema = schema
    staged = lake.wave(lake.started_over(lake.loaded()), by_key(schema, BEFORE))
    return lake.open().mark(staged, lake.leveled(staged, 60))


def by_key(schema: TableSchema, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last row of each key."""
    places = [schema.names.index(name) for name in schema.key]
    return sorted({tuple(row[place] for place in places): row for row in rows}.values())


@pytest.mark.parametrize("how", ["here", "in tasks", "made by Hudi"])
@pytest.mark.long("a publish by Spark")
def test_a_key_of_integers_gets_another_name(
    lake_of: Callable[..., Lake], having: With, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """All engines read it; both ways to merge find its rows, and Hudi's maintenance goes on."""
    lake = lake_of(COLUMNS)
    having(lake, merge="statement" if how == "made by Hudi" else "auto").published(*BEFORE)
    if how == "in tasks":
        monkeypatch.setattr(all_rows, "MOST_BYTES", 0)
        monkeypatch.setattr(all_rows, "_PASS_BYTES_OF_TASKS", 1)
    staged = renamed(lake)
    assert shown(lake) == (["id", "n", "t"], BEFORE)
    lake.publish(staged)
    assert shown(lake) == (["number", "n", "t"], RENAMED)
    assert record_key_of(folder(lake)) == ("number",)
    assert read_by_hudi_rs(lake, "number", "n", "t") == RENAMED
    alone(lake, lake.merge(lake.loaded(), (50, 6, "again", False), (3, 0, "", True), pos=50))
    after = sorted([row for row in RENAMED if row[0] not in {3, 50}] + [(50, 6, "again")])
    assert shown(lake)[1] == after
    having(lake, merge="statement").publish(lake.merge(lake.loaded(), (0, 7, "by Hudi", False), pos=60))
    having(lake, merge="statement").publish(lake.open().maintain(lake.loaded()))
    assert shown(lake)[1] == [(0, 7, "by Hudi"), *after[1:]]
    first = min(instant for _, instant, _ in writes(folder(lake)))
    old = lake.spark.read.format("hudi").option("as.of.instant", first).load(str(folder(lake)))
    assert sorted(tuple(row) for row in old.select("id", "n", "t").collect()) == BEFORE


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("kind", KEYS)
def test_a_copy_that_is_read_again_has_another_key(lake: Lake, having: With, kind: str) -> None:
    """Of rows with the same new key one is left, and later changes find it."""
    schema = replace(lake.schema, key=KEYS[kind])
    alone(lake, with_key(lake, schema))
    rows = by_key(schema, BEFORE)
    assert shown(lake)[1] == rows
    assert record_key_of(folder(lake)) == ((RECORD_KEY,) if kind == "a text" else schema.key)
    changed = (*rows[0][:2], rows[0][2]) if kind == "a text" else (*rows[0][:2], "changed")
    alone(lake, lake.merge(lake.loaded(), (*changed, False), (*rows[1], True), pos=70))
    assert shown(lake)[1] == sorted([changed, *rows[2:]])
    having(lake, merge="statement").publish(lake.merge(lake.loaded(), (*rows[2], True), (*rows[1], False), pos=80))
    assert shown(lake)[1] == sorted([changed, rows[1], *rows[3:]])
    assert_no_leftovers(lake)


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("step", [*STEPS, "before the properties"])
def test_a_publish_that_dies_is_finished(lake: Lake, having: With, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Readers see all of before, or all of after, also while the properties name the key of before."""
    staged = renamed(lake)
    with monkeypatch.context() as patch:
        die(patch, *STEPS.get(step, ("lakeingest.lake.hudi.folder.declare_record_key", 1)))
        with pytest.raises(Crash):
            alone(lake, staged)
    is_visible = step.endswith(("gone", "swept", "properties"))
    assert shown(lake) == ((["number", "n", "t"], RENAMED) if is_visible else (["id", "n", "t"], BEFORE))
    if step == "before the properties":
        assert record_key_of(folder(lake)) == ("id",)
        assert read_by_hudi_rs(lake, "number", "n", "t") == RENAMED
        one = lake.spark.read.format("hudi").load(str(folder(lake))).where("number = 50")
        assert one.select("t").collect() == [("in",)]
    assert lake.loaded().visible == is_visible
    if not is_visible:
        alone(lake, lake.loaded())
    assert record_key_of(folder(lake)) == ("number",)
    having(lake, merge="statement").publish(lake.merge(lake.loaded(), (0, 7, "by Hudi", False), pos=60))
    assert shown(lake)[1] == [(0, 7, "by Hudi"), *RENAMED[1:]]
    assert_no_leftovers(lake)


@pytest.mark.long("publishes of Hudi", only=("statement",))
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_another_run_cannot_bring_the_old_key_back(lake: Lake, having: With, way: str) -> None:
    """It had lost its lease, and writes the properties late; the next publish corrects them."""
    lake.publish(renamed(lake))
    staged = lake.merge(lake.loaded(), (50, 6, "again", False), (3, 0, "", True), pos=50)
    declare_record_key(folder(lake), ("id",))
    having(lake, merge=way).publish(staged)
    assert record_key_of(folder(lake)) == ("number",)
    assert shown(lake)[1] == sorted([row for row in RENAMED if row[0] not in {3, 50}] + [(50, 6, "again")])


def test_a_table_of_another_form_gets_no_other_key(lake: Lake) -> None:
    """Hudi's statement finds rows by the key of before; readers keep theirs."""
    give_another_form(lake)
    staged = with_key(lake, replace(lake.schema, key=("n",)))
    with pytest.raises(SchemaChanged, match="other columns or another key, because it is not as lakeingest made it"):
        lake.publish(staged)
    assert shown(lake) == (["id", "n", "t"], BEFORE)
