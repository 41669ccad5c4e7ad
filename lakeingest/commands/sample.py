"""Sample: the first rows of a table, read as a run reads a chunk, with a low and a high watermark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.binlog.position import FIRST_EPOCH, FilePosition, Low
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.chunks import Chunk
from lakeingest.errors import UsageError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.chunk_reader import read_chunk
from lakeingest.mysql.xa_list import settled_now

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package

VALUE_CHARACTERS = 40  # in the printed table, a longer value is cut


@dataclass(frozen=True, slots=True, repr=False)
class Sample(Report):
    """The rows of a chunk, and its watermarks.

    The chunk's read view contained every transaction up to `low`, and no transaction after `high`. `key`: the names of
    the key's columns.
    """

    table: TableId
    rows: pa.Table
    low: Low
    high: FilePosition
    key: tuple[str, ...] = ()

    @property
    def headers(self) -> Sequence[str]:
        """The table's columns."""
        return tuple(self.rows.column_names)

    def cells(self) -> Iterator[Sequence[object]]:
        """The rows, with values as texts; long values are cut."""
        for row in self.rows.to_pylist():
            texts = (None if value is None else str(value) for value in row.values())
            yield [None if text is None else _shortened(text) for text in texts]

    @property
    def keys(self) -> list[list[object]]:
        """The key of each row, as `Pipeline.compare` and `Pipeline.resnapshot` take it."""
        return [list(row.values()) for row in self.rows.select(self.key).to_pylist()]

    @property
    def notes(self) -> Sequence[str]:
        """The window of the chunk: its two watermarks."""
        return (f"low watermark {self.low}, high watermark {self.high}",)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a pandas frame. Columns keep their Arrow types, so values stay exact even beside NULL."""
        import pandas as pd

        frame: pd.DataFrame = self.rows.to_pandas(types_mapper=pd.ArrowDtype)
        return frame


def sample(config: Config, table: str, rows: int) -> Sample:
    """Read the table's first rows as one chunk. Nothing is changed, and the target is not used."""
    if rows < 1:
        raise UsageError(f"a sample of {table} has at least one row, not {rows}")
    with BinlogSource.open(config.source) as source:
        [chosen] = config.tables.choose(config.tables.select(source.tables()), [table])
        schema = source.schema(chosen, config.tables.of(chosen).choices)
        boundary = source.next_boundary(schema, None, rows)  # None if the table has `rows` rows or fewer
        chunk = Chunk(chosen, KeyRange(upper=boundary))
        uuid = source.state().uuid
        settled = settled_now(config.source, source.connection, uuid)
        read = read_chunk(config.source, schema, chunk, uuid, FIRST_EPOCH, settled=settled)
    low = read.split.low
    assert low is not None  # noqa: S101 - a split that is not merged yet has its low watermark
    return Sample(chosen, read.rows.sort_by([(name, "ascending") for name in schema.key]), low, read.high, schema.key)


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS else f"{text[: VALUE_CHARACTERS - 1]}…"
