"""Which range is compared next, what is known of ranges, and what comparisons may cost."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.proofs.proof import (
    DAY,
    DUE_SHARE,
    FIRST_ROWS,
    LEAST_ROWS,
    MOST_CREDIT,
    MOST_ROWS,
    RECHECK_SECONDS,
    TRANSITIONS,
    Budget,
    Facts,
    Failed,
    RangeProof,
    Round,
    State,
    TableProof,
    Turn,
    next_due,
)
from lakeingest.core.tables.keys import EVERY_KEY, KeyRange
from lakeingest.core.tables.schema import TableId

A, B = TableId("shop", "a"), TableId("shop", "b")
FACTS = Facts("id int", "begun", "f1", "server", 1, 0, Place(1, 1, 100), 3)
NOW = 1_000_000.0


def up_to(*bounds: int) -> list[KeyRange]:
    """The ranges of all keys, cut at these bounds."""
    ends = [None, *((bound,) for bound in bounds), None]
    return [KeyRange(*pair) for pair in itertools.pairwise(ends)]


def equal(keys: KeyRange = EVERY_KEY, at: float = NOW, seconds: float = 1.0) -> RangeProof:
    """A proven range."""
    return RangeProof(keys).compared(Turn.EQUAL, at, seconds, "binlog.000001:4")


def different(keys: KeyRange = EVERY_KEY, at: float = NOW) -> RangeProof:
    """A range that differs."""
    return RangeProof(keys).compared(Turn.DIFFERENT, at, 1.0, "binlog.000001:4", "key 7 differs")


def test_every_state_knows_every_event() -> None:
    """And an equal comparison alone makes a range proven."""
    assert TRANSITIONS.keys() == set(itertools.product(State, Turn))
    assert {turn for (_, turn), after in TRANSITIONS.items() if after is State.PROVEN} == {Turn.EQUAL}


def test_a_lost_proof_keeps_its_time_and_first_reason() -> None:
    """So that `status` can say when it was last proven, and why it is doubted."""
    lost = equal().after(Turn.DOUBTED, "first")
    assert lost.after(Turn.REREAD, "second") == lost
    assert (lost.state, lost.proven_at, lost.why) == (State.LOST, NOW, "first")
    assert RangeProof().after(Turn.REREAD, "x") == RangeProof()


def test_a_difference_stays_until_its_rows_are_read_again_or_are_equal() -> None:
    """A doubt removes no difference."""
    assert different().after(Turn.DOUBTED, "x") == different()
    assert different().after(Turn.REREAD, "x").state is State.LOST
    assert different().compared(Turn.EQUAL, NOW, 1.0, "p") == equal().compared(Turn.EQUAL, NOW, 1.0, "p")


@pytest.mark.parametrize(
    ("proof", "age", "is_due"),
    [
        (RangeProof(), 0, True),
        (equal().after(Turn.DOUBTED, "x"), 0, True),
        (equal(), 0, False),
        (equal(), DUE_SHARE * DAY - 1, False),
        (equal(), DUE_SHARE * DAY, True),
        (equal(), -1, True),  # the clock was ahead, so its age is not known
        (different(), RECHECK_SECONDS - 1, False),
        (different(), RECHECK_SECONDS, True),
        (replace(different(), checked_at=None), 0, True),
    ],
)
def test_when_a_range_is_due(proof: RangeProof, age: float, *, is_due: bool) -> None:
    """With an aim of a day."""
    assert proof.is_due(NOW + age, DAY) is is_due


@pytest.mark.parametrize(
    ("now", "turn"),
    [
        (replace(FACTS), None),
        (replace(FACTS, place=None), None),
        (replace(FACTS, place=Place(1, 2, 0), signal=2), None),  # old documents of signals are removed
        (replace(FACTS, restarts=1), Turn.REREAD),
        (replace(FACTS, begun="later"), Turn.REREAD),
        (replace(FACTS, signal=4), Turn.REREAD),
        (replace(FACTS, place=Place(1, 1, 99)), Turn.REREAD),
        (replace(FACTS, fingerprint="f2"), Turn.DOUBTED),
        (replace(FACTS, server="other"), Turn.DOUBTED),
        (replace(FACTS, epoch=2), Turn.DOUBTED),
    ],
)
def test_what_makes_a_proof_doubtful(now: Facts, turn: Turn | None) -> None:
    """A change of the copy's facts, whoever has made it, and whenever."""
    proof = TableProof(FACTS, (equal(),), 1000.0).under(now)
    assert proof.ranges[0].state is (State.PROVEN if turn is None else State.LOST)
    doubt = now.doubt(FACTS)
    assert (doubt and doubt[0]) == turn
    assert proof.under(now) == proof
    assert proof.facts.signal >= FACTS.signal
    assert proof.facts.place is not None


def test_with_another_key_nothing_is_known() -> None:
    """The bounds of the ranges are of the old one."""
    other = replace(FACTS, key="name varchar(9)")
    assert TableProof(FACTS, tuple(map(equal, up_to(5, 9)))).under(other) == TableProof(other)


def test_compared_ranges_take_the_place_of_their_keys() -> None:
    """What they cut keeps the rest."""
    first, second, third = up_to(10, 20)
    proof = TableProof(FACTS).with_ranges([equal(first), different(second)], 2_000.0)
    assert [each.state for each in proof.ranges] == [State.PROVEN, State.DIFFERS, State.UNPROVEN]
    assert [each.keys for each in proof.ranges] == [first, second, third]
    again = proof.with_ranges([equal(KeyRange((5,), (15,)))])
    assert [each.keys for each in again.ranges] == up_to(5, 15, 20)
    assert again.rate == proof.rate == 2_000.0
    assert [each.keys for each in proof.with_ranges([equal(KeyRange((5,)))]).ranges] == up_to(5)
    assert proof.with_ranges([equal()]).ranges == (equal(),)


def test_a_range_that_differs_is_compared_alone() -> None:
    """So the ranges before it and after it have their turn."""
    first, second, third = up_to(10, 20)
    proof = TableProof(FACTS, (RangeProof(first), different(second), RangeProof(third)))
    assert [proof.end_after(each) for each in proof.ranges] == [(10,), (20,), None]


@pytest.mark.parametrize("ranges", [[], [KeyRange((1,))], [KeyRange(None, (1,)), KeyRange((2,))], up_to(5)[:1]])
def test_ranges_have_all_keys_each_once(ranges: list[KeyRange]) -> None:
    """Else a part would never be compared."""
    with pytest.raises(ValueError, match="all keys"):
        TableProof(FACTS, tuple(map(RangeProof, ranges)))


def test_the_rows_of_a_range_follow_what_the_source_takes() -> None:
    """About a second, and neither very few nor very many."""
    rates = [None, 1.0, 30_000.0, 1e9]
    assert [TableProof(FACTS, rate=rate).rows for rate in rates] == [FIRST_ROWS, LEAST_ROWS, 30_000, MOST_ROWS]


def test_what_is_doubted_comes_before_what_was_never_proven_and_that_before_old_proofs() -> None:
    """Then the table that has waited longest; a table that cannot be compared is left out."""
    first, second, third = up_to(10, 20)
    lost = equal(first, NOW - 5).after(Turn.DOUBTED, "x")
    table = TableProof(FACTS, (equal(first, NOW - DAY), equal(second, NOW - 2 * DAY), equal(third)))
    unproven = TableProof(FACTS, (equal(first), RangeProof(second), RangeProof(third)))
    differing = TableProof(FACTS, (different(first, NOW - RECHECK_SECONDS), equal(second), equal(third)))
    doubted = TableProof(FACTS, (lost, equal(second), equal(third)))
    assert next_due({A: table}, NOW, DAY) == (A, table.ranges[1])
    assert next_due({A: table, B: unproven}, NOW, DAY) == (B, unproven.ranges[1])
    assert next_due({A: unproven, B: differing}, NOW, DAY) == (B, differing.ranges[0])
    assert next_due({A: differing, B: doubted}, NOW, DAY) == (B, lost)
    assert next_due({A: table, B: doubted}, NOW, DAY, {B}) == (A, table.ranges[1])
    assert next_due({A: TableProof(FACTS), B: unproven}, NOW, DAY) == (A, RangeProof())
    assert next_due({A: TableProof(FACTS, (equal(),))}, NOW, DAY) is None
    assert next_due({}, NOW, DAY) is None


def test_a_debt_is_paid_between_runs_and_nothing_is_saved_up_there() -> None:
    """In a run a little is saved up. A clock that goes back gives nothing."""
    budget = Budget(0.02, at=NOW).spent(2.0)
    assert not budget.allows
    assert not budget.passed(NOW + 99).allows
    assert budget.passed(NOW + 100).allows
    assert budget.passed(NOW + 99).seconds_left == pytest.approx(1)
    assert budget.passed(NOW + 101).seconds_left == 0
    assert budget.passed(NOW + 1e6).owed == -MOST_CREDIT
    assert budget.resumed(NOW + 1e6).owed == 0
    assert budget.passed(NOW - 1e6).owed == 2.0


def test_the_document_of_a_table_is_read_back() -> None:
    """With all its ranges; and of a table of which nothing is known."""
    first, second, third = up_to(10, 20)
    for proof in (
        TableProof(FACTS, (equal(first), different(second), RangeProof(third)), 5.0),
        TableProof(replace(FACTS, place=None), failed=Failed(NOW, "SourceMoved: too many changes")),
    ):
        assert TableProof.from_json(json.loads(json.dumps(proof.to_json()))) == proof


def test_a_comparison_that_succeeds_ends_the_failure_of_the_last_one() -> None:
    """Also if it finds a difference; doubts do not end it."""
    failed = TableProof(FACTS, failed=Failed(NOW, "away"))
    assert failed.under(replace(FACTS, restarts=1)).failed == failed.failed
    assert failed.with_ranges([different()]).failed is None


def test_a_range_is_named_by_its_bounds() -> None:
    """In messages."""
    texts = [RangeProof(keys).keys_text for keys in (*up_to(10, 20), EVERY_KEY)]
    assert texts == [
        "range of keys to before 10",
        "range of keys from 10 to before 20",
        "range of keys from 20",
        "range of all keys",
    ]


def test_a_round_that_takes_too_long_says_so() -> None:
    """It is not known before each range was compared once."""
    half = tuple(map(equal, up_to(5)))
    known = Round.of([TableProof(FACTS, half)], 0.02, DAY)
    assert known.days == pytest.approx(2 / 0.02 / DAY)
    assert (known.proven_tables, known.is_too_long) == (1, False)
    assert str(known) == "1 of 1 tables are proven equal in all their keys; a round takes 0.0 days"
    slow = Round.of([TableProof(FACTS, (equal(seconds=10_000),)), TableProof(FACTS, (different(),))], 0.02, DAY)
    assert slow.is_too_long
    assert str(slow).endswith(
        "1 of 2 tables are proven equal in all their keys; a round takes 5.8 days with this budget, and every is 1.0"
    )
    unknown = Round.of([TableProof(FACTS)], 0.02, DAY)
    assert (unknown.days, unknown.is_too_long) == (None, False)
    assert "not known before" in str(unknown)
    assert TableProof(FACTS).checked_at == 0
    assert TableProof(FACTS, half).proven_since == NOW


def simulated(days: float, share: float, seed: int, cost: float) -> tuple[float, list[float]]:
    """The source's time for comparisons in simulated days, and the greatest age of a proof at the end of each hour.

    Three tables of 20 ranges each, of which one costs the source about `cost` seconds.
    """
    chance = random.Random(seed)
    bounds = up_to(*range(1, 20))
    proofs = {TableId("shop", name): TableProof(FACTS, tuple(map(RangeProof, bounds))) for name in "abc"}
    budget, now, spent, ages = Budget(share, at=0.0), 0.0, 0.0, list[float]()
    while now < days * DAY:
        now += chance.uniform(1, 90)  # the time between two looks
        budget = budget.passed(now)
        chosen = next_due(proofs, now, DAY) if budget.allows else None
        if chosen is not None:
            table, proof = chosen
            seconds = chance.uniform(0.5, 1.5) * cost
            now += seconds
            proofs[table] = proofs[table].with_ranges([equal(proof.keys, now, seconds)])
            budget, spent = budget.spent(seconds), spent + seconds
        if int(now / 3600) > len(ages):
            oldest = [proof.proven_since for proof in proofs.values()]
            ages.append(max(now - (each or 0.0) for each in oldest))
    return spent, ages


@pytest.mark.parametrize("seed", range(2))
def test_a_day_of_comparisons_keeps_its_budget(seed: int) -> None:
    """Within a fifth, if there is more to compare than it allows; and never more than that."""
    spent, _ = simulated(1, 0.02, seed, cost=40.0)
    assert spent == pytest.approx(0.02 * DAY, rel=0.2)


@pytest.mark.parametrize("seed", range(2))
def test_no_proof_is_older_than_asked_if_the_budget_suffices(seed: int) -> None:
    """Then less than the budget is spent."""
    spent, ages = simulated(3, 0.02, seed, cost=10.0)
    assert max(ages[24:]) <= DAY
    assert spent < 0.02 * 3 * DAY
