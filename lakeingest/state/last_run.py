"""What the last run came to: `last_run.json` in the state folder, for where a cluster loses exit codes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lakeingest.state import store

NAME = "last_run.json"


def record(state: Path, outcome: Mapping[str, Any]) -> None:
    """Write the outcome down with the time. StorageFailed when it cannot be written."""
    store.make_folder(state)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    store.replace(state / NAME, json.loads(json.dumps({"at": at, **outcome}, default=str)))


def failure(state: Path) -> str:
    """How the last run failed, and when; empty where it did not, and where no run wrote it down."""
    try:
        last = store.read(state / NAME)
        return f"the last run failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
