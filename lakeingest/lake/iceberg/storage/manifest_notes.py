"""Notes of the files that manifests list, and of the manifests that lists of manifests have.

With them a run that begins checks the files, but reads no manifest and no list twice.

<state>/manifests/<database>.<table>.json   for each noted manifest and list, the names and lengths of what it lists

Neither a manifest nor a list ever changes, and no two have the same name. So a note stays right. If a note is lost
or damaged, the manifest or the list is read again.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Self, TypeAlias

import fastavro
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from lakeingest.core.file_names import file_name
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED
from lakeingest.files import file as files
from lakeingest.files.file import File

ListedFile: TypeAlias = tuple[str, int]  # the location and the length of a file
_DELETED = ManifestEntryStatus.DELETED.value
MOST_FILES = 1_000  # a table's notes name no more files than that; they are read whenever a run begins


@dataclass(slots=True)
class ManifestNotes:
    """The notes of one table. `file` is their document."""

    file: File
    _noted: Mapping[str, Sequence[ListedFile]]  # as in the document
    _used: dict[str, Sequence[ListedFile]] = field(default_factory=dict, init=False)  # what `store` will store

    @classmethod
    def read(cls, folder: File, table: TableId) -> Self:
        """The notes of a table in the folder of all notes. A missing or damaged document has no notes."""
        file = folder / f"{file_name(str(table))}.json"
        try:
            doc = files.document(file)
            return cls(file, {path: [_listed(entry) for entry in listed] for path, listed in doc.items()})
        except (FileNotFoundError, *DAMAGED):
            return cls(file, {})

    def all_under(self, manifest_list: str) -> Mapping[str, Sequence[ListedFile]] | None:
        """By path: what the note of this list of manifests names, and the files that each of these manifests names.

        None if the list or one of these manifests has no note. The note of a list names the list itself first.
        """
        if manifest_list not in self._noted:
            return None
        paths = [path for path, _ in self._noted[manifest_list]]
        if not self._noted.keys() >= set(paths):
            return None
        listings = {path: self._noted[path] for path in paths}
        self._used |= listings
        return listings

    def note_list(self, path: str, length: int, manifests: Iterable[ManifestFile]) -> None:
        """Note the list of manifests in the file `path`: it lists itself first, then these manifests."""
        listed = [(manifest.manifest_path, manifest.manifest_length) for manifest in manifests]
        self._used[path] = [(path, length), *listed]

    def keep(self, manifest: ManifestFile) -> None:
        """Let `store` keep the note of a manifest, if there is one. The manifest is not read."""
        if (noted := self._noted.get(manifest.manifest_path)) is not None:
            self._used[manifest.manifest_path] = noted

    def files_of(self, manifest: ManifestFile, io: FileIO) -> Sequence[ListedFile]:
        """The files that a manifest lists. The manifest is read if it has no note.

        Raises FileNotFoundError, EOFError or ValueError if the manifest is read, and is gone or damaged.
        """
        path = manifest.manifest_path
        self._used[path] = self._noted[path] if path in self._noted else read_files(manifest, io)
        return self._used[path]

    def store(self) -> None:
        """Store the notes that were used or made, as far as MOST_FILES allows."""
        kept: dict[str, Sequence[ListedFile]] = {}
        room = MOST_FILES
        for path, listed in self._used.items():
            if len(listed) <= room:
                kept[path] = listed
                room -= len(listed)
        if kept != self._noted:
            self.file.parent.make_folder()
            self.file.put_document(kept)


def read_files(manifest: ManifestFile, io: FileIO) -> list[ListedFile]:
    """Read a manifest. Returns the files that it lists, without those that it names as removed.

    Raises FileNotFoundError if the manifest is gone; EOFError or ValueError if it is damaged.
    """
    with io.new_input(manifest.manifest_path).open() as file:
        contents = BytesIO(file.read())
    with suppress(*DAMAGED, EOFError, zlib.error):  # damaged, or compressed in a way that only PyIceberg knows
        # PyIceberg turns each value of each entry into an object: that took a tenth of the CPU time of a publish
        entries: Iterator[Any] = fastavro.reader(contents)
        data_files = [entry["data_file"] for entry in entries if entry["status"] != _DELETED]
        found = [_listed((data_file["file_path"], data_file["file_size_in_bytes"])) for data_file in data_files]
        return list(dict.fromkeys(found))  # a file may have several deletion vectors
    listed = manifest.fetch_manifest_entry(io)
    return list(dict.fromkeys((entry.data_file.file_path, entry.data_file.file_size_in_bytes) for entry in listed))


def _listed(entry: Any) -> ListedFile:
    """The file in an entry of a note. Raises an error of DAMAGED if the entry names no file."""
    path, length = entry
    return str(path), int(length)
