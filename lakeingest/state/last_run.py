"""The outcome of the last run: `last_run.json` in the state folder, because clusters may lose exit codes.

A job that was submitted records its token with the outcome, so that whoever submitted it knows it again.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lakeingest.errors import DAMAGED
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "last_run.json"
JOB = "LAKEINGEST_JOB"  # the variable that `submit` gives a job its token in


def record(state: File, outcome: Mapping[str, Any]) -> None:
    """Store the outcome with the time, and the job's token. StorageFailed when it cannot be written.

    `set` of the outcome are the keys that the command line changed.
    """
    store.make_folder(state)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    store.replace(state / NAME, json.loads(json.dumps({"at": at, "job": os.environ.get(JOB), **outcome}, default=str)))


def failure(state: File) -> str:
    """How the last run failed, and when; empty if it did not fail or nothing is stored."""
    try:
        last = store.read(state / NAME)
        changed = f", with --set {', '.join(last['set'])}," if last.get("set") else ""
        return f"the last run{changed} failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, *DAMAGED):
        return ""


def of_job(state: File, token: str) -> Mapping[str, Any] | None:
    """The outcome that the job with this token has recorded; None where it has not, or has not ended.

    Errors of the store pass.
    """
    try:
        last = store.read(state / NAME)
    except (FileNotFoundError, ValueError):
        return None
    found = isinstance(last, dict) and last.get("job") == token and isinstance(last.get("exit"), int)
    return last if found else None
