"""What the console says of a run."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from lakeingest import console
from lakeingest.commands.plan import ColumnPlan, CopyPlan, TablePlan
from lakeingest.committed import Committed
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.monitoring.event_lines import line_maker
from lakeingest.pipeline.events import (
    ComparisonBegun,
    Event,
    Following,
    Measured,
    Merged,
    Planned,
    Published,
    RangeCompared,
    SourceLost,
    Spooled,
    WaveCommitted,
)

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")


def wave(number: int, rows: int) -> Event:
    """A wave of orders."""
    return WaveCommitted(ORDERS, number, 8, rows, 1.0, complete=False)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "nothing new was committed"),
        ([Planned(ORDERS, 5), Spooled("binlog.000002:4", 1, 1, 1.0)], "nothing new was committed"),
        ([wave(1, 20_000)], "committed so far: shop.orders: 1 wave, 20,000 rows"),
        (
            [wave(4, 20_000), wave(5, 0), Spooled("binlog.000002:1234", 1, 1, 1.0), Merged(ITEMS, 1, 1, 1, 0, 0, 1.0)],
            "committed so far: shop.orders: 2 waves, 20,000 rows, shop.items: merged up to binlog.000002:1234",
        ),
        (
            [
                wave(1, 7),
                Spooled("binlog.000002:1234", 1, 1, 1.0),
                Merged(ORDERS, 1, 1, 1, 0, 0, 1.0),
                Spooled("binlog.000003:4", 0, 0, 1.0),
            ],
            "committed so far: shop.orders: 1 wave, 7 rows, merged up to binlog.000002:1234",
        ),
        ([wave(1, 7), Published(ORDERS, 7, "binlog.000003:4", 1.0)], "committed so far: shop.orders: published as of "),
    ],
)
def test_events_say_what_is_committed(events: list[Event], said: str) -> None:
    """The last state of each table; events of nothing that stays say so; each is passed on."""
    committed, passed = Committed(), list[Event]()
    observe = committed.collecting_before(passed.append)
    for event in events:
        observe(event)
    assert str(committed).startswith(said)
    assert passed == events


def test_how_far_the_tables_are_is_recorded() -> None:
    """The lag and the freshness of the last measurement, and the time of each publish; unknown values are null."""
    committed = Committed()
    observe = committed.collecting_before(lambda _: None)
    measure = Measure(ORDERS, 7, "f:4", 1_767_323_045.0, 12, None, "", paused=False, max_staleness=None)
    observe(Measured((measure,), Load(), None))
    began = datetime.now(UTC).isoformat(timespec="seconds")
    observe(Published(ORDERS, 7, "binlog.000003:4", 1.0))
    assert committed.so_far["fresh_as_of"] == {"shop.orders": "2026-01-02T03:04:05+00:00"}
    assert committed.so_far["lag"] == {"shop.orders": {"bytes": 12, "seconds": None}}
    assert committed.so_far["published_at"]["shop.orders"] >= began


def test_a_run_that_follows_says_no_more_than_what_it_publishes() -> None:
    """Until it has caught up every step is a line; collecting_before a publish is one, and that the source is away."""
    batch: list[Event] = [
        Spooled("binlog.000002:1234", 2, 3, 0.1),
        Merged(ORDERS, 3, 3, 1, 1, 1, 1.0),
        Published(ORDERS, 7, "binlog.000002:1234", 0.5),
    ]
    away = SourceLost("the source db:3306 is away: gone; run the same command again when it is back", 4.0)
    say = line_maker()
    answer = [say(event) for event in [*batch, Following(12.34), *batch, away]]
    assert [text is not None for text in answer] == [True, True, True, True, False, False, True, True]
    assert answer[3:] == [
        "caught up with the source in 12.3 s; from now on each publish is a line",
        None,
        None,
        "shop.orders: published 7 rows as of binlog.000002:1234",
        "the source db:3306 is away: gone; trying again in 4.0 s",
    ]
    assert not Committed().caught_up
    committed = Committed()
    committed.collecting_before(lambda _: None)(Following(12.34))
    assert committed.caught_up


def test_a_terminal_has_a_bar_for_each_table() -> None:
    """Of the rows that are copied, and of the ranges that are compared; elsewhere a comparison says nothing."""
    drawn, logged = io.StringIO(), io.StringIO()
    strange = TableId("shop", "[red]\x1b[2J")
    events = [Planned(ORDERS, 30_000), wave(1, 20_000), ComparisonBegun(strange, 3), RangeCompared(strange, 50_000)]
    with console.observer(Console(file=drawn, force_terminal=True, width=160, color_system=None)) as draw:
        for event in events:
            draw(event)
    assert "shop.orders" in drawn.getvalue()
    assert "20000/30000 20,000 rows/s" in drawn.getvalue()
    assert "shop.[red]" in drawn.getvalue()
    assert "\x1b[2J" not in drawn.getvalue()
    assert "1/3" in drawn.getvalue()
    with console.observer(Console(file=logged)) as draw:
        for event in events[2:]:
            draw(event)
    assert logged.getvalue() == ""


def planned(name: str, **fields: Any) -> TablePlan:
    """The plan of a new table."""
    copy = CopyPlan(2_000, 90_000, 500, 4, 1, 2, 3.0, cpu_seconds=0.2, dollars={})
    column = ColumnPlan("id", "int", "int")
    usual: dict[str, Any] = {
        "reasons": (),
        "key": ("id",),
        "key_path": "integer key",
        "columns": (column,),
        "copy": copy,
    }
    return TablePlan(TableId("shop", name), f"lake.shop.{name}", "new", **usual | fields)


def test_many_tables_are_planned_in_a_line_each() -> None:
    """What a person has to know is there in any case; who names tables gets everything, and so do few tables."""
    refused = planned("refused", reasons=("no key",), copy=None)
    lossy = planned("lossy", lossy=("d: zero dates are NULL",))
    taken = planned("taken", foreign=("7 rows of Airbyte",), partitions=("days(at)",))
    few = [refused, lossy, taken]
    many = [*few, *(planned(f"t{number}") for number in range(3))]
    assert list(console.plan_lines(many, named=False)) == [
        "shop.refused → lake.shop.refused: new",
        "  reason     no key",
        "shop.lossy → lake.shop.lossy: new, about 2,000 rows, 90.0 kB",
        "  lossy      d: zero dates are NULL",
        "shop.taken → lake.shop.taken: new, about 2,000 rows, 90.0 kB",
        "  taken over 7 rows of Airbyte",
        *(f"shop.t{number} → lake.shop.t{number}: new, about 2,000 rows, 90.0 kB" for number in range(3)),
        "a table's key, chunks, types, time, cost and retention: lakeingest plan TABLE",
    ]
    full = list(console.plan_lines(many, named=True))
    of_few = list(console.plan_lines(few, named=False))
    assert full[: len(of_few)] == of_few
    for part in ("  taken over 7 rows of Airbyte", "  partitions days(at)", "  key        id: integer key"):
        assert part in full
    assert sum(line.startswith("  types      id int → int") for line in full) == 5
