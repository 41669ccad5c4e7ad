"""Decides whether a DDL statement may change copied tables: their rows, columns or key. Pure.

Fail closed. A statement passes only if it changes no copied table, or if each of its actions is known to leave the
rows, columns and key of a copied table as they are. This module has only the part of the grammar that this needs. A
full SQL parser would not do: sqlglot does not read RENAME TABLE, and takes `/*!50000 … */` for a comment.
Sources: MySQL manual, "Data Definition Statements"; MariaDB documentation, "Data Definition Statements".
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from lakeingest.core.schema import PRIMARY, Column, Kind, TableId, TableSchema
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, is_in_utf8, readings

# Table options that change no row; each has one value
_OPTIONS = {
    *("ALGORITHM", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT", "COMPRESSION"),
    *("DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS"),
    *("ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES"),
}
_INDEX = ("INDEX", "KEY")
_INDEX_BYTES = 3072  # of InnoDB with pages of 16 KiB
_CHARACTER_BYTES, _NUMBER_BYTES = 4, 8  # at most
_MAINTAINED = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD")  # partitions, whose rows stay as they are
_IGNORED_ENDINGS = {"RESTRICT", "CASCADE", "WAIT", "NOWAIT"}  # after the list of tables of a DROP TABLE

Tables = Mapping[TableId, TableSchema]


def may_change(query: Query, copied: Tables) -> bool:
    """Whether a DDL statement may change a copied table; in doubt, True.

    If the statement cannot be parsed: whether its default database, or a database that it names, has copied tables.
    """
    try:
        return any(DdlReader(tokens, query.database, copied).may_change() for tokens in readings(query))
    except Unclear:
        return _is_near(query, copied)


class DdlReader:
    """Reads the tokens of a statement from its start. Its methods raise Unclear for tokens that are not expected."""

    def __init__(self, tokens: Sequence[Token], database: str, copied: Tables) -> None:
        self._tokens, self._at = tokens, 0
        if tokens and tokens[-1] == Token(Sort.SIGN, ";"):
            self._tokens = tokens[:-1]
        self._database, self._copied = database, copied

    def may_change(self) -> bool:
        """Whether the statement may change a copied table."""
        match self._word():
            case "CREATE":
                return self._create()
            case "ALTER":
                return self._alter()
            case "DROP":
                return self._drop()
            case "RENAME":
                self._expect("TABLE", "TABLES")
                return self._rename()
            case "TRUNCATE":
                self._skip("TABLE")
                return bool(self._table())
            case "REPAIR":
                self._skip("NO_WRITE_TO_BINLOG", "LOCAL")
                self._expect("TABLE", "TABLES")
                return self._any_of_list()
        raise Unclear("it is not DDL of a table")

    def _create(self) -> bool:
        """Whether a CREATE may change a copied table: by OR REPLACE, or by an index."""
        replaces = self._skip("OR")
        if replaces:
            self._expect("REPLACE")
        if self._skip("TABLE"):
            self._skip_all("IF", "NOT", "EXISTS")
            return bool(self._table()) and replaces  # a plain CREATE TABLE succeeds only where no table has the name
        if self._skip("DATABASE", "SCHEMA"):
            self._skip_all("IF", "NOT", "EXISTS")
            return self._is_copied_from(self._name()) and replaces
        is_unique = self._skip("UNIQUE")
        self._skip("FULLTEXT", "SPATIAL", "VECTOR")
        self._expect("INDEX")
        self._skip_all("IF", "NOT", "EXISTS")
        name = self._name()
        if self._skip("USING", "TYPE"):
            self._name()
        self._expect("ON")
        return any(
            schema.bound
            or (is_unique and (not _keeps_its_key(schema) or self._may_hide(schema)))
            or (replaces and _may_be_key(schema, name))
            for schema in self._table()
        )

    def _drop(self) -> bool:
        """Whether a DROP may change a copied table: the table itself, its database, or the index of its key."""
        if self._skip("DATABASE", "SCHEMA"):
            self._skip_all("IF", "EXISTS")
            return self._is_copied_from(self._name())
        if self._skip("INDEX"):
            self._skip_all("IF", "EXISTS")
            name = self._name()
            self._expect("ON")
            return any(schema.bound or _may_be_key(schema, name) for schema in self._table())
        self._expect("TABLE", "TABLES")
        self._skip_all("IF", "EXISTS")
        changes = self._any_of_list()
        if not self._is_over and self._word() not in _IGNORED_ENDINGS:
            raise Unclear("it has more than a list of tables to drop")
        return changes

    def _rename(self) -> bool:
        """Whether a RENAME TABLE has a copied table on either side of a TO."""
        self._skip_all("IF", "EXISTS")
        changes = False
        while True:
            changes |= bool(self._table())
            self._skip_wait()
            self._expect("TO")
            changes |= bool(self._table())
            if self._is_over:
                return changes
            self._sign(",")

    def _alter(self) -> bool:
        """Whether an ALTER may change a copied table.

        The copied table may be the altered one, the new name of a RENAME, or the other table of EXCHANGE PARTITION.
        """
        if self._skip("DATABASE", "SCHEMA"):  # it changes only the defaults of new tables
            return self._has("UPGRADE") and bool(self._copied)
        self._skip("ONLINE")
        ignores = self._skip("IGNORE")
        self._expect("TABLE")
        self._skip_all("IF", "EXISTS")
        altered = self._table()
        self._skip_wait()
        if Action(self._tokens[self._at :], self._database, self._copied).maintains_partitions():
            return False
        actions = [Action(action, self._database, self._copied) for action in split(self._tokens[self._at :])]
        if not altered:  # another table, but an action may name a copied one
            return any(action.may_change_another() for action in actions)
        if ignores or any(schema.bound for schema in altered):
            return True
        return not all(action.is_harmless(schema) for action in actions for schema in altered)

    def _any_of_list(self) -> bool:
        changes = bool(self._table())
        while self._is_sign(","):
            self._at += 1
            changes |= bool(self._table())
        return changes

    def _table(self) -> list[TableSchema]:
        """The copied tables with the name that comes next, compared without case and accents."""
        table_id = self._table_id()
        return [
            schema
            for table, schema in self._copied.items()
            if folded(table.name) == folded(table_id.name)
            and (folded(table.database) == folded(table_id.database) or not table_id.database)
        ]

    def _table_id(self) -> TableId:
        """The table whose name comes next, in the default database unless the name has its own."""
        name = self._name()
        if not self._is_sign("."):
            return TableId(self._database, name)
        self._at += 1
        return TableId(name, self._name())

    def _is_copied_from(self, database: str) -> bool:
        return folded(database) in {folded(table.database) for table in self._copied}

    @property
    def _is_over(self) -> bool:
        return self._at == len(self._tokens)

    def _peek(self) -> str:
        """The next word in capitals; '' for anything else."""
        token = None if self._is_over else self._tokens[self._at]
        return token.text.upper() if token and token.sort is Sort.WORD else ""

    def _word(self) -> str:
        word = self._peek()
        if word:
            self._at += 1
        return word

    def _skip(self, *words: str) -> bool:
        """Skip the next word if it is one of `words`. Returns whether it was."""
        is_next = self._peek() in words
        if is_next:
            self._at += 1
        return is_next

    def _skip_all(self, *words: str) -> None:
        if self._skip(words[0]):
            for word in words[1:]:
                self._expect(word)

    def _skip_wait(self) -> None:
        """Skip MariaDB's clause that says how long to wait for a lock."""
        if self._skip("WAIT"):
            self._name()
        else:
            self._skip("NOWAIT")

    def _expect(self, *words: str) -> None:
        if not self._skip(*words):
            raise Unclear(f"{' or '.join(words)} should come next")

    def _is_sign(self, sign: str) -> bool:
        return not self._is_over and self._tokens[self._at] == Token(Sort.SIGN, sign)

    def _sign(self, sign: str) -> None:
        if not self._is_sign(sign):
            raise Unclear(f"{sign} should come next")
        self._at += 1

    def _name(self) -> str:
        if self._is_over or self._tokens[self._at].sort not in {Sort.WORD, Sort.NAME}:
            raise Unclear("a name should come next")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _may_hide(self, schema: TableSchema) -> bool:
        """Whether MariaDB may keep a unique key on the columns that are named next as a hash, in a hidden column.

        MariaDB does so if the columns take more bytes than an index may have. A column with a length behind its name,
        in parentheses, takes few bytes and does not count.
        """
        rest = self._tokens[self._at :]
        whole = [token for token, following in zip_longest(rest, rest[1:]) if following != Token(Sort.SIGN, "(")]
        names = {folded(token.text) for token in whole if token.sort in {Sort.WORD, Sort.NAME}}
        size = sum(_bytes(column) for column in schema.columns if folded(column.name) in names)
        return size > _INDEX_BYTES or self._has("HASH")

    def _has(self, *words: str) -> bool:
        return any(token.sort is Sort.WORD and token.text.upper() in words for token in self._tokens)


class Action(DdlReader):
    """Reads one action of an ALTER TABLE."""

    def maintains_partitions(self) -> bool:
        """Whether the action only maintains partitions. It may list several of them."""
        maintains = self._skip(*_MAINTAINED)
        self._skip("NO_WRITE_TO_BINLOG", "LOCAL")
        return maintains and self._skip("PARTITION")

    def others(self) -> list[TableSchema] | None:
        """The copied tables whose name or rows the action gives to the altered table; None for any other action."""
        if self._skip("RENAME"):
            if self._peek() in {*_INDEX, "COLUMN"}:
                return None
            if not self._skip("TO", "AS") and self._is_sign("="):
                self._at += 1
            renamed_to = self._table()
            if not self._is_over:
                raise Unclear("it does more than rename a table")
            return renamed_to
        if self._skip("EXCHANGE"):
            self._expect("PARTITION")
            self._name()
            self._expect("WITH")
        elif not self._skip("CONVERT"):
            return None
        elif self._skip("PARTITION"):
            self._name()
            self._expect("TO")
        return self._table() if self._skip("TABLE") else None

    def may_change_another(self) -> bool:
        """Whether the action may change a copied table although the altered table is not copied."""
        other_tables = self.others()
        if other_tables is not None:
            return bool(other_tables)
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        return self._has("TABLE", "UNION") and not names.isdisjoint(folded(table.name) for table in self._copied)

    def is_harmless(self, schema: TableSchema) -> bool:
        """Whether the action leaves the rows, columns and key of this table as they are."""
        if self._skip("ADD"):
            return self._adds_nothing(schema)
        if self._skip("DROP"):
            if self._skip("FOREIGN"):
                self._expect("KEY")
                return True
            return self._skip("CHECK") or (self._skip(*_INDEX) and not _may_be_key(schema, self._index_name()))
        if self._skip("RENAME"):
            if not self._skip(*_INDEX):
                return False
            name = self._index_name()
            self._expect("TO")
            return not (_may_be_key(schema, name) or _may_be_key(schema, self._name()))
        if self._skip("ALTER"):
            return self._skip(*_INDEX) and not _may_be_key(schema, self._index_name())
        if self._skip("ENABLE", "DISABLE"):
            return self._skip("KEYS") and self._is_over
        if self._skip("WITH", "WITHOUT"):
            return self._skip("VALIDATION") and self._is_over
        while not self._is_over:
            if not (self._skip("FORCE") or self._is_option()):
                return False
        return True

    def _adds_nothing(self, schema: TableSchema) -> bool:
        """Whether an ADD only adds an index that cannot become the key, or a check."""
        if self._skip("CONSTRAINT") and self._peek() not in {"CHECK", "UNIQUE", "PRIMARY", "FOREIGN"}:
            self._name()
        if self._skip("UNIQUE"):
            return _keeps_its_key(schema) and not self._may_hide(schema)
        return self._skip(*_INDEX, "FULLTEXT", "SPATIAL", "CHECK")

    def _index_name(self) -> str:
        self._skip_all("IF", "EXISTS")
        return self._name()

    def _is_option(self) -> bool:
        """Skip a table option that changes no row. Returns whether one was skipped."""
        option = self._word()
        if option not in _OPTIONS:
            return False
        if self._is_sign("="):
            self._at += 1
        if self._is_over or self._tokens[self._at].sort is Sort.SIGN:
            return False
        value = self._tokens[self._at].text.upper()
        self._at += 1
        return option != "ENGINE" or value == "INNODB"


def folded(name: str) -> str:
    """A name without case and accents. Two names that a server may treat as equal have the same result."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


def _bytes(column: Column) -> int:
    """The most bytes that a value of a column takes in an index; more than an index may have for an unbounded type."""
    source = column.source_type
    if source.name in {"varchar", "char"}:
        return source.size * _CHARACTER_BYTES
    if source.name in {"varbinary", "binary"}:
        return source.size
    return _INDEX_BYTES + 1 if column.kind in {Kind.STRING, Kind.BINARY, Kind.JSON} else _NUMBER_BYTES


def _keeps_its_key(schema: TableSchema) -> bool:
    """Whether no other unique index can replace the key (see `mysql.key_choice`)."""
    return schema.declared or schema.index == PRIMARY


def _may_be_key(schema: TableSchema, index: str) -> bool:
    """Whether the index of that name may be the index of the key, or have a hidden column."""
    return schema.hides or (not schema.declared and (not schema.index or folded(schema.index) == folded(index)))


def split(tokens: Sequence[Token]) -> Iterable[Sequence[Token]]:
    """The tokens between top-level commas."""
    depth, begins = 0, 0
    for place, token in enumerate(tokens):
        if token.sort is Sort.SIGN:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "," and not depth:
                yield tokens[begins:place]
                begins = place + 1
    yield tokens[begins:]


def _is_near(query: Query, copied: Tables) -> bool:
    """Whether the default database has copied tables, or the text names a database that has some."""
    text, database = query.text, query.database
    if not is_in_utf8(query):  # names are not comparable
        return bool(copied)
    databases = {table.database for table in copied}
    spellings = (
        spelling for name in databases for spelling in (name, name.replace("`", "``"), name.replace('"', '""'))
    )
    return folded(database) in map(folded, databases) or any(
        re.search(rf"(?<![\w$]){re.escape(folded(name))}(?![\w$])", folded(text)) for name in spellings
    )
