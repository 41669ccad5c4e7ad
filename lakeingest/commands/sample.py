"""Sample: the first rows of a table, read like a chunk, between two watermarks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.chunks import Chunk
from lakeingest.core.keys import KeyRange
from lakeingest.core.position import FIRST_EPOCH, FilePosition, Low
from lakeingest.core.schema import TableId
from lakeingest.errors import UsageError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.chunk_reader import read_chunk
from lakeingest.mysql.xa_list import settled_now

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package

VALUE_CHARACTERS = 40  # a longer value is cut


@dataclass(frozen=True, slots=True, repr=False)
class Sample(Report):
    """The rows of a chunk as a read view saw them: it contained all transactions in `low`, and none after `high`."""

    table: TableId
    rows: pa.Table
    low: Low
    high: FilePosition

    @property
    def headers(self) -> Sequence[str]:
        """The table's columns."""
        return tuple(self.rows.column_names)

    def cells(self) -> Iterator[Sequence[object]]:
        """The rows as text, long values cut."""
        for row in self.rows.to_pylist():
            texts = (None if value is None else str(value) for value in row.values())
            yield [None if text is None else _cut(text) for text in texts]

    @property
    def notes(self) -> Sequence[str]:
        """The window in which the rows were read."""
        return (f"low watermark {self.low}, high watermark {self.high}",)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows themselves. Columns keep their Arrow types, which hold every value exactly, also beside NULL."""
        import pandas as pd

        frame: pd.DataFrame = self.rows.to_pandas(types_mapper=pd.ArrowDtype)
        return frame


def sample(config: Config, table: str, rows: int) -> Sample:
    """Read a chunk of the table's first rows. The source is only read, and the target is not used."""
    if rows < 1:
        raise UsageError(f"a sample of {table} has at least one row, not {rows}")
    with BinlogSource.open(config.source) as source:
        [chosen] = config.tables.choose(config.tables.select(source.tables()), [table])
        schema = source.schema(chosen, config.tables.of(chosen).choices)
        chunk = Chunk(chosen, KeyRange(upper=source.next_boundary(schema, None, rows)))
        uuid = source.state().uuid
        settled = settled_now(config.source, source.connection, uuid)
        read = read_chunk(config.source, schema, chunk, uuid, FIRST_EPOCH, settled=settled)
    low = read.split.low
    assert low is not None  # noqa: S101 - it was read, not merged
    return Sample(chosen, read.rows.sort_by([(name, "ascending") for name in schema.key]), low, read.high)


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS else f"{text[: VALUE_CHARACTERS - 1]}…"
