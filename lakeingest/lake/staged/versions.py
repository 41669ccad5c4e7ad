"""Reads the rows of a published version, or of a commit of staging, file by file with Arrow.

The callers are readers of the changelog.
"""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors, unreadable
from lakeingest.lake.staged.changes import read_rows
from lakeingest.lake.staged.staging import StagingFolder, files_of, is_started_over
from lakeingest.rows import rows_after_changes, source_names, source_rows

BATCH_ROWS = 4_096


FilesByVersion = Mapping[int, Callable[[], list[File]]]  # by published version: a function that returns its data files


def batches_of(
    files_by_version: FilesByVersion, staging: StagingFolder, schema: TableSchema, version: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a published version, or of the commit of staging with this version.

    `files_by_version` has each published version that can be read. Raises StateUnreadable if the version was removed,
    or is a commit of staging on a published version that was removed.
    """
    if version in files_by_version:
        yield from (batch for file in files_by_version[version]() for batch in _batches(file, schema))
    else:
        yield from _staged(files_by_version, staging, schema, version)


def _staged(
    files_by_version: FilesByVersion, staging: StagingFolder, schema: TableSchema, version: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a commit of staging, computed as the module `staging` describes."""
    all_commits = staging.commits()
    versions = [commit.version for commit in all_commits]
    if version not in versions:
        raise unreadable(str(schema.table), f"commit {version} is no longer held")
    commits = all_commits[: versions.index(version) + 1]
    base = commits[0].base  # the published version that staging builds on; None for a new table
    names, merges = files_of(commits)
    changes = [read_rows(staging.path / name) for merge in merges for name in merge]
    if base is not None and base not in files_by_version:
        raise unreadable(str(schema.table), f"commit {base} is no longer held")
    if base is None or is_started_over(commits):  # all rows are in staging
        row_files = [staging.path / name for name in names]
    else:
        row_files = files_by_version[base]()
    rows = (batch for file in row_files for batch in _batches(file, schema))
    yield from rows_after_changes(rows, changes, commits[-1].key, schema)


def _batches(file: File, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the columns of the source's table, without rows that the copy keeps as deleted.

    Raises StateUnreadable if the file is damaged, or lacks a column.
    """
    names = source_names(schema)
    with parse_errors(str(file)), files.parquet(file) as opened:
        missing = set(names) - set(opened.schema_arrow.names)
        if missing:
            raise StateUnreadable(f"{file} lacks the columns {', '.join(sorted(missing))}")
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(names)):
            yield from source_rows(pa.Table.from_batches([batch]), schema).to_batches()
