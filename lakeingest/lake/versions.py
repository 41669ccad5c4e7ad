"""What readers of the changelog ask of a lake format: the published versions of a table, and their rows.

One file implements it for each format. Nothing is changed, and nothing takes Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.lake.target import Staged


@dataclass(frozen=True, slots=True)
class Published:
    """A version that readers saw: the table as of a place."""

    version: int
    place: Place


class Versions(Protocol):
    """The versions of tables that can be read."""

    def published(self, table: TableId, before: int | None = None) -> Sequence[Published]:
        """The published versions that can still be read, oldest first; none where nothing is published.

        Those up to the version `before` are left out: readers saw it when the copy was started over.
        """

    def fingerprint(self, table: TableId, version: int) -> str:
        """That of the definition that the rows of a published version have; '' where that version is gone."""

    def last(self, table: TableId) -> Staged | None:
        """The last commit, published or not; None where there is no such table."""

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of a version, published or not, with the columns that `rows.table_schema` says.

        Rows that are marked as deleted are left out. StateUnreadable when one of its files is gone.
        """
