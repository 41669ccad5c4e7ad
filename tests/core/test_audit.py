"""The audit of a commit: how much is read, which files, and what counts as a fault."""

from decimal import Decimal
from typing import Any

import pytest

from lakeingest.core.proofs.audit import (
    DAY,
    HOUR,
    LEAST_ROWS,
    SHARE,
    Candidate,
    Cost,
    KeyLook,
    chosen,
    differing_columns,
    fault_of,
    is_full_due,
    miscount,
)


@pytest.mark.parametrize(
    ("cost", "rows"),
    [
        (Cost(), LEAST_ROWS),
        (Cost(0, 0.5, 10.0), LEAST_ROWS),  # nothing was read
        (Cost(1_000, 0.0, 10.0), LEAST_ROWS),  # too quick to be measured
        (Cost(1_000, 1.0, 10.0), LEAST_ROWS),  # a tenth of the publish would be fewer rows
        (Cost(1_000_000, 1.0, 10.0), 1_000_000),
        (Cost(1_000_000, 2.0, 10.0), 500_000),
        (Cost(1_000_000, 1.0, 10.0, owed=0.01), 0),
    ],
)
def test_an_audit_reads_what_a_tenth_of_the_publish_allows(cost: Cost, rows: int) -> None:
    """By the rows that the last audit read in a second, and never fewer than the least; nothing while time is owed."""
    assert cost.most_rows == rows


def test_audits_take_a_tenth_of_the_time_of_publishes() -> None:
    """The publish after a long audit has none. Time that was not used is not kept for later."""
    cost, audits, publishes = Cost(), 0.0, 0.0
    for _ in range(1_000):
        if is_due := cost.most_rows > 0:
            cost, audits = cost.audited(LEAST_ROWS, 0.03), audits + 0.03
        seconds = 0.13 if is_due else 0.1
        cost, publishes = cost.merged(seconds / 2).published(seconds / 2), publishes + seconds
    assert 0.8 * SHARE < audits / publishes <= SHARE
    assert Cost().published(1_000.0).audited(LEAST_ROWS, 0.5).published(1.0).most_rows == 0


@pytest.mark.parametrize(
    ("seconds_since", "run_seconds", "is_due"),
    [
        (None, 0.0, True),  # unknown is not "just now"
        (DAY, 0.0, True),
        (DAY - 1, 0.0, False),
        (HOUR, HOUR - 1, False),
        (HOUR, HOUR, True),
        (HOUR - 1, 100 * HOUR, False),
    ],
)
def test_an_audit_in_full_is_due_each_day_and_each_hour_of_a_long_run(
    seconds_since: float | None, run_seconds: float, *, is_due: bool
) -> None:
    """A run of an hour is one that follows."""
    assert is_full_due(seconds_since, run_seconds) is is_due


NEW, OLD = Candidate(is_new=True, rows=10), Candidate(is_new=False, rows=10)


@pytest.mark.parametrize(
    ("files", "most", "new", "old"),
    [
        ([], 100, 0, 0),
        ([NEW] * 5, 1, 1, 0),
        ([OLD] * 5, 1, 0, 1),
        ([NEW] * 5 + [OLD] * 5, 1, 1, 1),
        ([NEW] * 5 + [OLD] * 5, 70, 5, 2),
        ([NEW] * 5 + [OLD] * 5, 100, 5, 5),
        ([NEW, Candidate(is_new=True, rows=1_000)], 10, 1, 0),
    ],
)
def test_new_files_come_first_and_one_of_each_kind_is_read(
    files: list[Candidate], most: int, new: int, old: int
) -> None:
    """However few rows may be read."""
    numbers = chosen(files, most)
    assert len(set(numbers)) == len(numbers)
    assert sum(files[number].is_new for number in numbers) == new
    assert sum(not files[number].is_new for number in numbers) == old


def test_a_file_that_is_too_large_is_passed_over() -> None:
    """Unless it is the first of its kind; smaller files after it are read."""
    large = Candidate(is_new=True, rows=1_000)
    assert chosen([NEW, large, NEW, OLD], 40) == [0, 2, 3]
    assert chosen([large, NEW, OLD], 40) == [0, 2]


@pytest.mark.parametrize(
    ("is_gone", "may_lack", "times", "new_times", "is_searched", "fault"),
    [
        (False, False, 1, 1, True, None),
        (False, False, 1, 1, False, None),
        (False, False, 0, 0, False, None),  # it may be in a file that was not read
        (False, False, 1, 0, False, None),  # so may its new row; then the old one is found by an audit that reads more
        (False, False, 0, 0, True, "is missing"),
        (False, False, 1, 0, True, "has its old row"),
        (False, False, 2, 0, True, "has its old row"),
        (False, False, 2, 2, True, None),  # found among all keys
        (False, True, 0, 0, True, None),
        (False, True, 1, 1, True, None),
        (False, True, 1, 0, True, "has its old row"),
        (True, False, 0, 0, True, None),
        (True, False, 1, 0, True, "is still there, although its row was deleted"),
        (True, False, 1, 1, False, "is still there, although its row was deleted"),
    ],
)
def test_a_changed_key_is_there_once_or_not_at_all(
    *, is_gone: bool, may_lack: bool, times: int, new_times: int, is_searched: bool, fault: str | None
) -> None:
    """As its last change says. A key that was not searched everywhere is not called missing."""
    assert fault_of(KeyLook(is_gone, may_lack, times, new_times, is_searched)) == fault


def test_a_file_has_the_rows_that_the_commit_says() -> None:
    """Else the name of the file and both numbers are told."""
    assert miscount("a.parquet", 3, 3) is None
    assert miscount("a.parquet", 3, 4) == "a.parquet has 4 rows, and the commit says 3"


@pytest.mark.parametrize(
    ("expected", "held", "is_same"),
    [
        (1, 1, True),
        (1, 2, False),
        (None, None, True),
        (None, 0, False),
        (0, None, False),
        (1, True, False),
        ("", b"", False),
        ("a", "a ", False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        ([1.0], [1.0], True),
    ],
)
def test_values_are_the_same_only_with_the_same_type(expected: Any, held: Any, *, is_same: bool) -> None:
    """So that NULL, 0, false and an empty text are four values."""
    differing = differing_columns({"id": 7, "v": expected}, {"id": 7, "v": held})
    assert differing == ([] if is_same else ["v"])
