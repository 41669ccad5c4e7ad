"""The port for readers of the changelog, which each lake format implements: published versions, and their rows.

Nothing is changed, and no method needs Spark.
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
        """The published versions that can still be read, the oldest first; none where nothing is published.

        Versions up to `before` are left out: readers saw it when the copy was started over.
        """

    def fingerprint(self, table: TableId, version: int) -> str:
        """The fingerprint of the definition that a published version's rows have; '' where the version is gone."""

    def last(self, table: TableId) -> Staged | None:
        """The last commit, published or not; None where there is no such table."""

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of a version, published or not, with the columns of `rows.table_schema`.

        Rows that are marked as deleted are left out. Raises StateUnreadable when a file of the version is gone.
        """
