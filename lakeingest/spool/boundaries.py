"""The noted ends of transactions after the end of the spool, where a later read may cut the binlog."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakeingest.core.position import FilePosition, Place
from lakeingest.files.file import File
from lakeingest.state import store


@dataclass(slots=True)
class Boundaries:
    """The document `boundaries.json`: each end of a transaction, with the second (since 1970) when its file began."""

    file: File
    known: Mapping[FilePosition, int] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: File) -> "Boundaries":
        """Those of the spool in a folder. Raises StateUnreadable where the document is damaged.

        The list of the previous version does not distinguish histories, so it is dropped.
        """
        file = folder / "boundaries.json"
        document: Mapping[str, int] | Sequence[str] = store.read(file) if file.exists() else {}
        known = document.items() if isinstance(document, Mapping) else ()
        return cls(file, {FilePosition.parse(at): int(began) for at, began in known})

    def after(self, place: Place) -> Mapping[FilePosition, int]:
        """Those after this place, in its epoch."""
        return {at: began for at, began in self.known.items() if at.place(place.epoch) > place}

    def note(self, boundary: FilePosition, began: int, end: Place) -> None:
        """Store one more, for the next run, too. Those up to `end`, the end of the spool, are dropped."""
        self.known = {**self.after(end), boundary: began}
        store.replace(self.file, {str(at): second for at, second in self.known.items()})

    def keep(self, valid: Collection[FilePosition]) -> None:
        """Drop all but these: at the others no transaction ends any more."""
        self.known = {at: began for at, began in self.known.items() if at in valid}
