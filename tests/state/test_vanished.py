import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from lakeingest.errors import LeaseHeld
from lakeingest.files.file import File
from lakeingest.state import last_run
from lakeingest.state.lease import Owner, held
from lakeingest.state.vanished import vanished_run

HOST, PID = os.uname()[1], os.getpid()
AT_WORK = {"exit": None, "error": None}


def ended() -> Owner:
    """An owner on this machine whose process is gone."""
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return replace(Owner.of_this_process(), pid=int(process.stdout))


def left(folder: File, owner: Owner) -> None:
    """The lease of an owner, as a store and a disk have it."""
    folder.make_folder(private=True)
    (folder / "lease.json").put_document({**asdict(owner), "epoch": 1, "free": False})


def recorded(folder: File, seconds: float, **entries: object) -> None:
    """A record of a run that was made so many seconds ago."""
    last_run.record(folder, AT_WORK)
    at = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")
    record = json.loads((folder / "last_run.json").read())
    (folder / "last_run.json").put_document({**record, "at": at, **entries})


def test_a_run_that_was_killed_is_told_until_another_run_begins(any_folder: File) -> None:
    """By the lease that it left; nothing is told of a run that is at work, or that gave its lease back."""
    folder, owner = any_folder / "state", ended()
    assert vanished_run(folder) == ""
    left(folder, owner)
    found = vanished_run(folder)
    assert f"pid {owner.pid} on {HOST}, which began at {owner.since}, ended without a word" in found
    assert "progress" not in found
    recorded(folder, 3_600, pid=owner.pid)
    assert "; its last progress was at 20" in vanished_run(folder)
    with held(folder):
        assert vanished_run(folder) == ""
        last_run.record(folder, AT_WORK)
    assert vanished_run(folder) == ""


@pytest.mark.parametrize(
    ("seconds", "entries", "is_told"),
    [
        (90.0, {}, True),
        (5.0, {}, False),  # it may be about to record its end
        (90.0, {"exit": 0}, False),
        (90.0, {"exit": 75}, False),
        (90.0, {"host": None, "pid": "x"}, False),
        (90.0, {"at": "yesterday"}, False),
    ],
)
def test_a_record_of_a_run_at_work_is_told_if_no_run_is(
    any_folder: File, *, seconds: float, entries: dict[str, object], is_told: bool
) -> None:
    """A command may have taken the lease of the killed run, and given it back."""
    folder = any_folder / "state"
    recorded(folder, seconds, **entries)
    assert vanished_run(folder).startswith(f"the last run, pid {PID} on {HOST} ended without a word") is is_told
    with held(folder):
        assert vanished_run(folder) == ""


def test_the_error_of_a_held_lease_says_when_its_run_last_got_on(any_folder: File) -> None:
    """If the record is of that run: one of an earlier run says nothing about it."""
    folder = any_folder / "state"
    with held(folder):
        for entries, progress in (({}, ", last progress at 20"), ({"pid": PID + 1}, ""), ({"at": 7}, "")):
            recorded(folder, 120, **entries)
            with pytest.raises(LeaseHeld) as raised, held(folder):
                pass
            assert f"pid {PID} on {HOST}, since " in str(raised.value)
            assert (progress in str(raised.value), " ago; run the same" in str(raised.value)) == (True, progress != "")


def test_a_job_finds_its_outcome_also_if_it_was_refused(any_folder: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the run that was at work is not touched."""
    folder = any_folder / "state"
    last_run.record(folder, AT_WORK)
    before = (folder / "last_run.json").read()
    monkeypatch.setenv(last_run.JOB, "a token")
    last_run.record(folder, {"exit": 75, "error": "held"}, refused=True)
    assert (folder / "last_run.json").read() == before
    found = last_run.of_job(folder, "a token")
    assert found is not None
    assert (found["exit"], found["error"]) == (75, "held")
    assert last_run.of_job(folder, "another") is None
