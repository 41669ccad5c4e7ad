"""Tables that stopped while the others go on: each one's error, stored in the state folder.

state/stopped/<database>.<table>.json   why the table's last attempt failed, and when; removed by its next success
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from lakeingest import errors
from lakeingest.core.file_names import file_name
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, LakeIngestError
from lakeingest.files.file import File
from lakeingest.state import store

# exit codes, the most serious last: the scheduler acts, then the owner of the data, then a person on call
_RETRY = 75
_SERIOUS = (_RETRY, 1, 3)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A table that stopped: the error's class, which names its runbook, its exit code and message, and the time."""

    table: TableId
    error: str
    exit: int
    message: str
    at: str

    @classmethod
    def of(cls, table: TableId, error: LakeIngestError) -> Self:
        """A table that stops now, with this error."""
        message, now = " ".join(str(error).split()), datetime.now(UTC).isoformat(timespec="seconds")
        return cls(table, error.runbook, error.exit_code, message, now)

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        names = ("error", "exit", "message", "at")
        return {"table": str(self.table), **{name: getattr(self, name) for name in names}}

    def as_error(self) -> LakeIngestError:
        """The stored error. If this version does not have its class, a Retryable or OperatorNeeded stands for it."""
        kind = getattr(errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, LakeIngestError):
            return kind(self.message)
        return errors.Retryable(self.message) if self.exit == _RETRY else errors.OperatorNeeded(self.message)

    def __str__(self) -> str:
        return f"{self.error} at {self.at}: {self.message}"


def record_stopped(state: File, stopped: Stopped) -> None:
    """Store why the table stopped, for `status`. Raises StorageFailed when that cannot be written."""
    path = _path(state, stopped.table)
    store.make_folder(path.parent)
    with store.of_one_table(path):
        store.replace(path, stopped.to_json())


def remove_stopped(state: File, table: TableId) -> None:
    """Remove the stored failure of a table that went on. Raises StorageFailed when that cannot be removed."""
    path = _path(state, table)
    with store.of_one_table(path):
        store.delete(path)


def read_stopped(state: File, table: TableId) -> Stopped | None:
    """The failure of the table's last attempt; None if it did not fail, or the file cannot be read."""
    try:
        doc = store.read(_path(state, table))
        return Stopped(table, str(doc["error"]), int(doc["exit"]), str(doc["message"]), str(doc["at"]))
    except (OSError, *DAMAGED):
        return None


def most_serious(errors: Iterable[LakeIngestError]) -> LakeIngestError:
    """The error whose exit code a run ends with: 3 before 1 before 75, and the first of several with the same code."""
    return max(errors, key=lambda error: _SERIOUS.index(error.exit_code))


def _path(state: File, table: TableId) -> File:
    return state / "stopped" / f"{file_name(str(table))}.json"
