"""`lakeingest rollback`: someone else wrote to a copy; readers get our last commit back, with a run or without."""

from typing import Any

import pytest

from lakeingest.commands.signal import SignalResults, ask
from lakeingest.commands.status import status
from lakeingest.core.signals import Event as Moved
from lakeingest.errors import ForeignWrite, UsageError
from lakeingest.pipeline.events import Event, Merged, Opened, SignalMoved
from lakeingest.state.signals import SignalDocument, SignalFolder
from tests.e2e import others
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

FOREIGN = (99, "foreign")


class Stop(Exception):
    """Ends a process where a crash could."""


@pytest.fixture
def copied(pipe: Pipe) -> Pipe:
    """Two copied tables, and changes of both that no run has seen."""
    for name in ("orders", "items"):
        pipe.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(40))", f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')"
        )
    pipe.run()
    pipe.sql("UPDATE orders SET v = 'A' WHERE id = 1", "DELETE FROM items WHERE id = 2")
    return pipe


def rollback(pipe: Pipe, *, wait: bool = True) -> SignalResults:
    """Ask for the rollback of orders, as the command does."""
    return ask(pipe.config, "rollback", [f"{pipe.database}.orders"], wait=wait)


def test_readers_get_our_last_commit_back_and_the_table_goes_on(copied: Pipe) -> None:
    """Without a run the command works itself; it says what it dropped, and refuses where there is nothing to drop."""
    others.insert(copied, "orders", FOREIGN)
    with pytest.raises(ForeignWrite, match=f"`lakeingest rollback {copied.database}.orders` lets them see"):
        copied.run()
    assert FOREIGN in copied.rows("orders")
    [orders] = [one for one in status(copied.config) if one.table.name == "orders"]
    assert orders.stopped is not None
    [done] = rollback(copied)
    assert (done.state, len(done.result["drops"])) == ("done", 1)
    assert "again; dropped: " in done.note
    assert copied.rows("orders") == [(1, "a"), (2, "b")]
    shown = status(copied.config)
    [orders] = [one for one in shown if one.table.name == "orders"]
    assert (orders.stopped, orders.state) == (None, "published")
    assert done.result["drops"][0] in str(orders.rolled_back)
    assert done.result["drops"][0] in shown.note
    copied.run()
    copied.assert_equal()
    assert [one.rolled_back for one in status(copied.config)] == [None, None]
    refused = rollback(copied)
    with pytest.raises(UsageError, match="nobody else has changed its copy"):
        refused.raise_failure()


@pytest.mark.long("a variant of an end-to-end case that every run has", only=("in mid",))
@pytest.mark.parametrize("when", ["before the run", "in mid-run"])
def test_a_run_that_is_at_work_takes_it(copied: Pipe, when: str) -> None:
    """Also where the table had stopped when the run began: it goes on in the same run."""
    if when == "before the run":
        others.insert(copied, "orders", FOREIGN)

    def watch(event: Event) -> None:
        if isinstance(event, Opened) and when == "before the run":
            rollback(copied, wait=False)
        if isinstance(event, Merged) and event.table.name == "orders" and when == "in mid-run":
            others.insert(copied, "orders", FOREIGN)
            if not copied.seen(SignalMoved):
                rollback(copied, wait=False)

    result = copied.run(observe=watch)
    assert not result.stopped
    copied.assert_equal()
    moved = [event.document.signal.state for event in copied.seen(SignalMoved) if isinstance(event, SignalMoved)]
    assert moved == ["running", "done"]


@pytest.mark.long("a variant of an end-to-end case that every run has")
@pytest.mark.parametrize("event", [Moved.BEGIN, Moved.FINISH])
@pytest.mark.parametrize("then", ["the command", "a run"])
def test_one_that_is_killed_is_finished(copied: Pipe, event: Moved, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the commit; whoever goes on says what was dropped in all."""
    others.insert(copied, "orders", FOREIGN)
    real = SignalFolder.move

    def move(self: SignalFolder, document: SignalDocument, happened: Moved, **known: Any) -> SignalDocument:
        if happened is Moved.FINISH and event is Moved.FINISH:
            raise Stop
        moved = real(self, document, happened, **known)
        if happened is event:
            raise Stop
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(SignalFolder, "move", move)
        with pytest.raises(Stop):
            rollback(copied)
    if then == "a run":
        copied.run()
        copied.assert_equal()
    else:
        ask(copied.config, "pause", [f"{copied.database}.items"])
    [document] = [one for one in SignalFolder(copied.state).read() if one.signal.action == "rollback"]
    assert (document.signal.state, len(document.result["drops"])) == ("done", 1)
    assert (FOREIGN in copied.rows("orders")) is False
