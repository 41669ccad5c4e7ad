"""What the last run came to: `last_run.json` in the state folder, for where a cluster loses exit codes."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NAME = "last_run.json"


def record(state: Path, outcome: Mapping[str, Any]) -> None:
    """Write it down with the time; a reader finds a whole file. OSError when it cannot be written."""
    state.mkdir(parents=True, exist_ok=True)
    new = state / f"last_run.{os.getpid()}.new"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    new.write_text(json.dumps({"at": at, **outcome}, default=str) + "\n")
    new.replace(state / NAME)


def failure(state: Path) -> str:
    """How the last run failed, and when; empty where it did not, and where no run wrote it down."""
    try:
        last = json.loads((state / NAME).read_text())
        return f"the last run failed at {last['at']}: {last['error']}" if last["error"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
