"""The source's side of a comparison, for a table whose copy hides values: its rows are read, and hashed here.

The server computes the checksums of other tables. It cannot do so here without the key of the hashes, and does not get
the key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeingest.config import Source as Settings
from lakeingest.core.proofs.checksum import Checksum
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.checksum import rows_in_range
from lakeingest.pipeline.proving.copy_files import FileRows, FileSums, Numbering
from lakeingest.spark.row_hashes import Widths


def hides_values(schema: TableSchema) -> bool:
    """Whether the copy has hashes or masked texts in the place of values."""
    return any(column.is_hidden for column in schema.columns)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The source's rows of a range of keys, in the form of the copy. `widths`: the `double_widths` of the source."""

    source: Settings
    schema: TableSchema
    keys: KeyRange
    widths: Widths

    def batches(self) -> Iterator[pa.Table]:
        """The rows, a part at a time."""
        for batch in rows_in_range(self.source, self.schema, self.keys):
            yield pa.Table.from_batches([batch])

    def sums(self, buckets: int, numbers: Sequence[int] | None) -> dict[int, Checksum]:
        """The checksum of each bucket, as `mysql.checksum.range_checksums` has it."""
        # `self` is the reader of the task, by `batches`; buckets need no numbering of ranges
        sums = FileSums(self, self._plain, self.widths, Numbering((), {}), buckets).run()
        return {number: checksum for number, checksum in sums.items() if numbers is None or number in numbers}

    def row_checksums(self, limit: int, buckets: tuple[int, Sequence[int]] | None) -> dict[Key, Checksum]:
        """The checksum of each of the first `limit` rows, as `mysql.checksum.row_checksums` has it."""
        return dict(FileRows(self, self._plain, self.widths, self.keys, buckets, limit).run())

    @property
    def _plain(self) -> TableSchema:
        """The definition with hard deletes, because the source has no rows that are marked as deleted."""
        return replace(self.schema, choices=replace(self.schema.choices, deletes="hard"))
