"""The noted ends of transactions after the end of the spool, where a later read may cut the binlog."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakeingest.core.binlog.position import FilePosition, Place
from lakeingest.files.file import File
from lakeingest.state import store


@dataclass(slots=True)
class Boundaries:
    """The document `boundaries.json`, in `file`.

    `known` has the noted ends of transactions, each with the second (since 1970) when its binlog file began.
    """

    file: File
    known: Mapping[FilePosition, int] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: File) -> "Boundaries":
        """The boundaries of the spool in a folder. Raises OSError, StateUnreadable or an error of `errors.DAMAGED`."""
        file = folder / "boundaries.json"
        known: Mapping[str, int] = store.read(file) if file.exists() else {}
        return cls(file, {FilePosition.parse(at): int(began) for at, began in known.items()})

    def after(self, place: Place) -> Mapping[FilePosition, int]:
        """The boundaries after this place. They have no epoch: they are compared as places of this place's epoch."""
        return {at: began for at, began in self.known.items() if at.place(place.epoch) > place}

    def note(self, boundary: FilePosition, began: int, end: Place) -> None:
        """Store one more boundary, and when its file `began`. Boundaries up to `end`, the spool's end, are dropped."""
        self.known = {**self.after(end), boundary: began}
        store.replace(self.file, {str(at): second for at, second in self.known.items()})

    def keep(self, valid: Collection[FilePosition]) -> None:
        """Drop all boundaries except those in `valid`: the dropped ones are no ends of transactions any more.

        The document loses them with the next `note`.
        """
        self.known = {at: began for at, began in self.known.items() if at in valid}
