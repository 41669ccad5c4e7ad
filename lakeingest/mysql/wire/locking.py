"""Decides whether a DDL statement locked out all other transactions of a copied table. Pure.

ALTER, DROP, RENAME and TRUNCATE TABLE, CREATE and DROP INDEX, and DROP DATABASE take an exclusive metadata lock. The
lock waits for the end of each transaction that has changed the table, and is kept until the statement is in force. The
same holds if the copied table gets its name from the statement, or exchanges its rows with a partition. Source: MySQL
manual, "Metadata Locking".
"""

from lakeingest.core.schema import TableSchema
from lakeingest.mysql.wire.ddl import Action, DdlReader, split
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Unclear, readings

_SHARED = ("ANALYZE", "CHECK", "OPTIMIZE", "REPAIR")  # partitions, while others may change the table


def has_alone(query: Query, schema: TableSchema) -> bool:
    """Whether all transactions that changed the table had certainly ended before a DDL statement; in doubt, False."""
    try:
        return all(_ExactReader(tokens, query.database, {schema.table: schema}).locks() for tokens in readings(query))
    except Unclear:
        return False


class _ExactReader(DdlReader):
    """A reader for which a name in another spelling is no copied table: it may be another table."""

    def locks(self) -> bool:
        """Whether the statement locks the copied table."""
        match self._word():
            case "ALTER":
                self._expect("TABLE")
                if self._table():
                    return not (self._has("PARTITION") and self._has(*_SHARED))
                actions = split(self._tokens[self._at :])
                return any(_ExactAction(action, self._database, self._copied).others() for action in actions)
            case "CREATE":
                self._skip("UNIQUE", "FULLTEXT", "SPATIAL")
                return self._index()
            case "DROP":
                if self._skip("DATABASE", "SCHEMA"):
                    self._skip_all("IF", "EXISTS")
                    return self._name() in {table.database for table in self._copied}
                if self._peek() == "INDEX":
                    return self._index()
                self._expect("TABLE")
                self._skip_all("IF", "EXISTS")
                return self._any_of_list()
            case "RENAME":
                self._expect("TABLE")
                return self._rename()
            case "TRUNCATE":
                self._skip("TABLE")
                return bool(self._table())
        return False

    def _index(self) -> bool:
        """Whether the index whose name comes next belongs to the copied table."""
        self._expect("INDEX")
        self._name()
        if self._skip("USING", "TYPE"):
            self._name()
        self._expect("ON")
        return bool(self._table())

    def _table(self) -> list[TableSchema]:
        table_id = self._table_id()
        return [schema for table, schema in self._copied.items() if table == table_id]


class _ExactAction(_ExactReader, Action):
    """Reads one action of an ALTER TABLE, with exact names as `_ExactReader`."""
