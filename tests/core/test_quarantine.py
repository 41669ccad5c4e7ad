"""Keys in quarantine: how many may be there, and what becomes of their list."""

import json

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress_form import FORMAT, QUARANTINE_FORMAT
from lakeingest.core.copies.quarantine import (
    MOST_CHARACTERS,
    Failed,
    Limit,
    note_of_quarantine,
    refusal,
    refusal_of_keys,
)
from lakeingest.core.tables.schema import TableId
from tests.core.quarantining import BREAKS, killed_anywhere
from tests.core.test_progress import NEW, PATCH, at, plan, position

LIMIT = Limit(max_rows=3, max_share=0.1)
SEEDS = range(20)


@pytest.mark.parametrize(
    ("listed", "rows", "allowed"),
    [(0, 0, True), (1, 1, True), (2, 19, False), (2, 20, True), (3, 1000, True), (4, 1000, False)],
)
def test_both_limits_hold_and_one_row_may_always_go(listed: int, rows: int, *, allowed: bool) -> None:
    """So a small table is not stopped by its first bad row."""
    assert LIMIT.allows(listed, rows) is allowed


def test_an_expectation_that_blames_no_rows_moves_none() -> None:
    """Also beside one that does: the rest would not be published."""
    failed = [Failed("a range", 1), Failed("a mean", None)]
    assert refusal(failed, [], 100, LIMIT) == "a mean blames no single rows"
    assert refusal([], [], 100, LIMIT) is None


def test_the_limit_counts_the_rows_that_are_there_already() -> None:
    """Each expectation tells how many rows fail; together they may blame the same ones. Then the keys decide."""
    failed = [Failed("a range", 2), Failed("a length", 1)]
    assert refusal(failed, [(1,)], 99, LIMIT) is None
    assert refusal(failed, [(1,), (2,)], 98, LIMIT) == (
        "4 rows would be in quarantine, and quality.quarantine allows 3, and 10.0000% of the rows"
    )
    assert refusal_of_keys([(5,), (6,)], [(1,)], 99, LIMIT) is None
    assert refusal_of_keys([(5,), (6,), (7,)], [(1,)], 99, LIMIT) is not None
    long = [("x" * MOST_CHARACTERS,)]
    assert refusal_of_keys(long, [], 99, LIMIT) == "the keys in quarantine would take more than 65,536 characters"


def test_a_listed_key_stays_until_a_merge_applies_a_change_of_it() -> None:
    """The rows are counted without it, and readers of other versions refuse the list."""
    shown = at(Phase.PUBLISHED)
    listed = shown.quarantined([(9,), (3,)], shown.rows - 2)
    assert (listed.phase, listed.rows, listed.quarantine) == (Phase.LEVEL, shown.rows - 2, ((3,), (9,)))
    again = listed.audited().published().quarantined([(1,)], 13)
    assert again.quarantine == ((1,), (3,), (9,))
    merged = again.merged(plan(again, 9), position(9), inserted=1, deleted=0, freed=[(3,), (7,)])
    assert merged.quarantine == ((1,), (9,))
    for progress in (listed, merged):
        stored = json.loads(json.dumps(progress_form.to_json(progress)))
        assert stored["format"] == QUARANTINE_FORMAT
        assert progress_form.from_json(stored) == progress
    assert progress_form.to_json(shown)["format"] == FORMAT
    with pytest.raises(ValueError, match="has no row that could be removed"):
        listed.quarantined([(3,)], 9)
    with pytest.raises(ValueError, match="has no row that could be removed"):
        shown.quarantined([(3,), (3,)], 9)


def test_a_truncate_and_a_new_copy_empty_the_list() -> None:
    """Nothing is left of what failed. Over a gap, and while rows are read again, the keys stay without a row."""
    listed = at(Phase.PUBLISHED).quarantined([(3,)], 15)
    assert listed.emptied(position(99), "beef").quarantine == ()
    assert listed.started_over(NEW).quarantine == ()
    assert listed.over_gap(position(99), "beef", Place(0, 1, 98)).quarantine == ((3,),)
    assert listed.reread_rows([PATCH], Place(0, 1, 0)).quarantine == ((3,),)
    assert listed.lifted(position(99), "beef").quarantine == ((3,),)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_copy_and_the_quarantine_are_the_source_wherever_runs_are_killed(seed: int) -> None:
    """A random history with rows that fail, in which each run is killed after one more step than the one before."""
    killed_anywhere(seed)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda each: each.__name__)
def test_each_rule_is_needed(broken: type) -> None:
    """Without it, one of these histories shows a wrong copy, or evidence that is missing."""
    found = 0
    for seed in SEEDS:
        try:
            killed_anywhere(seed, broken)
        except (AssertionError, ValueError):  # the second one: its progress cannot be
            found += 1
    assert found


def test_status_names_the_command_that_lists_the_keys() -> None:
    """For each table."""
    assert "`lakeingest quarantine list shop.orders` names them" in note_of_quarantine(TableId("shop", "orders"), 2)
