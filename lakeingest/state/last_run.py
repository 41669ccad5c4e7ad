"""The outcome of the last run, stored as `last_run.json` in the state folder, because a cluster can lose exit codes.

last_run.json           the outcome of the last run that worked on the pipeline; while a run is at work, how far it is
last_run.refused.json   the outcome of the last run that could not begin, because another run was at work: it leaves
                        the record of the other run, last_run.json, as it is

A submitted job stores its token with the outcome. By the token, the submitter recognises the outcome of its job. The
process is stored, too, so that other processes can tell whether the record is that of the run which holds the lease.
"""

import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lakeingest.errors import DAMAGED, LakeIngestError
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "last_run.json"
REFUSED = "last_run.refused.json"
JOB = "LAKEINGEST_JOB"  # the environment variable in which `submit` gives a job its token


def record(state: File, outcome: Mapping[str, Any], *, refused: bool = False) -> None:
    """Store the outcome of this run with the time, the process and the job's token.

    The entry `set` of the outcome has the keys of pipeline.yml that the command line changed (`--set`). `refused`:
    another run is at work, and `last_run.json` is its record. Raises StorageFailed if the file cannot be written.
    """
    store.make_folder(state)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    document = {"at": at, "job": os.environ.get(JOB), **process, **outcome}
    # values that JSON does not have become texts
    store.replace(state / (REFUSED if refused else NAME), json.loads(json.dumps(document, default=str)))


def failure(state: File) -> str:
    """A sentence about the failure of the last run; '' if it did not fail, or if its outcome is missing or damaged."""
    try:
        last = store.read(state / NAME)
        changed = f", with --set {', '.join(last['set'])}," if last.get("set") else ""
        return f"the last run{changed} failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, *DAMAGED):
        return ""


def last_progress(state: File, host: str, pid: int) -> datetime | None:
    """When the run in the process `pid` on `host` last recorded progress; None if no record of it can be read."""
    try:
        last = store.read(state / NAME)
        if (last["host"], last["pid"]) != (host, pid):  # the record of an earlier run
            return None
        at = datetime.fromisoformat(last["at"])
        return at if at.tzinfo is not None else None
    except (OSError, LakeIngestError, *DAMAGED):
        return None


def of_job(state: File, token: str) -> Mapping[str, Any] | None:
    """The outcome that the job with this token has stored. Errors of the storage are raised.

    None while the job is at work, if no outcome is stored, if the stored outcomes are of other jobs, or if the
    documents are damaged.
    """
    for name in (NAME, REFUSED):
        try:
            last = store.read(state / name)
        except (FileNotFoundError, ValueError):
            continue
        # "exit" is null while the run is at work
        if isinstance(last, dict) and last.get("job") == token and isinstance(last.get("exit"), int):
            return last
    return None
