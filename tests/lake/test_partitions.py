"""Copies with partitions, on every format: each row is once in the copy, in the partition of its values."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import Kind
from lakeingest.errors import PartitionsDiffer, UnsupportedTable
from tests.lake.divided import BACK, BACKED, COLUMNS, MOVED, MOVES, NEW, ROWS, Divide, assert_seen
from tests.lake.hudi.test_row_delta import alone
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats]


def third_step(lake: Lake) -> Callable[..., object]:
    """A step of a run that looks at the partitions, besides those that both formats have."""
    target = lake.open()
    return target.look if lake.settings.format == "hudi" else target.writer


@pytest.mark.parametrize(
    "texts", [["day(d)"], ["month(d)", "bucket(2, id)"], ["d"], ["truncate(1, v)"], ["year(d)", "v"]], ids=" and ".join
)
@pytest.mark.parametrize("merge", ["row_delta", "statement"])
@pytest.mark.long("merges by Spark, and repeats", only=("statement", "d", "day(d)", "truncate(1, v)", "year(d) and v"))
def test_rows_move_between_partitions_and_back(divide: Divide, texts: list[str], merge: str) -> None:
    """Each is once in the copy, in its partition. On Hudi by files without Spark: else it would mend what they lack."""
    lake = divide(*texts, merge=merge)
    publish = partial(alone, lake) if (merge, lake.settings.format) == ("row_delta", "hudi") else lake.publish
    staged = lake.wave(lake.created(), ROWS[:3], upper=(4,))
    staged = lake.wave(staged, ROWS[3:])
    publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    assert_seen(lake, sorted(ROWS))
    publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, MOVED)
    publish(lake.merge(lake.loaded(), *BACK, pos=40))
    assert_seen(lake, BACKED)


def test_partitions_that_a_table_cannot_have_are_refused(divide: Divide) -> None:
    """Before anything is made."""
    for text, reason in (("day(gone)", "names gone, which is not a column"), ("hour(d)", "which hour cannot take")):
        lake = divide(text)
        with pytest.raises(UnsupportedTable, match=reason):
            lake.created()
        assert lake.open().recover(lake.table) is None


def test_other_partitions_in_pipeline_yml_are_refused_by_name(divide: Divide) -> None:
    """The copy has those with which it was made, from its beginning; both ways out are in the message."""
    lake = divide("day(d)")
    for staged in (lake.copied(*ROWS), None):
        if staged is None:
            lake.publish(lake.open().mark(lake.loaded(), lake.leveled(lake.loaded(), 20)))
        for texts, wanted in (((), "no partitions"), (("month(d)",), "month.d."), (("day(d)", "v"), "day.d., v")):
            other = divide(*texts)
            other.schema = lake.schema
            for step in (other.open().recover, other.open().inspect, third_step(other)):
                message = f"asks for .*{wanted}, and its copy.* has the partitions day.d.; set partition_by to .* or"
                with pytest.raises(PartitionsDiffer, match=message):
                    step(lake.table)
    plain = divide()
    plain.published(*ROWS)
    divided = divide("d")
    divided.schema = plain.schema
    with pytest.raises(PartitionsDiffer, match=r"its copy.* has no partitions"):
        divided.loaded()
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, MOVED)


def test_ddl_that_takes_partitions_away_stops_the_table_by_name(divide: Divide) -> None:
    """A column that is dropped, also if another one gets its name, and a type that no day has."""
    lake = divide("day(d)")
    staged = lake.published(*ROWS)
    without = replace(lake.schema, columns=(COLUMNS[0], COLUMNS[2]))
    with pytest.raises(PartitionsDiffer, match="divided by d, which DDL dropped or gave another type; set"):
        lake.open().rewriters(staged, Lift(lake.schema, without, ("id", "v")))
    again = replace(lake.schema, columns=(*without.columns, COLUMNS[1]))
    with pytest.raises(PartitionsDiffer, match="divided by d, which DDL dropped"):
        lake.open().start_over(staged, again, staged.progress, {"id": "id", "v": "v", "d": None})
    lake.schema = replace(lake.schema, columns=(COLUMNS[0], replace(COLUMNS[1], kind=Kind.STRING), COLUMNS[2]))
    wrong_type = "d is date, which day cannot take; set part" if lake.settings.format == "hudi" else "DDL dropped"
    with pytest.raises(PartitionsDiffer, match=wrong_type):
        lake.started_over(staged)
    lake.schema = replace(lake.schema, columns=COLUMNS)
    assert_seen(lake, sorted(ROWS))
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, MOVED)


def test_a_copy_that_is_started_over_keeps_its_partitions(divide: Divide) -> None:
    """Readers see the old rows until then; partitions that have no row any more are empty."""
    lake = divide("day(d)", "bucket(2, id)")
    staged = lake.started_over(lake.published(*ROWS))
    assert lake.seen() == sorted(ROWS)
    staged = lake.wave(staged, [(1, NEW, "a"), (7, None, "g")])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 40)))
    assert_seen(lake, [(1, NEW, "a"), (7, None, "g")])
