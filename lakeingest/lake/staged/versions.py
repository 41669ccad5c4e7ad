"""The rows of a published commit, or of staging, for readers of the changelog.

They are read file by file with Arrow.
"""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lakeingest.core.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parsed, unreadable
from lakeingest.lake.staged.staging import StagingFolder, files_of, is_started_over
from lakeingest.rows import rows_after_changes, source_names, source_rows

BATCH_ROWS = 4_096


Held = Mapping[int, Callable[[], list[File]]]


def batches_of(held: Held, staging: StagingFolder, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
    """The rows of a commit. Raises StateUnreadable where the commit, or the one that it builds on, was removed.

    `held` has the published versions that can be read, each with a function that returns its files.
    """
    if version in held:
        yield from (batch for file in held[version]() for batch in _batches(file, schema))
    else:
        yield from _staged(held, staging, schema, version)


def _staged(held: Held, staging: StagingFolder, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
    """The rows of a commit of staging: its own rows, or those of the published version below it, with its changes."""
    commits = staging.commits()
    numbers = [commit.version for commit in commits]
    if version not in numbers:
        raise unreadable(str(schema.table), f"commit {version} is no longer held")
    commits = commits[: numbers.index(version) + 1]
    base = commits[0].base
    names, merges = files_of(commits)
    changes = [_table(staging.path / name) for merge in merges for name in merge]
    if base is not None and base not in held:
        raise unreadable(str(schema.table), f"commit {base} is no longer held")
    sources = [staging.path / name for name in names]
    if base is not None and not is_started_over(commits):
        sources = held[base]()
    rows = (batch for file in sources for batch in _batches(file, schema))
    yield from rows_after_changes(rows, changes, commits[-1].key, schema)


def _batches(file: File, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    names = source_names(schema)
    with parsed(str(file)), files.parquet(file) as opened:
        missing = set(names) - set(opened.schema_arrow.names)
        if missing:
            raise StateUnreadable(f"{file} lacks the columns {', '.join(sorted(missing))}")
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(names)):
            yield from source_rows(pa.Table.from_batches([batch]), schema).to_batches()


def _table(file: File) -> pa.Table:
    with files.parquet(file) as opened:
        return opened.read()
