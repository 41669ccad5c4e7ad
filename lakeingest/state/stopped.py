"""The errors of stopped tables, stored in the state folder. A run continues with its other tables.

stopped/<database>.<table>.json   the error of the table's last attempt, and its time; removed after the next success
stopped_companions/               the same for companions of copies (`core.companions.companion`): in another folder,
                                  because a table of the source may have the name of a companion
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from lakeingest import errors
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File
from lakeingest.files.stored import AT_ONCE
from lakeingest.side_by_side import side_by_side
from lakeingest.state import store

FOLDER, COMPANIONS = "stopped", "stopped_companions"
_RETRY = 75
# Exit codes, the most serious one last. The scheduler acts on 75, the owner of the data on 1, a person on call on 3
_SERIOUS = (_RETRY, 1, 3)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A table that stopped at the time `at`, and its error: class (the name of the runbook), exit code and message."""

    table: TableId
    error: str
    exit: int
    message: str
    at: str

    @classmethod
    def of(cls, table: TableId, error: LakeIngestError) -> Self:
        """The record of a table that stops now with this error."""
        message = " ".join(str(error).split())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(table, error.runbook, error.exit_code, message, now)

    def to_json(self) -> dict[str, Any]:
        """The JSON document that is stored."""
        names = ("error", "exit", "message", "at")
        return {"table": str(self.table), **{name: getattr(self, name) for name in names}}

    def as_error(self) -> LakeIngestError:
        """The stored error; a Retryable or OperatorNeeded if this version of lakeingest does not have its class."""
        kind = errors.named(self.error)
        if kind is not None:
            return kind(self.message)
        return errors.Retryable(self.message) if self.exit == _RETRY else errors.OperatorNeeded(self.message)

    def __str__(self) -> str:
        return f"{self.error} at {self.at}: {self.message}"


class StoppedTables:
    """The records of stopped tables. One listing says which tables have one, so no request is sent for other tables.

    Only the run that holds the lease writes records; for any other reader, the listing is of one moment. Raises
    StorageFailed if the records cannot be listed.
    """

    def __init__(self, state: File, folder: str = FOLDER) -> None:
        self._state, self._folder = state, folder
        with store.storage_errors(state / folder, "read"):
            self._stored = {file.name for file in (state / folder).listed("*.json")}

    @property
    def is_empty(self) -> bool:
        """Whether no table has a record."""
        return not self._stored

    def record(self, stopped: Stopped) -> None:
        """Store why the table stopped, for `status`. Raises StorageFailed if the document cannot be written."""
        path = _path(self._state, stopped.table, self._folder)
        self._stored.add(path.name)
        store.replace_of_table(path, stopped.to_json())

    def read(self, table: TableId) -> Stopped | None:
        """The record of the table, as `read_stopped` returns it."""
        return read_stopped(self._state, table, self._folder) if self._has(table) else None

    def read_all(self, tables: Iterable[TableId]) -> dict[TableId, Stopped]:
        """The records of these tables, without records that cannot be read."""
        recorded = [table for table in tables if self._has(table)]
        read = side_by_side(lambda table: read_stopped(self._state, table, self._folder), recorded, AT_ONCE)
        return {stopped.table: stopped for stopped in read if stopped is not None}

    def remove(self, table: TableId) -> None:
        """Remove the record of a table after a success. Raises StorageFailed if the document cannot be removed."""
        path = _path(self._state, table, self._folder)
        if path.name in self._stored:
            with store.of_one_table(path):
                store.delete(path)
            self._stored.remove(path.name)

    def _has(self, table: TableId) -> bool:
        """Whether the table has a record. The record is not read."""
        return _path(self._state, table, self._folder).name in self._stored


def read_stopped(state: File, table: TableId, folder: str = FOLDER) -> Stopped | None:
    """The record of the table's last attempt; None if that attempt succeeded, or if the document cannot be read."""
    return store.read_or(
        _path(state, table, folder),
        lambda doc: Stopped(table, str(doc["error"]), int(doc["exit"]), str(doc["message"]), str(doc["at"])),
        None,
    )


def most_serious(errors: Iterable[LakeIngestError]) -> LakeIngestError:
    """The error with the most serious exit code: 3, then 1, then 75. If several have that code, the first of them.

    There is at least one error, and none has another exit code.
    """
    return max(errors, key=lambda error: _SERIOUS.index(error.exit_code))


def _path(state: File, table: TableId, folder: str) -> File:
    return store.path_of(state / folder, table)
