"""Every type with values at its edges: SQL literals, and what arrives in the lake."""

import datetime as dt
import struct
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MARIADB_11_8, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.mysql.database import database_on

UTC = ZoneInfo("UTC")  # as Arrow gives it

Values = dict[str, tuple[tuple[str, Any], ...]]

# MySQL's: type -> pairs of a SQL literal and the value that arrives
VALUES: Values = {
    "TINYINT": (("-128", -128), ("127", 127)),
    "MEDIUMINT UNSIGNED": (("16777215", 16777215),),
    "INT": (("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)),
    "INT UNSIGNED": (("4294967295", 2**32 - 1), ("0", 0)),
    "INT(6) ZEROFILL": (("42", 42), ("0", 0)),
    "BIGINT": (("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)),
    "BIGINT UNSIGNED": (("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0))),
    "DECIMAL(38,10)": (("-" + "9" * 28 + ".0123456789", Decimal("-" + "9" * 28 + ".0123456789")),),
    "DECIMAL(38,0)": (("9" * 38, Decimal("9" * 38)), ("-" + "9" * 38, Decimal("-" + "9" * 38))),
    "DECIMAL(6,2) ZEROFILL": (("1.5", Decimal("1.50")),),
    "FLOAT": (("1.1", 1.100000023841858), ("-3.4028235e38", -3.4028234663852886e38), ("1e-45", 1.401298464324817e-45)),
    "DOUBLE": (("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308), ("5e-324", 5e-324), ("-0e0", -0.0)),
    "DATE": (("'0001-01-01'", dt.date(1, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))),
    "DATETIME": (("'1582-10-10 01:02:03'", dt.datetime(1582, 10, 10, 1, 2, 3)),),
    "DATETIME(6)": (("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),),
    "TIMESTAMP NULL": (("'1970-01-01 00:00:01'", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),),
    "TIMESTAMP(6) NULL": (("'2038-01-19 03:14:07.999999'", dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)),),
    "CHAR(5)": (("'ä  '", "ä"), ("''", "")),
    "VARCHAR(20)": (("'a  '", "a  "), ("'😀\\\\\\'\\0'", "😀\\'\0")),
    "VARCHAR(20) CHARACTER SET ascii": (("'abc'", "abc"),),
    "LONGTEXT": (("REPEAT('ä', 100000)", "ä" * 100_000), ("''", "")),
    "ENUM('x','y z')": (("'y z'", "y z"),),
    "BINARY(4)": (("x'00FF'", b"\0\xff\0\0"), ("''", b"\0\0\0\0")),
    "VARBINARY(9)": (("x'00FF00'", b"\0\xff\0"), ("''", b"")),
    "LONGBLOB": (("REPEAT(x'00', 100000)", bytes(100_000)),),
    "YEAR": (("0", 0), ("1901", 1901), ("2155", 2155)),
    "TIME": (("'-838:59:59'", "-838:59:59"), ("'00:00:01'", "00:00:01"), ("'-00:00:01'", "-00:00:01")),
    "TIME(1)": (("'-12:00:00.9'", "-12:00:00.9"), ("'101:02:03.0'", "101:02:03.0")),
    "TIME(6)": (("'838:59:58.999999'", "838:59:58.999999"), ("'-00:00:00.000001'", "-00:00:00.000001")),
    "SET('a','b','ü')": (("'ü,a'", "a,ü"), ("''", "")),
    "DECIMAL(65,30)": (("-1.5", "-1." + "5".ljust(30, "0")), ("9" * 35, "9" * 35 + "." + "0" * 30)),
    "DECIMAL(50,2) ZEROFILL": (("0", "0.00"), ("7.5", "7.50"), ("9" * 48, "9" * 48 + ".00")),
    "FLOAT(7,2)": (("1.006", 1.0099999904632568), ("-99999.99", -99999.9921875)),
    "DOUBLE(9,3)": (("1.0006", 1.001), ("999999.999", 999999.999), ("0.5", 0.5)),
    "DECIMAL(40,0)": (("-" + "9" * 40, "-" + "9" * 40), ("0", "0")),
    "BIT(1)": (("1", True), ("0", False)),
    "BIT(12)": (("b'100000000001'", b"\x08\x01"), ("0", b"\0\0")),
    "BIT(64)": (("18446744073709551615", b"\xff" * 8),),
    "JSON": (
        ("'{\"b\": [1, 2.50, null], \"a\": \"\\\\u00e4\"}'", '{"a": "ä", "b": [1, 2.5, null]}'),
        ("'null'", "null"),
        ("CAST(CAST('2024-02-29 01:02:03.5' AS DATETIME(6)) AS JSON)", '"2024-02-29 01:02:03.500000"'),
    ),
    "POINT": (("ST_GeomFromText('POINT(1 -2)', 4326)", struct.pack("<BIdd", 1, 1, -2, 1)),),
    "VECTOR(3)": (("TO_VECTOR('[1,-2.5,0]')", [1.0, -2.5, 0.0]),),
    "VARCHAR(9) CHARACTER SET latin1": (("'ä€'", "ä€"),),
    "CHAR(9) CHARACTER SET utf16": (("'ä😀 '", "ä😀"),),
    "TEXT CHARACTER SET gbk": (("'中文'", "中文"),),
    "ENUM('ä','ö') CHARACTER SET latin1": (("'ö'", "ö"),),
    "TINYINT UNSIGNED": (("0", 0), ("255", 255)),
    "TINYINT(1)": (("-128", -128), ("2", 2), ("1", 1)),
    "SMALLINT": (("-32768", -(2**15)), ("32767", 2**15 - 1), ("0", 0)),
    "SMALLINT UNSIGNED": (("65535", 65535), ("0", 0)),
    "MEDIUMINT": (("-8388608", -(2**23)), ("8388607", 2**23 - 1)),
    "BIGINT(5) UNSIGNED ZEROFILL": (("7", Decimal(7)), ("9223372036854775808", Decimal(2**63))),
    "DECIMAL(5,5)": (("-0.00001", Decimal("-0.00001")), ("0.99999", Decimal("0.99999")), ("0", Decimal("0.00000"))),
    "DECIMAL(10,0)": (("-9999999999", Decimal(-9999999999)), ("1", Decimal(1))),
    "DECIMAL(18,9)": (("123456789.123456789", Decimal("123456789.123456789")), ("-1e-9", Decimal("-0.000000001"))),
    "DECIMAL(9,2) UNSIGNED": (("9999999.99", Decimal("9999999.99")), ("0.01", Decimal("0.01"))),
    "FLOAT UNSIGNED": (("0", 0.0), ("16777217", 16777216.0), ("1.17549435e-38", 1.1754943508222875e-38)),
    "DATETIME(1)": (("'2024-02-29 23:59:59.9'", dt.datetime(2024, 2, 29, 23, 59, 59, 900000)),),
    "DATETIME(2)": (("'1900-02-28 00:00:00.01'", dt.datetime(1900, 2, 28, 0, 0, 0, 10000)),),
    "DATETIME(3)": (("'1000-01-01 00:00:00.001'", dt.datetime(1000, 1, 1, 0, 0, 0, 1000)),),
    "DATETIME(4)": (("'1969-12-31 23:59:59.9999'", dt.datetime(1969, 12, 31, 23, 59, 59, 999900)),),
    "DATETIME(5)": (("'0001-01-01 00:00:00.00001'", dt.datetime(1, 1, 1, 0, 0, 0, 10)),),
    "TIMESTAMP(1) NULL": (("'2024-03-31 02:30:00.5'", dt.datetime(2024, 3, 31, 2, 30, 0, 500000, tzinfo=UTC)),),
    "TIMESTAMP(2) NULL": (("'2024-10-27 02:30:00.25'", dt.datetime(2024, 10, 27, 2, 30, 0, 250000, tzinfo=UTC)),),
    "TIMESTAMP(3) NULL": (("'1999-12-31 23:59:59.999'", dt.datetime(1999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),),
    "TIMESTAMP(4) NULL": (("'2000-02-29 00:00:00.0001'", dt.datetime(2000, 2, 29, 0, 0, 0, 100, tzinfo=UTC)),),
    "TIMESTAMP(5) NULL": (("'1970-01-01 00:00:01.00001'", dt.datetime(1970, 1, 1, 0, 0, 1, 10, tzinfo=UTC)),),
    "TIME(2)": (("'-00:00:59.99'", "-00:00:59.99"), ("'23:59:59.01'", "23:59:59.01")),
    "TIME(3)": (("'-1:00:00.001'", "-01:00:00.001"), ("'0'", "00:00:00.000")),
    "TIME(4)": (("'99:59:59.9999'", "99:59:59.9999"),),
    "TIME(5)": (("'-100:00:00.00001'", "-100:00:00.00001"),),
    "CHAR(0)": (("''", ""),),
    "VARCHAR(20) CHARACTER SET utf8mb3": (("'ж€'", "ж€"), ("''", "")),
    "VARCHAR(20) CHARACTER SET cp1251": (("'Жя'", "Жя"),),
    "TEXT CHARACTER SET sjis": ((r"_sjis x'815f835c'", "\\ソ"),),
    "TEXT CHARACTER SET euckr": (("'한국'", "한국"),),
    "TEXT CHARACTER SET big5": (("'中文'", "中文"),),
    "TEXT CHARACTER SET ucs2": (("'ä€'", "ä€"),),
    "TEXT CHARACTER SET utf32": (("'😀 '", "😀 "),),
    "TINYTEXT": (("'x'", "x"), ("REPEAT('ä', 127)", "ä" * 127)),
    "MEDIUMTEXT": (("'\\r\\n\\t'", "\r\n\t"),),
    "ENUM('a','','ü')": (("''", ""), ("'ü'", "ü"), ("1", "a")),
    "SET('x')": (("1", "x"), ("0", "")),
    "BIT(9)": (("b'100000001'", b"\x01\x01"), ("0", b"\0\0")),
    "BINARY(1)": (("x'00'", b"\0"), ("'a'", b"a")),
    "BINARY(255)": (("x'FF'", b"\xff".ljust(255, b"\0")),),
    "TINYBLOB": (("x'00'", b"\0"), ("''", b"")),
    "BLOB": (("x'C328FF'", b"\xc3(\xff"),),
    "MEDIUMBLOB": (("REPEAT(x'FF00', 40000)", b"\xff\0" * 40_000),),
    "GEOMETRY": (("POINT(0, -0e0)", struct.pack("<BIdd", 1, 1, 0, -0.0)),),
    "LINESTRING": (("LINESTRING(POINT(1, 2), POINT(3, 4))", struct.pack("<BIIdddd", 1, 2, 2, 1, 2, 3, 4)),),
    "GEOMCOLLECTION": (("ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')", struct.pack("<BII", 1, 7, 0)),),
    "VECTOR(1)": (("TO_VECTOR('[3e38]')", [3.0000000054977558e38]), ("TO_VECTOR('[-0.0]')", [-0.0])),
}  # fmt: skip

_UUIDS = (
    "00112233-4455-6677-8899-aabbccddee00",
    "00000000-0000-0000-0000-000000000000",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
)
_ADDRESSES = ("::", "::1", "2001:db8::ff00:42:8329", "::ffff:192.0.2.1", "1:0:0:2::3", "fe80::1:0:0:0", "::1.2.3.4")
_LACKING = {"JSON", "VECTOR(3)", "VECTOR(1)", "GEOMCOLLECTION"}
_MARIADB: Values = {
    **{source_type: pairs for source_type, pairs in VALUES.items() if source_type not in _LACKING},
    "POINT": (("ST_GeomFromText('POINT(1 -2)', 4326)", struct.pack("<BIdd", 1, 1, 1, -2)),),
    "GEOMETRYCOLLECTION": VALUES["GEOMCOLLECTION"],
    "JSON": (("'{\"b\": 1.00, \"a\" : [1]}'", '{"b": 1.00, "a" : [1]}'), ("'null'", "null")),  # a text
    "TIME(6)": (
        *VALUES["TIME(6)"],
        ("'838:59:59.999999'", "838:59:59.999999"),
        ("'-838:59:59.9'", "-838:59:59.900000"),
    ),
    "TIMESTAMP(3) NULL": (
        *VALUES["TIMESTAMP(3) NULL"],
        ("'1970-01-01 00:00:00.4'", dt.datetime(1970, 1, 1, 0, 0, 0, 400000, tzinfo=UTC)),  # the zero date for MySQL
    ),
    "UUID": tuple((f"'{one}'", one) for one in _UUIDS),
    "INET6": tuple((f"'{one}'", one) for one in _ADDRESSES),
    "INET4": tuple((f"'{one}'", one) for one in ("0.0.0.1", "192.0.2.0", "255.255.255.255")),
}  # fmt: skip
_OF_FLAVORS: dict[Flavor, Values] = {
    MYSQL: VALUES,
    MARIADB_10_11: _MARIADB,
    MARIADB_11_4: _MARIADB,
    MARIADB_11_8: _MARIADB
    | {
        "TIMESTAMP NULL": (
            *VALUES["TIMESTAMP NULL"],
            ("'2038-01-19 03:14:08'", dt.datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC)),
            ("'2106-02-07 06:28:15'", dt.datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC)),
        ),
        "VECTOR(3)": (("VEC_FromText('[1,-2.5,0]')", [1.0, -2.5, 0.0]),),
    },
}


def values_of(server: LocalServer) -> Values:
    """The values of a server's types, those that it holds."""
    values = _OF_FLAVORS[server.flavor]
    return values if holds_minus_zero(server) else values | {"DOUBLE": VALUES["DOUBLE"][:-1]}


def holds_minus_zero(server: LocalServer) -> bool:
    """Whether the literal -0e0 keeps its sign in a column: some versions of MariaDB make it 0."""
    with database_on(server) as db:
        db.run("CREATE TABLE zeros (v DOUBLE)", "INSERT INTO zeros VALUES (-0e0)")
        [(text,)] = query(db.connection, "SELECT CAST(v AS CHAR) FROM zeros")
    return bool(text == "-0")
