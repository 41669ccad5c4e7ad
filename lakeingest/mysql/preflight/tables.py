"""Preflight of the tables: the user's privileges, and whether each table can be copied exactly."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import pymysql

from lakeingest.config.tables import Tables
from lakeingest.core.tables.column_choice import HASHED, ColumnChoice
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import RESERVED, Column, Kind, TableId, TableSchema
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql import schema_reader
from lakeingest.mysql.connection import query, table_name
from lakeingest.mysql.preflight.foreign_key_rules import pairs
from lakeingest.mysql.preflight.server import Condition, Finding, Server
from lakeingest.mysql.rights import account_of, grant_select, has_patterns
from lakeingest.mysql.visibility import hidden_tables, is_denied
from lakeingest.mysql.wire.codes import has_one_code_each

_LISTED = 3  # the most tables that a warning names


def grants(server: Server) -> Finding:
    """A finding if the user lacks a right to read all columns of every table, or the binlog.

    Statements try the rights, because SHOW GRANTS does not show all rights that roles grant.
    """
    account = account_of(server.connection)
    rights = [right for right, sql in server.dialect.rights.items() if is_denied(server.connection, sql)]
    tables = hidden_tables(server.connection, server.tables)
    missing = [*rights, *(f"SELECT on {table}" for table in tables)]
    if not missing:
        return None
    fixes = [f"GRANT {', '.join(rights)} ON *.* TO {account}"] if rights else []
    patterns = has_patterns(server.connection)
    databases = sorted({table.database for table in tables})
    fixes += [grant_select(account, database, names_are_patterns=patterns) for database in databases]
    return f"{account} lacks {', '.join(missing)}; {'; '.join(fixes)}"


def engines(server: Server) -> Finding:
    """A finding if a table is not InnoDB, the only engine with read views."""
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
        f" WHERE ENGINE <> 'InnoDB' AND (TABLE_SCHEMA, TABLE_NAME) IN ({pairs(server.tables)})",
    )
    listed = ", ".join(f"{database}.{name} ({engine})" for database, name, engine in rows)
    return f"not InnoDB: {listed}; convert or exclude them" if listed else None


def read_schemas(
    connection: pymysql.Connection, tables: Collection[TableId], options: Tables
) -> tuple[dict[TableId, TableSchema], Checked]:
    """The definitions of the tables that can be copied; and the condition that all tables can be copied.

    If the condition is not met, it has the reasons.
    """
    not_reserved = [table for table in tables if not table.is_reserved]
    answers = schema_reader.read_schemas(connection, {table: options.of(table).choices for table in not_reserved})
    reasons = [str(answer) for answer in answers.values() if isinstance(answer, OperatorNeeded)]
    reasons += [
        f"{table}: databases whose names begin with {RESERVED} are for tables that lakeingest itself makes; exclude it"
        for table in tables
        if table.is_reserved
    ]
    schemas = {table: answer for table, answer in answers.items() if not isinstance(answer, OperatorNeeded)}
    without_key = {
        table
        for table, schema in schemas.items()
        if not options.secret and any(column.choice == HASHED for column in schema.columns)
    }
    reasons += [f"{table}: columns → hash needs a key; set tables.hash_key" for table in sorted(without_key)]
    schemas = {table: schema for table, schema in schemas.items() if table not in without_key}
    return schemas, Checked("keys and types", "; ".join(reasons) or None)


def declared_keys(connection: pymysql.Connection, schemas: Iterable[TableSchema]) -> Checked:
    """The condition that in each table whose key the user declared, the key is unique and not NULL now.

    The server reads these tables completely. A key that cannot be checked counts as a fault.
    """
    reasons: list[str] = []
    for schema in schemas:
        try:
            if schema.declared:
                reasons += _faults_of_key(connection, schema)
        except pymysql.err.Error as error:
            reasons.append(f"{schema.table}: its key cannot be checked: {error.args[-1]}")
    return Checked("keys that are named", "; ".join(reasons) or None)


def keys_with_several_codes(server: Server, schemas: Iterable[TableSchema]) -> Checked:
    """A warning that names the text columns of keys whose charset has several codes for a character."""
    key_columns = {(schema.table.database, schema.table.name, name) for schema in schemas for name in schema.source_key}
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS"
        f" WHERE CHARACTER_SET_NAME IS NOT NULL AND (TABLE_SCHEMA, TABLE_NAME) IN ({pairs(server.tables)})",
    )
    listed = ", ".join(
        f"{database}.{table}.{column} ({charset})"
        for database, table, column, charset in rows
        if (database, table, column) in key_columns and not has_one_code_each(str(charset))
    )
    finding = (
        f"text keys in charsets with several codes for a character: {listed}; a row whose key has another code than the"
        " one that the server writes stops its table; if there are such rows, convert the column to utf8mb4"
    )
    return Checked("charsets of keys", finding if listed else None, fatal=False)


def chosen_columns(schemas: Iterable[TableSchema]) -> Checked:
    """A warning that lists wrong names in tables.options → columns: no table with this choice has such a column."""
    tables_of: dict[tuple[ColumnChoice, Sequence[tuple[str, str]]], list[TableSchema]] = {}
    for schema in schemas:
        choice = schema.choices.columns  # choices that differ only in `rename` are equal
        tables_of.setdefault((choice, choice.rename), []).append(schema)
    listed: list[str] = []
    for (choice, _), tables in tables_of.items():
        names_there = [name for schema in tables for name in (*schema.source_names, *schema.skipped)]
        if missing := choice.without_column(names_there):
            first_tables = ", ".join(str(schema.table) for schema in tables[:_LISTED])
            listed.append(f"{', '.join(missing)} ({first_tables})")
    finding = f"tables.options → columns names columns that are not there: {'; '.join(listed)}; correct the names"
    return Checked("names of columns", finding if listed else None, fatal=False)


def zero_date_defaults(server: Server, schemas: Iterable[TableSchema]) -> Checked:
    """A warning that names columns whose default is a zero date, in tables that a zero date would stop."""
    stopped_by_zero_dates = {schema.table for schema in schemas if schema.choices.zero_dates == "error"}
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS"
        " WHERE DATA_TYPE IN ('date', 'datetime', 'timestamp') AND TRIM('''' FROM COLUMN_DEFAULT) LIKE '0000-00-00%'"
        f" AND (TABLE_SCHEMA, TABLE_NAME) IN ({pairs(server.tables)})",
    )
    listed = ", ".join(
        f"{database}.{table}.{column}"
        for database, table, column in rows
        if TableId(database, table) in stopped_by_zero_dates
    )
    finding = (
        f"columns whose default is a zero date: {listed}; a row with that date stops its table, unless zero_dates in"
        " tables.options → types says what becomes of it"
    )
    return Checked("defaults of dates", finding if listed else None, fatal=False)


def _faults_of_key(connection: pymysql.Connection, schema: TableSchema) -> Iterator[str]:
    """Yield a message if a declared key is NULL in a row, and a message if the key is not unique."""
    table, subject = table_name(schema.table), f"{schema.table}: the key ({', '.join(schema.source_key)})"
    fix = "correct the rows, or name other columns with tables.options → key"
    nulls = " OR ".join(f"{quote(name)} IS NULL" for name in schema.source_key)
    if query(connection, f"SELECT 1 FROM {table} WHERE {nulls} LIMIT 1"):
        yield f"{subject} is NULL in a row; {fix}"
    values = ", ".join(map(_value_in_lake, schema.key_columns))
    if query(connection, f"SELECT 1 FROM {table} GROUP BY {values} HAVING COUNT(*) > 1 LIMIT 1"):
        yield f"{subject} is not unique; {fix}"


def _value_in_lake(column: Column) -> str:
    """SQL for the value by which the lake tells keys apart: for a text its bytes, whatever its collation."""
    name = quote(column.source_name)
    return f"CAST({name} AS BINARY)" if column.kind is Kind.STRING else name


CONDITIONS: dict[str, Condition] = {"grants": grants, "InnoDB": engines}
