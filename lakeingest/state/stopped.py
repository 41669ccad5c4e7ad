"""Tables that must stop while the others go on: each with its error, kept under the state folder.

state/stopped/<database>.<table>.json   why the table's last attempt failed, and when; removed by its next success
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError, StorageFailed

_SERIOUS = (
    75,
    1,
    3,
)  # exit codes, the most serious last: the scheduler helps, then whoever owns the data, then a person


@dataclass(frozen=True, slots=True)
class Stopped:
    """A table that stopped: the error's class, which names its runbook, its exit code and message, and when it was."""

    table: TableId
    error: str
    exit: int
    message: str
    at: str

    @classmethod
    def of(cls, table: TableId, error: LakeIngestError) -> Self:
        """The table that stops now, with this error."""
        told = " ".join(str(error).split())
        return cls(table, error.runbook, error.exit_code, told, datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        names = ("error", "exit", "message", "at")
        return {"table": str(self.table), **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        return f"{self.error} at {self.at}: {self.message}"


def keep(state: Path, stopped: Stopped) -> None:
    """Write it down for `status`; a reader finds a whole file."""
    path = _path(state, stopped.table)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(stopped.to_json()))
        new.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def clear(state: Path, table: TableId) -> None:
    """The table went on: nothing of an earlier failure is left."""
    path = _path(state, table)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def last(state: Path, table: TableId) -> Stopped | None:
    """Why the table's last attempt failed; None where it did not, or where the file cannot be read."""
    try:
        doc = json.loads(_path(state, table).read_text())
        return Stopped(table, str(doc["error"]), int(doc["exit"]), str(doc["message"]), str(doc["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def most_serious(errors: Iterable[LakeIngestError]) -> LakeIngestError:
    """The error that decides how a run ends: 3 before 1 before 75; the first of several."""
    return max(errors, key=lambda error: _SERIOUS.index(error.exit_code))


def _path(state: Path, table: TableId) -> Path:
    return state / "stopped" / f"{quote(str(table), safe=' ')}.json"


def _unwritable(path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"the state folder cannot be written: {path}: {error.strerror}; make room or mend it, then run the same command"
        " again"
    )
