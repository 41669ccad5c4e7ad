"""Preflight of foreign keys: changes that they make to rows where the source does not log them.

MySQL logs such changes from 9.6 on, but not with innodb_native_foreign_keys=ON; MariaDB never does. The rows are read
again then (`pipeline.cascades`), where that can be done exactly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lakeingest.config.tables import Tables
from lakeingest.core.cascades import ForeignKey, ForeignKeys, Rule, family
from lakeingest.core.comparison import TEXTS, UNLIKE
from lakeingest.core.condition import Checked
from lakeingest.core.schema import TableId
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import literal, query
from lakeingest.mysql.preflight.server import Finding, Server, ask

CASCADES_FIX = (
    "exclude these tables, or set `cascades: missing` for them in tables.options: they are copied then, and changes by"
    " foreign keys are missing"
)
NAME = "foreign key cascades"
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_CHANGING = f"('{Rule.CASCADE}', '{Rule.SET_NULL}')"


def unlogged_keys(server: Server, tables: Iterable[TableId]) -> dict[TableId, tuple[ForeignKey, ...]]:
    """The foreign keys that change rows of these tables, or of their parents, outside the binlog, by table."""
    since = server.dialect.logs_cascades
    if since is not None and server.version >= since and not server.is_on("innodb_native_foreign_keys"):
        return {}
    found: dict[TableId, tuple[ForeignKey, ...]] = {}
    left = set(tables)
    while left:
        read = _read(server, left)
        found |= {table: read.get(table, ()) for table in left}
        left = {key.parent for keys in read.values() for key in keys} - found.keys()
    return {table: keys for table, keys in found.items() if keys}


def cascading(server: Server) -> dict[TableId, int]:
    """The tables whose rows foreign keys change outside the binlog, and how many keys do."""
    keys = unlogged_keys(server, server.tables)
    return {table: len(keys[table]) for table in server.tables if table in keys}


def cascades(server: Server, options: Tables) -> Checked:
    """Changes by foreign keys are in the binlog, or can be read again, or the user chose that they may be missing."""

    def finding(server: Server) -> Finding:
        keys = unlogged_keys(server, server.tables)
        tables = sorted(keys.keys() & set(server.tables))
        reasons = "; ".join(reason for table in tables for reason in _lacks(options, table, keys))
        return f"foreign keys change rows outside the binlog: {reasons}; {CASCADES_FIX}" if reasons else None

    [checked] = ask(server, {NAME: finding})
    return checked


def missing_cascades(server: Server, options: Tables) -> Checked:
    """A warning that names the tables whose copies lack changes by foreign keys, as the user chose."""
    chosen = {table: count for table, count in cascading(server).items() if options.of(table).cascades == "missing"}
    named = ", ".join(f"{table} ({count} keys)" for table, count in sorted(chosen.items()))
    finding = (
        f"foreign keys change rows of {named} outside the binlog, and tables.options → cascades is `missing`: the"
        " copies lack these changes; `lakeingest verify` finds them, a new copy has them"
    )
    return Checked("changes by foreign keys", finding if named else None, fatal=False)


def _lacks(options: Tables, table: TableId, keys: ForeignKeys) -> list[str]:
    """Why a table's changes by foreign keys are neither read again nor missing by choice."""
    match options.of(table).cascades:
        case "missing":
            return []
        case "refuse":
            return [f"{table}: tables.options → cascades is `refuse`"]
    reason = hindrance(options, table, keys)
    return [] if reason is None else [f"{table}: {reason}"]


def hindrance(options: Tables, table: TableId, keys: ForeignKeys) -> str | None:
    """Why changes by foreign keys of a table cannot be read again exactly; None if they can."""
    try:
        chain = family(table, keys)
    except OperatorNeeded as error:
        return str(error)
    for key in chain:
        if not options.select([key.parent]):
            return f"its parent {key.parent} is not copied; include it, too"
        if key.table != table and options.of(key.table).cascades != "read":
            return f"tables.options → cascades of its parent {key.table} is not `read`"
    return None


def _read(server: Server, tables: Iterable[TableId]) -> Mapping[TableId, tuple[ForeignKey, ...]]:
    """The foreign keys of these tables that change their rows."""
    pairs = ", ".join(f"({literal(table.database)}, {literal(table.name)})" for table in tables)
    rows = query(
        server.connection,
        "SELECT k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME, k.REFERENCED_TABLE_SCHEMA,"
        " k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE"
        " FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r"
        " ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME"
        " AND r.TABLE_NAME = k.TABLE_NAME"
        f" WHERE k.REFERENCED_TABLE_NAME IS NOT NULL AND (k.TABLE_SCHEMA, k.TABLE_NAME) IN ({pairs})"
        f" AND (r.DELETE_RULE IN {_CHANGING} OR r.UPDATE_RULE IN {_CHANGING})"
        " ORDER BY 1, 2, 3, k.ORDINAL_POSITION",
    )
    parts: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for row in rows:
        texts = tuple(map(str, row))
        parts.setdefault((texts[0], texts[1], texts[2]), []).append(texts[3:])
    found: dict[TableId, list[ForeignKey]] = {}
    for (database, name, _), columns in parts.items():
        table, (_, parent_database, parent, _, on_delete, on_update) = TableId(database, name), columns[0]
        key = ForeignKey(
            table,
            tuple(column[0] for column in columns),
            TableId(parent_database, parent),
            tuple(column[3] for column in columns),
            _rule(on_delete),
            _rule(on_update),
        )
        found.setdefault(table, []).append(key)
    types = _types(server, [key for keys in found.values() for key in keys])
    return {
        table: tuple(sorted(replace(key, types=_compared(key, types)) for key in keys)) for table, keys in found.items()
    }


def _types(server: Server, keys: Iterable[ForeignKey]) -> dict[tuple[TableId, str], tuple[str, str, str]]:
    """Of the columns of foreign keys the type's name, the type, and the collation; no generated columns."""
    columns = {(table, name) for key in keys for table, names in _sides(key) for name in names}
    if not columns:
        return {}
    wanted = (f"({literal(table.database)}, {literal(table.name)}, {literal(name)})" for table, name in columns)
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COLLATION_NAME"
        f" FROM information_schema.COLUMNS WHERE (TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME) IN ({', '.join(wanted)})"
        " AND COALESCE(GENERATION_EXPRESSION, '') = ''",
    )
    return {
        (TableId(str(database), str(table)), str(column)): (str(name).lower(), str(type_).lower(), collation or "")
        for database, table, column, name, type_, collation in rows
    }


def _sides(key: ForeignKey) -> tuple[tuple[TableId, tuple[str, ...]], tuple[TableId, tuple[str, ...]]]:
    return (key.table, key.columns), (key.parent, key.referenced)


def _compared(key: ForeignKey, types: Mapping[tuple[TableId, str], tuple[str, str, str]]) -> tuple[str, ...]:
    """`ForeignKey.types`.

    CHAR and VARCHAR are one type, unless values of one are given to the other: spaces at the end may be lost.
    """
    own, above = ([_type(key, types.get((table, name))) for name in names] for table, names in _sides(key))
    found = tuple(one if one == other else UNLIKE for one, other in zip(own, above, strict=True))
    return found if any(found) else ()


def _type(key: ForeignKey, known: tuple[str, str, str] | None) -> str:
    """What a column of a foreign key has to have in common with the other table's."""
    name, text, collation = known or ("", UNLIKE, "")
    if name in TEXTS:
        return f"{name if key.on_update is Rule.CASCADE else 'text'} {collation}"
    if name in _INTEGERS:
        return ""
    return name if name == "varbinary" else UNLIKE if name in {"enum", "set"} else text


def _rule(text: str) -> Rule:
    return Rule(text) if text in set(Rule) else Rule.NONE
