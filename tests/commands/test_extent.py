"""How much of each table `verify` compares."""

from collections.abc import Mapping
from typing import Any

import pytest

from lakeingest.commands.extent import WHOLE, Extent, column_names, share_text
from lakeingest.commands.verification import TableVerification, Verifications
from lakeingest.core.proofs.checksum import Checksum, Difference
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import Retryable, UsageError
from lakeingest.mysql.source_types import source_type
from lakeingest.pipeline.proving.comparison import ChunkPlan

ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(
    ORDERS,
    tuple(Column(name, Kind.INT32, source_type("int")) for name in ("id", "amount", "state", "a, b")),
    ("id",),
)
EQUAL = Checksum(3, 1, 2)


@pytest.mark.parametrize(
    ("sample", "count", "drawn"),
    [(1.0, 7, 7), (0.1, 30, 3), (0.1, 31, 4), (0.25, 4, 1), (0.001, 1, 1), (0.5, 1, 1), (1e-9, 1000, 1), (0.7, 10, 7)],
)
def test_a_share_is_rounded_up_and_never_nothing(sample: float, count: int, drawn: int) -> None:
    """A tenth of 30 is 3, although 0.1 as a float is more than a tenth; no chunk is drawn twice."""
    numbers = Extent.of(sample, 42).drawn(ORDERS, count)
    assert len(numbers) == len({*numbers} & {*range(count)}) == drawn


def test_a_seed_draws_the_same_chunks_again() -> None:
    """Whichever other tables are compared; another seed and another table draw others."""
    first = Extent.of(0.1, 1).drawn(ORDERS, 1000)
    assert first == Extent.of(0.1, 1, 60.0, ["id"]).drawn(ORDERS, 1000)
    assert first != Extent.of(0.1, 2).drawn(ORDERS, 1000)
    assert first != Extent.of(0.1, 1).drawn(TableId("shop", "lines"), 1000)
    assert len({Extent.of(0.1).seed for _ in range(9)}) > 1


def test_without_a_sample_all_chunks_are_compared_in_order() -> None:
    """Nothing is left to chance, so that there is no seed; with limited time the order is by chance."""
    assert Extent.of() == WHOLE
    assert WHOLE.drawn(ORDERS, 4) == (0, 1, 2, 3)
    assert WHOLE.in_turn([ORDERS]) == [ORDERS]
    limited = Extent.of(max_seconds=60, seed=7)
    assert sorted(limited.drawn(ORDERS, 99)) == [*range(99)]
    assert limited.drawn(ORDERS, 99) != (*range(99),)
    tables = [TableId("shop", f"t{number}") for number in range(99)]
    assert sorted(limited.in_turn(tables)) == sorted(tables)
    assert limited.in_turn(tables) != tables


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"sample": 0}, "--sample is a share"),
        ({"sample": -0.5}, "--sample is a share"),
        ({"sample": 1.01}, "--sample is a share"),
        ({"sample": float("nan")}, "--sample is a share"),
        ({"max_seconds": 0}, "--max-seconds is a number above 0"),
        ({"max_seconds": float("nan")}, "--max-seconds is a number above 0"),
        ({"columns": []}, "--columns names at least one"),
        ({"seed": 7}, "--seed goes with --sample"),
        ({"seed": 7, "columns": ["id"]}, "--seed goes with --sample"),
    ],
)
def test_a_wrong_extent_is_usage(asked: Mapping[str, Any], named: str) -> None:
    """The message names the option."""
    with pytest.raises(UsageError, match=named):
        Extent.of(**asked)


@pytest.mark.parametrize(
    ("columns", "compared"),
    [
        (None, ("id", "amount", "state", "a, b")),
        (("state",), ("id", "state")),
        (("state", "amount", "id", "state"), ("id", "amount", "state")),
    ],
)
def test_the_key_is_always_compared(columns: tuple[str, ...] | None, compared: tuple[str, ...]) -> None:
    """And the columns keep their order."""
    assert Extent.of(columns=columns).compared(SCHEMA).names == compared


@pytest.mark.parametrize(
    ("name", "hint"), [("amuont", "did you mean amount?"), ("State", "did you mean state?"), ("x", "its columns are")]
)
def test_an_unknown_column_names_the_nearest(name: str, hint: str) -> None:
    """Or all columns, if none is near."""
    with pytest.raises(UsageError, match=f"shop.orders has no column {name}") as refused:
        Extent.of(columns=["id", name]).compared(SCHEMA)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a , two words ", ["a", "two words"]),
        ("`a, b`,c", ["a, b", "c"]),
        ("`a``b`, `😀`", ["a`b", "😀"]),
    ],
)
def test_names_of_columns_are_divided_at_commas(text: str, names: list[str]) -> None:
    """But for those within backquotes."""
    assert column_names(text) == names


@pytest.mark.parametrize("text", ["", ",", "a,", ",a", "a`b", "`a"])
def test_what_is_no_list_of_columns_is_usage(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UsageError, match="not a list of columns"):
        column_names(text)


@pytest.mark.parametrize(
    ("compared", "every", "text"),
    [
        (0, 4, "0 %"),
        (1, 4, "25 %"),
        (1, 3, "33.3 %"),
        (1, 1000, "0.1 %"),
        (1, 1001, "less than 0.1 %"),
        (999_999, 1_000_000, "99.9 %"),
        (4, 4, "100 %"),
    ],
)
def test_a_share_is_never_shown_as_more_than_it_is(compared: int, every: int, text: str) -> None:
    """And what was compared is never nothing."""
    assert share_text(compared, every) == text


@pytest.mark.parametrize(
    ("answers", "waves"),
    [([True] * 3, [[3, 0], [2, 1], [4]]), ([True, False], [[3, 0]]), ([False], [])],
)
def test_no_chunk_is_begun_when_the_time_is_over(answers: list[bool], waves: list[list[int]]) -> None:
    """It is looked at before each group of chunks."""
    plan = ChunkPlan((KeyRange(),), 5, (3, 0, 2, 1, 4), 2, "")
    assert [list(wave) for wave in plan.waves(iter(answers).__next__)] == waves


def verified(target: Checksum = EQUAL, **others: Any) -> TableVerification:
    """A comparison in which the source has 3 rows."""
    return TableVerification(ORDERS, EQUAL, target, 1, (), 0.5, **others)


DIFFERENCE = Difference((7,), "differs")


@pytest.mark.parametrize(
    ("result", "text", "equal", "differs"),
    [
        (verified(), "source = target", True, False),
        (verified(Checksum(2)), "source ≠ target", False, True),
        (verified(Checksum(2), moved=True), "source = target", True, False),
        (
            verified(compared_chunks=1, all_chunks=4, seed=3),
            "source = target in 25 % of the chunks (1 of 4)",
            False,
            False,
        ),
        (
            verified(Checksum(2), compared_chunks=1, all_chunks=4),
            "source ≠ target in 25 % of the chunks (1 of 4)",
            False,
            True,
        ),
        (
            verified(compared_chunks=1, all_chunks=4, columns=("id", "v")),
            "source = target in 25 % of the chunks (1 of 4) and the columns id, v",
            False,
            False,
        ),
        (verified(columns=("id",)), "source = target in the columns id", False, False),
        (
            verified(compared_chunks=0, all_chunks=0, seed=3),
            "not compared, because the time was over",
            False,
            False,
        ),
    ],
)
def test_what_was_not_looked_at_is_never_called_equal(
    result: TableVerification, text: str, *, equal: bool, differs: bool
) -> None:
    """The text says the share; JSON has it as a number, and a false `equal`."""
    assert (result.result, result.equal, result.differs) == (text, equal, differs)
    document = result.to_json()
    assert (document["equal"], document["result"]) == (equal, text)
    assert document["share"] == (result.compared_chunks / result.all_chunks if result.all_chunks else 0)
    assert "plan" not in document
    found = Verifications((result,))
    assert found.equal == equal
    assert ["--seed 3" in line for line in found.notes] == ([True] if result.seed else [])


def test_a_comparison_of_nothing_is_for_later() -> None:
    """If at least a chunk of one table was compared, the others are named, and the comparison is done."""
    nothing = verified(compared_chunks=0, all_chunks=0)
    with pytest.raises(Retryable, match="--max-seconds"):
        Verifications((nothing,)).raise_refused()
    Verifications((nothing, verified(compared_chunks=1, all_chunks=9))).raise_refused()
    Verifications(()).raise_refused()
