"""The port for readers of the changelog, which each lake format implements: published versions, and their rows.

No method changes anything or needs Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.marks import parse_progress
from lakeingest.lake.target import Staged


@dataclass(frozen=True, slots=True)
class Published:
    """A version that readers saw: the rows of the table as of `place` in the binlog.

    `recorded` is the text of its progress. Only `progress` parses it, because it can be long.
    """

    version: int
    place: Place
    recorded: str = field(default="", repr=False, compare=False)

    def progress(self, table: TableId) -> Progress:
        """The progress of the commit. Raises StateUnreadable if its text is damaged."""
        return parse_progress(table, f"version {self.version}", self.recorded)


class Versions(Protocol):
    """The versions of tables that can be read."""

    def published(self, table: TableId, before: int | None = None) -> Sequence[Published]:
        """The published versions that can still be read, the oldest first; none if nothing is published.

        `before` is the version that readers saw when the copy was started over: versions up to it are left out. None,
        or a version that is gone: no version is left out.
        """

    def fingerprint(self, table: TableId, version: int) -> str:
        """The fingerprint of the definition that the rows of a published version have; '' if the version is gone."""

    def last(self, table: TableId) -> Staged | None:
        """The last commit of a table, published or not; None if the table does not exist."""

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of a version, published or not, with the columns of `rows.table_schema`.

        Rows that the copy keeps as deleted are left out. Raises StateUnreadable if a file of the version is gone.
        """
