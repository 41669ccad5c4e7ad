"""Every type, with values at its edges, on every path into Iceberg, and read back by three readers.

Prints a table: of each type how many values arrived exactly, by path and by reader.
"""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of
from tests.mysql.values import values_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

STEP = 100  # between the ids of one path's rows and the next one's
PATHS = ("snapshot", "insert", "update", "key move")
SHOWN = "values that arrived exactly, by path and reader"


@pytest.mark.newest
@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11", "MariaDB 11.8"))
def test_every_value_arrives_exactly_on_every_path(
    any_pipe: Pipe, any_server: LocalServer, record_property: Callable[[str, object], None]
) -> None:
    """A chunk, an insert, an update from NULL, and an update of the key, whose other image is the row before."""
    pipe, values, where = any_pipe, values_of(any_server), any_server.flavor.name
    pipe.config = pipe.config.model_copy(update={"tables": pipe.config.tables.model_copy(update={"options": {}})})
    rows = max(map(len, values.values()))
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(values))
    pipe.sql("SET sql_mode = ''", f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    literals = [[pairs[n % len(pairs)][0] for pairs in values.values()] for n in range(rows)]
    names = [f"c{number}" for number in range(len(values))]

    def insert(path: str) -> list[str]:
        start = PATHS.index(path) * STEP
        return [f"INSERT INTO t VALUES ({start + n}, {', '.join(row)})" for n, row in enumerate(literals)]

    update, move = (PATHS.index(path) * STEP for path in ("update", "key move"))
    pipe.sql(
        *insert("snapshot"),
        *(f"INSERT INTO t (id) VALUES ({update + n})" for n in range(rows)),
        *(f"INSERT INTO t VALUES ({move + 50 + n}, {', '.join(row)})" for n, row in enumerate(literals)),
        "INSERT INTO t VALUES (-1, " + ", ".join(literals[0]) + ")",
    )
    pipe.run()
    changed = (zip(names, row, strict=True) for row in literals)
    pipe.sql(
        *insert("insert"),
        *(
            f"UPDATE t SET {', '.join(f'{name} = {literal}' for name, literal in row)} WHERE id = {update + n}"
            for n, row in enumerate(changed)
        ),
        f"UPDATE t SET id = id - 50 WHERE id >= {move + 50}",
        "DELETE FROM t WHERE id = -1",
    )
    pipe.run()
    pipe.assert_equal()
    wanted = {path: [[pairs[n % len(pairs)][1] for n in range(rows)] for pairs in values.values()] for path in PATHS}
    wrong = []
    exact: dict[str, list[int]] = {source_type: [] for source_type in values}  # how many, of each path and reader
    for reader, table in read(pipe).items():
        found = {row["id"]: row for row in table.to_pylist()}
        assert sorted(found) == sorted(start * STEP + n for start in range(len(PATHS)) for n in range(rows))
        for number, source_type in enumerate(values):
            for index, path in enumerate(PATHS):
                arrived = [found[index * STEP + n][f"c{number}"] for n in range(rows)]
                same = [is_same(one, other) for one, other in zip(arrived, wanted[path][number], strict=True)]
                exact[source_type].append(sum(same[: len(values[source_type])]))
                wrong += [
                    (reader, path, source_type, arrived[n], wanted[path][number][n]) for n in range(rows) if not same[n]
                ]
    for source_type, counts in exact.items():
        cases = len(values[source_type])
        ways = f"{counts.count(cases)} of {len(counts)} ways"
        record_property(SHOWN, f"{where}: {source_type:<45} {cases:>2} values, {ways}, {sum(counts):>3} cases")
    record_property(SHOWN, f"{where}: {sum(map(sum, exact.values()))} cases")
    assert wrong == []


def read(pipe: Pipe) -> dict[str, pa.Table]:
    """The published table, by each reader."""
    settings = pipe.config.target
    table = TableId(pipe.database, "t")
    opened: Table = catalog_of(settings).load_table(settings.identifier(table))
    rows: Any = pipe.spark.table(table_name(settings, table))
    return {
        "Spark": pa.Table.from_batches(rows._collect_as_arrow()),  # noqa: SLF001 - no public way before Spark 4
        "PyIceberg": opened.scan().to_arrow(),
        "DuckDB": opened.scan().to_duckdb("t").sql("SELECT * FROM t").to_arrow_table(),
    }


def is_same(one: Any, other: Any) -> bool:
    """Exactly: digits after the point, signs of zero, zones."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and str(one) == str(other) and one == other
