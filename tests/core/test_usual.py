"""What is usual for a table, and which numbers are reported."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakeingest.core.proofs.usual import LEAST_COUNTS, LEAST_SECONDS, MOST_COUNTS, Counts, Usual, Written

HOUR = 3_600.0
DAY = 24 * HOUR


def history(numbers: Sequence[int], rows: Sequence[int] = (), nulls: Sequence[int] = ()) -> Usual:
    """Spans of an hour in which so many keys changed. Each has 100 written rows, of which so many have no coupon."""
    usual = Usual()
    for number, changed in enumerate(numbers):
        written = Written(changed, 100, {"coupon": nulls[number] if nulls else 2})
        size = rows[number] if rows else 1_000
        usual = usual.after(Counts(number * HOUR, (number + 1) * HOUR, size, written))
    return usual


STEADY = [100, 120, 90, 110, 100, 95, 105, 100, 115]


def test_too_few_counts_say_nothing() -> None:
    """Neither about numbers nor about pauses."""
    few = history([100] * (LEAST_COUNTS - 1) + [100_000])
    assert few.findings() == []
    assert history([100] * (LEAST_COUNTS - 1)).pause(1e9) is None
    assert Usual().pause(1e9) is None
    assert Usual().last is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (100, None),
        (250, None),  # not three times as many
        (40, None),
        (
            5_000,
            "5,000 keys have changed within 1.0 hours, 5,000 an hour; usual are 100 an hour, 90 to 120 in the last 9",
        ),
        (3, "3 keys have changed within 1.0 hours, 3 an hour; usual are 100 an hour, 90 to 120 in the last 9 spans"),
    ],
)
def test_many_more_or_fewer_changes_are_reported(changed: int, text: str | None) -> None:
    """By their ratio to the median."""
    findings = history([*STEADY, changed]).findings()
    assert len(findings) == (text is not None)
    assert text is None or findings[0].startswith(text)


def test_what_varies_much_may_vary() -> None:
    """So a table whose changes come in bursts is not reported all the time."""
    bursts = [5, 4_000, 20, 900, 3, 2_500, 60, 10, 700]
    assert history([*bursts, 5_000]).findings() == []
    assert history([*bursts, 1]).findings() == []


def test_a_table_that_shrinks_is_reported() -> None:
    """Its growth is usual."""
    growing = [1_000 + 10 * number for number in range(9)]
    assert history([*STEADY, 100], [*growing, 1_090]).findings() == []
    [finding] = history([*STEADY, 100], [*growing, 300]).findings()
    assert finding == ("it has 300 rows, and had 1,080, -72.2%; usual is +1.0%, +0.9% to +1.0% in the last 8 spans")


def test_the_share_of_nulls_is_reported_by_column() -> None:
    """Not if few rows were written, and not of a new column."""
    shares = [2, 3, 2, 1, 2, 2, 4, 2, 3]
    usual = history(STEADY, nulls=shares)
    last = Counts(9 * HOUR, 10 * HOUR, 1_000, Written(100, 200, {"coupon": 80, "new": 200}))
    [finding] = usual.after(last).findings()
    assert finding == (
        "column coupon: 40.0% of 200 written values are NULL; usual are 2.0%, 1.0% to 4.0% in the last 9 spans"
    )
    few = replace(last, written=Written(100, 10, {"coupon": 10}))
    assert usual.after(few).findings() == []
    assert history([*STEADY, 100], nulls=[*shares, 6]).findings() == []


def test_of_many_columns_only_some_are_named() -> None:
    """A message stays readable."""
    names = [f"c{number}" for number in range(5)]
    usual = Usual()
    for number in range(10):
        nulls = dict.fromkeys(names, 100 if number == 9 else 0)
        usual = usual.after(Counts(number * HOUR, (number + 1) * HOUR, 10, Written(100, 100, nulls)))
    *named, more = usual.findings()
    assert [finding.partition(":")[0] for finding in named] == ["column c0", "column c1", "column c2"]
    assert more == "the share of NULLs of 2 more columns is unusual"


def test_a_long_pause_is_reported() -> None:
    """Longer than twice the longest one."""
    usual = history(STEADY)
    end = len(STEADY) * HOUR
    assert usual.pause(end + 2 * HOUR) is None
    assert usual.pause(end + 3 * DAY) == (
        "no key has changed for 3.0 days, since 1970-01-01T09:00:00+00:00;"
        " the longest of the last 9 pauses was 1.0 hours"
    )
    short = Usual(tuple(replace(counts, since=counts.until - 60) for counts in usual.counts))
    assert short.pause(end + HOUR) is None
    assert short.pause(end + HOUR + 1) is not None


def test_short_spans_are_joined() -> None:
    """They say nothing alone; the first one, whose length is not known, too."""
    first = Counts(0, 0, 10, Written(5, 5, {"a": 1, "b": 2}))
    second = Counts(0, LEAST_SECONDS - 1, 12, Written(2, 2, {"a": 1}))
    third = Counts(LEAST_SECONDS - 1, LEAST_SECONDS, 13, Written(1))
    usual = Usual().after(first).after(second)
    assert usual.counts == (Counts(0, LEAST_SECONDS - 1, 12, Written(7, 7, {"a": 2})),)
    usual = usual.after(third)
    assert usual.counts == (Counts(0, LEAST_SECONDS, 13, Written(8, 7, {"a": 2})),)
    assert len(usual.after(third).counts) == 2
    steady = history(STEADY)
    short = Counts(steady.counts[-1].until, steady.counts[-1].until + 1, 1_000, Written(100_000))
    assert steady.after(short).findings() == []


def test_only_the_last_counts_are_kept() -> None:
    """As many as say what is usual."""
    usual = history(range(MOST_COUNTS + 5))
    assert [counts.written.changed for counts in usual.counts] == list(range(5, MOST_COUNTS + 5))


def test_counts_are_read_back() -> None:
    """From their document."""
    usual = history(STEADY)
    assert Usual.from_json(json.loads(json.dumps(usual.to_json()))) == usual


def test_what_is_written_adds_up() -> None:
    """The columns are those that are known of all rows; a part without rows says nothing about columns."""
    some, none = Written(3, 2, {"a": 1, "b": 0}), Written(4)
    assert some + none == none + some == Written(7, 2, {"a": 1, "b": 0})
    assert some + Written(1, 1, {"b": 1, "c": 1}) == Written(4, 3, {"b": 1})
    assert Counts(5, 3, 0, none).seconds == 0
