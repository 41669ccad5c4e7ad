"""Tables, columns and the kinds of values that are copied exactly."""

import enum
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table of the source; written `database.table`."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `database.table`; ValueError otherwise. The first dot divides."""
        database, dot, name = text.partition(".")
        if not (database and dot and name):
            raise ValueError(f"not a table: {text!r} (wanted: database.table)")
        return cls(database, name)


class Kind(enum.StrEnum):
    """What a column holds, whatever MySQL calls it. `wire.arrow` and `lake.types` say how each is stored."""

    INT32 = "int32"  # tinyint … int, and unsigned up to mediumint
    INT64 = "int64"  # int unsigned, bigint
    UINT64 = "uint64"  # bigint unsigned
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    DATETIME = "datetime"  # no zone
    TIMESTAMP = "timestamp"  # an instant, UTC
    TIME = "time"  # MySQL's own text, with the column's digits of a second
    STRING = "string"  # char, varchar, text, enum, set
    NUMERAL = "numeral"  # a decimal of more than 38 digits, as text
    JSON = "json"  # MySQL's own text
    BOOLEAN = "boolean"  # bit(1)
    BINARY = "binary"  # also bit(n), and a geometry as WKB
    VECTOR = "vector"  # floats


GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geomcollection", "geometrycollection"),
    }
)
SRID_BYTES = 4  # before the WKB of a geometry, in MySQL

KEY_KINDS = frozenset({Kind.INT32, Kind.INT64, Kind.UINT64})  # whose order is provable everywhere


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its kind, and what of MySQL's type the readers need.

    `precision` and `scale` are a decimal's, as a number or as text; `length` is that of a BINARY(n), whose zero
    padding the binlog leaves out, and 0 otherwise; `fraction` are the digits of a second.
    """

    name: str
    kind: Kind
    source_type: str
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    length: int = 0

    @property
    def is_geometry(self) -> bool:
        """Whether MySQL's bytes begin with an SRID, which the value in the lake does not."""
        return self.source_type in GEOMETRIES


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns in MySQL's order, and the names of its key columns in key order."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.table}: two columns of one name")
        if not self.key or not set(self.key) <= set(names):
            raise ValueError(f"{self.table}: the key {self.key} is not among the columns")

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in key order."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    @property
    def fingerprint(self) -> str:
        """A short digest of all that decides how a row is mapped; rows of one table carry one fingerprint."""
        text = json.dumps([str(self.table), [asdict(column) for column in self.columns], self.key])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
