"""Signals as documents of the state folder, and an audit of them.

signals/000001.json   a signal and its state. The process that asks for it makes the file, with the next number. Only
                      the owner of the lease replaces the file
audit.jsonl           who asked for which signal and when, and each change of a signal's state. Lines are only added. In
                      an object store this is a folder with a file for each line

The first line of a signal is written after its document is made. A line about a change of the state is written before
the document is replaced. So if a crash comes between the line and the change, the change has a second line later.
"""

import getpass
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from lakeingest.core.copies.signals import OPEN, Action, Event, Signal
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER, AUDIT = "signals", "audit.jsonl"
ENDED_MAX = 500  # `trim` keeps so many of the newest documents, even if their signals have ended


@dataclass(frozen=True, slots=True)
class SignalDocument:
    """A signal, and what the owner of the lease adds: a `note` on its progress, and a `result`, a JSON value."""

    signal: Signal
    note: str = ""
    result: Any = None

    @property
    def ended(self) -> bool:
        """Whether the signal has ended: nothing is left to do for it."""
        return self.signal.state not in OPEN

    def __str__(self) -> str:
        signal = self.signal
        tables = ", ".join(map(str, signal.tables)) or "all tables"
        request = f"cancel of signal {signal.cancels}" if signal.cancels else f"{signal.action} of {tables}"
        why = f": {signal.why}" if signal.why else ""
        note = f" ({self.note})" if self.note else ""
        return f"signal {signal.number}, {request}: {signal.state}{why}{note}"

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return self.signal.to_json() | {"note": self.note, "result": self.result}

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for any other document."""
        signal = Signal.from_json(doc)
        return cls(signal, str(doc.get("note", "")), doc.get("result"))


class SignalFolder:
    """The signals of a state folder. A document whose signal has ended is read only once.

    Any process may `read` and `add`. Only the owner of the lease may `move`, `note` and `trim`: these methods call
    `assert_owner` before they write, which raises LeaseLost if another run has taken the lease.
    """

    def __init__(self, state: File, assert_owner: Callable[[], None] = lambda: None) -> None:
        self._folder, self._audit = state / FOLDER, state / AUDIT
        self._assert_owner = assert_owner
        self._ended: dict[int, SignalDocument] = {}

    def read(self) -> list[SignalDocument]:
        """All documents, in the order of their numbers.

        Raises StateUnreadable, with the path of the document, if a document cannot be read, and StorageFailed if the
        folder cannot be listed.
        """
        numbers = self._numbers()
        # forget the documents that were removed since the last call
        self._ended = {number: self._ended[number] for number in numbers if number in self._ended}
        documents = map(self._read, numbers)
        return [document for document in documents if document is not None]  # None: removed since `_numbers`

    def one(self, number: int) -> SignalDocument | None:
        """The document of the signal with this number; None if it is not stored. Raises StateUnreadable as `read`."""
        return self._read(number)

    def add(self, make: Callable[[int], Signal], least: int = 1) -> SignalDocument:
        """Store a new signal with the next free number, but at least `least`. `make` returns the signal for a number.

        The document is durable when this method returns. Processes that add signals at the same time get different
        numbers, because only one of them can create the document of a number.
        """
        store.make_folder(self._folder)
        while True:
            number = max([least, *(taken + 1 for taken in self._numbers())])
            document = SignalDocument(make(number))
            if store.create(self._path(number), document.to_json()):  # else another process has taken the number
                self._audit_line(document.signal, "asked", document.signal.who)
                return document

    def move(
        self, document: SignalDocument, event: Event, *, why: str | None = None, note: str = "", result: Any = None
    ) -> SignalDocument:
        """Change the state of the signal by an event, and store the document with this note and result.

        `why`: the reason, if the event is a failure. Returns the stored document. Raises IllegalEvent if the signal's
        state forbids the event.
        """
        self._assert_owner()
        moved = SignalDocument(document.signal.after(event, why), note, result)
        # the audit first: a crash between the two steps leaves an additional line, never a change without a line
        if moved.signal.state is not document.signal.state:
            self._audit_line(moved.signal, event.value, this_process())
        if moved != document:
            store.replace(self._path(moved.signal.number), moved.to_json())
        return moved

    def note(self, document: SignalDocument, note: str) -> None:
        """Store a note, if it is a new one: how much of the signal is done, or what it waits for."""
        if document.note != note:
            self._assert_owner()
            store.replace(self._path(document.signal.number), replace(document, note=note).to_json())

    def trim(self) -> None:
        """Delete old documents of signals that have ended. The audit keeps their lines.

        The newest ENDED_MAX documents stay. Among them is the greatest number, so that no number is given twice. A
        `pause` or `resume` that decides whether some table is paused stays, too.
        """
        self._assert_owner()
        documents = self.read()
        decisive = {document.signal.number for document in _decisive_documents(documents)}
        for document in documents[:-ENDED_MAX]:
            number = document.signal.number
            if document.ended and number not in decisive:
                store.delete(self._path(number))

    def _numbers(self) -> list[int]:
        with store.storage_errors(self._folder, "read"):
            return sorted(int(file.stem) for file in self._folder.listed("*.json") if file.stem.isdigit())

    def _read(self, number: int) -> SignalDocument | None:
        """The document of a signal; None if it is not stored. It is remembered once the signal has ended.

        Raises StateUnreadable if the document cannot be read.
        """
        if number in self._ended:
            return self._ended[number]
        path = self._path(number)
        try:
            document = SignalDocument.from_json(store.read(path))
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"{path} cannot be read: {error}; remove it, and ask for the signal again") from error
        if document.ended:
            self._ended[number] = document
        return document

    def _path(self, number: int) -> File:
        return self._folder / f"{number:06d}.json"

    def _audit_line(self, signal: Signal, event: str, by: str) -> None:
        """Add a line to the audit: what happened to the signal, `by` whom, and the signal after it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        store.append(self._audit, {"at": at, "by": by, "event": event, **signal.to_json()})


def this_process() -> str:
    """The user, host and number of this process, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"


def _decisive_documents(documents: list[SignalDocument]) -> list[SignalDocument]:
    """The pauses and resumes that decide whether some table is paused, the newest first.

    A pause or resume decides nothing if later pauses and resumes name all of its tables, or if a later pause or resume
    is for all tables.
    """
    decisive: list[SignalDocument] = []
    decided: set[Any] = set()  # the tables that later pauses and resumes name
    for document in reversed(documents):
        if document.signal.action not in {Action.PAUSE, Action.RESUME}:
            continue
        if not document.signal.tables:  # for all tables, so no earlier document decides anything
            return [*decisive, document]
        if not decided.issuperset(document.signal.tables):
            decisive.append(document)
            decided.update(document.signal.tables)
    return decisive
