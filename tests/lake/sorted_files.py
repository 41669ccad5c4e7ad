"""Whether the rows of each file of an Iceberg table are sorted, by Python's own order of values, NULL first."""

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table


def sorted_files(table: Table, by: Sequence[tuple[str, bool]]) -> list[int]:
    """The numbers of rows of the data files that readers see; each file was checked. `by`: columns, and whether down.

    The names are those of the table now. Columns of files are found by their field ids.
    """
    ids = [table.schema().find_field(name).field_id for name, _ in by]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    counts = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content is not DataFileContent.DATA:
                assert file.sort_order_id is None
                continue
            assert file.sort_order_id == table.metadata.default_sort_order_id, file.file_path
            with table.io.new_input(file.file_path).open() as opened:
                rows = pq.read_table(opened)
            names = {int((field.metadata or {})[b"PARQUET:field_id"]): field.name for field in rows.schema}
            values = list(zip(*(rows[names[field_id]].to_pylist() for field_id in ids), strict=True))
            assert values == _sorted(values, [down for _, down in by]), file.file_path
            counts.append(rows.num_rows)
    return counts


def _sorted(rows: list[tuple[Any, ...]], down: Sequence[bool]) -> list[tuple[Any, ...]]:
    """Sorted by the last column first, because Python's sort keeps the order of equal ones."""
    for place in reversed(range(len(down))):
        nulls = [row for row in rows if row[place] is None]
        others = [row for row in rows if row[place] is not None]
        rows = nulls + sorted(others, key=lambda row: row[place], reverse=down[place])
    return rows
