"""Decides whether a DDL statement had an exclusive metadata lock of a copied table. Pure.

ALTER, DROP, RENAME and TRUNCATE TABLE, CREATE and DROP INDEX, and DROP DATABASE take this lock. They get the lock only
when each transaction that has changed the table has ended, and keep the lock until they have taken effect. They also
lock a table if another table is renamed to its name, or exchanges a partition with it. Source: MySQL manual, "Metadata
Locking".
"""

from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.wire.ddl import Action, DdlReader, split_at_commas
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Unclear, readings

# Actions on partitions during which other transactions may change the table
_WITHOUT_LOCK = ("ANALYZE", "CHECK", "OPTIMIZE", "REPAIR")


def had_exclusive_lock(query: Query, schema: TableSchema) -> bool:
    """Whether a DDL statement had an exclusive lock of the table; in doubt, False.

    If so, all transactions with earlier changes of the table had ended before the statement took effect.
    """
    copied = {schema.table: schema}
    try:
        return all(_ExactReader(tokens, query.database, copied).locks_copied_table() for tokens in readings(query))
    except Unclear:
        return False


class _ExactReader(DdlReader):
    """Reads a statement with exact names: in doubt, a name in another spelling is the name of another table."""

    def locks_copied_table(self) -> bool:
        """Whether the statement takes an exclusive lock of the copied table."""
        match self._read_word():
            case "ALTER":
                self._expect("TABLE")
                if self._read_tables():  # the copied table is altered
                    maintains_partitions = self._has("PARTITION") and self._has(*_WITHOUT_LOCK)
                    return not maintains_partitions
                # another table is altered, and may take the copied table's name or rows
                actions = split_at_commas(self._tokens[self._at :])
                return any(_ExactAction(tokens, self._database, self._copied).other_tables() for tokens in actions)
            case "CREATE":
                self._skip("UNIQUE", "FULLTEXT", "SPATIAL")
                return self._read_index()
            case "DROP":
                if self._skip("DATABASE", "SCHEMA"):
                    self._skip_all("IF", "EXISTS")
                    return self._read_name() in {table.database for table in self._copied}
                if self._peek() == "INDEX":
                    return self._read_index()
                self._expect("TABLE")
                self._skip_all("IF", "EXISTS")
                return bool(self._read_table_list())
            case "RENAME":
                self._expect("TABLE")
                return self._read_rename()
            case "TRUNCATE":
                self._skip("TABLE")
                return bool(self._read_tables())
        return False

    def _read_index(self) -> bool:
        """Read the word INDEX, the index's name and its table. Returns whether the table is the copied table."""
        self._expect("INDEX")
        self._read_name()
        if self._skip("USING", "TYPE"):
            self._read_name()
        self._expect("ON")
        return bool(self._read_tables())

    def _read_tables(self) -> list[TableSchema]:
        """Read a table's name. Returns the copied table if it has exactly this name."""
        table_id = self._read_table_id()
        return [schema for table, schema in self._copied.items() if table == table_id]


class _ExactAction(_ExactReader, Action):
    """Reads one action of an ALTER TABLE, with exact names as `_ExactReader`."""
