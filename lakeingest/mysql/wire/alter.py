"""Reads the changes of an ALTER TABLE to the columns of a copied table, and recognises a TRUNCATE. Pure.

Only the names of columns and their places are read, and whether a default is a literal: never a type or a value. The
server tells a column's definition (`core.alteration`). Fail closed: if a statement has an unknown part, or may change
values, rows or the key, there is no answer, and the table stops before the statement.
Sources: MySQL manual, "ALTER TABLE Statement" and "TRUNCATE TABLE Statement"; MariaDB documentation, the same.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from lakeingest.core.alteration import FIRST, Act, Alteration, Change
from lakeingest.core.schema import TableSchema
from lakeingest.mysql.wire.ddl import Action, DdlReader, split
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

# The words that may follow the name of a type, in a definition of a type, NULL or NOT NULL, and a constant default
_PLAIN = {
    *("UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "NOT", "NULL", "DEFAULT", "COMMENT", "VISIBLE"),
    *("TRUE", "FALSE", "B", "X", "SRID", "COLUMN_FORMAT", "FIXED", "DYNAMIC", "STORAGE", "DISK", "MEMORY"),
}
# Words that after ADD begin no column, unless they stand between quotes
_NO_COLUMNS = {
    *("CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PARTITION", "PERIOD", "PRIMARY", "SPATIAL"),
    *("SYSTEM", "UNIQUE", "VECTOR"),
}
# The types with which a definition may begin. SERIAL is none: it also numbers the rows.
_TYPES = {
    *("BIGINT", "BINARY", "BIT", "BLOB", "BOOL", "BOOLEAN", "CHAR", "CHARACTER", "DATE", "DATETIME", "DEC", "DECIMAL"),
    *("DOUBLE", "ENUM", "FIXED", "FLOAT", "FLOAT4", "FLOAT8", "GEOMCOLLECTION", "GEOMETRY", "GEOMETRYCOLLECTION"),
    *("INET4", "INET6", "INT", "INT1", "INT2", "INT3", "INT4", "INT8", "INTEGER", "JSON", "LINESTRING", "LONGBLOB"),
    *("LONGTEXT", "MEDIUMBLOB", "MEDIUMINT", "MEDIUMTEXT", "MIDDLEINT", "MULTILINESTRING", "MULTIPOINT"),
    *("MULTIPOLYGON", "NCHAR", "NUMERIC", "NVARCHAR", "POINT", "POLYGON", "REAL", "SET", "SMALLINT", "TEXT", "TIME"),
    *("TIMESTAMP", "TINYBLOB", "TINYINT", "TINYTEXT", "UUID", "VARBINARY", "VARCHAR", "VARCHARACTER", "VECTOR"),
    "YEAR",
}
_NUMBER = re.compile(r"\d+|\d+[eE]\d*|0[xX][\dA-Fa-f]+|0[bB][01]+")
# A literal after DEFAULT, as `_shape` writes it, with the end or a word after it
_LITERAL = re.compile(
    r"(?:(?:[BX] )?'(?: ')*|NULL|TRUE|FALSE"
    r"|(?:[-+] )*(?:0X[\dA-F]+|0B[01]+|(?:\d+(?: \.(?: \d+)?)?|\. \d+)(?:E\d+|E [-+] \d+)?))(?: [A-Z]|$)"
)


def alteration_of(query: Query, schema: TableSchema) -> Alteration | None:
    """The statement's changes to the table's columns, in order; None if it is unclear, or does more than that."""
    try:
        read = {_AlterReader(tokens, query.database, {schema.table: schema}).read() for tokens in readings(query)}
    except Unclear:
        return None
    return read.pop() if len(read) == 1 else None


def names_in(query: Query, schema: TableSchema) -> tuple[Change, ...]:
    """The columns that an ALTER TABLE renames, adds and drops, among other changes; empty in doubt."""
    try:
        read = {_AlterReader(tokens, query.database, {schema.table: schema}).names() for tokens in readings(query)}
    except Unclear:
        return ()
    return read.pop() if len(read) == 1 else ()


class _AlterReader(DdlReader):
    """Reads the tokens of an ALTER TABLE or a TRUNCATE of one table."""

    def read(self) -> Alteration:
        """The statement's alteration of the table. Raises Unclear if it does more than change columns or truncate."""
        if self._skip("TRUNCATE"):
            self._skip("TABLE")
            self._one_table()
            if not self._is_over:
                raise Unclear("it does more")
            return Alteration(empties=True)
        schema = self._altered()
        if schema.bound:
            raise Unclear("it may compute a generated column anew")
        return Alteration(tuple(change for action in self._actions() for change in action.changes(schema)))

    def names(self) -> tuple[Change, ...]:
        """The statement's changes to the names of columns."""
        schema = self._altered()
        return tuple(change for action in self._actions() for change in action.names(schema))

    def _altered(self) -> TableSchema:
        """Read up to the name of the altered table, behind which the actions begin; return the table."""
        self._expect("ALTER")
        self._skip("ONLINE")
        self._expect("TABLE")
        self._skip_all("IF", "EXISTS")
        return self._one_table()

    def _actions(self) -> "list[_ActionReader]":
        return [_ActionReader(action, self._database, self._copied) for action in split(self._tokens[self._at :])]

    def _one_table(self) -> TableSchema:
        """The copied table whose name comes next. Raises Unclear for another table."""
        tables = self._table()
        self._skip_wait()
        if len(tables) != 1:
            raise Unclear("it is of another table")
        return tables[0]


class _ActionReader(Action):
    """Reads one action of an ALTER TABLE."""

    def changes(self, schema: TableSchema) -> list[Change]:
        """The action's changes to columns; empty if it leaves the copied table as it is."""
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

    def names(self, schema: TableSchema) -> list[Change]:
        """The action's changes to the names of columns, also if it changes more of the columns or of the table."""
        try:
            return self.changes(schema)
        except Unclear:
            self._at = 0
        match self._word():
            case "CHANGE":
                self._skip("COLUMN")
                self._if_exists()
                name = self._name()
                return [Change(Act.DEFINE, name, self._name())]
            case "ADD" if self._peek() not in _NO_COLUMNS:
                self._skip("COLUMN")
                self._if_exists()
                name = self._name()
                return [Change(Act.ADD, name, name)]
            case "DROP" | "RENAME" if self._peek() not in _NO_COLUMNS:
                raise Unclear("what it names is not known")
        return []

    def _adds(self) -> list[Change]:
        """The columns that an ADD adds: one, or several in parentheses."""
        has_word = self._skip("COLUMN")
        self._if_exists()
        if not self._is_sign("("):
            return [self._added()]
        if has_word or self._tokens[-1] != Token(Sort.SIGN, ")"):
            raise Unclear("it does more than add columns")
        columns = split(self._tokens[self._at + 1 : -1])
        changes = [_ActionReader(column, self._database, self._copied)._added() for column in columns]  # noqa: SLF001
        if any(change.after is not None for change in changes):
            raise Unclear("a place within parentheses")
        return changes

    def _added(self) -> Change:
        """The column whose name and definition come next, as added."""
        if self._peek() in _NO_COLUMNS:
            raise Unclear("it adds no column")
        name = self._name()
        return Change(Act.ADD, name, name, self._defined())

    def _defined(self) -> str | None:
        """Pass over a column's definition; return the place that it names: FIRST, a column to follow, or None.

        Raises Unclear unless it is a type, NULL or NOT NULL, and a constant default.
        """
        rest = list(self._tokens[self._at :])
        after: str | None = None
        if rest and _is_word(rest[-1], "FIRST"):
            after, rest = FIRST, rest[:-1]
        elif len(rest) > 1 and _is_word(rest[-2], "AFTER") and rest[-1].sort in {Sort.WORD, Sort.NAME}:
            after, rest = rest[-1].text, rest[:-2]
        if not rest or rest[0].sort is not Sort.WORD or rest[0].text.upper() not in _TYPES:
            raise Unclear("a type should come next")
        for place, (previous, token) in enumerate(pairwise(rest), start=1):
            is_name = token.sort is Sort.NAME
            is_word = token.sort is Sort.WORD and token.text.upper() not in _PLAIN
            if is_name or (is_word and not _NUMBER.fullmatch(token.text)):
                raise Unclear("it has more than a type and a constant default")
            if _is_word(previous, "DEFAULT") and not _is_constant(rest[place:]):
                raise Unclear("its default is not a constant")
        self._at = len(self._tokens)
        return after

    def _if_exists(self) -> None:
        """Raise Unclear at MariaDB's IF [NOT] EXISTS: only the server knows whether the condition was met."""
        if self._peek() == "IF":
            raise Unclear("whether it did anything is not known")

    def _end(self) -> None:
        if not self._is_over:
            raise Unclear("it does more")


def _is_constant(tokens: Sequence[Token]) -> bool:
    """Whether these tokens begin with a literal that no operator follows. A word may also be a column's name."""
    written = " ".join(_shape(token) for token in tokens)
    return _LITERAL.match(written) is not None


def _shape(token: Token) -> str:
    """The form of a token for `_LITERAL`: `'` for a text, else the token's own text in capitals."""
    return "'" if token.sort is Sort.TEXT else token.text.upper()


def _is_word(token: Token, word: str) -> bool:
    return token.sort is Sort.WORD and token.text.upper() == word
