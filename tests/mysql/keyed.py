"""Every kind of key: how a table with it is made, and the literals of its n-th key."""

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MARIADB_11_8, MYSQL, Flavor
from tests.plugins.lanes import FLAVORS

FIRST_DAY = dt.date(1000, 1, 1)
EPOCH = dt.datetime(1970, 1, 2)
MEMBERS = [f"m{n % 7}{chr(97 + n % 26)}{n:03d}" for n in range(200)]  # whose order is not that of their texts
BITS = 12


@dataclass(frozen=True)
class Keyed:
    """A kind of key: its columns, the SQL literals of the n-th one, and how many there are.

    `same`: an expression of the first column that is another text, of which the server says that it is the same.
    """

    columns: str
    literals: Callable[[int], tuple[str, ...]]
    count: int = 10**9
    same: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the key's columns."""
        return [definition.split()[0] for definition in self.columns.split(", ")]


def one(literal: Callable[[int], object]) -> Callable[[int], tuple[str, ...]]:
    """The literals of a key of one column."""
    return lambda n: (str(literal(n)),)


def word(n: int) -> str:
    """A text of letters in both cases, marks and signs, which no collation takes for that of another number."""
    return f"{'ÄaßéZo'[n % 6]}{'bB'[n // 6 % 2]}-{n:x}"


def text(charset: str, collation: str = "", same: str = "UPPER(k)") -> Keyed:
    """A VARCHAR key; `same` is another text to which its collation is blind."""
    ending = f" COLLATE {collation}" if collation else ""
    return Keyed(f"k VARCHAR(40) CHARACTER SET {charset}{ending}", one(lambda n: f"'{word(n)}'"), same=same)


def listed(members: Iterable[str]) -> str:
    """The members of an ENUM or a SET, in its definition."""
    return ",".join(f"'{member}'" for member in members)


def members(mask: int) -> str:
    """The literal of a SET."""
    return "'" + ",".join(f"s{bit}" for bit in range(BITS) if mask >> bit & 1) + "'"


def uuid(n: int) -> str:
    """A UUID's text, in an order that is not that of the numbers."""
    mixed = n * 0x9E3779B97F4A7C15 % 2**64
    return f"'{mixed >> 32:08x}-{mixed >> 16 & 0xFFFF:04x}-4{n % 4096:03x}-8000-{n:012x}'"


# MySQL's, and what others have of them
KEYS: dict[str, Keyed] = {
    "tiny": Keyed("k TINYINT", one(lambda n: n - 128), 256),
    "small": Keyed("k SMALLINT", one(lambda n: n - 2**15), 2**16),
    "medium": Keyed("k MEDIUMINT UNSIGNED", one(lambda n: 2**24 - 1 - n), 2**24),
    "negative": Keyed("k INT", one(lambda n: -(2**31) + 7 * n)),
    "gaps": Keyed("k BIGINT", one(lambda n: (n % 19 - 9) * 10**18 + n)),
    "beyond_signed": Keyed("k BIGINT UNSIGNED", one(lambda n: 2**63 - 10_000 + n)),
    "year": Keyed("k YEAR", one(lambda n: 1900 + n if n else 0), 256),
    "price": Keyed("k DECIMAL(20,6)", one(lambda n: f"{(n - 9000) * 1.25:.6f}")),
    "numeral": Keyed("k DECIMAL(65,20)", one(lambda n: f"{n - 9000}{'7' * 30}.{n:020d}")),
    "day": Keyed("k DATE", one(lambda n: f"'{FIRST_DAY + dt.timedelta(n)}'"), 3_000_000),
    "datetime": Keyed("k DATETIME(6)", one(lambda n: f"'{EPOCH + dt.timedelta(hours=n, microseconds=n)}'")),
    "stamp": Keyed("k TIMESTAMP(3)", one(lambda n: f"'{EPOCH + dt.timedelta(minutes=n)}.{n % 1000:03d}'")),
    "time": Keyed("k TIME(3)", one(lambda n: f"SEC_TO_TIME({(n - 9000) * 50}.125)"), 60_000),
    "bit": Keyed("k BIT(33)", one(lambda n: n * 77_777 % 2**33), 2**17),
    "flag": Keyed("k BIT(1)", one(lambda n: n), 2),
    "binary16": Keyed("k BINARY(16)", one(lambda n: f"x'{n % 3:02x}00{n:06x}00'")),
    "bytes": Keyed("k VARBINARY(20)", one(lambda n: f"x'{n // 3:06x}{'00' * (n % 3)}'")),
    "ai_ci": text("utf8mb4", "utf8mb4_0900_ai_ci"),
    "general_ci": text("utf8mb4", "utf8mb4_general_ci"),
    "pad_space": text("utf8mb4", "utf8mb4_unicode_ci", same="CONCAT(TRIM(k), IF(k LIKE '% ', '', '  '))"),
    "as_cs": text("utf8mb4", "utf8mb4_0900_as_cs", same=""),
    "bin": text("utf8mb4", "utf8mb4_bin", same=""),
    "latin1": text("latin1"),
    "utf16": text("utf16"),
    "gbk": Keyed("k VARCHAR(40) CHARACTER SET gbk", one(lambda n: f"'{'一aZ三'[n % 4]}-{n:x}'"), same="UPPER(k)"),
    "padded": Keyed("k CHAR(20) COLLATE utf8mb4_general_ci", one(lambda n: f"'{word(n)}'"), same="LOWER(k)"),
    "uuid": Keyed("k CHAR(36) CHARACTER SET ascii", one(uuid), same="UPPER(k)"),
    "enum": Keyed(f"k ENUM({listed(MEMBERS)})", one(lambda n: n + 1), 200),
    "set_": Keyed(f"k SET({listed(f's{bit}' for bit in range(BITS))})", one(members), 2**BITS),
    "tenant": Keyed("t TINYINT, u BIGINT UNSIGNED", lambda n: (str(n % 3), str(2**63 + n))),
    "mixed2": Keyed("a ENUM('z','y','x'), b VARCHAR(40)", lambda n: (str(n % 3 + 1), f"'{word(n)}'"), same=""),
    "mixed3": Keyed(
        "a VARCHAR(9), b DATE, c VARBINARY(9)",
        lambda n: ("',\"x'" if n % 2 else "'X'", f"'{FIRST_DAY + dt.timedelta(n % 900)}'", f"x'{n // 2:06x}00'"),
    ),
    "mixed4": Keyed(
        "a BIT(3), b YEAR, c CHAR(5), d BIGINT",
        lambda n: (str(n % 5), str(1990 + n % 7), f"'{'aA,b'[n % 2 * 2 : n % 2 * 2 + 2]}'", str(-n)),
    ),
}
_MARIADB_KEYS = {
    **{name: keyed for name, keyed in KEYS.items() if name not in {"ai_ci", "as_cs"}},
    "nopad": text("utf8mb4", "utf8mb4_unicode_520_nopad_ci"),
    "uuid_": Keyed("k UUID", one(uuid), same="UPPER(k)"),
    "inet6": Keyed("k INET6", one(lambda n: f"'2001:db8:{n % 7:x}::{n % 5:x}:{n:x}'")),
    "inet4": Keyed("k INET4", one(lambda n: f"'{n % 256}.{n >> 8 & 255}.{n >> 16}.1'"), 2**16),
}
_MARIADB_11_KEYS = _MARIADB_KEYS | {
    "ai_ci": text("utf8mb4", "uca1400_ai_ci"),
    "as_cs": text("utf8mb4", "uca1400_as_cs", same=""),
}
_OF_FLAVORS = {
    MYSQL: KEYS,
    MARIADB_10_11: _MARIADB_KEYS,
    MARIADB_11_4: _MARIADB_11_KEYS,
    MARIADB_11_8: _MARIADB_11_KEYS,
}
EACH = [  # for any_server, and a name of its keys
    pytest.param(flavor, name, id=f"{flavor.name}-{name}") for flavor in FLAVORS for name in _OF_FLAVORS[flavor]
]


def keys_of(flavor: Flavor) -> dict[str, Keyed]:
    """The kinds of keys of a flavor."""
    return _OF_FLAVORS[flavor]
