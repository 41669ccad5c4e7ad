"""Which columns of a Parquet file get a dictionary.

A dictionary makes a column with few distinct values small. Without this choice PyArrow begins one for every column, and
gives it up only when it is full. For columns whose values are nearly all different, this doubles the time to write a
file, and the dictionary makes the file larger, because most of its values occur only once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE, _SAMPLE_BYTES = 2_000, 4 << 20  # the most rows of a sample, and about their most bytes
# With this share of distinct values in the sample, a column has about 20,000 distinct values or more
_MOSTLY_DISTINCT = 0.95
_ENOUGH = 1_000  # rows of a file that may decide for other files


class Dictionaries:
    """Which columns of files with alike rows get a dictionary: the first file with enough rows decides for its columns.

    If each of the many small files of a table was sampled, that would take longer than to read their rows. Threads may
    share an object: at worst, several of them look at the same column.
    """

    def __init__(self) -> None:
        self._decided: dict[str, bool] = {}

    def columns_of(self, rows: pa.Table) -> list[str]:
        """The names of the columns that get a dictionary in the file of these rows."""
        undecided = rows.select([name for name in rows.column_names if name not in self._decided])
        found = repetitive_columns(undecided)
        decided = {name: name in found for name in undecided.column_names}
        chosen = self._decided | decided
        if len(rows) >= _ENOUGH:  # a column without a value decides nothing
            self._decided |= {name: is_found for name, is_found in decided.items() if rows[name].null_count < len(rows)}
        return [name for name in rows.column_names if chosen[name]]


def repetitive_columns(rows: pa.Table) -> list[str]:
    """The names of the columns whose values repeat, by a sample of the rows. A small table is its own sample.

    Nested columns are left out: Parquet has other names for their values. Columns that Arrow cannot count are named.
    """
    # `_SAMPLE` rows, or fewer if these have more than `_SAMPLE_BYTES`, by the mean size of a row
    count = max(1, min(_SAMPLE, len(rows) * _SAMPLE_BYTES // max(1, rows.nbytes)))
    distance = -(-len(rows) // count)  # between the rows of the sample; rounded up, so that these are at most `count`
    sample = rows.take(np.arange(0, len(rows), distance)) if distance > 1 else rows
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    return [name for name in flat if _is_repetitive(sample[name])]


def _is_repetitive(values: pa.ChunkedArray) -> bool:
    """Whether the values of a sample repeat; False if all of them are NULL."""
    valid = len(values) - values.null_count
    if not valid:
        return False
    try:
        distinct = pc.count_distinct(values, mode="only_valid").as_py()
    except pa.ArrowNotImplementedError:  # Arrow cannot count this type: PyArrow's default, a dictionary, stays
        return True
    return bool(distinct < _MOSTLY_DISTINCT * valid)
