"""Reads a TableSchema from information_schema. A key or type that cannot be copied exactly is refused by name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pymysql

from lakeingest.core.tables.casts import kind_in_copy, why_not
from lakeingest.core.tables.column_choice import HASHED, MASKED, ColumnChoice
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.kinds import kind_to_hash, usual_kind
from lakeingest.core.tables.row_filter import faults, parse
from lakeingest.core.tables.schema import (
    EWKB,
    GEOMETRIES,
    NULL_DATES,
    USUAL,
    Choices,
    Column,
    Kind,
    SourceType,
    TableId,
    TableSchema,
)
from lakeingest.errors import OperatorNeeded, UnsupportedTable
from lakeingest.latest import Latest
from lakeingest.mysql.connection import literal, query, query_named, table_name
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.key_choice import NoKey, choose_key
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire.hidden_columns import hidden_columns

_SYSTEM = {"mysql", "information_schema", "performance_schema", "sys"}
_LITERAL = re.compile(r"-?[0-9.]+(?:e[+-]?\d+)?|[bx]?'.*'", re.DOTALL | re.IGNORECASE)
_RESERVED = "_lakeingest_"  # the prefix of columns that lakeingest adds
GENERATED = ("VIRTUAL GENERATED", "STORED GENERATED")  # in the column EXTRA of information_schema
_BYTES = {"", "binary"}  # the charset that MySQL or MariaDB shows for an ENUM or SET whose members are bytes
_OF_KEYS = "bigint"  # the only type to which columns of a key are cast: the cast keeps their order
# Not `*`, for which the server would also find out the user's rights on each column
_COLUMNS = (
    "TABLE_NAME, COLUMN_NAME, COLUMN_DEFAULT, IS_NULLABLE, CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
    " DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_TYPE, EXTRA, COLUMN_COMMENT, GENERATION_EXPRESSION"
)
_MADE: Latest[TableId, TableSchema] = Latest()
_VERSIONED = "SYSTEM VERSIONED"  # a table type of MariaDB
# Endings of the type of a column that MariaDB stores in another form
_OTHER_FORMS = {
    " COMPRESSED*/": "compressed columns are not built yet",
    "/* mariadb-5.3 */": "its storage format is old; SET GLOBAL mysql56_temporal_format = ON, then ALTER TABLE … FORCE",
}


def list_tables(connection: pymysql.Connection) -> list[TableId]:
    """Every base table of the source that the user may see, except those of the system schemas."""
    return _tables_of_types(connection, "BASE TABLE", _VERSIONED)


def list_views(connection: pymysql.Connection) -> list[TableId]:
    """Every view of the source that the user may see. Views cannot be copied: the binlog has no rows of them."""
    return _tables_of_types(connection, "VIEW")


def _tables_of_types(connection: pymysql.Connection, *types: str) -> list[TableId]:
    """The tables that have one of these types of information_schema, except those of the system schemas."""
    literals = ", ".join(map(literal, types))
    rows = query(
        connection, f"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE IN ({literals})"
    )
    tables = (TableId(*row) for row in rows)
    return sorted(table for table in tables if not is_system(table))


def is_system(table: TableId) -> bool:
    """Whether the table is a system table of the server."""
    return table.database.lower() in _SYSTEM


def read_schema(connection: pymysql.Connection, table: TableId, choices: Choices = USUAL) -> TableSchema:
    """The table's present definition, with the key and the types that the user chose in `choices`.

    Raises OperatorNeeded if the table does not exist, or if the user may not read it. Raises UnsupportedTable, with all
    reasons, if the table's key or a column cannot be copied exactly.
    """
    schema = read_schemas(connection, {table: choices})[table]
    if isinstance(schema, OperatorNeeded):
        raise schema
    return schema


def read_stable_schema(connection: pymysql.Connection, table: TableId, choices: Choices = USUAL) -> TableSchema:
    """As `read_schema`, but under the table's metadata lock, so that the definition has all DDL that is in the binlog.

    Without the lock the definition may be older, because the server writes DDL to the binlog before information_schema
    shows it. If another session keeps the table locked for long, the server's error is raised, which `named_errors`
    turns into SplitUnstable.
    """
    try:
        query(connection, "START TRANSACTION")
        # takes the lock; fails with ProgrammingError if the table was dropped, or if the user may not read all columns
        query(connection, f"SELECT * FROM {table_name(table)} LIMIT 0")
        return read_schema(connection, table, choices)
    except pymysql.err.ProgrammingError:
        return read_schema(connection, table, choices)  # without the lock, because `read_schema` names the reason
    finally:
        query(connection, "ROLLBACK")


def read_schemas(
    connection: pymysql.Connection, choices: Mapping[TableId, Choices]
) -> dict[TableId, TableSchema | OperatorNeeded]:
    """The definition of each table in `choices`, as `read_schema` returns it, or the error that it would raise.

    Each database takes three queries, whatever the number of its tables.
    """
    schemas: dict[TableId, TableSchema | OperatorNeeded] = {}
    for database in dict.fromkeys(table.database for table in choices):
        tables = [table for table in choices if table.database == database]
        names = ", ".join(literal(table.name) for table in tables)
        descriptions = _Descriptions.of(connection, f"TABLE_SCHEMA = {literal(database)} AND TABLE_NAME IN ({names})")
        for table in tables:
            try:
                schemas[table] = descriptions.schema(table, choices[table])
            except OperatorNeeded as error:
                schemas[table] = error
    return schemas


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a table of information_schema, by the name of the table that they describe."""

    names: tuple[str, ...]  # of the columns
    _by_table: Mapping[str, list[tuple[Any, ...]]]

    @classmethod
    def of(cls, connection: pymysql.Connection, sql: str) -> Self:
        """The result of a statement."""
        names, rows = query_named(connection, sql)
        place = names.index("table_name")
        grouped: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            grouped.setdefault(str(row[place]), []).append(row)
        return cls(names, grouped)

    def of_table(self, name: str) -> Sequence[tuple[Any, ...]]:
        """The rows of this table."""
        return self._by_table.get(name, [])

    def dicts(self, name: str) -> list[dict[str, Any]]:
        """The rows of this table, each as a dict by the names of its columns."""
        return [dict(zip(self.names, row, strict=True)) for row in self.of_table(name)]


@dataclass(frozen=True, slots=True)
class _Descriptions:
    """The rows of information_schema for some tables of one database, by the table's name.

    `tables` has the type and the comment of each table; `columns` has what `_COLUMNS` names, `indexes` complete rows.
    """

    is_mariadb: bool
    tables: Mapping[str, tuple[str, str]]
    columns: _Rows
    indexes: _Rows

    @classmethod
    def of(cls, connection: pymysql.Connection, where: str) -> Self:
        """Read the rows of the tables that meet the SQL condition `where`."""
        tables = query(
            connection, f"SELECT TABLE_NAME, TABLE_TYPE, TABLE_COMMENT FROM information_schema.TABLES WHERE {where}"
        )
        columns = f"SELECT {_COLUMNS} FROM information_schema.COLUMNS WHERE {where} ORDER BY ORDINAL_POSITION"
        indexes = f"SELECT * FROM information_schema.STATISTICS WHERE {where} ORDER BY SEQ_IN_INDEX"
        return cls(
            dialect(connection) is MARIADB,
            {str(name): (str(table_type), str(comment)) for name, table_type, comment in tables},
            _Rows.of(connection, columns),
            _Rows.of(connection, indexes),
        )

    def schema(self, table: TableId, choices: Choices) -> TableSchema:
        """The definition of one of these tables; the errors are those of `read_schema`.

        A run reads each definition several times. It is made again only if the rows or the choices have changed.
        """
        rows, type_and_comment = self.columns.of_table(table.name), self.tables.get(table.name)
        if not rows or not type_and_comment:
            raise OperatorNeeded(f"{table}: no such table, or the user may not SELECT from it")
        indexes = self.indexes.of_table(table.name)
        # the text of the choices, because choices that are equal may give other names in the copy
        described = self.columns.names, rows, self.indexes.names, indexes
        contents = repr((choices, self.is_mariadb, type_and_comment, described)).encode(errors="surrogateescape")
        return _MADE.of(table, contents, lambda: self._schema(table, choices, *type_and_comment))

    def _schema(self, table: TableId, choices: Choices, table_type: str, comment: str) -> TableSchema:
        """Make the definition that `schema` returns. Raises UnsupportedTable, with all reasons."""
        rows, indexes = self.columns.dicts(table.name), self.indexes.dicts(table.name)
        reasons: list[str] = []  # why the table cannot be copied; `_column` and `_key` add to it
        if not (table.database.isprintable() and table.name.isprintable()):
            reasons.append("its name has unprintable characters")
        if self.is_mariadb and table_type == _VERSIONED:
            reasons.append("it is system-versioned, so the binlog also has its historical rows")
        names_at_source = tuple(str(row["column_name"]) for row in rows)
        left_out = {name for name in names_at_source if choices.columns.leaves_out(name)}
        reasons += [f"the name of column {name!r} cannot be printed" for name in left_out if not name.isprintable()]
        skipped_kinds = _skipped_kinds(choices)
        unskipped = tuple(
            # the type of a column that is left out is no reason against the table
            replace(
                _column(row, choices, [] if row["column_name"] in left_out else reasons),
                default=_default(row, is_mariadb=self.is_mariadb),
            )
            for row in rows
            if not any(kind in str(row["extra"]).upper() for kind in skipped_kinds)
        )
        columns = tuple(column for column in unskipped if column.name not in left_out)
        reasons += _clashes([column.name for column in columns], choices.columns)
        # The key may have a column that is left out. If so, the table is refused below, and no other key is chosen.
        key, index = _key(unskipped, indexes, choices, reasons)
        reasons += [
            f"tables.options → columns leaves out or hides {column.name}, a column of its key; copy it as it is, or"
            " name other columns that are unique with tables.options → key"
            for column in unskipped
            if column.name in key and (column.name in left_out or column.is_hidden)
        ]
        reasons += [
            f"key column {column.name} is cast to {to}, and rows are found by the keys of the source; a key can be cast"
            f" to {_OF_KEYS} alone"
            for column in unskipped
            if column.name in key and (to := choices.columns.type_in_copy(column.name)) not in {"", _OF_KEYS}
        ]
        if choices.rows:
            reasons += faults(parse(choices.rows), columns, is_mariadb=self.is_mariadb)
        if reasons:
            raise UnsupportedTable(f"{table}: {'; '.join(reasons)}. Leave it out with tables.exclude")
        copied_names = {column.name for column in columns}
        generated_names = (str(row["column_name"]) for row in rows if _is_generated(row))
        # row images have the hidden columns after all others
        in_row_images = names_at_source + hidden_columns(names_at_source, indexes)
        in_copy = choices.columns.name_in_copy
        return TableSchema(
            table,
            tuple(column.named(column.name, choices.columns) for column in columns),
            tuple(map(in_copy, key)),
            choices,
            skipped=tuple(name for name in names_at_source if name not in copied_names),
            generated=tuple(in_copy(name) for name in generated_names if name in copied_names),
            index=index,
            comment=comment,
            stored=in_row_images,
        )


def _skipped_kinds(choices: Choices) -> tuple[str, ...]:
    """The kinds of generated columns that the user skips, as EXTRA of information_schema names them."""
    if choices.generated == "skip":
        return GENERATED
    return GENERATED[:1] if choices.virtual == "skip" else ()  # the first kind is VIRTUAL GENERATED


def _clashes(names: Sequence[str], choice: ColumnChoice) -> Iterator[str]:
    """Yield the reasons why one copy cannot have all these columns: names are equal at the source, or in the copy.

    The case of letters does not count, as in SQL.
    """
    if len({name.lower() for name in names}) < len(names):
        yield "two columns differ only by case"
        return
    of_name: dict[str, list[str]] = {}  # by the name in the copy, the names at the source
    for name in names:
        of_name.setdefault(choice.name_in_copy(name).lower(), []).append(name)
    for name, sources in of_name.items():
        if len(sources) > 1:
            yield f"{' and '.join(sources)} would both be {name} in the copy; correct tables.options → columns → rename"


def _key(
    columns: tuple[Column, ...], indexes: list[dict[str, Any]], choices: Choices, reasons: list[str]
) -> tuple[tuple[str, ...], str]:
    """The key's columns and the name of its index ('' for a key that the user chose).

    If no columns can be the key, both are empty, and `reasons` gets a reason. `reasons` also gets a reason for each key
    column that would be NULL for a zero date.
    """
    key: tuple[str, ...] = ()
    index = ""
    try:
        key, index = choose_key(columns, indexes, choices.key)
    except NoKey as error:
        reasons.append(str(error))
    reasons += [
        f"key column {column.name} is {column.source_type}: a zero date would be NULL; set zero_dates to string"
        for column in columns
        if column.name in key and column.choice == NULL_DATES
    ]
    return key, index


def _default(row: dict[str, Any], *, is_mariadb: bool) -> Default | Value:
    """The kind of a column's default; `Value(None)` if the default is NULL.

    A value other than NULL is not taken from COLUMN_DEFAULT, whose text is for people and may differ from the value.
    MySQL marks expressions in EXTRA. It shows NULL for the default NULL and, if the column is NOT NULL, for no default.
    MariaDB shows the default as SQL, so the default NULL is the word NULL.
    """
    shown, extra = row["column_default"], str(row["extra"]).upper()
    if "AUTO_INCREMENT" in extra:
        return Default.NUMBERED
    if "DEFAULT_GENERATED" in extra or _is_generated(row):
        return Default.COMPUTED
    if shown is None:
        if str(row["is_nullable"]).upper() != "YES":
            return Default.NONE
        return Default.UNKNOWN if is_mariadb else Value(None)  # MariaDB would show a default NULL as the word
    if not is_mariadb:
        return Default.CONSTANT
    text = _text(shown)
    if text == "NULL":
        return Value(None)
    return Default.CONSTANT if _LITERAL.fullmatch(text) else Default.COMPUTED


def _text(value: object) -> str:
    """A text of information_schema as str, because MySQL sends some texts as bytes. NULL becomes ''."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _is_generated(row: dict[str, Any]) -> bool:
    return any(kind in str(row["extra"]).upper() for kind in GENERATED)


def _column(row: dict[str, Any], choices: Choices, reasons: list[str]) -> Column:
    """The column that a row of information_schema describes. Reasons why it cannot be copied are added to `reasons`."""
    name = str(row["column_name"])
    in_copy, type_ = choices.columns.name_in_copy(name), source_type(str(row["column_type"]))
    precision, scale = int(row["numeric_precision"] or 0), int(row["numeric_scale"] or 0)
    kind, choice = _kind_by_choices(usual_kind(type_, precision), type_, choices)
    form = choices.columns.form(name)
    is_text = kind is Kind.STRING and not type_.members
    cast_to = choices.columns.type_in_copy(name)
    cast = kind_in_copy(type_, precision, cast_to) if cast_to else None
    refusals = (
        (form == HASHED and kind_to_hash(type_, precision) is None, "its values have no exact text to be hashed"),
        (form == MASKED and not is_text, "only texts can be masked; hash it, or leave it out"),
        (kind is None, "this type is not built yet"),
        # without `cast_to` the first part is False, and the reason is not used
        (bool(kind and cast_to) and cast is None, why_not(cast_to) if cast_to else ""),
        (bool(type_.members) and _charset(row) in _BYTES, "members of bytes (CHARACTER SET binary) are not built yet"),
        (not in_copy.isprintable() or in_copy.startswith("."), "its name cannot be printed, or begins with a dot"),
        (not name.isprintable() and in_copy != name, "its name cannot be printed"),
        (in_copy.lower().startswith(_RESERVED), f"names that begin with {_RESERVED} are reserved"),
        *((type_.text.endswith(ending), reason) for ending, reason in _OTHER_FORMS.items()),
    )
    reasons += [f"column {name} is {type_}: {reason}" for is_refused, reason in refusals if is_refused]
    if cast is not None:
        kind, choice = cast, ""
    if form:
        kind, choice = Kind.STRING, form
    return Column(
        name=name,
        kind=kind or Kind.STRING,  # any kind will do for an unknown type: its table is refused
        source_type=type_,
        nullable=str(row["is_nullable"]).upper() == "YES" or choice == NULL_DATES,  # zero dates become NULL
        precision=precision if type_.name == "decimal" else 0,
        scale=scale if type_.name == "decimal" else 0,
        fraction=int(row["datetime_precision"] or 0),
        length=int(row["character_octet_length"] or 0) if type_.name == "binary" else 0,
        choice=choice,
        comment=str(row["column_comment"]),
        charset=_charset(row),
        collation=str(row["collation_name"] or ""),
        generation=_text(row["generation_expression"]),
    )


def _charset(row: dict[str, Any]) -> str:
    """The charset of a column's texts or members, '' without one. The old name `utf8` becomes utf8mb3."""
    charset = str(row["character_set_name"] or "").lower()
    return "utf8mb3" if charset == "utf8" else charset


def _kind_by_choices(kind: Kind | None, type_: SourceType, choices: Choices) -> tuple[Kind | None, str]:
    """The column's kind and its `Column.choice`, by the user's choices; `kind` is the kind without any choice.

    `Column.choice` names a choice that the kind does not express; '' without such a choice.
    """
    if kind in {Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}:
        if choices.zero_dates == "string":
            return Kind.MOMENT, ""
        choice = NULL_DATES if choices.zero_dates == "null" else ""
        return kind, choice
    if kind is Kind.TIME and choices.time == "micros":
        return Kind.MICROS, ""
    is_flag = (type_.name, type_.size, type_.unsigned) == ("tinyint", 1, False)
    if is_flag and choices.tinyint1 == "boolean":
        return Kind.BOOLEAN, ""
    is_ewkb = type_.name in GEOMETRIES and choices.geometry == "ewkb"
    return kind, EWKB if is_ewkb else ""
