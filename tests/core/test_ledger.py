"""The tables of the ledger: their rows, and what a commit leaves behind."""

from datetime import UTC, datetime

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.phases import Phase
from lakeingest.core.proofs.ledger import (
    KEY,
    REPEAT_SECONDS,
    Result,
    Row,
    begun,
    differences,
    digest,
    proof_rows,
    proofs_table,
    quality_table,
    result_id,
    written,
)
from lakeingest.core.proofs.proof import Facts, RangeProof, TableProof, Turn
from lakeingest.core.tables.keys import EVERY_KEY, KeyRange
from lakeingest.core.tables.schema import TableId

FACTS = Facts("id int", "begun", "f1", "server", 1, 0, Place(1, 1, 100), 3)
LOW, HIGH = KeyRange(None, (10,)), KeyRange((10,), None)


def test_a_table_counts_its_commits_and_rows() -> None:
    """Each commit is at a later place, so that it is published after the one before."""
    for schema in (quality_table("_lakeingest"), proofs_table("_lakeingest")):
        new = begun(schema)
        assert (new.phase, new.rows, new.table.is_reserved) == (Phase.LEVEL, 0, True)
        first = written(new, 5, 0)
        second = written(first.audited().published(), 2, 4)
        assert (first.rows, second.rows, second.phase) == (5, 3, Phase.LEVEL)
        places = [progress.position.place for progress in (new, first, second) if progress.position is not None]
        assert places == sorted(set(places))
        assert len(places) == 3


def test_ids_of_results_sort_as_their_times_do() -> None:
    """A time alone stands before all results of that time, and after all earlier ones."""
    moments = [datetime(2026, 11, day, 23, 59, 59, micros, UTC) for day in (9, 10) for micros in (0, 999_999)]
    ids = [result_id(moment, "shop.orders 0001") for moment in moments]
    assert ids == sorted(ids)
    assert [each for each in ids if each < result_id(moments[2])] == ids[:2]


def test_only_the_ledger_has_reserved_databases() -> None:
    """By the beginning of the name."""
    assert [TableId(name, "t").is_reserved for name in ("_lakeingest", "_lakeingest_shop", "shop", "lakeingest")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("later", "is_covered"),
    [
        (Result(success=True, failing_rows=None, at=100.0), True),
        (Result(success=True, failing_rows=None, at=100.0 + REPEAT_SECONDS - 1), True),
        (Result(success=True, failing_rows=None, at=100.0 + REPEAT_SECONDS), False),
        (Result(success=True, failing_rows=None, at=99.0), False),  # the clock was set back
        (Result(success=False, failing_rows=None, at=101.0), False),
        (Result(success=True, failing_rows=3, at=101.0), False),
    ],
)
def test_a_result_is_written_if_it_is_news(later: Result, *, is_covered: bool) -> None:
    """Another result is, and the same one after an hour."""
    assert Result(success=True, failing_rows=None, at=100.0).covers(later) is is_covered


def test_each_range_is_a_row() -> None:
    """With its bounds as JSON, in an order that does not depend on that of the tables."""
    proven = RangeProof(LOW).compared(Turn.EQUAL, 1_000.5, 1.0, "binlog.000001:4")
    proofs = {
        TableId("shop", "b"): TableProof(FACTS),
        TableId("shop", "a"): TableProof(FACTS, (proven, RangeProof(HIGH))),
    }
    first, second, third = rows = list(proof_rows(proofs))
    assert first == {
        KEY: "shop.a null",
        "source_table": "shop.a",
        "key_range": "range of keys to before 10",
        "lower_key": None,
        "upper_key": "[10]",
        "state": "proven",
        "proven_at": 1_000_500_000,
        "position": "binlog.000001:4",
        "checked_at": 1_000_500_000,
        "why": None,
    }
    assert (second[KEY], second["state"], second["proven_at"]) == ("shop.a [10]", "not proven yet", None)
    assert (third[KEY], third["key_range"]) == ("shop.b null", RangeProof(EVERY_KEY).keys_text)
    assert list(proof_rows(dict(reversed(proofs.items())))) == rows
    assert [set(row) for row in rows] == [set(proofs_table("_lakeingest").names)] * 3


def test_only_differences_are_written() -> None:
    """New rows, changed ones, and the ids of those that are no longer wanted."""
    present: list[Row] = [{KEY: "a", "v": 1}, {KEY: "b", "v": 2}, {KEY: "c", "v": 3}]
    wanted: list[Row] = [{KEY: "a", "v": 1}, {KEY: "b", "v": 5}, {KEY: "d", "v": 4}]
    assert differences(present, wanted) == ([{KEY: "b", "v": 5}, {KEY: "d", "v": 4}], ["c"])
    assert differences(wanted, wanted) == ([], [])
    assert digest(present) != digest(wanted)
    assert digest([{KEY: "a", "v": 1}]) == digest([{"v": 1, KEY: "a"}])
