"""The bill: CPU seconds as dollars, and what is missing on it."""

import pytest

from lakeingest.core.figures.bill import MEMORY_GB, UNIT_COSTS, Bill, cpu_of_rows, dollars, priced
from lakeingest.core.figures.prices import LOOKED_UP, PRICES


def test_an_hour_costs_a_processor_and_its_memory() -> None:
    """At each service, with its prices as they are listed."""
    assert {price.service for price in PRICES} == {"EMR Serverless", "Dataproc Serverless"}
    assert dollars(3_600) == pytest.approx(
        {"EMR Serverless": 0.052624 + 4 * 0.0057785, "Dataproc Serverless": 0.06}  # the latter: one DCU
    )
    assert MEMORY_GB == 4
    assert set(dollars(0).values()) == {0.0}


@pytest.mark.parametrize("rows", [0, 1_000_000, 3_000_000_000])
def test_rows_cost_their_share_of_a_million(rows: int) -> None:
    """The start of the run is not in it."""
    assert cpu_of_rows(rows) == pytest.approx(rows / 1_000_000 * UNIT_COSTS.rows)


@pytest.mark.parametrize(
    ("bill", "text"),
    [
        (
            Bill(7_200.0, 0, 0, 0),
            "7,200.0 CPU seconds (at least $0.1515 on EMR Serverless, $0.1200 on Dataproc Serverless; prices of"
            f" {LOOKED_UP})",
        ),
        (
            Bill(None, 1_200, 5_000, 70, ("CPU seconds", "pages")),
            "1,200 requests to object stores, 5,000 bytes read and 70 written; not counted: CPU seconds, pages",
        ),
    ],
)
def test_a_bill_in_words_has_what_was_counted(bill: Bill, text: str) -> None:
    """Without CPU seconds there are no dollars, and what was not counted has its name."""
    assert str(bill) == text


def test_a_document_has_the_dollars() -> None:
    """Also none where nothing can be priced; prices in words name their day."""
    document = Bill(3.6, 1, 2, 3, ("pages",)).to_json()
    assert document == {
        "cpu_seconds": 3.6,
        "requests": 1,
        "bytes_read": 2,
        "bytes_written": 3,
        "files": 0,
        "bytes_of_files": 0,
        "dollars": dollars(3.6),
        "not_counted": ["pages"],
    }
    assert Bill(None, 1, 2, 3).to_json()["dollars"] == {}
    assert priced({"A": 1.0}) == f"at least $1.0000 on A; prices of {LOOKED_UP}"
