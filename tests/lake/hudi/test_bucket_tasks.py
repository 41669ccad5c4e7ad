"""All rows of a table that is too large for one process: tasks of Spark write its files, and readers see one commit."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeingest.core.ddl.lift import Lift
from lakeingest.errors import SchemaChanged, StaleWriter, StateUnreadable
from lakeingest.lake.hudi import all_rows, bucket_tasks
from lakeingest.lake.hudi.base_files import FileGroup
from lakeingest.lake.hudi.bucket_writer import BucketWriter
from lakeingest.lake.hudi.commit import Commit, roll_back
from tests.lake.hudi.test_lift import BEFORE, TEXT_KEY, give_another_form, read_by_hudi_rs, shown
from tests.lake.hudi.test_read_back import FULL, KEYS
from tests.lake.hudi.test_row_delta import STEPS, alone, assert_no_leftovers, commits, die, every_type, filled
from tests.lake.hudi.test_target import staging
from tests.lake.iceberg.test_lift import COLUMNS, NEW, lift_of, lifted
from tests.lake.steps import Crash, Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

IN_TASKS = {name: step for name, step in STEPS.items() if "file" not in name}  # the files are written elsewhere


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is too large; a task reads one file, or writes one bucket."""
    monkeypatch.setattr(all_rows, "MOST_BYTES", 0)
    monkeypatch.setattr(all_rows, "_PASS_BYTES_OF_TASKS", 1)


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table of two columns."""
    return lake_of(COLUMNS)


@pytest.mark.long("publishes of Hudi")
def test_readers_see_the_lift_with_its_publish(lake: Lake) -> None:
    """Rows of several files and the changes after them; a bucket whose rows are all gone; and merges go on after it."""
    staged = lake.published(*((n, 10 * n) for n in range(100)))
    staged = lake.merge(staged, (200, 2000, False), (0, None, True), pos=25)
    lift = lift_of(lake)
    staged = lifted(lake, staged, lift, 30)
    lake.schema = lift.after
    gone = [(n, None, None, True) for n in range(50, 100)]
    staged = lake.merge(staged, (1, None, 2**40, False), (300, 3, 30, False), *gone, pos=40)
    staged = lake.merge(staged, (300, 4, 40, False), (2, None, None, True), pos=50)
    rows = [(1, None, 2**40), *((n, 7, 10 * n) for n in range(3, 50)), (200, 7, 2000), (300, 4, 40)]
    assert lake.open().count(lake.table, staged.version) == len(rows)
    before = shown(lake)
    assert before[0] == ["id", "v"]
    lake.publish(staged)
    assert shown(lake) == (["id", "c", "w"], rows)
    assert read_by_hudi_rs(lake, "id", "c", "w") == rows
    assert_no_leftovers(lake)
    alone(lake, lake.merge(lake.loaded(), (1, 1, 1, True), (9, 9, 2**50, False), pos=60))
    assert shown(lake)[1] == [row if row[0] != 9 else (9, 9, 2**50) for row in rows[1:]]


def test_values_of_every_type_are_those_that_were_copied(lake_of: Callable[..., Lake]) -> None:
    """They come to the tasks as Arrow has them, not as rows of Spark."""
    lake = every_type(lake_of)
    rows = filled(KEYS)
    staged = lake.published(*rows)
    after = replace(lake.schema, columns=(*lake.schema.columns, NEW))
    staged = lifted(lake, staged, Lift(lake.schema, after, (*lake.schema.names, None), frozenset()), 30)
    changed = (*KEYS[0], *FULL, dt.datetime(9999, 12, 31, 23, 59, 59, 999999), 5, 8)
    lake.schema = after
    lake.publish(lake.merge(staged, (*changed, False), pos=40))
    expected = {row[:2]: (*row, 7) for row in rows} | {KEYS[0]: changed}
    assert lake.seen() == sorted(expected.values())
    assert lake.rows(lake.loaded()) == sorted(expected.values())


def test_a_copy_that_is_read_again_has_the_rows_of_its_new_waves(lake: Lake) -> None:
    """The rows of before are gone, though the columns are the same."""
    lake.published((1, 10), (2, 20), (4, 40))
    staged = lake.wave(lake.started_over(lake.loaded()), [(2, 21), (3, 30)])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 60)))
    assert shown(lake) == (["id", "v"], [(2, 21), (3, 30)])
    assert_no_leftovers(lake)


def test_a_text_key_may_get_another_name(lake_of: Callable[..., Lake]) -> None:
    """Its record key is a column that lakeingest adds, which keeps its name."""
    lake = lake_of(TEXT_KEY, ("k",))
    staged = lake.published(("a", 1), ("b", 2), ("ü/%", 3))
    named = replace(TEXT_KEY[0], name="code")
    after = replace(lake.schema, columns=(named, TEXT_KEY[1]), key=("code",))
    staged = lifted(lake, staged, Lift(lake.schema, after, ("k", "v"), frozenset()), 30)
    lake.schema = after
    lake.publish(lake.merge(staged, ("b", None, True), ("c", 3, False), pos=40))
    assert shown(lake) == (["code", "v"], [("a", 1), ("c", 3), ("ü/%", 3)])


@pytest.mark.long("publishes of Hudi")
def test_an_empty_table_is_lifted(lake: Lake) -> None:
    """Its first row has the new columns."""
    staged = lake.published()
    lift = lift_of(lake)
    staged = lifted(lake, staged, lift, 30)
    lake.schema = lift.after
    staged = lake.publish(staged)
    assert shown(lake) == (["id", "c", "w"], [])
    lake.publish(lake.merge(staged, (1, 2, 3, False), pos=40))
    assert shown(lake) == (["id", "c", "w"], [(1, 2, 3)])


@pytest.mark.parametrize("step", IN_TASKS)
@pytest.mark.long("one of the steps in turn", turn="step")
def test_a_publish_that_dies_is_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Readers see the old columns and rows until then, or all of the new ones; no file of the dead run stays."""
    lift = lift_of(lake)
    staged = lifted(lake, lake.published(*((n, 10 * n) for n in range(20))), lift, 30)
    before, lake.schema = shown(lake), lift.after
    with monkeypatch.context() as patch:
        die(patch, *STEPS[step])
        with pytest.raises(Crash):
            lake.publish(staged)
    after = ["id", "c", "w"], [(n, 7, 10 * n) for n in range(20)]
    assert shown(lake) == (after if step.endswith(("gone", "swept")) else before)
    if not lake.loaded().visible:
        lake.publish(lake.loaded())
    assert shown(lake) == after
    assert_no_leftovers(lake)


def test_a_task_may_be_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker wrote that was killed is written again under the same names; no row is there twice."""
    lift = lift_of(lake)
    staged = lifted(lake, lake.published(*((n, 10 * n) for n in range(20))), lift, 30)
    lake.schema = lift.after
    real = bucket_tasks.write_in_tasks

    def twice(*given: Any) -> Any:
        real(*given)
        return real(*given)

    monkeypatch.setattr(all_rows, "write_in_tasks", twice)
    lake.publish(staged)
    assert shown(lake) == (["id", "c", "w"], [(n, 7, 10 * n) for n in range(20)])
    assert_no_leftovers(lake)


def test_a_file_of_a_dead_run_is_no_part_of_a_new_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi takes a file that is older than all commits for one of a commit that was archived."""
    real = bucket_tasks.write_in_tasks

    def beside_another(spark: Any, writer: BucketWriter, *given: Any) -> Any:
        late = replace(writer, commit=replace(writer.commit, instant="20200101000000000"))
        (late.commit.folder / ".hoodie" / ".temp" / late.commit.instant).make_folder()
        real(spark, replace(late, groups={place: FileGroup.new(place[1]) for place in writer.groups}), *given)
        return real(spark, writer, *given)

    monkeypatch.setattr(all_rows, "write_in_tasks", beside_another)
    lake.published((1, 10), (2, 20))
    assert shown(lake) == BEFORE
    assert_no_leftovers(lake)


def test_a_commit_that_was_rolled_back_is_not_completed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers keep what they see."""
    lift = lift_of(lake)
    staged = lifted(lake, lake.published((1, 10), (2, 20)), lift, 30)
    real = Commit.complete

    def late(self: Commit, *given: Any) -> bool:
        roll_back(self.folder)
        return real(self, *given)

    monkeypatch.setattr(Commit, "complete", late)
    with pytest.raises(StaleWriter):
        lake.publish(staged)
    assert shown(lake) == BEFORE
    assert len(commits(lake)) == 1
    assert_no_leftovers(lake)


def test_a_damaged_file_is_named(lake: Lake) -> None:
    """The error of a task is ours, not one of Spark; readers keep what they see."""
    lift = lift_of(lake)
    staged = lifted(lake, lake.published((1, 10), (2, 20)), lift, 30)
    newest = max(staging(lake).glob("data/*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    contents = bytearray(newest.read_bytes())
    contents[4:40] = bytes(36)
    newest.write_bytes(contents)
    with pytest.raises(StateUnreadable, match=newest.name):
        lake.publish(staged)
    assert shown(lake) == BEFORE


@pytest.mark.long("publishes of Hudi")
def test_a_table_of_another_form_gets_no_other_columns(lake: Lake) -> None:
    """Hudi's statement cannot give it any; with the same columns Hudi replaces its rows."""
    lake.published((1, 10), (2, 20))
    give_another_form(lake)
    staged = lake.wave(lake.started_over(lake.loaded()), [(2, 21)])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 60)))
    assert shown(lake) == (["id", "v"], [(2, 21)])
    lift = lift_of(lake)
    staged = lifted(lake, lake.loaded(), lift, 70)
    lake.schema = lift.after
    with pytest.raises(SchemaChanged, match=f"{lake.table}: its copy cannot get other columns or another key"):
        lake.publish(staged)
    assert shown(lake) == (["id", "v"], [(2, 21)])
