"""Where tables are cut, for every kind of key: boundaries tile the rows, and the server finds them by its index."""

import pytest

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query, query_dicts, table_name
from lakeingest.mysql.key_space import boundary_query, next_boundary
from tests.mysql.database import Db
from tests.mysql.keyed import EACH, Keyed, keys_of

pytestmark = pytest.mark.mysql

ROWS, CHUNK_ROWS = 1_200, 100


def filled(db: Db, keyed: Keyed, name: str) -> tuple[TableSchema, int]:
    """A table with this kind of key and a wide column, and how many rows it has."""
    schema = db.table(name, f"{keyed.columns}, v CHAR(100), PRIMARY KEY ({', '.join(keyed.names)})")
    numbers = range(min(ROWS, keyed.count))
    rows = (f"({', '.join(keyed.literals(n))}, 'v')" for n in numbers)
    db.run(f"INSERT INTO {name} VALUES {', '.join(rows)}", f"ANALYZE TABLE {name}")
    return schema, len(numbers)


def boundaries(db: Db, schema: TableSchema, rows: int) -> list[Key]:
    """All that the server is asked for, from the beginning to the end."""
    found: list[Key] = []
    lower = None
    while (lower := next_boundary(db.connection, schema, lower, rows)) is not None:
        found.append(lower)
    return found


def counted(db: Db, schema: TableSchema, keys: KeyRange) -> int:
    """How many rows are in a range."""
    [(count,)] = query(
        db.connection, f"SELECT COUNT(*) FROM {table_name(schema.table)} WHERE {keys.predicate(schema.key)}"
    )
    return int(count)


@pytest.mark.parametrize(("any_server", "name"), EACH, indirect=["any_server"])
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("each kind of key on one server in turn", turn="any_server")
def test_boundaries_tile_the_rows_of_every_kind_of_key(any_server: LocalServer, any_db: Db, name: str) -> None:
    """Each chunk except the last has exactly the wanted rows; together they have every row once."""
    db = any_db
    schema, count = filled(db, keys_of(any_server.flavor)[name], name)
    size = min(CHUNK_ROWS, max(1, count // 2))
    ends = [None, *boundaries(db, schema, size), None]
    counts = [counted(db, schema, KeyRange(ends[i], ends[i + 1])) for i in range(len(ends) - 1)]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert 0 < counts[-1] <= size
    assert sum(counts) == count


@pytest.mark.parametrize(("any_server", "name"), EACH, indirect=["any_server"])
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("each kind of key on one server in turn", turn="any_server")
def test_boundaries_and_chunks_use_the_index_of_the_key(any_server: LocalServer, any_db: Db, name: str) -> None:
    """The server's plans: a range of the key, no other rows, and no sort."""
    db = any_db
    schema, count = filled(db, keys_of(any_server.flavor)[name], name)
    found = boundaries(db, schema, min(CHUNK_ROWS, max(1, count // 10)))
    middle = len(found) // 2
    chunk = KeyRange(found[middle], found[middle + 1] if middle + 1 < len(found) else None)
    statements = {
        "boundary": boundary_query(schema, found[middle], CHUNK_ROWS),
        "chunk": f"SELECT * FROM {table_name(schema.table)} WHERE {chunk.predicate(schema.key)}",
    }
    for what, sql in statements.items():
        [plan] = query_dicts(db.connection, f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        # a table has no more rows than the ENUM has members: to go through all of them is as quick
        if (any_server.flavor, name, what, plan["type"]) == (MARIADB_11_4, "enum", "boundary", "ALL"):
            continue
        wanted = {"range", "index"} if (name, what) in {("enum", "boundary"), ("set_", "boundary")} else {"range"}
        assert plan["type"] in wanted, (what, sql, plan)
        assert plan["key"] == "PRIMARY", (what, sql, plan)
        assert "filesort" not in str(plan["extra"]), (what, sql, plan)
