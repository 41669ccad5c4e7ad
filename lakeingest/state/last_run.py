"""The outcome of the last run, stored as `last_run.json` in the state folder, because a cluster can lose exit codes.

A submitted job stores its token with the outcome. By the token, the submitter recognises the outcome of its job.
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
JOB = "LAKEINGEST_JOB"  # the environment variable in which `submit` gives a job its token


def record(state: File, outcome: Mapping[str, Any]) -> None:
    """Store the outcome of this run with the time and the job's token. Raises StorageFailed if it cannot be written.

    The entry `set` of the outcome has the keys of pipeline.yml that the command line changed (`--set`).
    """
    store.make_folder(state)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    # values that JSON does not have become texts
    store.replace(state / NAME, json.loads(json.dumps({"at": at, "job": os.environ.get(JOB), **outcome}, default=str)))


def failure(state: File) -> str:
    """A sentence about the failure of the last run; '' if the run did not fail, or if its outcome cannot be read."""
    try:
        last = store.read(state / NAME)
        changed = f", with --set {', '.join(last['set'])}," if last.get("set") else ""
        return f"the last run{changed} failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, *DAMAGED):
        return ""


def of_job(state: File, token: str) -> Mapping[str, Any] | None:
    """The outcome that the job with this token has stored. Errors of the storage are raised.

    None if no outcome is stored, if the stored outcome is of another job, or if the document is damaged.
    """
    try:
        last = store.read(state / NAME)
    except (FileNotFoundError, ValueError):
        return None
    is_of_job = isinstance(last, dict) and last.get("job") == token and isinstance(last.get("exit"), int)
    return last if is_of_job else None
