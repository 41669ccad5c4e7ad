"""What following costs: the bound of a pace, and what a run has taken as of a day."""

import json
import re
from dataclasses import replace

import pytest

from lakeingest.core.figures.bill import UNIT_COSTS, Bill, dollars
from lakeingest.core.figures.following import DAY_SECONDS, LEAST_SECONDS, NO_FILES, NOT_BOUNDED, Followed, bound_of

TAKEN = Followed(1_000.0, 120.0, 60, Bill(12.0, 4, 300, 20, ("pages",), 600, 7_200))


@pytest.mark.parametrize(
    ("every", "tables", "apart"),
    [
        (None, 1, 2 * UNIT_COSTS.publish),  # `auto` works half of the time
        (None, 5, 10 * UNIT_COSTS.publish),
        (30.0, 1, 30.0),
        (30.0, 5, 30.0),
        (30.0, 1_000_000, 1_000_000 * UNIT_COSTS.publish),  # a round takes longer than its pace
        (0.0, 2, 2 * UNIT_COSTS.publish),
        (None, 0, 2 * UNIT_COSTS.publish),  # nothing to copy: as for one table
    ],
)
def test_the_pace_bounds_the_publishes(every: float | None, tables: int, apart: float) -> None:
    """Of a table that changes all the time; CPU seconds and files are those of all tables."""
    bound = bound_of(every, tables, knows_files=True)
    assert bound.publishes == int(DAY_SECONDS / apart)
    assert bound.cpu_seconds == pytest.approx(bound.publishes * max(tables, 1) * UNIT_COSTS.publish)
    assert bound.cpu_seconds <= DAY_SECONDS * (0.5 if every is None else 1) * 1.0001
    assert bound.files == round(bound.publishes * tables * UNIT_COSTS.publish_files)
    assert bound.dollars == dollars(bound.cpu_seconds)
    assert bound.not_counted == NOT_BOUNDED


def test_a_bound_in_words_names_its_rule_and_what_is_missing() -> None:
    """The files of a publish are left out by name where they depend on the table."""
    text = str(bound_of(30, 2, knows_files=False))
    assert "2,880 publishes of a table that changes all the time (publish_every: 30.0 seconds), " in text
    assert f"not counted: {', '.join((*NOT_BOUNDED, NO_FILES))}" in text
    assert f", {round(2_880 * 2 * UNIT_COSTS.publish_files):,} files, " in str(bound_of(30, 2, knows_files=True))


@pytest.mark.parametrize(("every", "cpu", "apart"), [(None, "43,200", "0.4 seconds"), (0, "86,400", "0.2 seconds")])
def test_a_pace_without_a_duration_is_bounded_in_words_that_a_person_can_believe(
    every: float | None, cpu: str, apart: str
) -> None:
    """Not by hundreds of thousands of publishes, but by what has to happen for so many."""
    text = str(bound_of(every, 2, knows_files=True))
    assert text.startswith(f"following costs at most {cpu} CPU seconds a day (at least $")
    assert f"only if all tables change day and night; then each is published every {apart} or less often" in text
    assert "takes about 0.1 CPU seconds and 10 files, and a table without changes has none" in text
    assert "publish_every: 5m has at most 288 publishes of a table a day; not counted" in text
    assert " files" not in str(bound_of(every, 2, knows_files=False)).replace("bytes of files", "").split(NO_FILES)[0]
    assert max(int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", text)) < 100_000


def test_a_day_at_this_pace() -> None:
    """All that was counted, as often as the time fits into a day; nothing for a short time."""
    assert TAKEN.a_day == Followed(
        1_000.0, DAY_SECONDS, 43_200, Bill(8_640.0, 2_880, 216_000, 14_400, ("pages",), 432_000, 5_184_000)
    )
    assert replace(TAKEN, seconds=LEAST_SECONDS - 1).a_day is None
    unknown = replace(TAKEN, bill=Bill(None, 0, 0, 0)).a_day
    assert unknown is not None
    assert unknown.bill.cpu_seconds is None


@pytest.mark.parametrize("taken", [TAKEN, replace(TAKEN, seconds=1.0), replace(TAKEN, bill=Bill(None, 1, 2, 3))])
def test_a_document_gives_the_value_back(taken: Followed) -> None:
    """It also has the day."""
    document = json.loads(json.dumps(taken.to_json()))
    assert Followed.of_json(document) == taken
    assert (document["a_day"] is None) == (taken.a_day is None)


def test_in_words_it_has_the_time_and_the_day() -> None:
    """The day only after LEAST_SECONDS."""
    text = str(TAKEN)
    assert text.startswith("followed for 2.0 minutes: 60 publishes, 12.0 CPU seconds (")
    assert "; 600 files written, 7,200 bytes; 4 requests to object stores, 300 bytes read and 20 written;" in text
    assert "; a day at this pace: 43,200 publishes, 8,640.0 CPU seconds (" in text
    assert text.count("not counted") == 1
    assert "a day" not in str(replace(TAKEN, seconds=1.0))
