"""Which results of gates a run notes for the ledger."""

from pathlib import Path

from lakeingest.core.tables.schema import TableId
from lakeingest.files.local import Local
from lakeingest.pipeline.run.ledger import Results
from lakeingest.quality.gates import GateReport, Outcome
from lakeingest.quality.suites import SCHEMA
from lakeingest.state.ledger import noted_results

TABLE = TableId("shop", "orders")
UNIQUE = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
COUNT = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 3}}
RANGE = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "amount", "max_value": 5},
    "severity": "info",
}


def noted(state: Local) -> list[tuple[object, ...]]:
    """What is noted, in short."""
    names = "stage", "suite", "expectation", "severity", "success", "evaluated", "failing_rows", "failing_keys"
    return [tuple(row[name] for name in names) for row in noted_results(state)[1]]


def report(*outcomes: Outcome) -> GateReport:
    """The report of a gate whose document nobody asks for."""
    return GateReport(outcomes, {})


def test_what_is_known_is_not_noted_again(tmp_path: Path) -> None:
    """By the same run: the passes of a definition are one result, and a suite's result is noted when it changes."""
    state, results = Local(tmp_path), Results()
    passed = [Outcome(SCHEMA, document, success=True) for document in (COUNT, UNIQUE)]
    fails = Outcome(
        "orders.yml", RANGE, success=False, unexpected=2, keys=("id=1", "id=2"), examples=("id=1, amount=99", "…")
    )
    for _ in range(2):
        results.note(state, TABLE, "before publish", 3, None, report(*passed, fails))
    definition = ("before publish", SCHEMA, "all expectations of the definition", "critical", True, True, None, None)
    failed = ("orders.yml", "expect_column_values_to_be_between(amount)", "info", False, True, 2, "id=1; id=2")
    assert noted(state) == [definition, ("before publish", *failed)]
    more = Outcome("orders.yml", RANGE, success=False, unexpected=3, keys=("id=1",))
    results.note(state, TABLE, "before publish", 3, None, report(*passed, more))
    assert [row[6] for row in noted(state)] == [None, 2, 3]
    results.note(state, TableId("shop", "others"), "before publish", 3, None, report(*passed))
    assert len(noted(state)) == 4
    Results().note(state, TABLE, "before publish", 3, None, report(*passed, more))
    assert len(noted(state)) == 6
    assert "amount=" not in str(noted_results(state))
    assert len({row["id"] for row in noted_results(state)[1]}) == 6


def test_a_definition_that_fails_is_noted_in_full(tmp_path: Path) -> None:
    """Also what could not be evaluated, without the text of the error, which may have values."""
    state = Local(tmp_path)
    outcomes = Outcome(SCHEMA, COUNT, success=True), Outcome(SCHEMA, UNIQUE, success=False, error="value 'x'")
    Results().note(state, TABLE, "before publish", 3, None, report(*outcomes))
    assert [row[2:6] for row in noted(state)] == [
        ("expect_table_row_count_to_equal", "critical", True, True),
        ("expect_column_values_to_be_unique(id)", "critical", False, False),
    ]
    assert "value 'x'" not in str(noted_results(state))


def test_the_waves_of_a_copy_are_one_stage(tmp_path: Path) -> None:
    """Else a large copy would have thousands of results that say the same."""
    state, results = Local(tmp_path), Results()
    for wave in range(1, 5):
        results.note(state, TABLE, f"after wave {wave}", 3, None, report(Outcome(SCHEMA, UNIQUE, success=True)))
    assert [row[0] for row in noted(state)] == ["after wave 1"]
