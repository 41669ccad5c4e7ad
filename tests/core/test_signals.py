import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lakeingest.core.binlog.position import FilePosition, Place, Position
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import (
    OPEN,
    TRANSITIONS,
    Action,
    Agenda,
    Event,
    IllegalEvent,
    Request,
    Signal,
    State,
    agenda,
)
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Reread
from lakeingest.core.waves.scope import OVER_GAP, WHOLE, Scope
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.errors import StateUnreadable

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
SERVER, NOON = "3e11fa47-71ca-11e1-9e33-c80aa9429562", datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = Position(SERVER, 0, FilePosition("binlog.000001", 9), None)
SHOWN = Progress(
    *(ORDERS, "f00d", SERVER, 0, Place(0, 1, 4), Phase.PUBLISHED),
    splits=Splits((Split(KeyRange(), merged_at=AT.place),)),
    position=AT,
)
PART, TEXT = Scope(range=KeyRange((10,), (20,))), Scope(range=KeyRange(("'a'",), None))
LISTED, WHERE = Scope(keys=((12,), (11,), (12,))), Scope(where="id > 7")


def ask(number: int, scope: Scope = WHOLE, table: TableId = ORDERS, **more: Any) -> Signal:
    """Somebody asks for a re-snapshot."""
    return Signal(number, Action.RESNAPSHOT, "me", NOON, (table,), scope, **more)


def say(number: int, action: Action, *tables: TableId, **more: Any) -> Signal:
    """Any other signal."""
    return Signal(number, action, "me", NOON, tables, **more)


def agreed(*signals: Signal, staged: Progress = SHOWN, visible: Progress | None = SHOWN) -> Agenda:
    """What is next, of two tables; the signals may come in any order."""
    both = [ORDERS, ITEMS]
    answer = agenda(signals, both, {ORDERS: staged}, {} if visible is None else {ORDERS: visible})
    assert answer == agenda(reversed(signals), both, {ORDERS: staged}, {} if visible is None else {ORDERS: visible})
    return answer


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_a_signal_goes_the_ways_of_the_table_and_no_others(state: State, event: Event) -> None:
    """An event that happened before may be reported again; what has ended stays as it ended."""
    signal = replace(ask(1), state=state, why="it broke" if state is State.FAILED else None)
    if (state, event) not in TRANSITIONS:
        with pytest.raises(IllegalEvent, match=f"signal 1: no {event} when {state}"):
            signal.after(event, "it broke")
        return
    after = signal.after(event, "it broke")
    assert after.state is TRANSITIONS[state, event]
    assert after.after(event, "it broke") == after
    assert state in OPEN or after == signal


@pytest.mark.parametrize(
    "signal",
    [
        *(ask(3, scope) for scope in (WHOLE, PART, TEXT, LISTED, WHERE)),
        say(4, Action.PAUSE, ORDERS, ITEMS),
        say(5, Action.RESUME, state=State.DONE),
        say(6, Action.CANCEL, cancels=3),
        say(7, Action.MAINTAIN, state=State.FAILED, why="no space"),
        say(8, Action.APPROVE, ORDERS, ddl="binlog.000017:4711"),
        ask(9, OVER_GAP),
    ],
)
def test_a_signal_is_read_back_from_json(signal: Signal) -> None:
    """A damaged one is refused, and one of a newer form."""
    doc = json.loads(json.dumps(signal.to_json()))
    assert Signal.from_json(doc) == signal
    for name in doc:
        with pytest.raises(StateUnreadable, match="not a signal"):
            Signal.from_json({key: part for key, part in doc.items() if key != name})
    with pytest.raises(StateUnreadable, match="of format 2"):
        Signal.from_json(doc | {"format": 2})


def test_an_impossible_signal_cannot_be_built() -> None:
    """Each action has its own parts."""
    for wrong in (
        lambda: ask(0),
        lambda: replace(ask(1), when=datetime(2026, 1, 1)),
        lambda: replace(ask(1), scope=None),
        lambda: replace(ask(1), tables=()),
        lambda: say(1, Action.PAUSE, scope=WHOLE),
        lambda: say(1, Action.CANCEL),
        lambda: say(1, Action.PAUSE, cancels=1),
        lambda: say(1, Action.PAUSE, ORDERS, ddl="binlog.000017:4711"),
        lambda: say(1, Action.APPROVE, ORDERS),
        lambda: say(1, Action.APPROVE, ddl="binlog.000017:4711"),
        lambda: say(1, Action.ROLLBACK),
        lambda: say(1, Action.POINT),
        lambda: say(1, Action.DROP_POINT, ORDERS, name="nightly"),
        lambda: say(1, Action.PAUSE, name="nightly"),
        lambda: replace(ask(1), state=State.FAILED),
        lambda: replace(ask(1), why="it broke"),
        Scope,
        lambda: Scope(where=" "),
        lambda: Scope(keys=()),
        lambda: Scope(range=KeyRange(), where="id > 7"),
        lambda: Scope(range=KeyRange((1,), None), gap=True),
    ):
        with pytest.raises(ValueError, match=r".+"):
            wrong()


def test_a_scope_covers_what_it_is_known_to_read() -> None:
    """Where only the server or the rows could tell, it does not."""
    assert all(WHOLE.covers(scope) for scope in (WHOLE, PART, TEXT, LISTED, WHERE))
    assert not any(scope.covers(WHOLE) for scope in (PART, TEXT, LISTED, WHERE))
    assert OVER_GAP.covers(WHOLE)
    assert OVER_GAP.whole
    assert PART.covers(LISTED)
    assert PART.covers(Scope(range=KeyRange((12,), (20,))))
    assert not PART.covers(Scope(keys=((12,), (20,))))
    assert not PART.covers(Scope(keys=(("'a'",),)))
    assert not PART.covers(WHERE)
    assert LISTED.covers(Scope(keys=((12,),)))
    assert not LISTED.covers(PART)
    assert TEXT.covers(TEXT)
    assert not TEXT.covers(LISTED)
    assert WHERE.covers(WHERE)
    assert not WHERE.covers(LISTED)


def test_re_snapshots_of_a_table_run_one_after_the_other() -> None:
    """The first that was asked for is the next, table by table; before the last chunk there is none."""
    answer = agreed(ask(2, PART), ask(5, WHERE), ask(3, LISTED, ITEMS))
    assert answer.next == {ORDERS: Request((2,), PART)}
    assert answer.waiting == {ORDERS: (2, 5), ITEMS: (3,)}
    copying = replace(SHOWN, phase=Phase.COPYING, splits=Splits(), position=None)
    assert agreed(ask(2), staged=copying).next == {}


def test_an_approval_is_of_one_statement_of_one_table() -> None:
    """Also after it is done; not where it was cancelled."""
    answer = agreed(
        say(2, Action.APPROVE, ORDERS, ddl="one"),
        say(3, Action.APPROVE, ORDERS, ddl="two", state=State.DONE),
        say(4, Action.APPROVE, ITEMS, ddl="three"),
        say(5, Action.APPROVE, ORDERS, ddl="four", state=State.CANCELLED),
    )
    assert answer.approved == {ORDERS: {"one", "two"}, ITEMS: {"three"}}
    assert answer.finished == (2, 4)


def test_a_request_is_satisfied_by_one_that_has_not_begun() -> None:
    """One that has begun may have read its rows before they were asked for."""
    answer = agreed(ask(2), ask(4, PART), ask(5, LISTED))
    assert answer.next == {ORDERS: Request((2, 4, 5), WHOLE)}
    assert answer.superseded == {4: 2, 5: 2}
    begun = ask(2, state=State.RUNNING)
    assert agreed(begun, ask(4, PART)).next == {ORDERS: Request((2,), WHOLE)}
    assert agreed(ask(1, PART), begun, ask(4, PART)).next == {ORDERS: Request((2,), WHOLE)}


def test_a_re_snapshot_goes_on_where_the_staged_commit_says() -> None:
    """With the signals that it began with; where its own is cancelled, the others begin anew."""
    staged = replace(SHOWN, reread=Reread((2, 4), (15,)))
    begun, other = ask(2, PART, state=State.RUNNING), ask(4, PART)
    assert agreed(begun, other, ask(6, PART), staged=staged).next == {ORDERS: Request((2, 4), PART, (15,))}
    cancelled = replace(begun, state=State.CANCELLED)
    assert agreed(cancelled, other, ask(6, PART), staged=staged).next == {ORDERS: Request((4, 6), PART)}


def test_a_gap_is_closed_before_anything_else_whoever_asked_for_it() -> None:
    """All rows are read, also where nobody asked, or the signal was cancelled; later signals wait."""
    over = replace(SHOWN, phase=Phase.LEVEL, gap=True, uncounted=True)
    assert agreed(staged=over).next == {ORDERS: Request((), WHOLE)}
    assert agreed(staged=over).next[ORDERS].number == 0
    assert agreed(say(3, Action.PAUSE, ORDERS), staged=over).next == {}
    asked = replace(over, reread=Reread((2, 4), (15,)))
    signals = ask(2, OVER_GAP, state=State.RUNNING), ask(4, PART), ask(6, PART)
    assert agreed(*signals, staged=asked).next == {ORDERS: Request((2, 4), WHOLE, (15,))}
    cancelled = replace(signals[0], state=State.CANCELLED)
    assert agreed(cancelled, *signals[1:], staged=asked).next == {ORDERS: Request((4,), WHOLE, (15,))}


def test_a_re_snapshot_is_done_when_readers_see_it() -> None:
    """On staging it only waits for that: it is neither run again nor done."""
    signals, staged = (ask(2, state=State.RUNNING), ask(4)), replace(SHOWN, answered=(2, 4))
    waits, done = agreed(*signals, staged=staged), agreed(*signals, staged=staged, visible=staged)
    assert (waits.next, waits.finished, waits.waiting) == ({}, (), {})
    assert (done.next, done.finished) == ({}, (2, 4))
    assert agreed(*signals, visible=None).finished == ()


def test_the_last_one_of_pause_and_resume_wins() -> None:
    """By number, whether it is carried out already or not, unless it was cancelled; no other table is held up."""
    pause = say(1, Action.PAUSE, ORDERS, state=State.DONE)
    answer = agreed(pause, ask(2), say(3, Action.PAUSE, ITEMS))
    assert (set(answer.paused), answer.next, answer.finished) == ({ORDERS, ITEMS}, {}, (3,))
    assert answer.waiting == {ORDERS: (2,)}
    resumed = agreed(pause, say(4, Action.RESUME), ask(2), say(3, Action.PAUSE, ITEMS))
    assert (resumed.paused, resumed.next) == (frozenset(), {ORDERS: Request((2,), WHOLE)})
    assert agreed(pause, say(4, Action.RESUME, state=State.CANCELLED)).paused == {ORDERS}


def test_a_cancel_takes_back_what_is_not_read_yet() -> None:
    """It is done in any case; of rows that are on staging it comes too late."""
    signals = ask(2, state=State.RUNNING), say(3, Action.CANCEL, cancels=2)
    assert (agreed(*signals).cancelled, agreed(*signals).finished, agreed(*signals).next) == ((2,), (3,), {})
    late = agreed(*signals, staged=replace(SHOWN, answered=(2,)))
    assert (late.cancelled, late.finished) == ((), (3,))
    pause = agreed(say(2, Action.PAUSE), say(3, Action.CANCEL, cancels=2), say(4, Action.CANCEL, cancels=3))
    assert (pause.cancelled, pause.finished, pause.paused) == ((2,), (3, 4), frozenset())


def test_what_is_asked_of_a_table_that_is_not_copied_fails() -> None:
    """Maintenance is run in order."""
    answer = agreed(ask(2, table=TableId("shop", "gone")), say(5, Action.MAINTAIN), say(3, Action.MAINTAIN, ORDERS))
    assert answer.failed == {2: "shop.gone is not copied"}
    assert [signal.number for signal in answer.maintain] == [3, 5]


def test_rollbacks_are_run_in_order_also_of_paused_tables() -> None:
    """Those that have ended are not run again."""
    answer = agreed(
        say(2, Action.PAUSE),
        say(5, Action.ROLLBACK, ORDERS, state=State.RUNNING),
        say(4, Action.ROLLBACK, ITEMS),
        say(3, Action.ROLLBACK, ORDERS, state=State.DONE),
    )
    assert [signal.number for signal in answer.rollbacks] == [4, 5]
    assert answer.finished == (2,)


def test_points_are_made_and_dropped_in_order() -> None:
    """Each once, and the documents of their signals have their names."""
    signals = (
        say(4, Action.DROP_POINT, name="a", state=State.RUNNING),
        say(3, Action.POINT, name="b"),
        say(2, Action.POINT, name="a", state=State.DONE),
    )
    answer = agreed(*signals)
    assert [(signal.number, signal.name) for signal in answer.points] == [(3, "b"), (4, "a")]
    assert [Signal.from_json(signal.to_json()) for signal in signals] == list(signals)


def test_tables_are_named_of_which_all_rows_are_asked_for() -> None:
    """Not those that are paused, nor those of which a part is asked for, nor for a signal that is cancelled."""
    assert agreed(ask(1), ask(2, PART)).whole == {ORDERS}
    assert agreed(ask(1, PART), ask(2, WHERE), ask(3, table=ITEMS)).whole == {ITEMS}
    assert agreed(ask(1), say(2, Action.PAUSE, ORDERS)).whole == frozenset()
    assert agreed(ask(1), say(2, Action.CANCEL, ORDERS, cancels=1)).whole == frozenset()
    assert agreed(ask(1), staged=replace(SHOWN, answered=(1,))).whole == frozenset()
