"""Notices: each change is told once, and nothing is said of what is not known."""

import pytest

from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.notices import HEALTHY, RUN, Known, Notice, notices_of_run, notices_of_tables
from lakeingest.core.tables.schema import TableId

NOW = 1000.0
FAILED, STALE = Known("GateFailed"), Known(stale=True)


def measure(error: str = "", as_of: float | None = NOW - 5, objective: float | None = 60.0) -> Measure:
    """The measure of a table."""
    return Measure(TableId("shop", "t"), 1, "binlog.000001:4", as_of, 0, 0.0, error, False, objective)


@pytest.mark.parametrize(
    ("known", "now", "told", "after"),
    [
        (HEALTHY, measure(), {}, HEALTHY),
        (HEALTHY, measure("GateFailed"), {"failed": "GateFailed"}, FAILED),
        (FAILED, measure("GateFailed"), {}, FAILED),
        (FAILED, measure("BinlogGone"), {"failed": "BinlogGone"}, Known("BinlogGone")),
        (FAILED, measure(), {"recovered": "GateFailed"}, HEALTHY),
        (HEALTHY, measure(as_of=NOW - 61), {"stale": ""}, STALE),
        (HEALTHY, measure(as_of=NOW - 60), {}, HEALTHY),
        (STALE, measure(as_of=NOW - 70), {}, STALE),
        (STALE, measure(), {"recovered": ""}, HEALTHY),
        (HEALTHY, measure(as_of=None), {}, HEALTHY),  # not known is not stale
        (STALE, measure(as_of=None), {}, STALE),  # and not fresh
        (HEALTHY, measure(as_of=NOW - 1e6, objective=None), {}, HEALTHY),
        (STALE, measure(as_of=NOW - 1e6, objective=None), {"recovered": ""}, HEALTHY),  # nobody asks any more
        (
            HEALTHY,
            measure("GateFailed", NOW - 61),
            {"failed": "GateFailed", "stale": "GateFailed"},
            Known("GateFailed", True),
        ),
        (Known("GateFailed", True), measure("", NOW - 61), {}, STALE),
    ],
)
def test_a_change_of_a_table_is_told(known: Known, now: Measure, told: dict[str, str], after: Known) -> None:
    """With the error, and what readers see."""
    notices, knows = notices_of_tables({"shop.t": known, "shop.u": FAILED}, [now], NOW)
    assert {notice.occasion: notice.error for notice in notices} == told
    assert knows == {"shop.t": after, "shop.u": FAILED}
    assert {notice.position for notice in notices} <= {"binlog.000001:4"}
    assert {notice.age for notice in notices} <= {None if now.as_of is None else NOW - now.as_of}


@pytest.mark.parametrize(
    ("known", "error", "told"),
    [
        ({}, "", []),
        ({}, "SourceAway", [Notice("failed", RUN, "SourceAway")]),
        ({RUN: Known("SourceAway")}, "SourceAway", []),
        ({RUN: Known("SourceAway")}, "BinlogGone", [Notice("failed", RUN, "BinlogGone")]),
        ({RUN: Known("SourceAway")}, "", [Notice("recovered", RUN, "SourceAway")]),
    ],
)
def test_a_change_of_the_run_is_told(known: dict[str, Known], error: str, told: list[Notice]) -> None:
    """The whole run fails, and a later one ends well."""
    notices, knows = notices_of_run({"shop.t": FAILED, **known}, error)
    assert notices == told
    assert knows == {"shop.t": FAILED, RUN: Known(error)}


def test_what_was_told_is_stored() -> None:
    """And read back as it was."""
    for known in (HEALTHY, FAILED, STALE):
        assert Known.from_json(known.to_json()) == known
