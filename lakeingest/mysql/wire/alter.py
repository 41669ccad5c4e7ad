"""What an ALTER TABLE does to the columns of a copied table, and which statement is a TRUNCATE. Pure.

Only the names of columns and their places are read, never a type or a default: what a column is, the server says
(`core.alteration`). Fail closed: a statement with anything that is not known here, or that may change values, rows or
the key, has no answer, and the table stops before it.
Sources: MySQL manual, "ALTER TABLE Statement" and "TRUNCATE TABLE Statement"; MariaDB documentation, the same.
"""

import re
from dataclasses import replace
from itertools import pairwise

from lakeingest.core.alteration import FIRST, Act, Alteration, Change
from lakeingest.core.schema import TableSchema
from lakeingest.mysql.wire.ddl import Action, DdlReader, split
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

_STRICT = 1 << 21 | 1 << 22  # STRICT_TRANS_TABLES and STRICT_ALL_TABLES of sql_mode

# Words that may follow the name of a type: with them it is a type, NULL or NOT NULL, and a constant default
_PLAIN = {
    *("UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "NOT", "NULL", "DEFAULT", "COMMENT", "VISIBLE"),
    *("TRUE", "FALSE", "B", "X", "SRID", "COLUMN_FORMAT", "FIXED", "DYNAMIC", "STORAGE", "DISK", "MEMORY"),
}
# Words that after ADD begin something else than a column, unless they stand between quotes
_NO_COLUMNS = {
    *("CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PARTITION", "PERIOD", "PRIMARY", "SPATIAL"),
    *("SYSTEM", "UNIQUE", "VECTOR"),
}
_NUMBER = re.compile(r"\d[\dA-Za-z]*")


def alteration_of(query: Query, schema: TableSchema) -> Alteration | None:
    """What the statement changes of the table's columns, in order; None where that is not certain, or it does more."""
    try:
        read = {_AlterReader(tokens, query.database, {schema.table: schema}).read() for tokens in readings(query)}
    except Unclear:
        return None
    if len(read) != 1:
        return None
    mode = query.sql_mode
    return replace(read.pop(), strict=mode is not None and bool(mode & _STRICT))


class _AlterReader(DdlReader):
    """Reads the tokens of an ALTER TABLE or a TRUNCATE of one table."""

    def read(self) -> Alteration:
        if self._skip("TRUNCATE"):
            self._skip("TABLE")
            self._one_table()
            if not self._is_over:
                raise Unclear("it does more")
            return Alteration(empties=True)
        self._expect("ALTER")
        self._skip("ONLINE")
        self._expect("TABLE")
        self._skip_all("IF", "EXISTS")
        schema = self._one_table()
        changes: list[Change] = []
        for action in split(self._tokens[self._at :]):
            changes += _ActionReader(action, self._database, self._copied).changes(schema)
        return Alteration(tuple(changes))

    def _one_table(self) -> TableSchema:
        found = self._table()
        self._skip_wait()
        if len(found) != 1:
            raise Unclear("it is of another table")
        return found[0]


class _ActionReader(Action):
    """Reads one action of it."""

    def changes(self, schema: TableSchema) -> list[Change]:
        """The columns that the action changes; none where it changes nothing that is copied."""
        if self.is_harmless(schema):
            return []
        self._at = 0
        match self._word():
            case "ADD":
                return self._adds()
            case "DROP":
                self._skip("COLUMN")
                self._if_exists()
                name = self._name()
                self._skip("RESTRICT", "CASCADE")
                self._end()
                return [Change(Act.DROP, name, name)]
            case "RENAME":
                self._expect("COLUMN")
                self._if_exists()
                name = self._name()
                self._expect("TO")
                change = Change(Act.RENAME, name, self._name())
                self._end()
                return [change]
            case "MODIFY":
                self._skip("COLUMN")
                self._if_exists()
                name = self._name()
                return [Change(Act.DEFINE, name, name, self._defined())]
            case "CHANGE":
                self._skip("COLUMN")
                self._if_exists()
                name, to = self._name(), self._name()
                return [Change(Act.DEFINE, name, to, self._defined())]
        raise Unclear("its action is not known")

    def _adds(self) -> list[Change]:
        has_word = self._skip("COLUMN")
        self._if_exists()
        if not self._is_sign("("):
            return [self._added()]
        if has_word or self._tokens[-1] != Token(Sort.SIGN, ")"):
            raise Unclear("it does more than add columns")
        columns = split(self._tokens[self._at + 1 : -1])
        found = [_ActionReader(column, self._database, self._copied)._added() for column in columns]  # noqa: SLF001
        if any(change.after is not None for change in found):
            raise Unclear("a place within parentheses")
        return found

    def _added(self) -> Change:
        if self._peek() in _NO_COLUMNS:
            raise Unclear("it adds no column")
        name = self._name()
        return Change(Act.ADD, name, name, self._defined())

    def _defined(self) -> str | None:
        """Pass over a column's definition; the place that it names."""
        rest = list(self._tokens[self._at :])
        after: str | None = None
        if rest and _is_word(rest[-1], "FIRST"):
            after, rest = FIRST, rest[:-1]
        elif len(rest) > 1 and _is_word(rest[-2], "AFTER") and rest[-1].sort in {Sort.WORD, Sort.NAME}:
            after, rest = rest[-1].text, rest[:-2]
        if not rest or rest[0].sort is not Sort.WORD:
            raise Unclear("a type should come next")
        for before, token in pairwise(rest):
            is_name = token.sort is Sort.NAME
            is_word = token.sort is Sort.WORD and token.text.upper() not in _PLAIN
            if is_name or (is_word and not _NUMBER.fullmatch(token.text)):
                raise Unclear("it has more than a type and a constant default")
            if _is_word(before, "DEFAULT") and token == Token(Sort.SIGN, "("):
                raise Unclear("its default is an expression")
        self._at = len(self._tokens)
        return after

    def _if_exists(self) -> None:
        """MariaDB's condition: only the server knows whether it held."""
        if self._peek() == "IF":
            raise Unclear("whether it did anything is not known")

    def _end(self) -> None:
        if not self._is_over:
            raise Unclear("it does more")


def _is_word(token: Token, word: str) -> bool:
    return token.sort is Sort.WORD and token.text.upper() == word
