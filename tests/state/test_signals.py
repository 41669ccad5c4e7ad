"""Signals in the state folder: numbers that are given once, documents that outlive a crash, and the audit."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakeingest.core.copies.signals import Action, Event, Signal, State
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable, StorageFailed
from lakeingest.files.local import Local
from lakeingest.state import signals as stored
from lakeingest.state import store
from lakeingest.state.signals import SignalDocument, SignalFolder, this_process

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
ENQUEUE = """
import sys
from datetime import UTC, datetime
from lakeingest.core.copies.signals import Action, Signal
from lakeingest.files.local import Local
from lakeingest.state.signals import SignalFolder, this_process
folder = SignalFolder(Local(sys.argv[1]))
for _ in range(40):
    folder.add(lambda number: Signal(number, Action.PAUSE, this_process(), datetime.now(UTC)))
"""


def add(state: Local, action: Action = Action.PAUSE, *tables: TableId, least: int = 1) -> SignalDocument:
    """One more signal."""

    def make(number: int) -> Signal:
        return Signal(number, action, this_process(), datetime.now(UTC), tables)

    return SignalFolder(state).add(make, least)


def finished(state: Local, action: Action, *tables: TableId) -> int:
    """One more signal, which has ended; its number."""
    document = add(state, action, *tables)
    SignalFolder(state).move(document, Event.FINISH)
    return document.signal.number


def audit(state: Path) -> list[dict[str, object]]:
    """The lines of the audit that are whole."""
    found = []
    for line in (state / "audit.jsonl").read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_two_processes_at_once_get_different_numbers(tmp_path: Local) -> None:
    """Each document is made once: of 80 signals from two processes none has the number of another, and none is lost."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen([sys.executable, "-c", ENQUEUE, str(tmp_path)], env=environment) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    documents = SignalFolder(tmp_path).read()
    assert [one.signal.number for one in documents] == list(range(1, 81))
    assert len({one.signal.who for one in documents}) == 2
    assert sorted(int(str(line["number"])) for line in audit(tmp_path)) == list(range(1, 81))


def test_a_signal_is_read_back_as_it_was_asked_for(tmp_path: Local) -> None:
    """With who asked, when, and for which tables; nothing is there before the first one."""
    assert SignalFolder(tmp_path).read() == []
    made = add(tmp_path, Action.MAINTAIN, ORDERS)
    assert SignalFolder(tmp_path).read() == [made]
    assert made.signal.who.endswith(f"pid {os.getpid()}")
    assert (made.signal.number, made.signal.state, made.ended) == (1, State.PENDING, False)


def test_numbers_begin_after_those_that_the_lake_names(tmp_path: Local) -> None:
    """Where the state folder was lost, commits still name the signals that they answered."""
    assert add(tmp_path, least=8).signal.number == 8
    assert add(tmp_path, least=3).signal.number == 9


def test_each_change_of_a_state_is_a_line_of_the_audit(tmp_path: Local) -> None:
    """Who asked and who carried it out; a move that changes nothing is no line, and may be made again."""
    folder, document = SignalFolder(tmp_path), add(tmp_path, Action.MAINTAIN, ORDERS)
    running = folder.move(document, Event.BEGIN)
    folder.move(running, Event.BEGIN)
    folder.note(running, "half of it")
    done = folder.move(running, Event.FINISH, note="all of it", result={"files": 3})
    folder.move(done, Event.FINISH, note="all of it", result={"files": 3})
    lines = audit(tmp_path)
    assert [(line["event"], line["state"]) for line in lines] == [
        ("asked", "pending"),
        ("begin", "running"),
        ("finish", "done"),
    ]
    assert {line["who"] for line in lines} == {document.signal.who}
    assert all(line["by"] and line["at"] for line in lines)
    assert SignalFolder(tmp_path).one(1) == done
    assert (done.note, done.result) == ("all of it", {"files": 3})


def test_a_failed_signal_says_why(tmp_path: Local) -> None:
    """In its document and in the audit."""
    folder = SignalFolder(tmp_path)
    folder.move(add(tmp_path, Action.MAINTAIN), Event.FAIL, why="StorageFailed: no room")
    [document] = folder.read()
    assert (document.signal.state, document.signal.why) == (State.FAILED, "StorageFailed: no room")
    assert audit(tmp_path)[-1]["why"] == "StorageFailed: no room"


def test_a_line_that_a_crash_cut_short_spoils_no_other(tmp_path: Local) -> None:
    """The next line begins on a line of its own."""
    add(tmp_path)
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"at": "2026-')
    add(tmp_path)
    assert [line["number"] for line in audit(tmp_path)] == [1, 2]


def test_documents_of_ended_signals_are_read_once(tmp_path: Local) -> None:
    """What has ended does not change any more: a folder that was opened before does not look at its file again."""
    number = finished(tmp_path, Action.MAINTAIN)
    folder = SignalFolder(tmp_path)
    [before] = folder.read()
    (tmp_path / "signals" / f"{number:06d}.json").write_text("not read again")
    assert folder.read() == [before]
    with pytest.raises(StateUnreadable, match=f"{number:06d}.json cannot be read"):
        SignalFolder(tmp_path).read()


def test_old_documents_are_removed_and_no_number_comes_again(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that decide whether a table is paused stay, so do open ones and the newest number."""
    monkeypatch.setattr(stored, "ENDED_MAX", 1)
    finished(tmp_path, Action.PAUSE, ORDERS)  # over: orders is resumed later
    finished(tmp_path, Action.PAUSE, ITEMS)
    finished(tmp_path, Action.RESUME, ORDERS)
    opened = add(tmp_path, Action.MAINTAIN).signal.number
    finished(tmp_path, Action.MAINTAIN)
    finished(tmp_path, Action.MAINTAIN)
    folder = SignalFolder(tmp_path)
    folder.trim()
    assert [one.signal.number for one in folder.read()] == [2, 3, opened, 6]
    assert add(tmp_path).signal.number == 7
    finished(tmp_path, Action.RESUME)  # for all tables: nothing before it decides
    SignalFolder(tmp_path).move(SignalFolder(tmp_path).read()[2], Event.FINISH)
    folder = SignalFolder(tmp_path)
    folder.trim()
    assert [one.signal.number for one in folder.read()] == [7, 8]


def test_a_killed_owner_leaves_a_whole_document(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the audit and the document: the audit has the change twice, and it is made once."""
    document = add(tmp_path, Action.MAINTAIN)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            SignalFolder(tmp_path).move(document, Event.FINISH)
    assert SignalFolder(tmp_path).read() == [document]
    SignalFolder(tmp_path).move(document, Event.FINISH)
    assert [line["event"] for line in audit(tmp_path)] == ["asked", "finish", "finish"]
    assert SignalFolder(tmp_path).read()[0].signal.state is State.DONE


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Local) -> None:
    """StorageFailed, and nothing is asked for."""
    (tmp_path / "signals").write_text("a file in the way")
    with pytest.raises(StorageFailed, match="signals"):
        add(tmp_path)
