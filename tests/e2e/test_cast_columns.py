"""Columns to which `tables.options` → `columns` → `cast` gives other types in the copy."""

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import pytest

from lakeingest.commands.repair import repair
from lakeingest.commands.signal import ask
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed, SchemaChanged, UnsupportedTable
from lakeingest.pipeline.events import Lifted, StartedOver, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines
from tests.e2e.test_generated_columns import choose
from tests.e2e.test_renamed_columns import Killed, die_at_wave
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

CAST = {
    "id": "bigint",
    "N": "string",
    "big": "string",
    "price": "string",
    "flag": "boolean",
    "day": "string",
    "at": "string",
    "wide": "bigint",
    "later": "string",
}
TYPES = {
    "id": "bigint",
    "n": "string",
    "big": "string",
    "cost": "string",
    "flag": "boolean",
    "day": "string",
    "at": "string",
    "wide": "bigint",
}


def as_cast(value: object, to: str) -> object:
    """A value of the driver as the copy is to have it."""
    if value is None:
        return None
    match to, value:
        case "boolean", int():
            return bool(value)
        case "string", datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]  # three digits, as the column has
        case "string", date():
            return value.isoformat()
        case "string", Decimal():
            return f"{value:f}"
        case "string", _:
            return str(value)
    return value


def assert_cast(pipe: Pipe, types: dict[str, str], *, verified: bool = True) -> None:
    """The copy has these columns with these types, and the source's values in them; `verify` says so, too."""
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    found = dict(copied.dtypes)
    assert {name: found[name] for name in types} == types
    names = {"cost": "price"}
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(names.get(name, name) for name in types)} FROM t")
        wanted = [tuple(as_cast(*pair) for pair in zip(row, types.values(), strict=True)) for row in cursor.fetchall()]
    rows = [tuple(row) for row in copied.select(*types).collect()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    if verified:
        pipe.assert_equal()


@pytest.mark.parametrize(
    ("flavor", "metadata"),
    [(MYSQL, "FULL"), (MYSQL, "MINIMAL"), (MARIADB_11_4, "FULL"), (MARIADB_11_4, "NO_LOG")],
    ids=["MySQL", "MINIMAL", "MariaDB", "NO_LOG"],
)
@pytest.mark.long("many runs; test_random_shapes copies cast columns in every run")
def test_a_copy_has_the_chosen_types_in_every_phase(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor, metadata: str
) -> None:
    """First copy with a kill, changes, DDL, a re-snapshot, a repair, the changelog; beside a column that is renamed."""
    pipe = pipe_on(server_of(flavor, server_id="61", binlog_row_metadata=metadata))
    rows = ", ".join(
        f"({k}, {k - 12}, {2**64 - 1 - k}, {k}.5, {k % 2}, '2024-02-{k + 1:02}', '2024-02-29 01:02:{k:02}.5', {k})"
        for k in range(25)
    )
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, big BIGINT UNSIGNED, price DECIMAL(9,2), flag TINYINT(1), day DATE,"
        " at DATETIME(3), wide MEDIUMINT UNSIGNED)",
        f"INSERT INTO t VALUES {rows}, (99, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    choose(pipe, chunk_rows=10, columns={"cast": CAST, "rename": {"price": "cost"}})
    with pytest.raises(Killed):
        pipe.run(observe=die_at_wave(1))
    pipe.sql("UPDATE t SET n = 5, big = 7 WHERE id IN (3, 20)", "DELETE FROM t WHERE id = 4")
    pipe.run()
    assert_cast(pipe, TYPES)
    pipe.sql(
        "UPDATE t SET price = -0.5, flag = 1, day = '1000-01-01', at = NULL, wide = 16777215 WHERE id < 3",
        "UPDATE t SET id = 90 WHERE id = 9",
        "DELETE FROM t WHERE id = 8",
        "ALTER TABLE t ADD later INT NOT NULL DEFAULT 4, MODIFY n BIGINT, MODIFY wide INT UNSIGNED",
        "INSERT INTO t VALUES (91, 9223372036854775807, 1, 2, 0, NULL, NULL, 4294967295, -5)",
    )
    waves = len(pipe.seen(WaveCommitted))
    assert pipe.run().stopped == ()
    types = TYPES | {"later": "string"}
    assert_cast(pipe, types)
    assert len(pipe.seen(Lifted)) == 1
    assert len(pipe.seen(WaveCommitted)) == waves  # no row was read again
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    pipe.sql("UPDATE t SET n = 8 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert_cast(pipe, types)
    pipe.unlogged("UPDATE t SET n = 9, price = 1.1 WHERE id = 2", "DELETE FROM t WHERE id = 5")
    [result] = repair(pipe.config, [f"{pipe.database}.t"], pipe.spark)
    assert result.equal, result
    assert result.repaired
    assert_cast(pipe, types)
    last = [line for line in map(json.loads, lines(pipe)) if (line.get("data") or {}).get("id") == 91][-1]["data"]
    assert (last["n"], last["big"], last["cost"]) == ("9223372036854775807", "1", "2.00")
    assert (last["flag"], last["wide"], last["later"]) == (False, 2**32 - 1, "-5")


def test_ddl_to_a_type_that_cannot_be_cast_stops_the_table_alone(pipe: Pipe) -> None:
    """Readers keep the rows before the DDL. A type that can be cast, but not followed, is read again."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20)",
        "CREATE TABLE o (id INT PRIMARY KEY, v INT)",
        "INSERT INTO o VALUES (1, 1)",
    )
    choose(pipe, columns={"cast": {"n": "string"}})
    pipe.run()
    pipe.sql("ALTER TABLE t MODIFY n VARCHAR(9)", "UPDATE t SET n = 'x' WHERE id = 1", "INSERT INTO t VALUES (3, '')")
    pipe.run()
    assert_cast(pipe, {"id": "int", "n": "string"})
    pipe.sql("DELETE FROM t WHERE id IN (1, 3)", "ALTER TABLE t MODIFY n DOUBLE", "UPDATE o SET v = 2")
    before = pipe.rows("t")
    with pytest.raises((UnsupportedTable, PreflightFailed), match="it cannot be cast to string: its values have no"):
        pipe.run()
    assert pipe.rows("o") == [(1, 2)]
    assert pipe.rows("t") in (before, [(2, "20")])  # as of a place before the DDL


def test_another_cast_of_a_copied_column_needs_a_new_copy(pipe: Pipe) -> None:
    """The table stops until the choice is undone, or until a re-snapshot copies the table again."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    pipe.run()
    choose(pipe, columns={"cast": {"n": "string"}})
    pipe.sql("INSERT INTO t VALUES (3, NULL)")
    with pytest.raises(SchemaChanged, match="changed its definition"):
        pipe.run()
    choose(pipe)
    assert pipe.run().stopped == ()
    choose(pipe, columns={"cast": {"n": "string"}})
    [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done", done.why
    assert_cast(pipe, {"id": "int", "n": "string"})
    pipe.sql("ALTER TABLE t RENAME COLUMN n TO m", "INSERT INTO t VALUES (4, 40)")
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert pipe.seen(StartedOver)
