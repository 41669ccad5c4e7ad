"""Reads the changes of an ALTER TABLE to the columns of a copied table, and recognises a TRUNCATE. Pure.

Of a column in the statement, this module reads the name, the name after AFTER, and whether the default is a literal. It
never reads the type or a value: the server tells the column's definition (`core.ddl.alteration`). Fail closed: a
statement that has an unknown part, or may change values, rows or the key, has no alteration, and becomes a barrier.
Sources: MySQL manual, "ALTER TABLE Statement" and "TRUNCATE TABLE Statement"; MariaDB documentation, the same.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from lakeingest.core.ddl.alteration import FIRST, Act, Alteration, Change
from lakeingest.core.ddl.any_ddl import changed_by_any_ddl
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.wire.ddl import Action, DdlReader, split_at_commas
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings

# Words that may follow the name of the type in a column's definition; a definition with another word is unclear
_PLAIN = {
    *("UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "NOT", "NULL", "DEFAULT", "COMMENT", "VISIBLE"),
    *("TRUE", "FALSE", "B", "X", "SRID", "COLUMN_FORMAT", "FIXED", "DYNAMIC", "STORAGE", "DISK", "MEMORY"),
}
# Words after ADD that begin no column, unless they are in quotes
_NO_COLUMNS = {
    *("CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PARTITION", "PERIOD", "PRIMARY", "SPATIAL"),
    *("SYSTEM", "UNIQUE", "VECTOR"),
}
# The types with which a definition may begin. SERIAL is not one of them, because it also numbers the rows.
_TYPES = {
    *("BIGINT", "BINARY", "BIT", "BLOB", "BOOL", "BOOLEAN", "CHAR", "CHARACTER", "DATE", "DATETIME", "DEC", "DECIMAL"),
    *("DOUBLE", "ENUM", "FIXED", "FLOAT", "FLOAT4", "FLOAT8", "GEOMCOLLECTION", "GEOMETRY", "GEOMETRYCOLLECTION"),
    *("INET4", "INET6", "INT", "INT1", "INT2", "INT3", "INT4", "INT8", "INTEGER", "JSON", "LINESTRING", "LONGBLOB"),
    *("LONGTEXT", "MEDIUMBLOB", "MEDIUMINT", "MEDIUMTEXT", "MIDDLEINT", "MULTILINESTRING", "MULTIPOINT"),
    *("MULTIPOLYGON", "NCHAR", "NUMERIC", "NVARCHAR", "POINT", "POLYGON", "REAL", "SET", "SMALLINT", "TEXT", "TIME"),
    *("TIMESTAMP", "TINYBLOB", "TINYINT", "TINYTEXT", "UUID", "VARBINARY", "VARCHAR", "VARCHARACTER", "VECTOR"),
    "YEAR",
}
_NAME_SORTS = {Sort.WORD, Sort.NAME}  # of a token that can be a name
_NUMBER = re.compile(r"\d+|\d+[eE]\d*|0[xX][\dA-Fa-f]+|0[bB][01]+")
# A literal after DEFAULT, in the form that `_form_of` gives it, with the definition's end or a word after it
_LITERAL = re.compile(
    r"(?:(?:[BX] )?'(?: ')*|NULL|TRUE|FALSE"
    r"|(?:[-+] )*(?:0X[\dA-F]+|0B[01]+|(?:\d+(?: \.(?: \d+)?)?|\. \d+)(?:E\d+|E [-+] \d+)?))(?: [A-Z]|$)"
)


def alteration_of(query: Query, schema: TableSchema) -> Alteration | None:
    """The statement's changes to the table's columns, or its TRUNCATE; None if it is unclear, or does more."""
    try:
        alterations = {reader.read() for reader in _readers(query, schema)}
    except Unclear:
        return None
    return alterations.pop() if len(alterations) == 1 else None  # each way to read the statement must agree


def name_changes_of(query: Query, schema: TableSchema) -> tuple[Change, ...]:
    """The changes by which an ALTER TABLE renames, adds or drops columns, whatever else it does.

    Empty if the names of the columns are unclear.
    """
    try:
        changes = {reader.name_changes() for reader in _readers(query, schema)}
    except Unclear:
        return ()
    return changes.pop() if len(changes) == 1 else ()  # each way to read the statement must agree


def _readers(query: Query, schema: TableSchema) -> "Iterator[_AlterReader]":
    """Yield a reader for each way in which the server may have read the statement."""
    for tokens in readings(query):
        yield _AlterReader(tokens, query.database, {schema.table: schema})


class _AlterReader(DdlReader):
    """Reads the tokens of an ALTER TABLE or a TRUNCATE of one table."""

    def read(self) -> Alteration:
        """The statement's alteration of the table. Raises Unclear if it does more than change columns or truncate."""
        if self._skip("TRUNCATE"):
            self._skip("TABLE")
            self._read_one_table()
            if not self._is_over:
                raise Unclear("it does more")
            return Alteration(empties=True)
        schema = self._read_altered_table()
        if changed_by_any_ddl(schema):
            raise Unclear("it may compute a generated column anew")
        return Alteration(tuple(change for action in self._actions() for change in action.changes(schema)))

    def name_changes(self) -> tuple[Change, ...]:
        """The statement's changes to the names of columns. Raises Unclear if the names cannot be read."""
        schema = self._read_altered_table()
        return tuple(change for action in self._actions() for change in action.name_changes(schema))

    def _read_altered_table(self) -> TableSchema:
        """Read the beginning of an ALTER TABLE, up to the name of the altered table; return this table."""
        self._expect("ALTER")
        self._skip("ONLINE")
        self._expect("TABLE")
        self._skip_all("IF", "EXISTS")
        return self._read_one_table()

    def _actions(self) -> "list[_ActionReader]":
        """A reader for each action of the ALTER TABLE: the tokens after the table's name, split at commas."""
        actions = split_at_commas(self._tokens[self._at :])
        return [_ActionReader(tokens, self._database, self._copied) for tokens in actions]

    def _read_one_table(self) -> TableSchema:
        """Read a table's name, and skip a WAIT. Returns the copied table. Raises Unclear for another table's name."""
        tables = self._read_tables()  # reads one name: the copied table if it has this name, else nothing
        self._skip_wait()
        if len(tables) != 1:
            raise Unclear("it is of another table")
        return tables[0]


class _ActionReader(Action):
    """Reads one action of an ALTER TABLE."""

    def changes(self, schema: TableSchema) -> list[Change]:
        """The action's changes to columns; empty if it leaves the copied table as it is.

        Raises Unclear if the action does anything else.
        """
        if self.is_harmless(schema):
            return []
        self._at = 0  # read the action from its beginning again
        match self._read_word():
            case "ADD":
                return self._read_added_columns()
            case "DROP":
                self._skip("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                self._skip("RESTRICT", "CASCADE")
                self._expect_end()
                return [Change(Act.DROP, name, name)]
            case "RENAME":
                self._expect("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                self._expect("TO")
                change = Change(Act.RENAME, name, self._read_name())
                self._expect_end()
                return [change]
            case "MODIFY":
                self._skip("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                return [Change(Act.DEFINE, name, name, self._read_definition())]
            case "CHANGE":
                self._skip("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                to = self._read_name()
                return [Change(Act.DEFINE, name, to, self._read_definition())]
        raise Unclear("its action is not known")

    def name_changes(self, schema: TableSchema) -> list[Change]:
        """The action's changes to the names of columns, whatever else it does; empty if it changes no name.

        Raises Unclear if the names cannot be read.
        """
        try:
            return self.changes(schema)
        except Unclear:
            self._at = 0  # read the action from its beginning again, without the column's definition
        match self._read_word():
            case "CHANGE":
                self._skip("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                return [Change(Act.DEFINE, name, self._read_name())]
            case "ADD" if self._peek() not in _NO_COLUMNS:
                self._skip("COLUMN")
                self._refuse_if_exists()
                name = self._read_name()
                return [Change(Act.ADD, name, name)]
            case "DROP" | "RENAME" if self._peek() not in _NO_COLUMNS:  # in a form that `changes` does not know
                raise Unclear("what it names is not known")
        return []  # any other action changes no name of a column

    def _read_added_columns(self) -> list[Change]:
        """Read the columns of an ADD: a single one, or a list in parentheses. Raises Unclear for anything else."""
        has_word_column = self._skip("COLUMN")
        self._refuse_if_exists()
        if not self._is_sign("("):
            return [self._read_added_column()]
        # ADD COLUMN with a list, and words after a list, are rare: no rule here reads them
        if has_word_column or self._tokens[-1] != Token(Sort.SIGN, ")"):
            raise Unclear("it does more than add columns")
        columns = split_at_commas(self._tokens[self._at + 1 : -1])
        readers = [_ActionReader(tokens, self._database, self._copied) for tokens in columns]
        changes = [reader._read_added_column() for reader in readers]  # noqa: SLF001 - of the same class
        if any(change.after is not None for change in changes):
            raise Unclear("FIRST or AFTER within parentheses")
        return changes

    def _read_added_column(self) -> Change:
        """Read a column's name and definition; return the change that adds the column."""
        if self._peek() in _NO_COLUMNS:
            raise Unclear("it adds no column")
        name = self._read_name()
        return Change(Act.ADD, name, name, self._read_definition())

    def _read_definition(self) -> str | None:
        """Read a column's definition. Returns FIRST, or the name after AFTER, if it ends with these; None otherwise.

        Raises Unclear for a definition that does not begin with a type, has a word that is not in `_PLAIN`, or has a
        default that is no literal.
        """
        definition = list(self._tokens[self._at :])
        after: str | None = None
        if definition and _is_word(definition[-1], "FIRST"):
            after = FIRST
            definition = definition[:-1]
        elif len(definition) > 1 and _is_word(definition[-2], "AFTER") and definition[-1].sort in _NAME_SORTS:
            after = definition[-1].text
            definition = definition[:-2]
        if not definition or definition[0].sort is not Sort.WORD or definition[0].text.upper() not in _TYPES:
            raise Unclear("a type should come next")
        # for each token after the type's name: its index, the token before it, and the token
        for index, (previous, token) in enumerate(pairwise(definition), start=1):
            is_known_word = token.text.upper() in _PLAIN or _NUMBER.fullmatch(token.text)
            if token.sort is Sort.NAME or (token.sort is Sort.WORD and not is_known_word):
                raise Unclear("it has more than a type and a constant default")
            if _is_word(previous, "DEFAULT") and not _begins_with_literal(definition[index:]):
                raise Unclear("its default is not a constant")
        self._at = len(self._tokens)  # all tokens were read
        return after

    def _refuse_if_exists(self) -> None:
        """Raise Unclear at MariaDB's IF [NOT] EXISTS: only the server knows whether the condition was met."""
        if self._peek() == "IF":
            raise Unclear("whether it did anything is not known")

    def _expect_end(self) -> None:
        """Raise Unclear if the action has more tokens."""
        if not self._is_over:
            raise Unclear("it does more")


def _begins_with_literal(tokens: Sequence[Token]) -> bool:
    """Whether these tokens begin with a literal, and the definition ends after it or goes on with a word.

    False for a word that is no literal and may be a column's name, and for a literal that is part of an expression.
    """
    written = " ".join(_form_of(token) for token in tokens)
    return _LITERAL.match(written) is not None


def _form_of(token: Token) -> str:
    """A token as `_LITERAL` has it: `'` for a text, else the token's own text in capitals."""
    return "'" if token.sort is Sort.TEXT else token.text.upper()


def _is_word(token: Token, word: str) -> bool:
    return token.sort is Sort.WORD and token.text.upper() == word
