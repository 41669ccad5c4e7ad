"""Reads the rules of foreign keys: what ON DELETE and ON UPDATE do with rows.

MariaDB shows REFERENTIAL_CONSTRAINTS, which has the rules, only to users who have more rights on a table than SELECT.
For other users the columns of each key are in KEY_COLUMN_USAGE, and the rules in the text of SHOW CREATE TABLE.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from lakeingest.core.cascades.cascades import Rule
from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.connection import DENIED, create_statement, literal, query
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.visibility import ABSENT, is_hidden

Rules = tuple[Rule, Rule]  # what ON DELETE does, and what ON UPDATE does
_RULES = r"(?: ON DELETE ([A-Z ]+?))?(?: ON UPDATE ([A-Z ]+?))?"


@dataclass(frozen=True, slots=True, order=True)
class ShownKey:
    """A foreign key as KEY_COLUMN_USAGE shows it: its table and name, and its columns in their order."""

    table: TableId
    name: str
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]


def known_keys(server: Server, tables: Collection[TableId]) -> tuple[dict[ShownKey, Rules], frozenset[TableId]]:
    """The foreign keys of these tables whose rules are known, with the rules; and the tables that hide a key or rules.

    A key whose rules are hidden is not in the first part. One table can be in both parts, with different keys.
    """
    keys, tables_with_keys = _shown_keys(server, tables)
    rules: dict[ShownKey, Rules | None]  # None if the rules are not known
    if server.dialect.hides_rules:
        rules, unknown = _rules_in_texts(server, tables, keys)
    else:
        # information_schema leaves hidden tables out, so a table without any key may be hidden
        unknown = {table for table in set(tables) - tables_with_keys if is_hidden(server.connection, table)}
        rules_by_name = _shown_rules(server, {key.table for key in keys})
        rules = {key: rules_by_name.get((key.table, key.name)) for key in keys}
    unknown |= {key.table for key, both_rules in rules.items() if both_rules is None}
    known = {key: both_rules for key, both_rules in rules.items() if both_rules is not None}
    return known, frozenset(unknown)


def parents_of(server: Server, tables: Collection[TableId]) -> dict[TableId, frozenset[TableId]]:
    """For each of these tables that has foreign keys, the parents that the server shows, whatever the keys do."""
    keys, _ = _shown_keys(server, tables)
    parents: dict[TableId, set[TableId]] = {}
    for key in keys:
        parents.setdefault(key.table, set()).add(key.parent)
    return {table: frozenset(found) for table, found in parents.items()}


def _shown_keys(server: Server, tables: Collection[TableId]) -> tuple[list[ShownKey], set[TableId]]:
    """The foreign keys of these tables; and the tables of which the server shows a key of any kind."""
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"
        " REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE"
        f" WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({pairs(tables)})"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION",
    )
    # by the table and the name of a foreign key: for each of its columns the name, the parent, and the parent's column
    parts_of: dict[tuple[TableId, str], list[tuple[str, TableId, str]]] = {}
    for database, name, constraint, column, parent_database, parent_name, referenced in rows:
        if parent_name is not None:  # else it is no foreign key
            table, parent = TableId(str(database), str(name)), TableId(str(parent_database), str(parent_name))
            parts_of.setdefault((table, str(constraint)), []).append((str(column), parent, str(referenced)))
    keys = [
        ShownKey(
            table,
            constraint,
            tuple(column for column, _, _ in parts),
            parts[0][1],  # the parent, which is the same for all columns
            tuple(referenced for _, _, referenced in parts),
        )
        for (table, constraint), parts in parts_of.items()
    ]
    return keys, {TableId(str(database), str(name)) for database, name, *_ in rows}


def _rules_in_texts(
    server: Server, tables: Collection[TableId], keys: Collection[ShownKey]
) -> tuple[dict[ShownKey, Rules | None], set[TableId]]:
    """The rules of these keys in the texts of SHOW CREATE TABLE (`rules_in`); and the tables of which a key is hidden.

    Keys of a table that does not exist any more are left out.
    """
    texts: dict[TableId, str] = {}
    for table in tables:
        text = _definition(server, table)
        if text is not None:
            texts[table] = text
    shown_counts = Counter(key.table for key in keys)
    # a text that has more or fewer keys than KEY_COLUMN_USAGE shows
    with_hidden_keys = {table for table, text in texts.items() if _count_keys(text) != shown_counts[table]}
    return {key: rules_in(texts[key.table], key) for key in keys if key.table in texts}, with_hidden_keys


def _definition(server: Server, table: TableId) -> str | None:
    """The text of SHOW CREATE TABLE; '' if it is denied or the table stays locked, None if the table does not exist."""
    try:
        return create_statement(server.connection, table)
    except pymysql.err.Error as error:
        if error.args[0] in ABSENT:
            return None
        if error.args[0] not in {*DENIED, ER.LOCK_WAIT_TIMEOUT}:
            raise
        return ""


def _shown_rules(server: Server, tables: Collection[TableId]) -> dict[tuple[TableId, str], Rules]:
    """The rules that information_schema shows, by the table and the name of the foreign key."""
    rows = query(
        server.connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE"
        f" FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE (CONSTRAINT_SCHEMA, TABLE_NAME) IN ({pairs(tables)})",
    )
    return {(TableId(str(row[0]), str(row[1])), str(row[2])): (_rule(row[3]), _rule(row[4])) for row in rows}


def rules_in(definition: str, key: ShownKey) -> Rules | None:
    """The rules of a key in the text of SHOW CREATE TABLE; None if the text does not have the key exactly once."""
    # patterns for the parts of the line that describes the key
    columns, referenced = (", ".join(map(_quoted, names)) for names in (key.columns, key.referenced))
    parent = f"(?:{_quoted(key.parent.database)}\\.)?{_quoted(key.parent.name)}"
    line = (
        f"  CONSTRAINT {_quoted(key.name)} FOREIGN KEY \\({columns}\\) REFERENCES {parent} \\({referenced}\\){_RULES}"
    )
    rules = re.findall(f"^{line},?$", definition, re.MULTILINE)
    if len(rules) != 1:
        return None
    [(on_delete, on_update)] = rules
    return _rule(on_delete), _rule(on_update)


def _count_keys(definition: str) -> int:
    """The number of foreign keys in the text of SHOW CREATE TABLE; −1, which is no number of keys, for the text ''."""
    return len(re.findall(r"^  CONSTRAINT .*FOREIGN KEY \(", definition, re.MULTILINE)) if definition else -1


def _quoted(name: str) -> str:
    """A pattern for a quoted name. Backticks in the name can be single, because MariaDB does not double all of them."""
    return f"`(?:{re.escape(name)}|{re.escape(name.replace('`', '``'))})`"


def pairs(tables: Collection[TableId]) -> str:
    """A list of tables for IN (…) in SQL. For no tables, the list has one table without a name: IN needs an element."""
    return ", ".join(f"({literal(table.database)}, {literal(table.name)})" for table in tables) or "('', '')"


def _rule(text: object) -> Rule:
    """The rule with this name; NONE for RESTRICT, for an unknown name, and if there is no name."""
    return Rule(str(text)) if text in set(Rule) else Rule.NONE
