"""`lakeingest rollback`: someone else wrote to a copy; readers get our last commit back, with a run or without."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands.signal import SignalResults, ask
from lakeingest.commands.status import status
from lakeingest.config import Target
from lakeingest.config.place import Place
from lakeingest.core.copies.signals import Event as Moved
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ForeignWrite, UsageError
from lakeingest.pipeline.events import Event, Merged, Opened, SignalMoved
from lakeingest.state.signals import SignalDocument, SignalFolder
from tests.e2e import others
from tests.e2e.pipe import Pipe
from tests.servers.catalog_servers import add_catalog, rest_on_s3
from tests.servers.stores import hadoop_reaches, storage_of

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

FOREIGN = (99, "foreign")


class Stop(Exception):
    """Ends a process where a crash could."""


@pytest.fixture
def copied(pipe: Pipe) -> Pipe:
    """Two copied tables, and changes of both that no run has seen."""
    return copied_by(pipe)


def copied_by(pipe: Pipe) -> Pipe:
    """Let a pipeline copy two tables, and change both."""
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


@pytest.mark.long("whole runs")
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


@pytest.mark.parametrize("when", ["before the run", "in mid-run"])
@pytest.mark.long("several runs in a row; other tests have each step")
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


@pytest.fixture
def on_mariadb(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a MariaDB."""
    return pipe_on(server_of(MARIADB_11_4))


@pytest.fixture
def in_s3(request: pytest.FixtureRequest, pipe: Pipe, lake_format: str, tmp_path: Path) -> Iterator[Pipe]:
    """A pipeline whose tables and state are in a store; for Hudi in that of all tests, which the JVM remembers."""
    if lake_format == "hudi":
        store: LocalS3 = request.getfixturevalue("s3")
        place = {"warehouse": Place.of(f"s3://{store.bucket}/rollbacks"), "storage": storage_of(store)}
        target = pipe.config.target.model_copy(update=place)
        hadoop_reaches(pipe.spark, target)
        state = Place.of(f"s3://{store.bucket}/state_of_rollbacks")
        pipe.config = pipe.config.model_copy(update={"target": target, "state": state})
        yield pipe
        return
    with rest_on_s3(tmp_path) as doc:
        doc["catalog"]["name"] = "rollbacks_in_s3"
        target = Target.model_validate(doc)
        add_catalog(pipe.spark, target)
        state = Place.of(f"{doc['warehouse'].rpartition('/')[0]}/state")
        pipe.config = pipe.config.model_copy(update={"target": target, "state": state})
        yield pipe


@pytest.mark.local("brings a store of its own")
@pytest.mark.long("a variant of an end-to-end case that every run has")
@pytest.mark.parametrize("there", ["on_mariadb", "in_s3"])
def test_so_it_is_on_mariadb_and_in_a_store(request: pytest.FixtureRequest, lake_format: str, there: str) -> None:
    """The table stops, the other one goes on; after the rollback both are followed."""
    copied = copied_by(request.getfixturevalue(there))
    assert copied.config.target.format == lake_format
    others.insert(copied, "orders", FOREIGN)
    with pytest.raises(ForeignWrite):
        copied.run()
    assert copied.rows("items") == [(1, "a")]
    assert copied.rows("orders") == [(1, "a"), (2, "b"), FOREIGN]
    [done] = rollback(copied)
    assert (done.state, len(done.result["drops"])) == ("done", 1)
    assert copied.rows("orders") == [(1, "a"), (2, "b")]
    copied.run()
    assert copied.rows("orders") == [(1, "A"), (2, "b")]
    copied.assert_equal()
