"""Finds the table whose rows a change in statement format changes. Pure.

Only statements that name one table to change are understood. The binlog does not show whether the server also changed
other tables with such a statement, by triggers or stored functions: `mysql.statement_reach` asks the server.
Sources: MySQL manual, "INSERT Statement", "REPLACE Statement", "UPDATE Statement", "DELETE Statement".
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from lakeingest.mysql.wire.ddl import DdlReader, folded
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

SYSTEM = "mysql"  # the database in which servers allow no triggers (error 1465)
# Words before a parenthesis that call no stored function: keywords, and built-in functions, which take precedence over
# stored functions of the same name. NOW and similar built-in functions are not among them: with a blank before the
# parenthesis, such a word calls a stored function (the manuals, "Function Name Parsing and Resolution").
_CALLS_NOTHING = {
    *("VALUES", "VALUE", "SET", "AND", "OR", "XOR", "NOT", "IN", "WHERE", "INTERVAL", "IF"),
    *("UTC_TIMESTAMP", "UNIX_TIMESTAMP", "CURRENT_TIMESTAMP", "UTC_DATE", "IFNULL", "COALESCE", "GREATEST", "LEAST"),
    *("CONCAT", "UUID", "CONNECTION_ID"),
}
_OPEN, _DOT = Token(Sort.SIGN, "("), Token(Sort.SIGN, ".")
_NAMING_WORDS = {"SELECT", "TABLE", "WITH", "NEXT"}  # words after which a statement names other tables or sequences


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows of one table. Database, table and `names` are `folded`.

    `names` are all words and names in the statement, and its default database. `in_system`: the table is in the
    database SYSTEM, which allows no triggers, and the statement names no other table and calls no stored function.
    """

    database: str
    table: str
    names: frozenset[str]
    in_system: bool = False


Reach = Callable[[Change], str]  # why the change may also change rows of other tables; empty if it does not


def change_of(query: Query) -> Change | None:
    """The statement as a change of one table; None if it may change several tables, or cannot be parsed."""
    try:
        changes = {DmlReader(tokens, query.database, {}).change() for tokens in readings(query)}
    except Unclear:
        return None
    return changes.pop() if len(changes) == 1 else None


class DmlReader(DdlReader):
    """Reads the tokens of a change in statement format. The methods raise Unclear for tokens they do not expect."""

    def change(self) -> Change:
        """Read the statement. Raises Unclear if it may change several tables."""
        verb = self._read_word()
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
        database, name_at = self._database, self._at
        table = self._read_name()
        if self._is_sign("."):  # the name before the dot is that of the database, the table's name comes next
            self._expect_sign(".")
            database, name_at = table, self._at
            table = self._read_name()
        # raises Unclear if a second table follows, as in UPDATE a, b
        if verb == "UPDATE":
            self._skip_alias("SET")
        elif verb == "DELETE" and not self._is_over:
            self._skip_alias("WHERE", "ORDER", "LIMIT", "RETURNING")
        # each name may be one of a table that the statement reads
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        names.add(folded(self._database))
        # compared with its case, not `folded`: on some servers another spelling is another database
        in_system = database == SYSTEM and self._names_only_its_table(name_at)
        return Change(folded(database), folded(table), frozenset(names), in_system)

    def _names_only_its_table(self, name_at: int) -> bool:
        """Whether no token after the table's name (at `name_at`) may name a table or call a stored function."""
        tokens = self._tokens[name_at + 1 :]
        # a token before an opening parenthesis may call a stored function, unless it is a sign or in `_CALLS_NOTHING`
        for at, (called, following) in enumerate(pairwise(tokens)):
            if following != _OPEN or called.sort is Sort.SIGN:
                continue
            is_stored = at > 0 and tokens[at - 1] == _DOT  # as in database.function
            calls_nothing = called.sort is Sort.WORD and called.text.upper() in _CALLS_NOTHING and not is_stored
            if not calls_nothing:
                return False
        return not self._has(*_NAMING_WORDS)

    def _skip_alias(self, *words: str) -> None:
        """Skip an alias of the table, if there is one, and the word after it, which must be one of `words`."""
        if self._peek() not in words:
            self._skip("AS")
            self._read_name()
        self._expect(*words)
