"""Which tables that are copied only once have nothing left to do, as a table of cases."""

from datetime import UTC, datetime

import pytest

from lakeingest.core.schema import TableId
from lakeingest.core.signals import WHOLE, Action, Signal, State
from lakeingest.core.startup import is_done

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
