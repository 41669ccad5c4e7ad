"""The published commits of a Hudi table, and the rows of a commit or of staging, read file by file with Arrow.

The rows of a commit are in one file of each file group: the newest file that this commit or an older one wrote. A
cleaning names the earliest commit that still has all its files.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.file import File
from lakeingest.lake.hudi.cleaned import earliest_readable
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
        """Our commits in the active timeline that have all their files, the oldest first.

        If the timeline has a commit with the version `before`, that commit and all earlier commits are left out.
        """
        folder = self._target._folder_of(table).current  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            versions = [published for published, _ in _readable_commits(folder, table)]
        left_out = 0
        for count, commit in enumerate(versions, start=1):
            if commit.version == before:
                left_out = count  # this commit and all before it
        return versions[left_out:]

    def fingerprint(self, table: TableId, version: int) -> str:
        """The fingerprint in the progress of our commit with this version; '' if the timeline has no such commit."""
        folder = self._target._folder_of(table).current  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            for _, _, file in writes(folder):
                properties = _properties_of(file)
                if properties.get(PREFIX + VERSION) == str(version) and PREFIX + PROGRESS in properties:
                    return parse_progress(table, f"commit {version}", properties[PREFIX + PROGRESS]).fingerprint
        return ""

    def last(self, table: TableId) -> Staged | None:
        """The last commit of staging; without staging, the commit that readers see. None: the table has no copy."""
        return self._target.inspect(table) if self._target.exists() else None

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of a published commit, or of a commit of staging."""
        table, target = schema.table, self._target
        folder, staging = target._folder_of(table).current, target._staging(table)  # noqa: SLF001 - of the same package
        with target.storage_errors():
            commits = _readable_commits(folder, table)
            # functions, because only the files of the wanted version are looked up
            files_by_version = {
                published.version: partial(visible_files, folder, begun) for published, begun in commits
            }
            yield from batches_of(files_by_version, staging, schema, version)


def _readable_commits(folder: File, table: TableId) -> list[tuple[Published, str]]:
    """Our commits in the active timeline that have all their files, the oldest first, each with its instant."""
    earliest = earliest_readable(folder)  # the instant of the earliest commit that has all its files
    commits = []
    for _, begun, file in sorted(writes(folder)):  # in the order in which they were completed
        properties = _properties_of(file)
        position = properties.get(PREFIX + POSITION)
        is_ours = properties.get(PREFIX + OWNER) == str(table)
        has_all_files = begun >= earliest
        # without a position, a commit is no `Published`
        if has_all_files and is_ours and position:
            recorded = properties.get(PREFIX + PROGRESS, "")
            commits.append((Published(int(properties[PREFIX + VERSION]), Place.parse(position), recorded), begun))
    return commits


def _properties_of(file: File) -> Mapping[str, str]:
    """The properties in a commit's metadata; empty if a run archived the commit since the timeline was listed."""
    try:
        with metadata_of(file) as metadata:
            return metadata["extraMetadata"] or {}
    except FileNotFoundError:
        return {}
