"""Rows that fail a gate move to the quarantine: the copy and the quarantine together are the source."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.config.quality import Quarantine
from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.pipeline.events import Quarantined
from lakeingest.state.evidence import read_evidence
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(8,2), note VARCHAR(20))"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i}.50, NULL)' for i in range(90))}"
CHEAP = "{type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 100}}"


@pytest.fixture
def rule(pipe: Pipe, tmp_path: Path) -> Callable[..., None]:
    """Call it with expectations: they are asked of the orders from then on, and rows that fail leave the table."""
    folder = tmp_path / "suites"
    folder.mkdir()
    limit = Quarantine.model_validate({"max_rows": 4, "max_share": "10%"})
    quality = Quality(suites=Place.of(folder), on_failure="quarantine", quarantine=limit)
    pipe.config = pipe.config.model_copy(update={"quality": quality})

    def write(*expectations: str, table: str = "orders") -> None:
        text = "".join(f"\n  - {each}" for each in expectations)
        (folder / f"{pipe.database}.{table}.yml").write_text(f"expectations:{text}\n")

    return write


def evidence_of(pipe: Pipe, table: str = "orders") -> list[Mapping[str, Any]]:
    """What is stored of rows that failed."""
    return [dict(row) for row in read_evidence(pipe.state, TableId(pipe.database, table))]


def ids(pipe: Pipe, table: str = "orders") -> set[object]:
    """The keys that readers see."""
    return {row[0] for row in pipe.rows(table)}


def test_failing_rows_leave_the_table_and_the_rest_is_published(pipe: Pipe, rule: Callable[..., None]) -> None:
    """Also not their old rows. A later sound image, a delete or a move frees the key; a worse one does not."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS, "UPDATE orders SET amount = 1000 WHERE id IN (3, 60)")
    pipe.run()
    assert ids(pipe) == set(range(90)) - {3, 60}
    pipe.sql("UPDATE orders SET amount = 2000 WHERE id = 7", "INSERT INTO orders VALUES (100, 1, NULL)")
    pipe.run()
    assert ids(pipe) == {*range(90), 100} - {3, 7, 60}
    stored = {row["id"]: row for row in evidence_of(pipe)}
    assert stored.keys() == {3, 7, 60}
    assert (stored[7]["amount"], stored[7]["_lakeingest_change_kind"]) == (2000, "+U")
    assert stored[3]["_lakeingest_change_kind"] is None
    assert [row["_lakeingest_released_at"] for row in stored.values()] == [None] * 3
    pipe.sql("UPDATE orders SET amount = 10 WHERE id = 3", "UPDATE orders SET amount = 3000 WHERE id = 7")
    pipe.sql("UPDATE orders SET id = 160, amount = 1 WHERE id = 60")
    pipe.run()
    assert ids(pipe) == {*range(90), 100, 160} - {7, 60}
    assert {(row["id"], row["amount"]) for row in evidence_of(pipe) if row["_lakeingest_released_at"] is None} == {
        (7, 2000),
        (7, 3000),
    }
    pipe.sql("DELETE FROM orders WHERE id = 7")
    pipe.run()
    pipe.assert_equal()
    assert all(row["_lakeingest_released_at"] for row in evidence_of(pipe))
    assert len(pipe.seen(Quarantined)) == 3


def test_a_limit_stops_the_table_and_nothing_is_moved(pipe: Pipe, rule: Callable[..., None]) -> None:
    """So does an expectation that blames no single rows."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    seen = pipe.rows("orders")
    pipe.sql("UPDATE orders SET amount = 1000 WHERE id < 5")
    with pytest.raises(GateFailed, match=r"5 rows would be in quarantine, and .* allows 4"):
        pipe.run()
    pipe.sql("UPDATE orders SET amount = 10 WHERE id BETWEEN 1 AND 4")
    rule(CHEAP, "{type: expect_table_row_count_to_be_between, kwargs: {max_value: 10}}")
    with pytest.raises(GateFailed, match="blames no single rows"):
        pipe.run()
    assert pipe.rows("orders") == seen
    assert evidence_of(pipe) == []
    assert pipe.seen(Quarantined) == []
    rule(CHEAP)
    pipe.run()
    assert ids(pipe) == set(range(1, 90))
