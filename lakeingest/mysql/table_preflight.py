"""Preflight of the tables: what the user may do with them, and whether each can be copied exactly."""

from collections.abc import Iterable

import pymysql

from lakeingest.core.condition import Checked
from lakeingest.core.keys import quote
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import DENIED, literal, query, table_name
from lakeingest.mysql.preflight import Condition, Finding, Server
from lakeingest.mysql.schema_reader import read_schema

_LOGGED_CASCADES = (9, 6)  # since then child rows of a cascade are in the binlog
_READS_BINLOG = {"REPLICATION CLIENT": "SHOW REPLICA STATUS", "REPLICATION SLAVE": "SHOW REPLICAS"}


def grants(server: Server) -> Finding:
    """The user may read all columns of every table, and the binlog. Tried, since rights also come by roles."""
    user, _, host = str(query(server.connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    account = f"{literal(user)}@{literal(host)}"
    rights = [right for right, sql in _READS_BINLOG.items() if _denied(server, sql)]
    tables = [table for table in server.tables if _denied(server, f"SELECT * FROM {table_name(table)} LIMIT 0")]
    lacking = [*rights, *(f"SELECT on {table}" for table in tables)]
    fixes = [f"GRANT {', '.join(rights)} ON *.* TO {account}"] if rights else []
    databases = sorted({table.database for table in tables})
    fixes += [f"GRANT SELECT ON {quote(database)}.* TO {account}" for database in databases]
    return f"{account} lacks {', '.join(lacking)}; {'; '.join(fixes)}" if lacking else None


def engines(server: Server) -> Finding:
    """Only InnoDB has read views."""
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
        f" WHERE ENGINE <> 'InnoDB' AND (TABLE_SCHEMA, TABLE_NAME) IN ({_pairs(server.tables)})",
    )
    named = ", ".join(f"{database}.{name} ({engine})" for database, name, engine in rows)
    return f"not InnoDB: {named}; convert or exclude them" if named else None


def cascades(server: Server) -> Finding:
    """Rows that a foreign key changes are in the binlog."""
    if server.version >= _LOGGED_CASCADES and not server.is_on("innodb_native_foreign_keys"):
        return None
    rows = query(
        server.connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS"
        f" WHERE (CONSTRAINT_SCHEMA, TABLE_NAME) IN ({_pairs(server.tables)})"
        " AND (UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL'))",
    )
    named = ", ".join(sorted({f"{database}.{name}" for database, name in rows}))
    return f"foreign keys change rows of {named} outside the binlog; exclude these tables" if named else None


def read_schemas(
    connection: pymysql.Connection, tables: Iterable[TableId]
) -> tuple[dict[TableId, TableSchema], Checked]:
    """The definitions of the tables that can be copied, and why the others cannot: all of them are looked at."""
    schemas, reasons = {}, []
    for table in tables:
        try:
            schemas[table] = read_schema(connection, table)
        except OperatorNeeded as error:
            reasons.append(str(error))
    return schemas, Checked("keys and types", "; ".join(reasons) or None)


def _denied(server: Server, sql: str) -> bool:
    try:
        query(server.connection, sql)
    except pymysql.err.Error as error:
        if error.args[0] in DENIED:
            return True
        raise
    return False


def _pairs(tables: tuple[TableId, ...]) -> str:
    pairs = (f"({literal(table.database)}, {literal(table.name)})" for table in tables)
    return ", ".join(pairs) or "('', '')"


CONDITIONS: dict[str, Condition] = {"grants": grants, "InnoDB": engines, "foreign key cascades": cascades}
