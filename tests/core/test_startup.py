"""Copies that are copied once, as a table of cases; copies that begin empty, as a model; copies that are taken over."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.progress_form import EMPTY_FORMAT
from lakeingest.core.copies.signals import Action, Signal, State, agenda
from lakeingest.core.copies.startup import begun_empty, is_done, taken_over
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.collapse import collapse
from lakeingest.core.waves.scope import WHOLE
from lakeingest.core.waves.wave import plan_merge
from tests.core.logged import log_of

TABLE, OTHER = TableId("d", "t"), TableId("d", "other")


def signal(action: Action, *tables: TableId, state: State = State.PENDING) -> Signal:
    """A signal of someone."""
    scope = WHOLE if action is Action.RESNAPSHOT else None
    return Signal(1, action, "someone", datetime(2026, 1, 1, tzinfo=UTC), tables, scope, state=state)


@pytest.mark.parametrize(
    ("signals", "visible", "done"),
    [
        ([], True, True),
        ([], False, False),
        ([signal(Action.RESNAPSHOT, TABLE)], True, False),
        ([signal(Action.RESNAPSHOT, TABLE, state=State.RUNNING)], True, False),
        ([signal(Action.RESNAPSHOT, TABLE, state=State.DONE)], True, True),
        ([signal(Action.RESNAPSHOT, OTHER)], True, True),
        ([signal(Action.MAINTAIN)], True, False),
        ([signal(Action.MAINTAIN, OTHER)], True, True),
        ([signal(Action.PAUSE)], True, True),
    ],
)
def test_a_published_copy_is_done_unless_someone_asks_for_work_on_it(
    signals: list[Signal], *, visible: bool, done: bool
) -> None:
    """An unpublished commit, and an open signal that only a run can carry out, leave something to do."""
    assert is_done(TABLE, signals, visible=visible) is done


SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
BYTES = 12  # of the little binlog: each transaction has one


def at(byte: int) -> Position:
    """A byte of the binlog."""
    return Position(SERVER, 0, FilePosition("binlog.000001", byte), GtidSet())


def begun(byte: int, covered: int) -> Progress:
    """A copy that began empty at this byte; the spool watches its table from `covered` on."""
    return begun_empty(Progress(TABLE, "f00d", SERVER, 0, at(covered).place), at(byte))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(1, 3))), max_size=BYTES),
    st.integers(0, BYTES),
    st.integers(0, BYTES),
    st.lists(st.integers(0, BYTES), max_size=3),
)
def test_a_copy_that_began_empty_has_exactly_the_keys_that_changed_since(
    writes: list[tuple[int, int | None]], byte: int, covered: int, stops: list[int]
) -> None:
    """Each transaction sets a key to a value, or removes it (None), whether it is there or not; merges stop anywhere.

    The oracle: a key that changed after the beginning is as in the source, also if it was there before, and no other
    key is in the copy.
    """
    copy: dict[int, int] = {}
    progress = begun(byte, min(byte, covered))
    changes = [
        ChangeRow(RowKind.DELETE if value is None else RowKind.UPDATE_AFTER, (key,), at(place).place, 0, {"v": value})
        for place, (key, value) in enumerate(writes, start=1)
    ]
    for stop in sorted({*(stop for stop in stops if stop > byte), BYTES}):
        plan = plan_merge(progress.splits, at(stop).place, log_of([]), progress.covered_from)
        applied = collapse(change for change in changes if plan.should_apply(change.place, change.key))
        before = len(copy)
        for change in applied.values():
            key = int(change.key[0])
            copy.pop(key, None)
            if not change.kind.is_delete:
                copy[key] = change.values["v"]
        progress = progress.merged(plan, at(stop), max(0, len(copy) - before), max(0, before - len(copy)))
        assert progress.phase is Phase.LEVEL
        assert progress.rows == len(copy)
        source = dict(writes[:stop])
        changed = {key for place, (key, _) in enumerate(writes[:stop], start=1) if place > byte}
        assert copy == {key: value for key, value in source.items() if key in changed and value is not None}


def test_a_copy_that_began_empty_says_so_in_a_form_that_earlier_versions_refuse() -> None:
    """They would take the missing rows for lost ones. Once all rows were read, it is a copy like any other."""
    progress = begun(7, covered=4)
    assert (progress.phase, progress.rows, progress.stop) == (Phase.LEVEL, 0, at(7).place)
    doc = progress_form.to_json(progress)
    assert (doc["format"], doc["began_empty"]) == (EMPTY_FORMAT, "binlog.000001:7")
    assert progress_form.from_json(doc) == progress
    again = progress.audited().published().started_over(Progress(TABLE, "f00d", SERVER, 0, at(9).place))
    assert again.began_empty is None


def test_a_copy_cannot_begin_before_the_spool_watches_its_table() -> None:
    """The spool would lack changes."""
    with pytest.raises(ValueError, match="ends before it begins"):
        begun(4, covered=7)


def test_the_rows_of_another_tool_are_a_copy_with_a_gap() -> None:
    """Nobody publishes it before all rows are compared; it needs the changes from the present position on."""
    new = Progress(TABLE, "f00d", SERVER, 0, at(4).place)
    progress = taken_over(new, at(7), rows=12)
    assert (progress.phase, progress.rows, progress.stop) == (Phase.LEVEL, 12, at(7).place)
    assert (progress.gap, progress.uncounted, progress.began_empty, progress.restarts) == (True, True, None, 1)
    assert (progress.needed_from, progress.covered_from, progress.reread) == (at(7).place, at(4).place, None)
    assert progress_form.from_json(progress_form.to_json(progress)) == progress
    with pytest.raises(ValueError, match="not counted, or have a gap"):
        progress.audited(12)
    request = agenda([], [TABLE], {TABLE: progress}, {}).next[TABLE]
    assert (request.scope, request.signals) == (WHOLE, ())
    closed = progress.reread_rows([], at(8).place, last=True).audited(11).published()
    assert (closed.gap, closed.rows) == (False, 11)


def test_rows_cannot_be_taken_over_before_the_spool_watches_their_table() -> None:
    """The spool would lack changes."""
    with pytest.raises(ValueError, match="ends before it begins"):
        taken_over(Progress(TABLE, "f00d", SERVER, 0, at(7).place), at(4), rows=1)
