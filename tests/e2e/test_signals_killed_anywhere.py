"""A run dies at any step, in any phase, with any signal under way: the next run ends as if nothing had happened.

A step is an assertion of the lease, which comes before whatever is made durable, and the end of a commit to the lake or
of a move of a signal. LAKEINGEST_KILL_EVERY=1 lets runs on Hudi die at every step, too; else they die at every fifth.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakeingest.commands.run import run
from lakeingest.commands.signal import ask
from lakeingest.core.copies.signals import OPEN, State
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.events import Event, WaveCommitted
from lakeingest.state.lease import Lease
from lakeingest.state.signals import SignalFolder
from tests.e2e.pipe import Pipe

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.formats,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.long("a run for each step of a run"),
]

COMMITS = ("create", "commit_wave", "commit_merge", "mark", "go_back", "publish", "maintain")


class Dead(BaseException):
    """The process was killed."""


class Mortality:
    """Counts the steps of a run; from the step `at` on nothing is made durable."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    @property
    def dead(self) -> bool:
        """Whether the run was killed."""
        return self.steps >= self.at

    def step(self) -> None:
        """Die here, or have died before."""
        if not self.dead:
            self.steps += 1
        if self.dead:
            raise Dead

    def before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which may be the end of the run before it begins."""

        def wrapped(*given: Any, **options: Any) -> Any:
            self.step()
            return method(*given, **options)

        return wrapped

    def after(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which may be the end of the run when it has taken effect."""

        def wrapped(*given: Any, **options: Any) -> Any:
            if self.dead:
                raise Dead
            answer = method(*given, **options)
            self.step()
            return answer

        return wrapped


@contextmanager
def mortal(pipe: Pipe, at: int) -> Iterator[Mortality]:
    """Runs within the block die at this step."""
    mortality, target = Mortality(at), type(open_target(pipe.config))
    report = threading.excepthook

    def end(thread: threading.ExceptHookArgs) -> None:
        """A thread of a killed process says nothing."""
        if thread.exc_type is not Dead:
            report(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", end)
        patch.setattr(Lease, "assert_held", mortality.before(Lease.assert_held))
        patch.setattr(SignalFolder, "move", mortality.after(SignalFolder.move))
        for name in COMMITS:
            patch.setattr(target, name, mortality.after(getattr(target, name)))
        yield mortality


def request(pipe: Pipe, action: str) -> None:
    """Ask for it, and for what it needs."""
    name = [f"{pipe.database}.t"]
    if action == "resume":
        ask(pipe.config, "pause", name, wait=False)
    if action in {"resnapshot", "cancel"}:
        ask(pipe.config, "resnapshot", name, scope=WHOLE, wait=False)
    if action != "resnapshot":
        ask(pipe.config, action, name, wait=False)


def signals(pipe: Pipe) -> list[State]:
    """The states of all signals."""
    return [one.signal.state for one in SignalFolder(pipe.state).read()]


def work(pipe: Pipe, action: str, phase: str) -> None:
    """One run; in the bootstrap the signal is made when the first wave is committed."""
    is_asked = phase != "bootstrap"
    rounds = 0

    def observe(event: Event) -> None:
        nonlocal is_asked
        if isinstance(event, WaveCommitted) and not is_asked:
            is_asked = True
            request(pipe, action)

    def stopping() -> bool:
        nonlocal rounds
        rounds += 1
        return rounds > 8 and not set(signals(pipe)) & OPEN

    if phase == "follow":
        run(pipe.config, (), None, observe, pipe.spark, follow=True, stopping=stopping)
    else:
        run(pipe.config, (), None, observe, pipe.spark)


def table_of(pipe: Pipe) -> None:
    """Forty rows, in four chunks."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({number}, {number})' for number in range(40))}",
    )


def dies_at(pipe: Pipe, action: str, phase: str, at: int) -> bool:
    """Whether the run died at that step, and what the next ones have made of it."""
    if phase == "bootstrap":
        pipe.sql("DROP TABLE IF EXISTS t")
        table_of(pipe)
    else:
        pipe.sql(
            f"UPDATE t SET v = 'changed {at}' WHERE id % 5 = {at % 5}",
            f"DELETE FROM t WHERE id = {at % 40}",
            f"INSERT INTO t VALUES ({100 + at}, 'new')",
        )
        pipe.unlogged(f"UPDATE t SET v = 'lost {at}' WHERE id % 7 = {at % 7}")
        request(pipe, action)
    with mortal(pipe, at) as mortality:
        try:
            work(pipe, action, phase)
        except Dead:
            assert mortality.dead
    for _ in range(3):
        pipe.run()
    if action == "pause":
        ask(pipe.config, "resume", wait=False)
        pipe.run()
    assert not set(signals(pipe)) & OPEN, signals(pipe)
    if phase != "bootstrap" and action != "resnapshot":  # it alone finds what no binlog has
        ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
        pipe.run()
    pipe.assert_equal()
    return mortality.dead


@pytest.mark.parametrize("action", ["resnapshot", "pause", "resume", "cancel", "maintain"])
@pytest.mark.parametrize("phase", ["bootstrap", "catch-up", "follow"])
def test_a_run_that_dies_at_any_step_leaves_nothing_undone(
    pipe_on: Callable[..., Pipe],
    mysql_server: LocalServer,
    lake_format: str,
    action: str,
    phase: str,
    record_property: Callable[[str, object], None],
) -> None:
    """All signals have ended, and the copy is equal."""
    every = int(os.environ.get("LAKEINGEST_KILL_EVERY", "1" if lake_format == "iceberg" else "5"))
    at, kills = 1, 0
    pipe = pipe_on(mysql_server, chunk_rows=10)
    if phase != "bootstrap":
        table_of(pipe)
        pipe.run()
    while True:
        if phase == "bootstrap":
            pipe = pipe_on(mysql_server, chunk_rows=10)
        if not dies_at(pipe, action, phase, at):
            break
        at, kills = at + every, kills + 1
    assert kills
    record_property("runs that died", f"{lake_format}, {phase}, {action}: {kills} runs")
