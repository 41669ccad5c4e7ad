"""Which table a change in statement format changes. Pure.

Only the statements of one table are understood. Whether the server changes other tables with them, by triggers or
stored functions, is not in the binlog: `mysql.statement_reach` asks the server.
Sources: MySQL manual, "INSERT Statement", "REPLACE Statement", "UPDATE Statement", "DELETE Statement".
"""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.mysql.wire.ddl import DdlReader, folded
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

SYSTEM = "mysql"  # the database in which servers allow no triggers (error 1465)
# Words before a parenthesis that call no stored function: keywords, and built-in functions, which come before stored
# ones of that name. Not those that are stored ones where a blank follows, such as NOW (the manuals, "Function Name
# Parsing and Resolution").
_CALLS_NOTHING = {
    *("VALUES", "VALUE", "SET", "AND", "OR", "XOR", "NOT", "IN", "WHERE", "INTERVAL", "IF"),
    *("UTC_TIMESTAMP", "UNIX_TIMESTAMP", "CURRENT_TIMESTAMP", "UTC_DATE", "IFNULL", "COALESCE", "GREATEST", "LEAST"),
    *("CONCAT", "UUID", "CONNECTION_ID"),
}
_OPEN, _DOT = Token(Sort.SIGN, "("), Token(Sort.SIGN, ".")
_READS = {"SELECT", "TABLE", "WITH", "NEXT"}  # words with which a statement names something else than its table


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows of one table. All its words and names are in `names`, `folded` as the table's.

    Its default database is among them. `in_system`: its only table is in SYSTEM, and it calls no stored function.
    """

    database: str
    table: str
    names: frozenset[str]
    in_system: bool = False


Reach = Callable[[Change], str]  # why a statement may change rows of other tables, too; empty: it does not


def change_of(query: Query) -> Change | None:
    """The table that a statement changes; None where it may change several, or is not understood."""
    try:
        found = {DmlReader(tokens, query.database, {}).change() for tokens in readings(query)}
    except Unclear:
        return None
    return found.pop() if len(found) == 1 else None


class DmlReader(DdlReader):
    """Reads the tokens of a change from its start; Unclear where they are not as expected."""

    def change(self) -> Change:
        """The one table that it changes."""
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
        named = self._at
        database, table = self._database, self._name()
        if self._is_sign("."):
            self._sign(".")
            named, database, table = self._at, table, self._name()
        if verb == "UPDATE":
            self._alias("SET")
        elif verb == "DELETE" and not self._is_over:
            self._alias("WHERE", "ORDER", "LIMIT", "RETURNING")
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        names.add(folded(self._database))
        # its name has to be spelled so: on some servers another spelling is another database
        in_system = database == SYSTEM and self._names_nothing_else(named)
        return Change(folded(database), folded(table), frozenset(names), in_system)

    def _names_nothing_else(self, named: int) -> bool:
        """Whether nothing after its table's name, the token `named`, may be a table or call a stored function."""
        rest = self._tokens[named + 1 :]
        for qualifier, before, token in zip([_OPEN, *rest], rest, rest[1:], strict=False):
            is_keyword = before.sort is Sort.WORD and before.text.upper() in _CALLS_NOTHING and qualifier != _DOT
            if token == _OPEN and before.sort is not Sort.SIGN and not is_keyword:
                return False
        return not self._has(*_READS)

    def _alias(self, *words: str) -> None:
        """Skip another name of the table; one of the words comes next."""
        if self._peek() not in words:
            self._skip("AS")
            self._name()
        self._expect(*words)
