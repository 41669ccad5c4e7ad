"""The published commits of a Hudi table, and the rows of a commit or of staging, read file by file with Arrow.

A copy-on-write table as of a commit is, of each file group, the newest file that a commit up to it wrote. A cleaning
says which is the earliest commit whose files it has left.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.files.file import File
from lakeingest.lake.hudi.cleaned import earliest
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import PREFIX, VERSION, metadata_of, writes
from lakeingest.lake.marks import OWNER, POSITION, PROGRESS, parse_progress
from lakeingest.lake.staged.versions import batches_of
from lakeingest.lake.target import Staged
from lakeingest.lake.versions import Published


class HudiVersions:
    """`lake.versions.Versions` on Hudi tables."""

    def __init__(self, target: HudiTarget) -> None:
        self._target = target

    def published(self, table: TableId, before: int | None = None) -> list[Published]:
        """The commits of ours in the active timeline whose files no cleaning has removed."""
        folder = self._target._folder_of(table).place  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            found = [one for one, _ in _readable(folder, table)]
        last = max((number for number, one in enumerate(found) if one.version == before), default=-1)
        return found[last + 1 :]

    def fingerprint(self, table: TableId, version: int) -> str:
        """As the progress of our commit says."""
        folder = self._target._folder_of(table).place  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            for *_, file in writes(folder):
                given = _given(file)
                if given.get(PREFIX + VERSION) == str(version) and PREFIX + PROGRESS in given:
                    return parse_progress(table, f"commit {version}", given[PREFIX + PROGRESS]).fingerprint
        return ""

    def last(self, table: TableId) -> Staged | None:
        """The last commit of staging, or what readers see."""
        return self._target.inspect(table) if self._target.exists() else None

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """Those of a published commit; else of staging: its own rows, or what readers see, under its changes."""
        table, target = schema.table, self._target
        folder, staging = target._folder_of(table).place, target._staging(table)  # noqa: SLF001 - of the same package
        with target.storage_errors():
            held = {one.version: partial(visible_files, folder, begun) for one, begun in _readable(folder, table)}
            yield from batches_of(held, staging, schema, version)


def _readable(folder: File, table: TableId) -> list[tuple[Published, str]]:
    """The published commits, oldest first, each with its instant."""
    since, found = earliest(folder), []
    for _, begun, file in sorted(writes(folder)):
        given = _given(file)
        position = given.get(PREFIX + POSITION)
        if begun >= since and given.get(PREFIX + OWNER) == str(table) and position:
            found.append((Published(int(given[PREFIX + VERSION]), Place.parse(position)), begun))
    return found


def _given(file: File) -> Mapping[str, str]:
    """The metadata that a commit was given; none where a run archived it since its name was read."""
    try:
        with metadata_of(file) as metadata:
            return metadata["extraMetadata"] or {}
    except FileNotFoundError:
        return {}
