"""Finds the table that a change in statement format names. Pure.

Only statements of one table are understood. The binlog does not show whether the server changes other tables with
them, by triggers or stored functions: `mysql.statement_reach` asks the server.
Sources: MySQL manual, "INSERT Statement", "REPLACE Statement", "UPDATE Statement", "DELETE Statement".
"""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.mysql.wire.ddl import DdlReader, folded
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

SYSTEM = "mysql"  # the database in which servers allow no triggers (error 1465)
# Words before a parenthesis that call no stored function: keywords, and built-in functions, which take precedence over
# stored functions of the same name. Built-in functions such as NOW are not here: with a blank behind their name they
# are stored functions (the manuals, "Function Name Parsing and Resolution").
_CALLS_NOTHING = {
    *("VALUES", "VALUE", "SET", "AND", "OR", "XOR", "NOT", "IN", "WHERE", "INTERVAL", "IF"),
    *("UTC_TIMESTAMP", "UNIX_TIMESTAMP", "CURRENT_TIMESTAMP", "UTC_DATE", "IFNULL", "COALESCE", "GREATEST", "LEAST"),
    *("CONCAT", "UUID", "CONNECTION_ID"),
}
_OPEN, _DOT = Token(Sort.SIGN, "("), Token(Sort.SIGN, ".")
_READS = {"SELECT", "TABLE", "WITH", "NEXT"}  # words with which a statement names other objects than its table


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows of one table. Database, table and `names` are `folded`.

    `names` are all words and names of the statement, and its default database. `in_system`: the table is in SYSTEM, the
    statement names no other table, and it calls no stored function.
    """

    database: str
    table: str
    names: frozenset[str]
    in_system: bool = False


Reach = Callable[[Change], str]  # why a statement may change rows of other tables, too; empty: it does not


def change_of(query: Query) -> Change | None:
    """The statement as a change of one table; None if it may change several tables, or is not understood."""
    try:
        changes = {DmlReader(tokens, query.database, {}).change() for tokens in readings(query)}
    except Unclear:
        return None
    return changes.pop() if len(changes) == 1 else None


class DmlReader(DdlReader):
    """Reads the tokens of a change from its start. Its methods raise Unclear for tokens that are not expected."""

    def change(self) -> Change:
        """Read the statement, which must change one table."""
        verb = self._word()
        while self._skip("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE"):
            pass
        match verb:
            case "INSERT" | "REPLACE":
                self._skip("INTO")
            case "DELETE":
                self._expect("FROM")
            case "UPDATE":
                pass
            case _:
                raise Unclear("it is no change of one table")
        name_at = self._at
        database, table = self._database, self._name()
        if self._is_sign("."):
            self._sign(".")
            name_at, database, table = self._at, table, self._name()
        if verb == "UPDATE":
            self._alias("SET")
        elif verb == "DELETE" and not self._is_over:
            self._alias("WHERE", "ORDER", "LIMIT", "RETURNING")
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        names.add(folded(self._database))
        # the database's name must have this very spelling: on some servers another spelling is another database
        in_system = database == SYSTEM and self._names_nothing_else(name_at)
        return Change(folded(database), folded(table), frozenset(names), in_system)

    def _names_nothing_else(self, name_at: int) -> bool:
        """Whether no token after the table's name, the one at `name_at`, may name a table or call a stored function."""
        rest = self._tokens[name_at + 1 :]
        for qualifier, previous, token in zip([_OPEN, *rest], rest, rest[1:], strict=False):
            is_keyword = previous.sort is Sort.WORD and previous.text.upper() in _CALLS_NOTHING and qualifier != _DOT
            if token == _OPEN and previous.sort is not Sort.SIGN and not is_keyword:
                return False
        return not self._has(*_READS)

    def _alias(self, *words: str) -> None:
        """Skip an alias of the table, if there is one, and the word after it, which must be one of `words`."""
        if self._peek() not in words:
            self._skip("AS")
            self._name()
        self._expect(*words)
