"""Tables, columns and the kinds of values that are copied exactly."""

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self

from lakeingest.core.tables.change import COMMITTED_AT, DATABASE, DELETED, OP, POSITION, TABLE
from lakeingest.core.tables.column_choice import ALL_COLUMNS, HASHED, HIDDEN, ColumnChoice
from lakeingest.core.tables.default import Default, Value

RESERVED = "_lakeingest"  # the names of the databases of the ledger (`core.proofs.ledger`) begin with this
_TABLE = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))\.(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table of the source. Its text is `database.table`; a database name with a dot is put between backquotes."""

    database: str
    name: str

    def __str__(self) -> str:
        database = self.database
        if "." in database or "`" in database:
            database = "`" + database.replace("`", "``") + "`"
        return f"{database}.{self.name}"

    @property
    def is_reserved(self) -> bool:
        """Whether the table's database has a name that only the ledger may use."""
        return self.database.startswith(RESERVED)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `database.table`, divided at the first dot outside of backquotes. Raises ValueError for another text."""
        match = _TABLE.fullmatch(text)
        if match is None:
            raise ValueError(f"not a table: {text!r} (wanted: database.table)")
        quoted, plain, name = match.groups()
        return cls(plain if quoted is None else quoted.replace("``", "`"), name)


class Kind(enum.StrEnum):
    """The kind of a column's values, shared by several types of MySQL. Each lake's `types` say how a kind is stored."""

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
    JSON = "json"  # MySQL's own text; MariaDB's is a STRING
    UUID = "uuid"  # MariaDB's own text
    ADDRESS = "address"  # MariaDB's own text of an inet6 or inet4
    BOOLEAN = "boolean"  # bit(1)
    BINARY = "binary"  # also bit(n), and a geometry as WKB
    VECTOR = "vector"  # floats
    # only if the user chose so
    MOMENT = "moment"  # a date, datetime or timestamp as MySQL's own text
    MICROS = "micros"  # a time in microseconds


GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geomcollection", "geometrycollection"),
    }
)
SRID_BYTES = 4  # before the WKB of a geometry, in MySQL
_WITHIN_UTF8MB3 = frozenset({"ascii", "latin1", "utf8mb3"})  # charsets whose every character is in utf8mb3

INTEGERS = frozenset({Kind.INT32, Kind.INT64, Kind.UINT64})
FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})


NULL_DATES = "null dates"  # zero and partial dates are NULL
EWKB = "ewkb"  # a geometry keeps its SRID, in the form of PostGIS


PRIMARY = "PRIMARY"  # the index of a primary key


@dataclass(frozen=True, slots=True)
class Choices:
    """The user's choices for a table. The defaults are those of a user who chooses nothing.

    `key`: key columns that the user named; () if an index of the table is the key.
    `zero_dates`, for zero and partial dates: error | null | string. With null, the NULLs are counted.
    `tinyint1`: int | boolean.
    `time`: text | micros.
    `geometry`: wkb | ewkb.
    `virtual`, for generated columns that are not stored: keep | skip.
    `generated`, for all generated columns: keep | skip.
    `deletes`: hard | soft. With soft, deleted rows stay, and are marked.
    `metadata`: the chosen metadata columns, among op, position, committed_at, database and table, in any order.
    `columns`: the columns that are copied.
    `rows`: the condition of the rows that are copied, as `core.tables.row_filter` writes it; '' for all.
    """

    key: tuple[str, ...] = ()
    zero_dates: str = "error"
    tinyint1: str = "int"
    time: str = "text"
    geometry: str = "wkb"
    virtual: str = "keep"
    generated: str = "keep"
    deletes: str = "hard"
    metadata: tuple[str, ...] = ()
    columns: ColumnChoice = ALL_COLUMNS
    rows: str = ""


USUAL = Choices()


@dataclass(frozen=True, slots=True)
class SourceType:
    """MySQL's type of a column.

    `text`: the type as MySQL writes it.
    `name`: the first word of the type, in lower case.
    `size`: the first number in parentheses (of characters, bytes, bits or digits); 0 if there is none.
    `members`: the members of an ENUM or a SET, in the order of their numbers; () for other types.
    """

    text: str
    name: str
    unsigned: bool = False
    size: int = 0
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in the copy, its kind, and the parts of MySQL's type that the readers need.

    `precision` and `scale`: those of a decimal, which is stored as a number or as text.
    `fraction`: the number of digits of a second.
    `length`: the n of a BINARY(n), whose zero padding the binlog leaves out; 0 for other types.
    `choice`: a choice of the user that the kind does not express: NULL_DATES, EWKB, HASHED, MASKED or, without one, ''.
    `renamed_from`: the name at the source; '' if the column has the same name in the copy.

    Columns that differ only in the following fields are equal, because these fields change no row.

    `comment`: the column's comment, for readers of the copy.
    `default`: the default at the time when the definition was read.
    `charset` and `collation`: those of a text or of members; '' for other types, or if they are not known.
    `generation`: the expression of a generated column as the server prints it; '' for other columns.
    `secret`: the key of the hashes, only while values are read, and never stored.

    A field that is added here needs a rule in `core.ddl.widening`.
    """

    name: str
    kind: Kind
    source_type: SourceType
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    length: int = 0
    choice: str = ""
    renamed_from: str = ""
    comment: str = field(default="", compare=False)
    default: Default | Value = field(default=Default.UNKNOWN, compare=False)
    charset: str = field(default="", compare=False)
    collation: str = field(default="", compare=False)
    generation: str = field(default="", compare=False)
    secret: bytes = field(default=b"", compare=False, repr=False)

    @property
    def source_name(self) -> str:
        """The name that the column has at the source."""
        return self.renamed_from or self.name

    def named(self, source_name: str, choice: ColumnChoice) -> Self:
        """The same column, named `source_name` at the source, and in the copy as the choice names it."""
        name = choice.name_in_copy(source_name)
        return replace(self, name=name, renamed_from="" if name == source_name else source_name)

    @property
    def is_hidden(self) -> bool:
        """Whether the copy hides the values: in their place it has hashes or masked texts."""
        return self.choice in HIDDEN

    @property
    def is_geometry(self) -> bool:
        """Whether the column is a geometry: MySQL's bytes begin with an SRID, which the lake's WKB does not have."""
        return self.source_type.name in GEOMETRIES

    @property
    def members(self) -> tuple[str, ...]:
        """The members of an ENUM or a SET; () for another type. Their texts may be wrong (`has_exact_members`)."""
        return self.source_type.members

    @property
    def has_exact_members(self) -> bool:
        """Whether the texts of the members are known exactly.

        information_schema and SHOW CREATE TABLE show a question mark for each character that is not in utf8mb3.
        """
        return self.charset in _WITHIN_UTF8MB3 or not any("?" in member for member in self.members)


LAID_OUT = ("charset", "collation", "generation")  # fields of a column that are in the `layout` of its table
_MAPPED = tuple(entry.name for entry in fields(Column) if entry.compare)
_LATER = {"choice", "renamed_from"}  # in no fingerprint while empty: so copies of versions without them stay valid
UNMAPPED = tuple(entry.name for entry in fields(Column) if not entry.compare)  # they do not decide how a row is mapped

_METADATA_TYPE = SourceType("metadata", "metadata")
_METADATA = (  # they come after the source's columns, if the user asks for them
    Column(OP, Kind.STRING, _METADATA_TYPE, nullable=False),
    Column(DELETED, Kind.BOOLEAN, _METADATA_TYPE, nullable=False),
    Column(POSITION, Kind.STRING, _METADATA_TYPE, nullable=False),
    Column(COMMITTED_AT, Kind.TIMESTAMP, _METADATA_TYPE),
    Column(DATABASE, Kind.STRING, _METADATA_TYPE, nullable=False),
    Column(TABLE, Kind.STRING, _METADATA_TYPE, nullable=False),
)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns in MySQL's order, and the names of its key columns in key order.

    Names of copied columns are those of the copy. The names in `skipped` and `stored` are those of the source.

    `skipped`: the names of columns that the user left out, by name or as generated ones. The binlog may have them.
    `generated`: the names of generated columns that are copied.
    `index`: the name of the unique index that is the key; '' if it is not known, or if the user named the key columns.
    `comment`: the table's comment, for readers of the copy.
    `stored`: the names of all columns in MySQL's order, with the skipped ones and those that information_schema does
    not show; () if they are not known.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    choices: Choices = USUAL
    skipped: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    index: str = ""
    comment: str = field(default="", compare=False)
    stored: tuple[str, ...] = field(default=(), compare=False)
    _fingerprint: str = field(default="", init=False, repr=False, compare=False)  # once somebody has asked for it

    def __post_init__(self) -> None:
        if len({*self.names}) < len(self.names):
            raise ValueError(f"{self.table}: two columns of the same name")
        if not self.key or not set(self.key) <= set(self.names):
            raise ValueError(f"{self.table}: the key {self.key} is not among the columns")

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names that the copied columns have at the source, in order."""
        return tuple(column.source_name for column in self.columns)

    @property
    def source_key(self) -> tuple[str, ...]:
        """The names that the key's columns have at the source, in key order."""
        return tuple(column.source_name for column in self.key_columns)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The skipped columns that the user left out by name."""
        return tuple(name for name in self.skipped if self.choices.columns.leaves_out(name))

    @property
    def layout(self) -> tuple[tuple[str, ...], ...]:
        """The parts of a definition that are not in the fingerprint, but are needed to read rows without column names.

        The first part has the names of all columns, as `stored`. If that is not known, it has the copied columns; () if
        some columns were skipped. Then comes one part for each name in LAID_OUT, with that field of each copied column.
        """
        stored = self.stored or (() if self.skipped else self.source_names)
        return (stored, *(tuple(getattr(column, name) for column in self.columns) for name in LAID_OUT))

    @property
    def hides(self) -> bool:
        """True if it is known that rows in the binlog have columns that information_schema does not show."""
        shown = {*self.source_names, *self.skipped}
        return not {*self.stored} <= shown  # False if `stored` is not known

    def reads_as(self, other: Self) -> bool:
        """Whether both definitions read a row without column names in the same way. Unknown parts count as equal."""
        if self.fingerprint != other.fingerprint:
            return False
        # the first two parts of a layout: all names, and the first field in LAID_OUT, the charset
        (our_names, our_charsets, *_), (their_names, their_charsets, *_) = self.layout, other.layout
        if our_names and their_names and our_names != their_names:
            return False
        return all(our == their for our, their in zip(our_charsets, their_charsets, strict=True) if our and their)

    def laid_out(self, *known: Self) -> Self:
        """The same definition with those parts of the layout that are equal in all of `known`; other parts are unknown.

        All definitions in `known` must have the fingerprint of this one. If there are none, the layout is unknown.
        """
        columns = []
        for index, column in enumerate(self.columns):
            agreed: dict[str, Any] = {
                name: _agreed(getattr(schema.columns[index], name) for schema in known) for name in LAID_OUT
            }
            columns.append(replace(column, **agreed))
        all_names = {schema.layout[0] for schema in known}  # the first part of a layout: the names of all columns
        stored = all_names.pop() if len(all_names) == 1 else ()
        return replace(self, columns=tuple(columns), stored=stored)

    def with_columns(self, names: Iterable[str]) -> Self:
        """The same definition with only the columns of the key and the columns `names`, in the old order."""
        kept = {*self.key, *names}
        return replace(self, columns=tuple(column for column in self.columns if column.name in kept))

    def column(self, name: str) -> Column:
        """The column that has this name in the copy. Raises ValueError if there is none."""
        return self.columns[self.names.index(name)]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in key order."""
        return tuple(map(self.column, self.key))

    @property
    def keeps_deleted(self) -> bool:
        """Whether deleted rows stay in the copy, marked in the column DELETED."""
        return self.choices.deletes == "soft"

    @property
    def metadata(self) -> tuple[Column, ...]:
        """The metadata columns of the copy, in their order."""
        names = {*self.choices.metadata, *(("deleted",) if self.keeps_deleted else ())}
        return tuple(column for column in _METADATA if column.name.removeprefix("_lakeingest_") in names)

    @property
    def lake_columns(self) -> tuple[Column, ...]:
        """The columns of the copy: the source's, then the metadata columns."""
        return (*self.columns, *self.metadata)

    @property
    def declared(self) -> bool:
        """Whether the user named the columns of the key: then no index of the server keeps the key unique."""
        return bool(self.choices.key)

    @property
    def ordered(self) -> bool:
        """Whether the order of keys is known outside the server: all key columns are integers."""
        return all(column.kind in INTEGERS for column in self.key_columns)

    @property
    def countable(self) -> bool:
        """Whether arithmetic can cut chunks: the key is one integer, and no YEAR, because MySQL reads 70 as 1970."""
        return self.ordered and len(self.key) == 1 and self.key_columns[0].source_type.name != "year"

    @property
    def fingerprint(self) -> str:
        """A short digest of everything that decides how a row of the source becomes a row of the copy."""
        if self._fingerprint:
            return self._fingerprint
        columns = [
            {name: value for name in _MAPPED if (value := getattr(column, name)) or name not in _LATER}
            | {"source_type": column.source_type.text}
            for column in self.columns
        ]
        parts: list[object] = [str(self.table), columns, self.key]
        parts += [[column.name for column in self.metadata]] if self.metadata else []
        # so that definitions which leave other columns out of the row images have different fingerprints
        parts += [{"left out": sorted(self.left_out)}] if self.left_out else []
        is_hashed = any(column.choice == HASHED for column in self.columns)
        parts += [{"key of hashes": self.choices.columns.key_id}] if is_hashed else []
        parts += [{"rows": self.choices.rows}] if self.choices.rows else []
        object.__setattr__(self, "_fingerprint", hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16])
        return self._fingerprint


def _agreed(values: Iterable[str]) -> str:
    """The value, if all values are equal; '' if they differ, or if there is none."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""


NO_TABLES: Mapping[TableId, TableSchema] = MappingProxyType({})
