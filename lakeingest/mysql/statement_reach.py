"""Asks the server whether a statement in the binlog changes only rows of the table that it names.

A change in statement format has no rows in the binlog. If its table is not copied, copies do not need the rows. But the
statement may change rows of copied tables as well: by triggers, by foreign keys, through a view that the statement
names, or in stored functions. Sources: MySQL manual, "INFORMATION_SCHEMA Tables", "The TRIGGER Privilege"; "Replication
and Triggers".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from lakeingest.config import Source
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.wire.ddl import folded
from lakeingest.mysql.wire.dml import Change

_GLOBAL = re.compile(r"GRANT (.*) ON \*\.\* TO ", re.DOTALL)
_REVOKED = re.compile(r"REVOKE (.*) ON `((?:[^`]|``)*)`\.\* FROM ", re.DOTALL)  # a global right, for one database
_NEEDED = {"SELECT", "TRIGGER"}  # without them the server hides triggers, views and functions
_NO_RIGHTS = "the user cannot see whether it fires triggers: grant SELECT and TRIGGER ON *.* to it"
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"

Name = tuple[str, ...]  # the parts of a table's or another object's name, folded


@dataclass(frozen=True, slots=True)
class _Objects:
    """The source's objects through which a statement may change other tables.

    `hidden`: the databases of which the user may not see all objects; None stands for all databases.
    `referenced`: the tables that foreign keys refer to. The user needs only SELECT on the tables to see foreign keys.
    `parents`: those tables of `referenced` whose changes a foreign key passes on to other tables.
    `others`: the names of views and stored functions, without their databases.
    """

    hidden: frozenset[str] | None
    base_tables: set[Name]
    with_triggers: set[Name]
    parents: set[Name]
    referenced: set[Name]
    others: set[Name]


class StatementReach:
    """Judges the statements of one source (`wire.dml.Reach`). It asks the source once, at the first statement."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, change: Change) -> str:
        """The reason why the statement may change rows of other tables, too; '' if it changes only its own table."""
        objects = self._objects
        table = change.database, change.table
        if objects.hidden is None or not objects.hidden.isdisjoint({*change.names, change.database}):
            # The user may not see all triggers, views and functions. None of them matters to a change with `in_system`:
            # its table has no triggers, and its statement names no view and calls no function. Foreign keys matter, and
            # the user sees them.
            changes_only_its_table = change.in_system and table not in objects.referenced
            return "" if changes_only_its_table else _NO_RIGHTS
        if table not in objects.base_tables:
            return "its table is not a base table of the source now"
        if table in objects.with_triggers:
            return "its table has triggers"
        if table in objects.parents:
            return "foreign keys change other tables with it"
        # a word of the statement may be the name of a column or an alias instead: in doubt, a reason is returned
        named_objects = change.names & {name for (name,) in objects.others}
        return f"it names a view or a stored function ({', '.join(sorted(named_objects))})" if named_objects else ""

    @cached_property
    def _objects(self) -> _Objects:
        """The source's objects, read at the first use."""
        with connect(self._source) as connection:

            def names(sql: str) -> set[Name]:  # each row has the parts of one name
                return {tuple(folded(str(value)) for value in row) for row in query(connection, sql)}

            return _Objects(
                hidden=hidden_by(grant for (grant,) in query(connection, "SHOW GRANTS")),
                base_tables=names(
                    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
                ),
                with_triggers=names("SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"),
                parents=names(
                    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
                    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
                    f" WHERE UPDATE_RULE IN {_ACTIONS} OR DELETE_RULE IN {_ACTIONS}"
                ),
                referenced=names(
                    "SELECT REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE"
                    " WHERE REFERENCED_TABLE_NAME IS NOT NULL"
                ),
                others=names(
                    "SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA <> 'sys'"
                    " UNION SELECT ROUTINE_NAME FROM information_schema.ROUTINES"
                    " WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA <> 'sys'"
                ),
            )


def hidden_by(grants: Iterable[str]) -> frozenset[str] | None:
    """The folded names of databases that a user with these grants does not see completely; None for all.

    `grants` are the rows of SHOW GRANTS. Only rights on all databases (`*.*`) count. If such a right was revoked for
    one database, this database is hidden.
    """
    rights, hidden = set[str](), set[str]()
    for grant in grants:
        if granted := _GLOBAL.match(grant):
            rights.update(granted[1].upper().split(", "))
        elif grant.startswith("REVOKE"):
            revoked = _REVOKED.match(grant)
            if revoked is None:  # a REVOKE of another form may be for any database
                return None
            if not _NEEDED.isdisjoint(revoked[1].upper().split(", ")):
                hidden.add(folded(revoked[2].replace("``", "`")))
    has_needed_rights = rights >= _NEEDED or "ALL PRIVILEGES" in rights
    return frozenset(hidden) if has_needed_rights else None
