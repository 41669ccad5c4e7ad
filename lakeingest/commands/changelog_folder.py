"""A folder with the changelog of one table in Parquet files: what is in it, and how far it goes.

Each file of changes is put on the condition that it does not exist. A copy has many files, and readers must not get a
part of a copy that is never finished. So its files are staged first in `_copies`, a document there commits them all,
and then they get their names. A process that dies in between leaves the rest of the names to the next one.

`_progress.json` says up to where the table has no more changes than the files have. Without it, the last file says how
far they go. Engines do not read files whose names begin with `_` or `.` as data.
"""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.config import Config
from lakeingest.config.place import Place as Folder
from lakeingest.config.stores import STORES
from lakeingest.core.change_files import SUFFIX, is_name, name_of, name_of_copied
from lakeingest.core.file_names import file_name, inside
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, Retryable, StateUnreadable, UsageError
from lakeingest.files import file as files
from lakeingest.files.file import File, at, document

AFTER, UNTIL = b"lakeingest.after", b"lakeingest.until"  # in the metadata of a file: where it begins and ends
_COPIES, _PROGRESS = "_copies", "_progress.json"
_ABANDONED = timedelta(days=1)  # staged files of this age, which no document commits, are left by a dead process
_VERSION = 1


@dataclass(slots=True)
class ChangelogFolder:
    """The folder, and the position up to which its files go; None if there is none yet."""

    folder: File
    table: TableId
    read_to: ReadTo | None = field(default=None, init=False)
    _last: str | None = field(default=None, init=False)  # the name of the last file

    @classmethod
    def of(cls, config: Config, to: str, table: TableId) -> Self:
        """The folder of the table in the folder `to`, a path or URI. Raises UsageError for a store that is unknown."""
        place = Folder.of(to)
        if place.scheme is not None and place.scheme not in STORES:
            raise UsageError(f"--to {to}: wanted a folder of this machine, or a URI that begins with {_schemes()}")
        return cls(at(place, config.target.storage) / file_name(str(table)), table)

    def open(self) -> None:
        """Find out how far the files go, after giving names to the files of a copy that is committed.

        Raises UsageError if the folder has other Parquet files, and StateUnreadable if a file is damaged.
        """
        self.folder.make_folder()
        (self.folder / _COPIES).make_folder()
        self._finish_copies()
        names = [file.name for file in self.folder.listed(f"*{SUFFIX}")]
        if foreign := next((name for name in names if not is_name(name)), None):
            raise UsageError(f"{self.folder / foreign} is no file of a changelog; name another folder with --to")
        reached = [self._until(names[-1])] if names else []
        self._last = names[-1] if names else None
        noted = self._progress()
        if noted is not None and (noted["last_file"] or "") >= (self._last or ""):  # otherwise a file is newer
            self._last = noted["last_file"]
            reached.append(ReadTo.parse(noted["read_to"]))
        self.read_to = max(reached, key=lambda position: position.order, default=None)

    def add(self, rows: pa.Table, first: str, last: str) -> File:
        """Make the file with these rows of changes; `first` and `last` are the positions of the first and last row.

        Raises Retryable if another process has made it with other rows.
        """
        out = pa.BufferOutputStream()
        pq.write_table(_marked(rows, self.read_to, last), out, compression="zstd")
        file = self.folder / name_of(first)
        if not file.create_from(out.getvalue().to_pybytes()):
            raise self._other_writer(file)
        self._last, self.read_to = file.name, ReadTo.parse(last)
        return file

    def copy(self, place: Place, log: str) -> "StagedCopy":
        """A copy as of a place, of which no file is staged yet. `log` is the name of the changelog."""
        return StagedCopy(self, ReadTo(place, copying=True, log=log))

    def commit(self, copy: "StagedCopy") -> list[File]:
        """Let readers see the files of a copy. Raises Retryable if another process has committed one here."""
        after = "nothing" if self.read_to is None else str(self.read_to)
        doc = self.folder / _COPIES / f"after-{after}.json"
        if not doc.create({"version": _VERSION, "attempt": copy.attempt}):
            copy.drop()
            raise self._other_writer(doc)
        named = self._name_files(copy.attempt)
        self._last, self.read_to = named[-1].name, ReadTo.parse(copy.last)
        return named

    def note(self, read_to: ReadTo) -> None:
        """Note that the table has no changes up to this position but those in the files."""
        if self.read_to is None or self.read_to.order < read_to.order:
            self.read_to = read_to
        (self.folder / _PROGRESS).put_document(
            {
                "version": _VERSION,
                "table": str(self.table),
                "last_file": self._last,
                "read_to": str(self.read_to),
                "noted_at": datetime.now(UTC).isoformat(),
            }
        )

    def _progress(self) -> Any:
        """The document of progress; None without one."""
        file = self.folder / _PROGRESS
        try:
            doc = document(file)
            ReadTo.parse(doc["read_to"])
            if doc["version"] == _VERSION and (doc["last_file"] is None or is_name(doc["last_file"])):
                return doc
        except FileNotFoundError:
            return None
        except DAMAGED as error:
            raise StateUnreadable(
                f"{file} cannot be read: {error}; remove it, the files say how far they go"
            ) from error
        raise StateUnreadable(f"{file} is of a newer version of lakeingest; go on with that version")

    def _until(self, name: str) -> ReadTo:
        """The position of the last row of a file."""
        file = self.folder / name
        try:
            return ReadTo.parse(files.parquet_metadata(file).metadata[UNTIL].decode())
        except (*DAMAGED, pa.ArrowException) as error:
            raise StateUnreadable(f"{file} cannot be read: {error}; restore it, or begin in another folder") from error

    def _finish_copies(self) -> None:
        """Give names to the files of committed copies, and remove what dead processes have left."""
        committed = set()
        for doc in (self.folder / _COPIES).listed("after-*.json"):
            try:
                attempt = inside(document(doc)["attempt"])
            except DAMAGED as error:
                raise StateUnreadable(f"{doc} cannot be read: {error}; begin in another folder") from error
            committed.add(attempt)
            self._name_files(attempt)
        staged = [file for file in (self.folder / _COPIES).tree() if file.parent.name not in committed]
        files.sweep((file for file in staged if file.suffix == SUFFIX), _ABANDONED)
        files.sweep(self.folder.listed(".*.new"), _ABANDONED)

    def _name_files(self, attempt: str) -> list[File]:
        """Move the staged files of a committed copy to their names. Those that are moved already are left out."""
        staged = (self.folder / _COPIES / attempt).listed(f"*{SUFFIX}")
        named = [self.folder / inside(file.name) for file in staged]
        for file, name in zip(staged, named, strict=True):
            file.move_to(name)
        if named:
            self.folder.sync()
        return named

    def _other_writer(self, file: File) -> Retryable:
        return Retryable(
            f"{file}: another process writes the changelog of {self.table} into this folder; end it, then run the same"
            " command again"
        )


@dataclass(slots=True)
class StagedCopy:
    """The files of a copy that is not committed yet. `last` is the position of the last row that was added."""

    into: ChangelogFolder
    copying: ReadTo
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    last: str = field(default="", init=False)
    _count: int = field(default=0, init=False)

    @property
    def _folder(self) -> File:
        return self.into.folder / _COPIES / self.attempt

    def add(self, rows: pa.Table, last: str) -> None:
        """Stage a file with these rows; `last` is the position of the last one."""
        self._folder.make_folder()
        self._count, self.last = self._count + 1, last
        with files.written(self._folder / name_of_copied(self.copying, self._count)) as path:
            pq.write_table(_marked(rows, self.into.read_to, last), path, compression="zstd")
        self._folder.sync()

    def drop(self) -> None:
        """Remove the staged files."""
        files.delete_all(self._folder.listed(f"*{SUFFIX}"))


def _marked(rows: pa.Table, after: ReadTo | None, until: str) -> pa.Table:
    """The rows with metadata: the position of the last row, and the position up to which earlier files go."""
    marks = {AFTER: "" if after is None else str(after), UNTIL: until}
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), **marks})


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in sorted(STORES))
