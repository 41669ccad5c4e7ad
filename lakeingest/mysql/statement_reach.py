"""Whether a statement in the binlog changes only rows of the table that it names. The server is asked for that.

A change in statement format has no rows in the binlog. If its table is not copied, copies need none, unless the server
changes rows of other tables with it: by triggers, foreign keys, a view that the statement takes for a table, or stored
functions. Sources: MySQL manual, "INFORMATION_SCHEMA Tables", "The TRIGGER Privilege"; "Replication and Triggers".
"""

import re
from dataclasses import dataclass
from functools import cached_property

from lakeingest.config import Source
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.wire.ddl import folded
from lakeingest.mysql.wire.dml import Change

_GLOBAL = re.compile(r"GRANT (.*) ON \*\.\* TO ", re.DOTALL)
_NEEDED = {"SELECT", "TRIGGER"}  # without them the server hides triggers, views and functions
_NO_RIGHTS = "the user cannot see whether it fires triggers: grant SELECT and TRIGGER ON *.* to it"
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"

Name = tuple[str, ...]  # of a table or of anything else, folded


@dataclass(frozen=True, slots=True)
class _Objects:
    """What a source has. `others` are views and stored functions; `is_complete`: the user sees all of it."""

    is_complete: bool
    base_tables: set[Name]
    with_triggers: set[Name]
    parents: set[Name]
    others: set[Name]


class StatementReach:
    """Asks a source about statements; it is connected to where the first one is met."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, change: Change) -> str:
        """Why the statement may change rows of other tables, too; empty where it does not."""
        objects = self._objects
        table = change.database, change.table
        if not objects.is_complete:
            return _NO_RIGHTS
        if table not in objects.base_tables:
            return "its table is not a base table of the source now"
        if table in objects.with_triggers:
            return "its table has triggers"
        if table in objects.parents:
            return "foreign keys change other tables with it"
        named = change.names & {name for (name,) in objects.others}
        return f"it names a view or a stored function ({', '.join(sorted(named))})" if named else ""

    @cached_property
    def _objects(self) -> _Objects:
        with connect(self._source) as connection:

            def found(sql: str) -> set[Name]:
                return {tuple(folded(str(value)) for value in row) for row in query(connection, sql)}

            return _Objects(
                is_complete=_sees_all(query(connection, "SHOW GRANTS")),
                base_tables=found(
                    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
                ),
                with_triggers=found("SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"),
                parents=found(
                    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
                    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
                    f" WHERE UPDATE_RULE IN {_ACTIONS} OR DELETE_RULE IN {_ACTIONS}"
                ),
                others=found(
                    "SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA <> 'sys'"
                    " UNION SELECT ROUTINE_NAME FROM information_schema.ROUTINES"
                    " WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA <> 'sys'"
                ),
            )


def _sees_all(grants: list[tuple[str, ...]]) -> bool:
    """Whether these grants show the user everything; a REVOKE takes a part of a global right away."""
    lists = [found[1].upper().split(", ") for (grant,) in grants if (found := _GLOBAL.match(grant))]
    rights = {right for one in lists for right in one}
    is_partial = any(grant.startswith("REVOKE") for (grant,) in grants)
    return not is_partial and (rights >= _NEEDED or "ALL PRIVILEGES" in rights)
