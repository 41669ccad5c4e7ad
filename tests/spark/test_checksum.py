import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from operator import add
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

from lakeingest.core.proofs.checksum import Checksum, Difference, bucket, differences, digest
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Kind, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql import checksum as source_side
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import query
from lakeingest.mysql.dialect import MYSQL, dialect
from lakeingest.spark import checksum as target_side
from lakeingest.spark.row_hashes import Widths, double_text, double_texts
from tests.mysql import witness
from tests.mysql.database import Db, database_on
from tests.mysql.values import holds_minus_zero

pytestmark = [pytest.mark.mysql, pytest.mark.spark]

DOUBLES = 5_000
BATCH = 1_000
EDGES = (
    *(0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1 / 3, 2 / 3, 100.0, 1e14, 1e15, 1e16, 1e17, 1e20, 1e21, 1e22, 1e23, 1e100),
    *(1e-4, 1e-5, 1e-6, 1e-14, 1e-15, 1e-16, 1e-17, 1.5e-14, 1.5e-15, 123456789012345.6, 1234567890123456.7),
    *(999999999999999.9, 9999999999999998.0, 9007199254740993.0, 123456789012345678.0, 0.00012345678901234567),
    *(5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308, -1.7976931348623157e308),
)

# column -> type, and pairs of a SQL literal and the canonical text of what it becomes
COLUMNS: dict[str, tuple[str, tuple[tuple[str, str | None], ...]]] = {
    "tiny": ("TINYINT", (("-128", "-128"), ("127", "127"), ("NULL", None), ("0", "0"))),
    "medium": ("MEDIUMINT UNSIGNED", (("16777215", "16777215"), ("0", "0"))),
    "int_": ("INT", (("-2147483648", "-2147483648"), ("2147483647", "2147483647"), ("NULL", None))),
    "positive": ("INT UNSIGNED", (("4294967295", "4294967295"), ("0", "0"), ("NULL", None))),
    "filled": ("INT(8) ZEROFILL", (("42", "42"), ("0", "0"), ("NULL", None), ("4294967295", "4294967295"))),
    "big": ("BIGINT",
        (("-9223372036854775808", "-9223372036854775808"), ("9223372036854775807", "9223372036854775807"))),
    "huge": ("BIGINT UNSIGNED", (("18446744073709551615", "18446744073709551615"), ("0", "0"), ("NULL", None))),
    "huge_filled": ("BIGINT UNSIGNED ZEROFILL", (("18446744073709551615", "18446744073709551615"), ("7", "7"))),
    "price": ("DECIMAL(9,2)", (("-0.05", "-0.05"), ("9999999.99", "9999999.99"), ("0", "0.00"), ("NULL", None))),
    "price_filled": ("DECIMAL(9,2) ZEROFILL", (("1.5", "1.50"), ("0", "0.00"), ("NULL", None))),
    "small": ("DECIMAL(12,10)",
        (("0.0000000001", "0.0000000001"), ("-0.0000001", "-0.0000001000"), ("-0", "0.0000000000"))),
    "whole": ("DECIMAL(38,0)", (("9" * 38, "9" * 38), ("-" + "9" * 38, "-" + "9" * 38), ("0", "0"))),
    "deep": ("DECIMAL(38,30)",
        (("-0." + "0" * 29 + "1", "-0." + "0" * 29 + "1"), ("12345678", "12345678." + "0" * 30))),
    "single": ("FLOAT", (("0.1", "0.10000000149011612"), ("-0e0", "-0"), ("3.4028235e38", "3.4028234663852886e38"))),
    "double_": ("DOUBLE", (("0.1", "0.1"), ("-0e0", "-0"), ("0", "0"), ("1e20", "1e20"), ("5e-324", "5e-324"))),
    "day": ("DATE", (("'0001-01-01'", "0001-01-01"), ("'1582-10-10'", "1582-10-10"), ("'9999-12-31'", "9999-12-31"))),
    "at0": ("DATETIME", (("'2024-02-29 23:59:59'", "2024-02-29 23:59:59.000000"), ("NULL", None))),
    "at3": ("DATETIME(3)", (("'0001-01-01 00:00:00.001'", "0001-01-01 00:00:00.001000"), ("NULL", None))),
    "at6": ("DATETIME(6)",
        (("'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
         ("'1582-10-10'", "1582-10-10 00:00:00.000000"))),
    "stamp": ("TIMESTAMP(6) NULL",
        (("'1970-01-01 00:00:01'", "1970-01-01 00:00:01.000000"),
         ("'2038-01-19 03:14:07.999999'", "2038-01-19 03:14:07.999999"), ("NULL", None))),
    "text_": ("VARCHAR(50)",
        (("''", ""), ("'N'", "N"), ("'1:a'", "1:a"), ("'ä€😀'", "ä€😀"), ("'a '", "a "), ("NULL", None))),
    "marks": ("TEXT",
        ((r"'\\n\"''%_'", "\\n\"'%_"), (r"'a\0b\r\n\t'", "a\0b\r\n\t"), ("'a\u0308'", "a\u0308"), ("''", ""))),
    "three": ("VARCHAR(9) CHARACTER SET utf8mb3", (("'ж€'", "ж€"), ("''", ""), ("NULL", None))),
    "padded": ("CHAR(5)", (("'a  '", "a"), ("''", ""), ("'äöüßé'", "äöüßé"))),
    "choice": ("ENUM('a','','c d')", (("'c d'", "c d"), ("''", ""), ("NULL", None))),
    "choices": ("SET('a','b','c d')", (("'c d,a'", "a,c d"), ("''", ""), ("NULL", None))),
    "western": ("VARCHAR(9) CHARACTER SET latin1", (("'Füße €'", "Füße €"), ("x'81'", "\x81"), ("NULL", None))),
    "eastern": ("TEXT CHARACTER SET sjis", ((r"_sjis x'815f835c'", "\\ソ"), ("''", ""), ("NULL", None))),
    "year_": ("YEAR", (("0", "0"), ("1901", "1901"), ("2155", "2155"), ("NULL", None))),
    "time0": ("TIME", (("'-838:59:59'", "-838:59:59"), ("'7:8:9'", "07:08:09"), ("NULL", None))),
    "time6": ("TIME(6)", (("'-0:0:0.5'", "-00:00:00.500000"), ("'100:00:00'", "100:00:00.000000"), ("NULL", None))),
    "filled_numeral": ("DECIMAL(50,2) ZEROFILL", (("0", "0.00"), ("7.5", "7.50"), ("NULL", None))),
    "rounded": ("DOUBLE(9,3)", (("1.5", "1.5"), ("0.1234", "0.123"), ("-0.0001", "0"), ("NULL", None))),
    "large": ("DOUBLE(255,3)", (("-1.7976931348623157e252", "-1e252"), ("1e20", "1e20"), ("0.1", "0.1"))),
    "short": ("FLOAT(7,2)", (("1.5", "1.5"), ("0.126", "0.12999999523162842"), ("NULL", None))),
    "numeral": ("DECIMAL(65,30)",
        (("-0." + "0" * 29 + "1", "-0." + "0" * 29 + "1"), ("9" * 35, "9" * 35 + "." + "0" * 30), ("NULL", None))),
    "doc": ("JSON",
        (("""'{"b": 1.0, "a": [1e100, null, "ä"]}'""", '{"a": [1e100, null, "ä"], "b": 1.0}'), ("'null'", "null"),
         ("NULL", None))),
    "flag": ("BIT(1)", (("b'1'", "1"), ("b'0'", "0"), ("NULL", None))),
    "bits": ("BIT(9)", (("b'101'", "0005"), ("b'111111111'", "01FF"), ("NULL", None))),
    "place": ("POINT SRID 4326",
        (("ST_GeomFromText('POINT(1 2)', 4326)", "0101000000" "0000000000000040" "000000000000F03F"), ("NULL", None))),
    "shape": ("GEOMETRY",
        (("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2))')",
          "010700000001000000" "0101000000" "000000000000F03F" "0000000000000040"), ("NULL", None))),
    "vector_": ("VECTOR(3)",
        (("STRING_TO_VECTOR('[1, -0.0, 0.1]')", "0000803F" "00000080" "CDCCCC3D"), ("x'FFFF7FFF'", "FFFF7FFF"),
         ("NULL", None))),
    "fixed": ("BINARY(4)", (("x'00FF'", "00FF0000"), ("''", "00000000"), ("NULL", None))),
    "bytes_": ("VARBINARY(9)", (("x'00'", "00"), ("''", ""), ("x'FF00FE'", "FF00FE"), ("NULL", None))),
    "blob_": ("BLOB", (("x'0000'", "0000"), ("'N'", "4E"), ("NULL", None))),
}  # fmt: skip
MARIADB = {
    "double_": ("DOUBLE", (("0.1", "0.1"), ("0", "0"), ("1e20", "1e20"), ("5e-324", "5e-324"))),  # a literal -0e0 is 0
    "single": ("FLOAT", (("0.1", "0.10000000149011612"), ("3.4028235e38", "3.4028234663852886e38"))),
    "doc": ("JSON", (("'{\"b\": 1.00}'", '{"b": 1.00}'), ("NULL", None))),
    "place": ("POINT", (("POINT(1, 2)", "0101000000000000000000F03F0000000000000040"), ("NULL", None))),
    "key_": (
        "UUID",
        (("'00112233-4455-6677-8899-AABBCCDDEEFF'", "00112233-4455-6677-8899-aabbccddeeff"), ("NULL", None)),
    ),
    "address": (
        "INET6",
        (("'::ffff:192.0.2.1'", "::ffff:192.0.2.1"), ("'2001:DB8::0:1'", "2001:db8::1"), ("NULL", None)),
    ),
    "address4": ("INET4", (("'192.0.2.1'", "192.0.2.1"), ("NULL", None))),
}
ROWS = 12  # two columns with pairs of other counts meet in other combinations


@pytest.fixture
def db(any_server: LocalServer) -> Iterator[Db]:
    """A database on a server of each flavor."""
    with database_on(any_server) as database:
        yield database


def columns_of(db: Db) -> dict[str, tuple[str, tuple[tuple[str, str | None], ...]]]:
    """The columns that this server can have."""
    if dialect(db.connection) is MYSQL:
        return COLUMNS
    return {name: column for name, column in (COLUMNS | MARIADB).items() if name != "vector_"}


def widths(db: Db) -> Widths:
    """How this server writes doubles."""
    return dialect(db.connection).double_widths


def every_kind(db: Db) -> TableSchema:
    """The table of all columns, with its rows."""
    found = columns_of(db)
    columns = ", ".join(f"{name} {source_type}" for name, (source_type, _) in found.items())
    schema = db.table("t", f"{columns}, a INT, b BIGINT UNSIGNED, PRIMARY KEY (b, a)")
    of_mariadb = witness.USUAL - {Kind.JSON, Kind.VECTOR} | {Kind.UUID, Kind.ADDRESS}
    wanted = witness.USUAL if dialect(db.connection) is MYSQL else of_mariadb
    assert {column.kind for column in schema.columns} == wanted
    rows = [[pairs[row % len(pairs)][0] for _, pairs in found.values()] for row in range(ROWS)]
    db.run(*(f"INSERT INTO t VALUES ({', '.join(row)}, {-i}, {i % 3})" for i, row in enumerate(rows)))
    return schema


def expected(db: Db, schema: TableSchema, row: int) -> Checksum:
    """The checksum of a row, by the specification."""
    texts = [pairs[row % len(pairs)][1] for _, pairs in columns_of(db).values()]
    return digest([column.kind for column in schema.columns], [*texts, str(-row), str(row % 3)])


def copied(db: Db, schema: TableSchema, spark: SparkSession, folder: Path) -> DataFrame:
    """The table's rows as Spark reads what a chunk reader wrote; ancient dates are as written."""
    uuid = server_state(db.connection).uuid
    read = read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), uuid, 1)
    pq.write_table(read.rows, folder / "rows.parquet")
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(folder / "rows.parquet"))


@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_mysql_spark_and_the_specification_agree_on_every_kind(db: Db, spark: SparkSession, tmp_path: Path) -> None:
    """NULL, '', unicode, negative zero, least and greatest values, zero bytes: one checksum, whoever computes it."""
    schema = every_kind(db)
    rows = copied(db, schema, spark, tmp_path)
    by_source = source_side.row_checksums(db.source, schema, KeyRange(), ROWS)
    assert by_source == {(i % 3, -i): expected(db, schema, i) for i in range(ROWS)}
    assert dict(target_side.row_checksums(rows, schema, ROWS, widths(db))) == by_source
    sums = target_side.checksums(rows.withColumn(target_side.NUMBER, F.expr("if(b < 1, 7, 8)")), schema, widths(db))
    for number, keys in {7: KeyRange(None, (1, -(2**31))), 8: KeyRange((1, -(2**31)))}.items():
        inside = [i for i in range(ROWS) if (i % 3, -i) in keys]
        assert sums[number] == reduce(add, (expected(db, schema, i) for i in inside))
        assert source_side.range_checksums(db.source, schema, keys)[0] == sums[number]


@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_one_changed_value_is_noticed_in_every_column(db: Db, spark: SparkSession, tmp_path: Path) -> None:
    """The row's checksum and the range's change, and the key of the row is named."""
    schema = every_kind(db)
    rows = copied(db, schema, spark, tmp_path)
    seen = {source_side.range_checksums(db.source, schema, KeyRange())[0]}
    for name, (_, pairs) in columns_of(db).items():
        db.run(f"UPDATE t SET {name} = {pairs[1][0]} WHERE (b, a) = (0, 0)")
        seen.add(source_side.range_checksums(db.source, schema, KeyRange())[0])
    assert len(seen) == 1 + len(columns_of(db))
    source = source_side.row_checksums(db.source, schema, KeyRange(), ROWS)
    target = target_side.row_checksums(rows, schema, ROWS, widths(db))
    assert differences(source, target) == [Difference((0, 0), "differs")]


@pytest.mark.long("the same on other servers", only=("MariaDB 10.11", "MariaDB 11.4"))
def test_row_checksums_name_the_first_keys_in_key_order(db: Db, spark: SparkSession, tmp_path: Path) -> None:
    """Both sides cut off at the same key, so that what is compared is compared whole."""
    schema = db.table("t", "a INT, b BIGINT UNSIGNED, v INT, PRIMARY KEY (b, a)")
    db.run("INSERT INTO t VALUES (1, 18446744073709551615, 1), (-1, 0, 2), (2, 0, 3), (-5, 10, 4), (3, 9, NULL)")
    first = [(0, -1), (0, 2), (9, 3)]
    assert list(source_side.row_checksums(db.source, schema, KeyRange(), 3)) == first
    rows = copied(db, schema, spark, tmp_path)
    assert [key for key, _ in target_side.row_checksums(rows, schema, 3, widths(db))] == first
    last = dict(target_side.row_checksums(rows, schema, 9, widths(db)))
    assert last == source_side.row_checksums(db.source, schema, KeyRange(), 9)
    assert (2**64 - 1, 1) in last


@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_both_sides_find_the_bucket_of_a_key_and_name_its_text(db: Db, spark: SparkSession, tmp_path: Path) -> None:
    """Of texts, bytes and times, whatever the server's order; buckets and rows cut off at the same key."""
    collation = "utf8mb4_0900_ai_ci" if dialect(db.connection) is MYSQL else "utf8mb4_unicode_ci"
    schema = db.table("t", f"a VARCHAR(9) COLLATE {collation}, b VARBINARY(4), c TIME(1), PRIMARY KEY (a, b, c)")
    keys = [
        ("Ä", "00", "-01:00:00.5"),
        ("b", "", "00:00:00.0"),
        ("B ", "FF00", "838:59:59.0"),
        ("ab", "61", "00:00:01.0"),
    ]
    db.run(*(f"INSERT INTO t VALUES ('{a}', x'{b}', '{c}')" for a, b, c in keys))
    sums = {key: digest([column.kind for column in schema.columns], key) for key in keys}
    wanted: dict[int, Checksum] = {}
    for key in keys:
        number = bucket(key, 3)
        wanted[number] = wanted.get(number, Checksum()) + sums[key]
    assert source_side.range_checksums(db.source, schema, KeyRange(), 3) == wanted
    numbered = target_side.in_buckets(copied(db, schema, spark, tmp_path), schema, 3)
    assert target_side.checksums(numbered, schema, widths(db)) == wanted
    by_bytes = sorted(sums, key=lambda key: [part.encode() for part in key])
    source = source_side.row_checksums(db.source, schema, KeyRange(), 3)
    assert (
        source
        == dict(target_side.row_checksums(numbered, schema, 3, widths(db)))
        == {key: sums[key] for key in by_bytes[:3]}
    )
    one = bucket(keys[0], 3)
    inside = {key: checksum for key, checksum in sums.items() if bucket(key, 3) == one}
    assert source_side.row_checksums(db.source, schema, KeyRange(), 9, (3, [one])) == inside


@pytest.mark.long("jobs of Spark")
def test_a_range_without_rows_has_the_empty_checksum(db: Db, spark: SparkSession, tmp_path: Path) -> None:
    """Neither side has a group for it."""
    schema = db.table("t", "id INT PRIMARY KEY, v DOUBLE")
    rows = copied(db, schema, spark, tmp_path).withColumn(target_side.NUMBER, F.lit(0))
    assert source_side.range_checksums(db.source, schema, KeyRange()) == {}
    assert target_side.checksums(rows, schema, widths(db)) == {}
    assert target_side.row_checksums(rows, schema, 5, widths(db)) == []


def test_a_row_that_the_source_cannot_hash_is_reported_as_different(db: Db) -> None:
    """A row whose text is longer than a packet has a NULL digest there: refused, with what to raise."""
    schema = db.table("t", "id INT PRIMARY KEY, v LONGBLOB")
    db.run("INSERT INTO t VALUES (1, REPEAT('x', 700000)), (2, 'y')")
    [(before,)] = query(db.connection, "SELECT @@global.max_allowed_packet")
    db.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with pytest.raises(OperatorNeeded, match="1 rows are longer than max_allowed_packet"):
            source_side.range_checksums(db.source, schema, KeyRange())
    finally:
        db.run(f"SET GLOBAL max_allowed_packet = {before}")
    assert source_side.range_checksums(db.source, schema, KeyRange())[0].rows == 2


@pytest.mark.newest
@pytest.mark.parametrize("make", ["bits", "human", "edges", "singles"])
def test_a_double_is_written_as_the_server_writes_it(any_server: LocalServer, db: Db, make: str) -> None:
    """The shortest digits that give the value back, and the exponent where the server puts one."""
    random_ = random.Random(7)
    values: list[float] = {
        "bits": lambda: list(doubles_of_bits(random_, DOUBLES)),
        "human": lambda: [human(random_) for _ in range(DOUBLES)],
        "edges": lambda: [sign * value for value in EDGES for sign in (1, -1)],
        "singles": lambda: list(singles_of_bits(random_, DOUBLES)),
    }[make]()
    if not holds_minus_zero(any_server):
        values = [value or 0.0 for value in values]
    db.run("CREATE TABLE d (id INT PRIMARY KEY AUTO_INCREMENT, v DOUBLE)")
    for first in range(0, len(values), BATCH):
        rows = ", ".join(f"({Decimal(value):.17e})" for value in values[first : first + BATCH])
        db.run(f"INSERT INTO d (v) VALUES {rows}")
    texts = [text for (text,) in query(db.connection, "SELECT CAST(v AS CHAR) FROM d ORDER BY id")]
    ours = double_texts(pa.array(values), widths(db)[0], double_text).to_pylist()
    assert [wrong for wrong in zip(values, texts, ours, strict=True) if wrong[1] != wrong[2]] == []


@pytest.mark.parametrize("source_type", ["FLOAT", "DOUBLE(60,20)", "DOUBLE(250,0)"])
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
def test_a_float_cast_to_a_double_has_all_its_digits(
    db: Db, spark: SparkSession, tmp_path: Path, source_type: str
) -> None:
    """MySQL gives such an expression less room than a column, and a negative one would lose a digit."""
    random_ = random.Random(7)
    schema = db.table("t", f"id INT PRIMARY KEY AUTO_INCREMENT, v {source_type}")
    values = [one for _ in range(DOUBLES // BATCH) for one in (*singles_of_bits(random_, BATCH), human(random_) % 1e30)]
    for first in range(0, len(values), BATCH):
        db.run(f"INSERT INTO t (v) VALUES {', '.join(f'({value!r})' for value in values[first : first + BATCH])}")
    source = source_side.row_checksums(db.source, schema, KeyRange(), len(values))
    target = target_side.row_checksums(copied(db, schema, spark, tmp_path), schema, len(values), widths(db))
    assert differences(source, target) == []


def test_the_text_of_a_null_double_is_null() -> None:
    """NULL stays NULL, and a NaN, which no source has, is no NULL."""
    assert double_texts(pa.array([None, float("nan")]), 24, double_text).to_pylist() == [None, "nan"]


def doubles_of_bits(random_: random.Random, count: int) -> Iterator[float]:
    """Any finite double: most have 17 digits and a large exponent."""
    while count:
        (value,) = struct.unpack("<d", random_.randbytes(8))
        if value - value == 0:
            count -= 1
            yield value


def singles_of_bits(random_: random.Random, count: int) -> Iterator[float]:
    """Any finite single, as the double that a FLOAT is read as."""
    while count:
        (value,) = struct.unpack("<f", random_.randbytes(4))
        if value - value == 0:
            count -= 1
            yield value


def human(random_: random.Random) -> float:
    """A double such as people enter: few digits, around the places where the exponent begins."""
    digits = random_.randint(1, 17)
    return float(f"{random_.choice(('', '-'))}{random_.randrange(10**digits)}e{random_.randint(-22, 22)}")
