"""The folder that has the changelog of one table as Parquet files: its files, and the position up to which they go.

Each file of changes is put on the condition that it does not exist. A copy has many files, and readers must not get a
part of a copy that is never finished. So its files are staged first in `_copies`, a document there commits them all,
and then they get their names, in order. If a process dies in between, the next process names the remaining files.

The last file says how far the files go, so it has to stay in the folder. Readers may move the earlier files away, and
no process writes these once more. `_progress.json`, which is written after each file, says up to where the files
have all changes of the table. By this document, and by those of copies, a process notices that the last file is
gone. Engines ignore files whose names begin with `_` or `.`.
"""

import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.config import Config
from lakeingest.config.place import Place as Folder
from lakeingest.config.stores import STORES
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.change_files import SUFFIX, is_name, name_of, name_of_copied
from lakeingest.core.file_names import file_name, inside
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, Retryable, StateUnreadable, UsageError
from lakeingest.files import file as files
from lakeingest.files.file import File, at, document

AFTER, UNTIL = b"lakeingest.after", b"lakeingest.until"  # in the metadata of a file: where it begins and ends
_COPIES, _PROGRESS = "_copies", "_progress.json"
_ABANDONED = timedelta(days=1)  # an uncommitted file of this age was left by a dead process
_VERSION = 1


@dataclass(slots=True)
class ChangelogFolder:
    """The folder. `read_to`: the position up to which its files go; None before `open`, and if nothing is there yet."""

    folder: File
    table: TableId
    read_to: ReadTo | None = field(default=None, init=False)
    _last: str | None = field(default=None, init=False)  # the name of the last file

    @classmethod
    def of(cls, config: Config, to: str, table: TableId) -> Self:
        """The folder of the table in the folder `to`, a path or URI. Raises UsageError for a store that is unknown."""
        place = Folder.of(to)
        # `Folder.of` takes a URI of a form that it does not know for a path
        is_uri = place.scheme is not None or ("://" in to and not to.startswith("file:"))
        if is_uri and place.scheme not in STORES:
            raise UsageError(f"--to {to}: wanted a folder of this machine, or a URI that begins with {_schemes()}")
        return cls(at(place, config.target.storage) / file_name(str(table)), table)

    def open(self) -> None:
        """Find out how far the files go, after giving names to the files of a copy that is committed.

        Raises UsageError if the folder has other Parquet files, and StateUnreadable if a file is damaged, or if the
        last one is gone.
        """
        self.folder.make_folder()
        (self.folder / _COPIES).make_folder()
        copied = self._finish_copies()
        noted = self._progress()  # read before the listing, so that the listing has the noted file
        noted_last = "" if noted is None else noted["last_file"] or ""
        names = [file.name for file in self.folder.listed(f"*{SUFFIX}")]
        if foreign := next((name for name in names if not is_name(name)), None):
            raise UsageError(f"{self.folder / foreign} is no file of a changelog; name another folder with --to")
        self._last = names[-1] if names else None
        # the names sort in the order of the files
        if (known := max(copied, noted_last)) > (self._last or ""):
            raise StateUnreadable(
                f"{self.folder / known} is gone, and the last file says where to go on; put it and newer ones back, or"
                " begin in another folder"
            )
        reached = [] if self._last is None else [self._until(self._last)]
        if noted is not None and noted_last == (self._last or ""):  # otherwise a file is newer
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
        self._note()
        return file

    def copy(self, place: Place, log: str) -> "StagedCopy":
        """A new copy as of a place; no file of the copy is staged yet. `log` is the name of the changelog."""
        return StagedCopy(self, ReadTo(place, copying=True, log=log))

    def commit(self, copy: "StagedCopy") -> list[File]:
        """Let readers see the files of a copy.

        Raises Retryable if another process has committed a copy in this folder, or if a staged file is gone.
        """
        names = copy.names
        if [file.name for file in copy.staged()] != names:
            copy.drop()
            raise Retryable(f"{self.folder / _COPIES}: files of a copy that was not complete are gone; run again")
        after = "nothing" if self.read_to is None else str(self.read_to)
        # two processes that go on after the same position make the same name: only one of them commits its copy
        doc = self.folder / _COPIES / f"after-{after}.json"
        if not doc.create({"version": _VERSION, "attempt": copy.attempt, "last": names[-1]}):
            copy.drop()
            raise self._other_writer(doc)
        self._name_files(copy.attempt)
        self._last, self.read_to = names[-1], ReadTo.parse(copy.last)
        self._note()
        return [self.folder / name for name in names]

    def note(self, read_to: ReadTo) -> None:
        """Note that the files have all changes of the table up to this position."""
        if self.read_to is None or self.read_to.order < read_to.order:
            self.read_to = read_to
        self._note()

    def _note(self) -> None:
        """Write down how far the files go."""
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
        """The document of progress; None without one. Raises StateUnreadable for a damaged or a newer document."""
        file = self.folder / _PROGRESS
        try:
            doc = document(file)
            ReadTo.parse(doc["read_to"])  # raises one of DAMAGED if it is no position
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

    def _finish_copies(self) -> str:
        """Give names to the files of committed copies, and remove what dead processes have left.

        Returns the name of the last file of the last copy; '' if there is none.
        """
        committed: dict[str, str] = {}  # the name of the last file of each attempt
        for doc in (self.folder / _COPIES).listed("after-*.json"):
            try:
                read = document(doc)
                attempt, last = inside(read["attempt"]), inside(read["last"])
            except DAMAGED as error:
                raise StateUnreadable(f"{doc} cannot be read: {error}; begin in another folder") from error
            committed[attempt] = last
            self._name_files(attempt)
        self._sweep(committed)
        return max(committed.values(), default="")

    def _sweep(self, committed: Collection[str]) -> None:
        """Remove what dead processes have left: files of attempts that are not `committed`, and unfinished files."""
        attempts: dict[str, list[File]] = {}
        for file in (self.folder / _COPIES).tree():
            if file.suffix == SUFFIX and file.parent.name not in committed:
                attempts.setdefault(file.parent.name, []).append(file)
        for staged in attempts.values():
            with suppress(FileNotFoundError):  # another process removes them
                newest = max(staged, key=lambda file: file.changed())
                # if the sweep removes the newest file because of its age, nobody adds to the attempt any more
                if files.sweep([newest], _ABANDONED) != (0, 0):
                    files.delete_all(staged)
        drafts = [*self.folder.listed(".*.new"), *self.folder.listed("_progress-*.new")]
        with suppress(FileNotFoundError):  # another process finishes one
            files.sweep([*drafts, *(self.folder / _COPIES).listed("*.new")], _ABANDONED)

    def _name_files(self, attempt: str) -> None:
        """Move the staged files of a committed copy to their names, in order, except files that are moved already."""
        staged = (self.folder / _COPIES / attempt).listed(f"*{SUFFIX}")
        for file in staged:
            with suppress(FileNotFoundError):  # another process has moved it meanwhile
                file.move_to(self.folder / inside(file.name))
        if staged:
            self.folder.sync()

    def _other_writer(self, file: File) -> Retryable:
        """The error that says that another process has written this file."""
        return Retryable(
            f"{file}: another process writes the changelog of {self.table} into this folder; end it, then run the same"
            " command again"
        )


@dataclass(slots=True)
class StagedCopy:
    """The files of a copy that is not committed yet.

    `copying`: the position of a reader within the copy. `last`: the position of the last row that was added.
    """

    into: ChangelogFolder
    copying: ReadTo
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    last: str = field(default="", init=False)
    names: list[str] = field(default_factory=list, init=False)  # of the files, in order

    @property
    def _folder(self) -> File:
        return self.into.folder / _COPIES / self.attempt

    def staged(self) -> list[File]:
        """The files that are there, in order."""
        return self._folder.listed(f"*{SUFFIX}")

    def add(self, rows: pa.Table, last: str) -> None:
        """Stage a file with these rows; `last` is the position of the last one."""
        self._folder.make_folder()
        self.last = last
        self.names.append(name_of_copied(self.copying, len(self.names) + 1))
        with files.written(self._folder / self.names[-1]) as path:
            pq.write_table(_marked(rows, self.into.read_to, last), path, compression="zstd")
        self._folder.sync()

    def drop(self) -> None:
        """Remove the staged files."""
        files.delete_all(self.staged())


def _marked(rows: pa.Table, after: ReadTo | None, until: str) -> pa.Table:
    """The rows with metadata: the position of the last row, and the position up to which earlier files go."""
    marks = {AFTER: "" if after is None else str(after), UNTIL: until}
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), **marks})


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in sorted(STORES))
