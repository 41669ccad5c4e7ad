import os
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from lakeingest.core.tables import change
from lakeingest.core.tables.schema import Kind, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.wire import collations
from tests.mysql import witness
from tests.mysql.database import Db, Read, database_on
from tests.mysql.test_second_reading import Part, is_named

pytestmark = pytest.mark.mysql

SCHEMAS = int(os.environ.get("LAKEINGEST_DIFFERENTIAL", "30"))
GROUPS = 6  # of schemas: tests that run one after the other
ROWS = 12
_BITS = (8, 16, 24, 32, 64)
_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
# signs of many sizes: a charset that has none of them gives `?` or an error, and the row is left out
_SIGNS = string.ascii_letters + string.digits + " '\\%\n\té€üñßЖжשγ中文表ソ한글ไทย😀𝄞ﬀ①￥\x01\x7f"
# whose signs are all written by the server as they were given, in a literal of their own
_SAFE_CHARSETS = sorted(collations.CHARSETS)


@dataclass(frozen=True)
class Declared:
    """A type of a column, and what makes a literal of it."""

    type: str
    literal: Callable[[random.Random], str]


def integer(chance: random.Random) -> Declared:
    """Any integer type; its ends come often."""
    index = chance.randrange(5)
    bits, unsigned = _BITS[index], chance.random() < 0.4
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    extra = chance.choice([" UNSIGNED", " UNSIGNED ZEROFILL"]) if unsigned else ""
    return Declared(
        _INTEGERS[index] + extra,
        lambda chance: str(chance.choice([least, most, 0, 1, chance.randint(least, most), chance.randrange(100)])),
    )


def decimal(chance: random.Random) -> Declared:
    """DECIMAL of any digits."""
    precision = chance.randint(1, 65)
    scale = chance.randint(0, min(30, precision))

    def literal(chance: random.Random) -> str:
        digits = chance.choice([precision, chance.randint(0, precision)])
        number = chance.choice([10**digits - 1, chance.randrange(10**digits), 0])
        return f"{chance.choice('- ')}{number // 10**scale}.{number % 10**scale:0{scale}}".strip()

    unsigned = " ZEROFILL" if chance.random() < 0.1 and precision <= 38 else ""
    return Declared(
        f"DECIMAL({precision},{scale}){unsigned}",
        lambda chance: literal(chance).lstrip("-") if unsigned else literal(chance),
    )


def floating(chance: random.Random) -> Declared:
    """FLOAT or DOUBLE, of any magnitude."""
    name, most = chance.choice([("FLOAT", 37), ("DOUBLE", 307)])
    return Declared(
        name,
        lambda chance: chance.choice(
            ["0", "-0e0", "1e-40", repr(chance.uniform(-1, 1) * 10 ** chance.randint(-most, most))]
        ),
    )


def temporal(chance: random.Random) -> Declared:
    """DATE, DATETIME, TIMESTAMP, TIME or YEAR, with any digits of a second."""
    digits = chance.randint(0, 6)
    fraction = f"({digits})" if digits else ""

    def day(chance: random.Random, first: int, last: int) -> str:
        return f"{chance.randint(first, last):04}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"

    def clock(chance: random.Random) -> str:
        part = chance.choice([0, 999_999, chance.randrange(10**6)])
        return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}.{part:06}"[: 9 + digits]

    return chance.choice(
        [
            Declared("DATE", lambda chance: f"'{day(chance, 1, 9999)}'"),
            Declared(f"DATETIME{fraction}", lambda chance: f"'{day(chance, 1, 9999)} {clock(chance)}'"),
            Declared(f"TIMESTAMP{fraction}", lambda chance: f"'{day(chance, 1971, 2037)} {clock(chance)}'"),
            Declared(
                f"TIME{fraction}",
                lambda chance: f"'{chance.choice(['', '-'])}{chance.randrange(838)}{clock(chance)[2:]}'",
            ),
            Declared("YEAR", lambda chance: str(chance.choice([0, chance.randint(1901, 2155)]))),
        ]
    )


def text(chance: random.Random) -> Declared:
    """CHAR, VARCHAR or TEXT of any length and charset."""
    charset = chance.choice([*_SAFE_CHARSETS, "utf8mb4", "utf8mb4", "utf8mb3", "ascii", "latin1"])
    length = chance.choice([1, 5, 63, 64, 200])
    name = chance.choice([f"CHAR({length})", f"VARCHAR({length})", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
    most = min(length, 60)
    return Declared(f"{name} CHARACTER SET {charset}", lambda chance: quoted(sample(chance, most), charset))


def member(chance: random.Random) -> Declared:
    """ENUM or SET of any number of members."""
    charset = chance.choice(["utf8mb4", "latin1", "ascii", "ucs2"])
    is_set = chance.random() < 0.5
    count = chance.choice([1, 2, 8, 9, 20, 33, 64 if is_set else 300])
    names = [f"m{i}" + ("é" if charset != "ascii" and i % 3 == 0 else "") for i in range(count)]

    def literal(chance: random.Random) -> str:
        chosen = chance.sample(names, chance.randint(0, min(count, 5))) if is_set else [chance.choice(names)]
        return "'" + ",".join(chosen) + "'"

    listed = ", ".join(f"'{name}'" for name in names)
    return Declared(f"{'SET' if is_set else 'ENUM'}({listed}) CHARACTER SET {charset}", literal)


def binary(chance: random.Random) -> Declared:
    """BINARY, VARBINARY, BLOB or BIT of any length."""
    length = chance.choice([1, 2, 7, 255, 300])
    bits = chance.randint(1, 64)
    blobs = [f"BINARY({min(length, 255)})", f"VARBINARY({length})", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"]
    most = min(length, 40)
    return chance.choice(
        [
            *(Declared(name, lambda chance: f"x'{chance.randbytes(chance.randint(0, most)).hex()}'") for name in blobs),
            Declared(f"BIT({bits})", lambda chance: str(chance.randrange(2**bits))),
        ]
    )


def document(chance: random.Random) -> Declared:
    """JSON, a geometry or a vector."""
    points = [f"ST_GeomFromText('{shape}', {srid})" for srid in (0, 4326) for shape in ("POINT(1 2)", "POINT(-7.5 0)")]
    lines = ["ST_GeomFromText('LINESTRING(0 0, 1.5 1)')", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')"]
    return chance.choice(
        [
            Declared("JSON", lambda chance: quoted(json(chance, 3), "utf8mb4")),
            Declared("JSON", lambda chance: f"CAST({chance.choice(OPAQUE)} AS JSON)"),
            Declared("GEOMETRY", lambda chance: chance.choice(points + lines)),
            Declared("POINT", lambda chance: chance.choice(points)),
            Declared(
                "VECTOR(40)",
                lambda chance: f"TO_VECTOR('{[chance.uniform(-9, 9) for _ in range(chance.randint(1, 40))]}')",
            ),
        ]
    )


# JSON of MySQL's own types
OPAQUE = (
    *("TIMESTAMP'2024-02-29 12:34:56.000001'", "DATE'2024-02-29'", "TIME'-838:59:59'", "x'00FF'", "b'101'"),
    *("1.50", "-123456789012345678901234567890.5", "18446744073709551615", "1e300", "CAST(1 AS YEAR)"),
)


def json(chance: random.Random, depth: int) -> str:
    """A JSON text."""
    scalars = ["null", "true", str(chance.randint(-(2**63), 2**64 - 1)), repr(chance.uniform(-1e9, 1e9)), '"ü\\\\n"']
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(scalars)
    parts = [json(chance, depth - 1) for _ in range(chance.randrange(4))]
    if chance.random() < 0.5:
        return "[" + ", ".join(parts) + "]"
    return "{" + ", ".join(f'"k{chance.randrange(30)}é{i}": {part}' for i, part in enumerate(parts)) + "}"


def sample(chance: random.Random, most: int) -> str:
    """A text of so many signs, or fewer."""
    return "".join(chance.choices(_SIGNS, k=chance.choice([0, 1, most, chance.randint(0, most)])))


def quoted(value: str, charset: str) -> str:
    """A literal that the charset can hold: what it has no sign for becomes `?`."""
    literal = f"_utf8mb4 x'{value.encode().hex()}'"
    return literal if charset.startswith("utf") else f"CONVERT({literal} USING {charset})"


MAKERS = (integer, integer, decimal, floating, temporal, temporal, text, text, text, member, binary, document)


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database of the test's own."""
    with database_on(mysql_server) as database:
        yield database


@dataclass(frozen=True)
class Case:
    """A table, and statements that fill and change it."""

    columns: list[tuple[str, Declared, bool]]
    seed: int

    @classmethod
    def of(cls, seed: int) -> "Case":
        """Columns of any types, most of them nullable."""
        chance = random.Random(seed)
        made = [chance.choice(MAKERS)(chance) for _ in range(chance.randint(1, 14))]
        return cls([(f"c{i}", one, chance.random() < 0.8) for i, one in enumerate(made)], seed)

    @property
    def declared(self) -> str:
        """The columns of CREATE TABLE."""
        parts = [f"{name} {of.type}{' NULL' if nullable else ' NOT NULL'}" for name, of, nullable in self.columns]
        return ", ".join(["id INT PRIMARY KEY", *parts])

    def statements(self) -> Iterator[str]:
        """Inserts of one and of several rows, updates of some columns and of the key, deletes."""
        chance = random.Random(-self.seed)
        first = 0
        while first < ROWS:
            count = chance.randint(1, 4)
            rows = [f"({first + i}, {', '.join(self._values(chance))})" for i in range(count)]
            yield f"INSERT INTO t VALUES {', '.join(rows)}"
            first += count
        for _ in range(4):
            name, of, _ = chance.choice(self.columns)
            yield f"UPDATE t SET {name} = {of.literal(chance)} WHERE id % 3 = {chance.randrange(3)}"
        yield "UPDATE t SET id = id + 100 WHERE id < 4"
        yield "DELETE FROM t WHERE id % 4 = 1"

    def _values(self, chance: random.Random) -> list[str]:
        return [
            "NULL" if nullable and chance.random() < 0.25 else of.literal(chance) for _, of, nullable in self.columns
        ]


@pytest.mark.parametrize("group", range(GROUPS))
def test_all_readers_and_the_server_agree(db: Db, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random tables and values, both snapshots, both binlog readers and the server's own text are equal.

    LAKEINGEST_DIFFERENTIAL is how many tables.
    """
    for seed in range(group, SCHEMAS, GROUPS):
        case = Case.of(seed)
        try:
            _compare(db, case, monkeypatch)
        except Exception as error:
            error.add_note(f"seed {seed}: CREATE TABLE t ({case.declared})")
            raise
        db.run("DROP TABLE t")


def _compare(db: Db, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEINGEST_WIRE", raising=False)
    schema = db.table("t", case.declared)
    start = db.here()
    compressed = random.Random(case.seed).random() < 0.3
    db.run(f"SET binlog_transaction_compression = {'ON' if compressed else 'OFF'}", *case.statements())
    segment = db.segment(start)
    rows, said, read = db.select(schema), db.witness(schema), db.read(segment, schema)
    for column in schema.columns:
        assert witness.shown(column, rows[column.name]) == said[column.name], column
    assert _state(read, schema) == sorted(rows.to_pylist(), key=lambda row: row["id"])
    compared = Part(db, segment, {schema.table: schema}, read).compare()
    assert compared.differences == ()
    assert [reason for reason in compared.unread if not is_named(reason)] == []
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    if not {column.kind for column in schema.columns} & {Kind.VECTOR}:
        assert db.select(schema).equals(rows)
    try:
        slow = db.read(segment, schema) if not compressed else read
    except UnsupportedValue as error:
        assert "LAKEINGEST_WIRE=reference cannot read" in str(error)  # noqa: PT017 - only some tables are refused
    else:
        assert slow.log.equals(read.log)
        assert slow.tables[schema.table].equals(read.tables[schema.table])


def _state(read: Read, schema: TableSchema) -> list[dict[str, object]]:
    """The table as its change rows make it; each -U and -D meets the very row that it takes away."""
    rows: dict[int, dict[str, object]] = {}
    for row in read.tables[schema.table].to_pylist():
        image = {name: row[name] for name in schema.names}
        if row[change.KIND] in {0, 2}:
            rows[row["id"]] = image
        else:
            assert rows.pop(row["id"]) == image
    return [rows[key] for key in sorted(rows)]
