"""Keys as people write them, for every kind of key: they are the values of rows, and bounds for the server."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UsageError
from lakeingest.mysql.chunk_reader import read_rows, server_state
from lakeingest.mysql.connection import query, table_name
from lakeingest.mysql.key_membership import keys_within
from lakeingest.mysql.key_values import bound_of, key_table, parse_key, values_of
from lakeingest.mysql.keyed_rows import conditions_of
from lakeingest.mysql.source_types import source_type
from tests.mysql.database import EPOCH, Db
from tests.mysql.keyed import EACH, Keyed, keys_of

ROWS = 300
PAIR = TableSchema(
    TableId("d", "t"),
    (
        Column("a", Kind.INT32, source_type("int"), nullable=False),
        Column("b", Kind.DATE, source_type("date"), nullable=False),
    ),
    ("a", "b"),
)


def written(value: Any) -> Any:
    """A value as a person writes it in JSON."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else str(value)
        case bytes():
            return value.hex()
        case dt.datetime() | dt.date():
            return value.isoformat()
    return value


def filled(db: Db, keyed: Keyed, name: str) -> TableSchema:
    """A table with this kind of key, and rows."""
    schema = db.table(name, f"{keyed.columns}, v CHAR(10), PRIMARY KEY ({', '.join(keyed.names)})")
    rows = (f"({', '.join(keyed.literals(n))}, 'v')" for n in range(min(ROWS, keyed.count)))
    db.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    return schema


@pytest.mark.mysql
@pytest.mark.parametrize(("any_server", "name"), EACH, indirect=["any_server"])
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("each kind of key on one server in turn", turn="any_server")
def test_keys_of_every_kind_are_read_again_as_they_are_written(any_server: LocalServer, any_db: Db, name: str) -> None:
    """Parsed from JSON, keys equal those of the rows; as a list they find the rows, as bounds they divide them."""
    schema = filled(any_db, keys_of(any_server.flavor)[name], name)
    uuid = server_state(any_db.connection).uuid
    rows = read_rows(any_db.source, schema, ("TRUE",), uuid, EPOCH).rows
    keys = rows.select(list(schema.key)).to_pylist()
    texts = [json.dumps([written(value) for value in key.values()]) for key in keys]
    parsed = [parse_key(schema, text) for text in texts]
    assert parsed == keys
    assert [values_of(schema, bound_of(schema, key)) for key in keys] == keys
    some = parsed[:: max(1, len(parsed) // 50)]
    found = read_rows(any_db.source, schema, conditions_of(schema, some), uuid, EPOCH).rows
    assert key_table(schema, some).join(found, keys=list(schema.key), join_type="left anti").num_rows == 0
    counts = []
    for one in (parsed[0], parsed[len(parsed) // 2], parsed[-1]):
        bound = bound_of(schema, one)
        sides = (KeyRange(None, bound), KeyRange(bound))
        sql = (f"SELECT COUNT(*) FROM {table_name(schema.table)} WHERE {side.predicate(schema.key)}" for side in sides)
        counts.append([int(query(any_db.connection, statement)[0][0]) for statement in sql])
        listed = [keys_within(any_db.connection, schema, keys, side) for side in sides]
        assert [len(part) for part in listed] == counts[-1]
    assert all(sum(count) == len(keys) and count[1] > 0 for count in counts)


FLAG = TableSchema(TableId("d", "t"), (Column("b", Kind.BOOLEAN, source_type("bit(1)"), nullable=False),), ("b",))


@pytest.mark.parametrize(
    ("text", "value"), [("0", False), ('"0"', False), ("1", True), ('"1"', True), ("true", True), ("false", False)]
)
def test_a_bit_is_written_as_a_number_or_as_a_boolean(*, text: str, value: bool) -> None:
    """Also within quotes: Python takes each text for true."""
    assert parse_key(FLAG, f"[{text}]") == {"b": value}


@pytest.mark.parametrize("text", ["2", '"x"', '""', "0.5"])
def test_a_bit_has_no_other_value(text: str) -> None:
    """Such a value is not taken for 1."""
    with pytest.raises(UsageError, match=r"no value of d\.t's key column b"):
        parse_key(FLAG, f"[{text}]")


@pytest.mark.parametrize("micros", [0, -1, 1, -3_600_100_012, 3_020_398_999_999, -3_020_399_000_000])
def test_a_bound_of_times_as_microseconds_is_read_back(micros: int) -> None:
    """The server compares a time with it, and the copy has a number."""
    schema = TableSchema(
        TableId("d", "t"), (Column("at", Kind.MICROS, source_type("time(6)"), nullable=False),), ("at",)
    )
    assert values_of(schema, bound_of(schema, {"at": micros})) == {"at": micros}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "has 2 values"),
        ('["x", "2020-01-01"]', "no value of d.t's key column a"),
        ("[1.5, 2]", "no value of d.t's key column a"),
        ('[1, "2020-13-01"]', "no value of d.t's key column b"),
        ("[null, 1]", "a key has no NULL"),
        ("[99999999999, 1]", "no value of d.t's key column a"),
    ],
)
def test_what_is_no_key_is_refused(text: str, said: str) -> None:
    """The line says which column it is about."""
    with pytest.raises(UsageError, match=said):
        parse_key(PAIR, text)
