"""The outcome of the last run: `last_run.json` in the state folder, because clusters may lose exit codes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lakeingest.files.file import File
from lakeingest.state import store

NAME = "last_run.json"


def record(state: File, outcome: Mapping[str, Any]) -> None:
    """Store the outcome with the time. StorageFailed when it cannot be written."""
    store.make_folder(state)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    store.replace(state / NAME, json.loads(json.dumps({"at": at, **outcome}, default=str)))


def failure(state: File) -> str:
    """How the last run failed, and when; empty if it did not fail or nothing is stored."""
    try:
        last = store.read(state / NAME)
        return f"the last run failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
