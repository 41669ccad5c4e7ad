"""Preflight of foreign keys: finds the keys that change rows outside the binlog.

MySQL logs changes by foreign keys from 9.6 on, but not with innodb_native_foreign_keys=ON. MariaDB never logs them. If
they are not logged, the pipeline reads the changed rows again (`pipeline.cascades`), provided that this can be exact.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lakeingest.config.tables import Tables
from lakeingest.core.cascades.cascades import ForeignKey, Rule, family
from lakeingest.core.cascades.comparison import TEXTS, UNLIKE
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import literal, query
from lakeingest.mysql.dialect import can_log_cascades
from lakeingest.mysql.preflight.foreign_key_rules import known_keys
from lakeingest.mysql.preflight.server import NATIVE_FOREIGN_KEYS, Finding, Server, ask

CASCADES_FIX = (
    "exclude these tables, or set `cascades: missing` for them in tables.options: they are copied then, and changes by"
    " foreign keys are missing"
)
NAME = "foreign key cascades"
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


@dataclass(frozen=True, slots=True)
class Unlogged:
    """The foreign keys that change rows of some tables, or of their ancestors, outside the binlog.

    Ancestors are a table's parents, the parents' parents, and so on. `keys` has these foreign keys by the table whose
    rows they change; tables without such keys are left out. `unknown` has the tables and ancestors whose foreign keys
    the server does not show to the user.
    """

    keys: Mapping[TableId, tuple[ForeignKey, ...]]
    unknown: frozenset[TableId] = frozenset()


def unlogged_keys(server: Server, tables: Iterable[TableId], *, are_logged: bool = True) -> Unlogged:
    """The foreign keys that change rows of these tables, or of their ancestors, outside the binlog.

    The result is empty if the server's settings say that these changes are logged. The settings are ignored if
    `are_logged` is False: the caller has seen in the binlog that these changes were not logged.
    """
    if are_logged and can_log_cascades(server.connection) and not server.is_on(NATIVE_FOREIGN_KEYS):
        return Unlogged({})
    keys_of: dict[TableId, tuple[ForeignKey, ...]] = {}
    unknown: set[TableId] = set()
    unread = set(tables)
    while unread:  # first the tables, then their parents, then the parents' parents, …
        found_keys, hidden = _changing_keys(server, unread)
        unknown |= hidden
        keys_of |= {table: found_keys.get(table, ()) for table in unread}  # (): no keys, but the table is read
        parents = {key.parent for keys in found_keys.values() for key in keys}
        unread = parents - keys_of.keys()
    return Unlogged({table: keys for table, keys in keys_of.items() if keys}, frozenset(unknown))


def count_unlogged_keys(server: Server) -> dict[TableId, int]:
    """For each table to be copied, the number of known foreign keys that change its rows outside the binlog.

    Tables without such keys are left out.
    """
    keys = unlogged_keys(server, server.tables).keys
    return {table: len(keys[table]) for table in server.tables if table in keys}


def cascades(server: Server, options: Tables) -> Checked:
    """The condition that changes by foreign keys are logged, can be read again, or are missing by the user's choice."""

    def finding(server: Server) -> Finding:
        """A finding if the copy of a table would lack changes by foreign keys, and the user has not chosen that."""
        unlogged = unlogged_keys(server, server.tables)
        tables_and_ancestors = unlogged.keys.keys() | unlogged.unknown
        reasons: list[str] = []
        for table in sorted(tables_and_ancestors & set(server.tables)):
            reasons += refusals(options, table, unlogged)
        if not reasons:
            return None
        return f"foreign keys change rows outside the binlog: {'; '.join(reasons)}; {CASCADES_FIX}"

    [checked] = ask(server, {NAME: finding})
    return checked


def missing_cascades(server: Server, options: Tables) -> Checked:
    """A warning that names the tables whose copies lack changes by foreign keys, as the user chose."""
    key_counts = {
        table: count for table, count in count_unlogged_keys(server).items() if options.of(table).cascades == "missing"
    }
    listed = ", ".join(f"{table} ({count} keys)" for table, count in sorted(key_counts.items()))
    finding = (
        f"foreign keys change rows of {listed} outside the binlog, and tables.options → cascades is `missing`: the"
        " copies lack these changes; `lakeingest verify` finds them, a new copy has them"
    )
    return Checked("changes by foreign keys", finding if listed else None, fatal=False)


def refusals(options: Tables, table: TableId, unlogged: Unlogged) -> list[str]:
    """The reason why a table cannot be copied with its changes by foreign keys, as a list of one text.

    The list is empty for the choice `missing`, and for the choice `read` if these changes can be read again. It is not
    empty for the choice `refuse`.
    """
    choice = options.of(table).cascades
    if choice == "missing":
        return []
    if choice == "refuse" and table not in unlogged.unknown:  # `hindrance` refuses a table with unknown keys
        return [f"{table}: tables.options → cascades is `refuse`"]
    reason = hindrance(options, table, unlogged)
    return [] if reason is None else [f"{table}: {reason}"]


def hindrance(options: Tables, table: TableId, unlogged: Unlogged) -> str | None:
    """The reason why the rows that foreign keys change in a table cannot be read again exactly.

    None if these rows can be read again exactly, or if no foreign key changes rows of the table.
    """
    try:
        chain = family(table, unlogged.keys)  # the keys of the table, of its parents, …
    except OperatorNeeded as error:  # the foreign keys form a ring
        return str(error)
    if unseen := sorted({table, *(key.parent for key in chain)} & unlogged.unknown):
        return (
            f"the user may not see the foreign keys of {', '.join(map(str, unseen))}; GRANT SELECT on the whole table"
        )
    for key in chain:
        if not options.select([key.parent]):
            return f"its parent {key.parent} is not copied; include it, too"
        for related, names in _child_and_parent(key):
            if options.of(related).rows:
                return f"tables.options → rows leaves out rows of {related}; a foreign key needs them"
            choice = options.of(related).choices.columns
            if lacking := [name for name in names if not choice.copies_as_is(name)]:
                return (
                    f"tables.options → columns leaves out, hides, casts or renames {', '.join(lacking)} of {related};"
                    " a foreign key needs it"
                )
        # foreign keys change the ancestor, too: the table needs these changes, so they must be read again as well
        if key.table != table and options.of(key.table).cascades != "read":
            return f"tables.options → cascades of its parent {key.table} is not `read`"
    return None


def _changing_keys(
    server: Server, tables: Collection[TableId]
) -> tuple[Mapping[TableId, tuple[ForeignKey, ...]], frozenset[TableId]]:
    """The foreign keys that change rows of these tables, by table; and the tables that have hidden keys or rules."""
    all_rules, unknown = known_keys(server, tables)
    keys_of: dict[TableId, list[ForeignKey]] = {}
    for shown_key, rules in all_rules.items():
        if rules != (Rule.NONE, Rule.NONE):
            key = ForeignKey(shown_key.table, shown_key.columns, shown_key.parent, shown_key.referenced, *rules)
            keys_of.setdefault(shown_key.table, []).append(key)
    all_keys = [key for keys in keys_of.values() for key in keys]
    types = _types(server, all_keys)
    with_types = {
        table: tuple(sorted(replace(key, types=_types_of_values(key, types)) for key in keys))
        for table, keys in keys_of.items()
    }
    return with_types, unknown


def _types(server: Server, keys: Iterable[ForeignKey]) -> dict[tuple[TableId, str], tuple[str, str, str]]:
    """The type's name, the whole type and the collation of each child and parent column of these foreign keys.

    Generated columns are left out. The result is by table and column.
    """
    columns: set[tuple[TableId, str]] = set()
    for key in keys:
        for table, names in _child_and_parent(key):
            columns |= {(table, name) for name in names}
    if not columns:
        return {}
    literals = (f"({literal(table.database)}, {literal(table.name)}, {literal(name)})" for table, name in columns)
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COLLATION_NAME"
        f" FROM information_schema.COLUMNS WHERE (TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME) IN ({', '.join(literals)})"
        " AND COALESCE(GENERATION_EXPRESSION, '') = ''",
    )
    return {
        (TableId(str(database), str(table)), str(column)): (str(name).lower(), str(type_).lower(), collation or "")
        for database, table, column, name, type_, collation in rows
    }


def _child_and_parent(key: ForeignKey) -> tuple[tuple[TableId, tuple[str, ...]], tuple[TableId, tuple[str, ...]]]:
    """The child and its columns, the parent and its columns."""
    return (key.table, key.columns), (key.parent, key.referenced)


def _types_of_values(key: ForeignKey, types: Mapping[tuple[TableId, str], tuple[str, str, str]]) -> tuple[str, ...]:
    """The value of `ForeignKey.types` for this key. `types` are those of `_types`."""
    of_child, of_parent = (
        [_type(key, types.get((table, name))) for name in names] for table, names in _child_and_parent(key)
    )
    shared = tuple(child if child == parent else UNLIKE for child, parent in zip(of_child, of_parent, strict=True))
    return shared if any(shared) else ()  # the type of an integer is '', and () stands for integers only


def _type(key: ForeignKey, description: tuple[str, str, str] | None) -> str:
    """A label for a column of a foreign key; UNLIKE if its values cannot be compared.

    If child and parent column have the same label, except UNLIKE, values compare alike. CHAR and VARCHAR have the same
    label, unless the key copies values (ON UPDATE CASCADE), because a copy from CHAR to VARCHAR or back may lose spaces
    at the end. The label is '' for an integer. `description` is None for a generated column.
    """
    if description is None:
        return UNLIKE
    name, full_type, collation = description
    if name in TEXTS:
        label = name if key.on_update is Rule.CASCADE else "text"
        return f"{label} {collation}"
    if name in _INTEGERS:
        return ""
    if name in {"enum", "set"}:
        return UNLIKE
    return name if name == "varbinary" else full_type  # the length of a VARBINARY does not matter
