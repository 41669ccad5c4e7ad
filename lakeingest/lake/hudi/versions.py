"""The published commits of a Hudi table, and the rows of a commit or of staging, read file by file with Arrow.

A copy-on-write table as of a commit is, of each file group, the newest file that a commit up to it wrote. A cleaning
says which is the earliest commit whose files it has left.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parsed, unreadable
from lakeingest.lake.hudi.cleaned import earliest
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.staging import files_of, is_started_over
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import PREFIX, VERSION, metadata_of, writes
from lakeingest.lake.marks import OWNER, POSITION, PROGRESS, parse_progress
from lakeingest.lake.target import Staged
from lakeingest.lake.versions import Published
from lakeingest.rows import laid_over, source_names, source_rows

BATCH_ROWS = 4_096


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
        table = schema.table
        folder = self._target._folder_of(table).place  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            found = {one.version: instant for one, instant in _readable(folder, table)}
            if version in found:
                for file in visible_files(folder, found[version]):
                    yield from _batches(file, schema)
            else:
                yield from self._staged(folder, found, schema, version)

    def _staged(
        self, folder: File, published: Mapping[int, str], schema: TableSchema, version: int
    ) -> Iterator[pa.RecordBatch]:
        staging = self._target._staging(schema.table)  # noqa: SLF001 - of the same package
        commits = staging.commits()
        numbers = [one.version for one in commits]
        if version not in numbers:
            raise unreadable(str(schema.table), f"commit {version} is no longer held")
        commits = commits[: numbers.index(version) + 1]
        base = commits[0].base
        names, merges = files_of(commits)
        changes = [_table(staging.path / name) for merge in merges for name in merge]
        key = commits[-1].key
        if base is not None and base not in published:
            raise unreadable(str(schema.table), f"commit {base} is no longer held")
        held = [staging.path / name for name in names]
        if base is not None and not is_started_over(commits):
            held = visible_files(folder, published[base])
        rows = (batch for file in held for batch in _batches(file, schema))
        yield from laid_over(rows, changes, key, schema)


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


def _batches(file: File, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    wanted = source_names(schema)
    with parsed(str(file)), files.parquet(file) as opened:
        lacking = set(wanted) - set(opened.schema_arrow.names)
        if lacking:
            raise StateUnreadable(f"{file} lacks the columns {', '.join(sorted(lacking))}")
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(wanted)):
            yield from source_rows(pa.Table.from_batches([batch]), schema).to_batches()


def _table(file: File) -> pa.Table:
    with files.parquet(file) as opened:
        return opened.read()
