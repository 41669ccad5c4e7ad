"""Which table a change in statement format changes. Pure.

Only the statements of one table are understood. Whether the server changes other tables with them, by triggers or
stored functions, is not in the binlog: `mysql.statement_reach` asks the server.
Sources: MySQL manual, "INSERT Statement", "REPLACE Statement", "UPDATE Statement", "DELETE Statement".
"""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.mysql.wire.ddl import DdlReader, folded
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Unclear, readings


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows of one table. All its words and names are in `names`, `folded` as the table's."""

    database: str
    table: str
    names: frozenset[str]


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
        database, table = self._database, self._name()
        if self._is_sign("."):
            self._sign(".")
            database, table = table, self._name()
        if verb == "UPDATE":
            self._alias("SET")
        elif verb == "DELETE" and not self._is_over:
            self._alias("WHERE", "ORDER", "LIMIT", "RETURNING")
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        return Change(folded(database), folded(table), frozenset(names))

    def _alias(self, *words: str) -> None:
        """Skip another name of the table; one of the words comes next."""
        if self._peek() not in words:
            self._skip("AS")
            self._name()
        self._expect(*words)
