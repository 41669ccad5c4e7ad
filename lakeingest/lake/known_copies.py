"""What the state folder knows of copies, so that a run or a command need not look at each of them again.

copies.jsonl   for each known copy, the metadata that its catalog named, and what a look at that metadata has found

A catalog in a file names the metadata of all tables in one answer. Metadata never changes: each commit, whoever makes
it, has metadata of a new name. So as long as the catalog names the same metadata of a copy, and that file is as it was,
a look at the copy would find the same again. If one of these conditions does not hold, nothing is known of the copy.

What a look finds depends on pipeline.yml and on this program, too: all notes are void if either has changed.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

from lakeingest.core.copies import progress_form
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, LakeIngestError, StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.target import Looked, Staged
from lakeingest.latest import Latest

NAME = "copies.jsonl"
MOST_FILES = 100  # of a copy with more files, the notes would be large: its manifests have notes of their own
_LOCAL = "file://"

Name: TypeAlias = tuple[str, str]  # the namespace and the name of a table in the catalog
ListedFile: TypeAlias = tuple[str, int]  # the location and the length of a file
Listings: TypeAlias = Mapping[str, Sequence[ListedFile]]  # by a list of manifests, or by a manifest, what it lists


@dataclass(frozen=True, slots=True)
class Pointers:
    """What a catalog says of all its tables at one time.

    `locations`: by a table's own name, where its metadata is. `building`: the own names of all tables that have an
    entry under a name for building.
    """

    locations: Mapping[Name, str]
    building: Collection[Name]

    @property
    def names(self) -> set[Name]:
        """The own names of all tables. Tables that are being built are included."""
        return {*self.locations, *self.building}


@dataclass(frozen=True, slots=True)
class Known:
    """What was found by a look at the metadata in the file `location`, which had this `size` and time of change.

    `listings` is about the commit from which a run goes on: first what its list of manifests lists, then what each of
    these manifests lists. None: this is not known, or a run would change something before it goes on.
    """

    location: str
    size: int
    changed_ns: int
    looked: Looked
    listings: Listings | None

    @classmethod
    def of(cls, location: str, looked: Looked, listings: Listings | None) -> Self | None:
        """What was found now, with the listings if they have few files. None if the metadata is not on this machine."""
        status = _status(location)
        if status is None:
            return None
        has_few = listings is not None and sum(map(len, listings.values())) <= MOST_FILES
        return cls(location, status.st_size, status.st_mtime_ns, looked, listings if has_few else None)

    @property
    def is_as_it_was(self) -> bool:
        """Whether the metadata's file exists, and has not changed."""
        status = _status(self.location)
        return status is not None and (status.st_size, status.st_mtime_ns) == (self.size, self.changed_ns)

    @property
    def is_whole(self) -> bool:
        """Whether a run can go on from the copy as it is: all its files are known, and there with their lengths."""
        listed = [] if self.listings is None else [file for files in self.listings.values() for file in files]
        statuses = ((_status(location), length) for location, length in listed)
        # known listings name at least the list of manifests
        return bool(listed) and all(status is not None and status.st_size == length for status, length in statuses)

    def to_json(self) -> list[Any]:
        """A document that `from_json` reads back."""
        staged = self.looked.staged
        commit = [staged.version, staged.published, staged.changed, staged.same_rows]
        progress, properties = progress_form.to_json(staged.progress), dict(self.looked.properties)
        return [self.location, self.size, self.changed_ns, commit, progress, properties, self.listings]

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable, or an error of DAMAGED, for anything else."""
        location, size, changed_ns, (version, published, changed, same_rows), progress, properties, listings = doc
        staged = Staged(progress_form.from_json(progress), version, published, changed=changed, same_rows=same_rows)
        if listings is not None:
            listings = {
                path: [(str(file), int(length)) for file, length in listed] for path, listed in listings.items()
            }
        return cls(str(location), int(size), int(changed_ns), Looked(staged, properties), listings)


class Finding(Protocol):
    """What a format has to offer for the notes: it looks at copies, and trusts earlier looks."""

    def find(self, table: TableId) -> Known | None:
        """Look at the table. Returns what was found; None if nothing of it can be noted. Raises as `Tables.look`."""

    def trust(self, table: TableId, listings: Listings) -> None:
        """Note that all files in `listings`, those of the commit from which the run goes on, exist."""


@dataclass(slots=True)
class _Notes:
    """The notes in a document: by table, the text of the note, which is read when somebody asks for it."""

    texts: Mapping[TableId, str]
    _read: dict[TableId, Known | None] = field(default_factory=dict, init=False)

    def of(self, table: TableId) -> Known | None:
        """The note of a table; None if there is none, or if it is damaged."""
        if table not in self._read:
            known = None
            if (text := self.texts.get(table)) is not None:
                with suppress(*DAMAGED, StateUnreadable):
                    known = Known.from_json(json.loads(text))
            self._read[table] = known
        return self._read[table]


_EMPTY = _Notes({})
_READ: Latest[tuple[str, str], _Notes] = Latest(4)  # the notes of the state folders that this process read last


class KnownCopies:
    """The copies that the state folder knows.

    `condition`: a digest of everything in pipeline.yml and of this program on which a look depends. `pointers`: asks
    the catalog for all tables; None if this catalog has no such answer. `name_of`: the name of a table in the catalog.
    """

    def __init__(
        self,
        state: File,
        condition: str,
        pointers: Callable[[], Pointers | None],
        name_of: Callable[[TableId], Name],
        ownership: Ownership,
    ) -> None:
        self._file, self._condition, self._name_of = state / NAME, condition, name_of
        self.pointers, self._ownership = pointers, ownership

    def unchanged(self, tables: Iterable[TableId], *, whole: bool) -> dict[TableId, Known]:
        """What a look would find now, for each of these tables whose notes still hold.

        With `whole`, only tables that a run would leave as they are when it opens them: all their files exist, and the
        catalog has no table under their names for building.
        """
        notes = self._notes
        pointers = self.pointers() if notes.texts else None
        if pointers is None:
            return {}
        found = {}
        for table in tables:
            known, name = notes.of(table), self._name_of(table)
            if known is None or pointers.locations.get(name) != known.location or not known.is_as_it_was:
                continue
            if whole and (name in pointers.building or not known.is_whole):
                continue
            with suppress(LakeIngestError):  # such a table is not in the result, and a look raises the error again
                self._ownership.assert_ours(table, known.looked.properties)
                found[table] = known
        return found

    def store(self, tables: Iterable[TableId], find: Callable[[TableId], Known | None]) -> None:
        """Note what is known of these tables, and of no other. Nothing is noted if `pointers` has no answer.

        `find`, as in Finding, looks at tables that have changed, and at tables whose listings are not noted.
        """
        pointers, notes = self.pointers(), self._notes
        if pointers is None:
            return
        texts = {}
        for table in tables:
            location, known = pointers.locations.get(self._name_of(table)), notes.of(table)
            if known is not None and known.location == location and known.listings is not None:
                texts[table] = notes.texts[table]
            elif location is not None:
                with suppress(LakeIngestError):  # whoever looks at the copy next meets the error again
                    found = find(table)
                    # at another location there is a commit that was made since `pointers` was read
                    if found is not None and found.location == location:
                        texts[table] = json.dumps(found.to_json(), separators=(",", ":"))
        if texts != notes.texts:
            lines = (f"{json.dumps(str(table))}\t{text}" for table, text in texts.items())
            with suppress(OSError, LakeIngestError):  # notes save work, and nothing else
                self._file.put("\n".join([json.dumps(self._condition), *lines]).encode())
            self.__dict__.pop("_notes", None)  # so that the notes are read again

    @cached_property
    def _notes(self) -> _Notes:
        """The notes in the state folder; none if they are missing, damaged or void."""
        try:
            contents = self._file.read()
            return _READ.of((str(self._file), self._condition), contents, lambda: _Notes(dict(self._lines(contents))))
        except (OSError, *DAMAGED, LakeIngestError):
            return _EMPTY

    def _lines(self, contents: bytes) -> Iterator[tuple[TableId, str]]:
        """Each table and the text of its note; none if the document was written under another condition."""
        condition, *lines = contents.decode().split("\n")
        if json.loads(condition) != self._condition:
            return
        for line in lines:
            table, _, text = line.partition("\t")
            yield TableId.parse(json.loads(table)), text


def _status(location: str) -> os.stat_result | None:
    """The status of a file of this machine; None if it is gone, or is not of this machine."""
    if not location.startswith(_LOCAL):
        return None
    try:
        return os.stat(location.removeprefix(_LOCAL))  # noqa: PTH116 - a Path for each of thousands of files takes longer
    except OSError:
        return None
