"""Decides whether a DDL statement may change copied tables: their rows, columns or key. Pure.

Fail closed. A statement is harmless only if it names no copied table, or if each of its actions is known to leave the
rows, columns and key of the copied table as they are. This module parses only what this decision needs. A full SQL
parser would not do: sqlglot does not parse RENAME TABLE, and takes `/*!50000 … */` for a comment.
Sources: MySQL manual, "Data Definition Statements"; MariaDB documentation, "Data Definition Statements".
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from lakeingest.core.ddl.any_ddl import changed_by_any_ddl
from lakeingest.core.tables.schema import PRIMARY, Column, Kind, TableId, TableSchema
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, is_in_utf8, readings

# Table options that change no row, in an ALTER TABLE; each has one value
_OPTIONS = {
    *("ALGORITHM", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT", "COMPRESSION"),
    *("DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS"),
    *("ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES"),
}
_INDEX = ("INDEX", "KEY")
_INDEX_BYTES = 3072  # the most bytes of an entry of an index of InnoDB, with pages of 16 KiB
_CHARACTER_BYTES, _NUMBER_BYTES = 4, 8  # the most bytes of a character, and of a value that is no text and no bytes
_MAINTENANCE = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD")  # of partitions: their rows stay as they are
_IGNORED_ENDINGS = {"RESTRICT", "CASCADE", "WAIT", "NOWAIT"}  # words that may follow the tables of a DROP TABLE

Tables = Mapping[TableId, TableSchema]


def may_change(query: Query, copied: Tables) -> bool:
    """Whether a DDL statement may change a copied table; in doubt, True.

    If the statement cannot be parsed: whether its default database, or one that it names, has copied tables.
    """
    try:
        return any(DdlReader(tokens, query.database, copied).may_change() for tokens in readings(query))
    except Unclear:
        return _names_copied_database(query, copied)


class DdlReader:
    """Reads the tokens of a statement, the first one first. The methods raise Unclear for tokens they do not expect."""

    def __init__(self, tokens: Sequence[Token], database: str, copied: Tables) -> None:
        has_semicolon = bool(tokens) and tokens[-1] == Token(Sort.SIGN, ";")
        self._tokens = tokens[:-1] if has_semicolon else tokens
        self._at = 0  # the index of the next token
        self._database, self._copied = database, copied

    def may_change(self) -> bool:
        """Whether the statement may change a copied table."""
        match self._read_word():
            case "CREATE":
                return self._read_create()
            case "ALTER":
                return self._read_alter()
            case "DROP":
                return self._read_drop()
            case "RENAME":
                self._expect("TABLE", "TABLES")
                return self._read_rename()
            case "TRUNCATE":
                self._skip("TABLE")
                return bool(self._read_tables())
            case "REPAIR" | "OPTIMIZE" as word:  # REPAIR may lose rows; OPTIMIZE copies them, and so may change values
                self._skip("NO_WRITE_TO_BINLOG", "LOCAL")
                self._expect("TABLE", "TABLES")
                return any(word == "REPAIR" or changed_by_any_ddl(schema) for schema in self._read_table_list())
        raise Unclear("it is not DDL of a table")

    def _read_create(self) -> bool:
        """Read a CREATE. Returns whether the statement may change a copied table: by OR REPLACE, or by a new index."""
        replaces = self._skip("OR")
        if replaces:
            self._expect("REPLACE")
        if self._skip("TABLE"):
            self._skip_all("IF", "NOT", "EXISTS")
            return bool(self._read_tables()) and replaces  # without OR REPLACE, it fails if a table has the name
        if self._skip("DATABASE", "SCHEMA"):
            self._skip_all("IF", "NOT", "EXISTS")
            return self._has_copied_tables(self._read_name()) and replaces
        is_unique = self._skip("UNIQUE")
        self._skip("FULLTEXT", "SPATIAL", "VECTOR")
        self._expect("INDEX")
        self._skip_all("IF", "NOT", "EXISTS")
        name = self._read_name()
        if self._skip("USING", "TYPE"):
            self._read_name()
        self._expect("ON")
        for schema in self._read_tables():
            if is_unique and not _keeps_its_key(schema):  # the index may become the key
                return True
            if is_unique and self._may_add_hidden_column(schema):
                return True
            if changed_by_any_ddl(schema) or (replaces and _may_be_key(schema, name)):  # OR REPLACE drops the old index
                return True
        return False

    def _read_drop(self) -> bool:
        """Read a DROP. Returns whether it may drop a copied table, its database or key's index, or change values."""
        if self._skip("DATABASE", "SCHEMA"):
            self._skip_all("IF", "EXISTS")
            return self._has_copied_tables(self._read_name())
        if self._skip("INDEX"):
            self._skip_all("IF", "EXISTS")
            name = self._read_name()
            self._expect("ON")
            return any(changed_by_any_ddl(schema) or _may_be_key(schema, name) for schema in self._read_tables())
        self._expect("TABLE", "TABLES")
        self._skip_all("IF", "EXISTS")
        changes = bool(self._read_table_list())
        if not self._is_over and self._read_word() not in _IGNORED_ENDINGS:
            raise Unclear("it has more than a list of tables to drop")
        return changes

    def _read_rename(self) -> bool:
        """Read a RENAME TABLE. Returns whether an old or a new name is the name of a copied table."""
        self._skip_all("IF", "EXISTS")
        changes = False
        while True:
            changes |= bool(self._read_tables())
            self._skip_wait()
            self._expect("TO")
            changes |= bool(self._read_tables())
            if self._is_over:
                return changes
            self._expect_sign(",")

    def _read_alter(self) -> bool:
        """Read an ALTER. Returns whether it may change a copied table.

        The copied table can be the altered table, or another table that an action names, for example RENAME TO.
        """
        if self._skip("DATABASE", "SCHEMA"):  # it changes only defaults of new tables, but UPGRADE renames the database
            return self._has("UPGRADE") and bool(self._copied)
        self._skip("ONLINE")
        ignores = self._skip("IGNORE")
        self._expect("TABLE")
        self._skip_all("IF", "EXISTS")
        altered = self._read_tables()
        self._skip_wait()
        if altered and (ignores or any(changed_by_any_ddl(schema) for schema in altered)):  # IGNORE may delete rows
            return True
        if Action(self._tokens[self._at :], self._database, self._copied).is_partition_maintenance():
            return False  # the partitions' rows stay as they are
        actions = [Action(tokens, self._database, self._copied) for tokens in split_at_commas(self._tokens[self._at :])]
        if not altered:  # the altered table is not copied, but an action may name a copied table
            return any(action.may_change_another() for action in actions)
        return not all(action.is_harmless(schema) for action in actions for schema in altered)

    def _read_table_list(self) -> list[TableSchema]:
        """Read a list of tables. Returns the copied tables among them."""
        tables = self._read_tables()
        while self._is_sign(","):
            self._at += 1
            tables += self._read_tables()
        return tables

    def _read_tables(self) -> list[TableSchema]:
        """Read a table's name. Returns the copied tables that may have this name: case and accents are ignored."""
        table_id = self._read_table_id()
        return [
            schema
            for table, schema in self._copied.items()
            if folded(table.name) == folded(table_id.name)
            and (not table_id.database or folded(table.database) == folded(table_id.database))  # '': of any database
        ]

    def _read_table_id(self) -> TableId:
        """Read a table's name, which is in the default database if the name has no database."""
        name = self._read_name()
        if not self._is_sign("."):
            return TableId(self._database, name)
        self._at += 1
        return TableId(name, self._read_name())

    def _has_copied_tables(self, database: str) -> bool:
        return folded(database) in {folded(table.database) for table in self._copied}

    @property
    def _is_over(self) -> bool:
        """Whether all tokens were read."""
        return self._at == len(self._tokens)

    def _peek(self) -> str:
        """The next token in capitals, without reading it; '' if it is no word."""
        token = None if self._is_over else self._tokens[self._at]
        return token.text.upper() if token and token.sort is Sort.WORD else ""

    def _read_word(self) -> str:
        """Read the next word, in capitals. If the next token is no word, nothing is read, and the result is ''."""
        word = self._peek()
        if word:
            self._at += 1
        return word

    def _skip(self, *words: str) -> bool:
        """Skip the next word if it is one of `words`. Returns whether it was skipped."""
        is_next = self._peek() in words
        if is_next:
            self._at += 1
        return is_next

    def _skip_all(self, *words: str) -> None:
        """Skip all of `words` if the next word is the first of them."""
        if self._skip(words[0]):
            for word in words[1:]:
                self._expect(word)

    def _skip_wait(self) -> None:
        """Skip MariaDB's clause that says how long to wait for a lock."""
        if self._skip("WAIT"):
            self._read_name()
        else:
            self._skip("NOWAIT")

    def _expect(self, *words: str) -> None:
        if not self._skip(*words):
            raise Unclear(f"{' or '.join(words)} should come next")

    def _is_sign(self, sign: str) -> bool:
        return not self._is_over and self._tokens[self._at] == Token(Sort.SIGN, sign)

    def _expect_sign(self, sign: str) -> None:
        if not self._is_sign(sign):
            raise Unclear(f"{sign} should come next")
        self._at += 1

    def _read_name(self) -> str:
        if self._is_over or self._tokens[self._at].sort not in {Sort.WORD, Sort.NAME}:
            raise Unclear("a name should come next")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _may_add_hidden_column(self, schema: TableSchema) -> bool:
        """Whether MariaDB may keep a unique key as a hash, in a hidden column; the key's columns are the next tokens.

        MariaDB does so if the columns take more bytes than an index can have, or the key is declared USING HASH. Only
        columns without a length are counted: one with a length, as in `name(10)`, takes few bytes.
        """
        tokens = self._tokens[self._at :]
        without_length = [token for token, after in zip_longest(tokens, tokens[1:]) if after != Token(Sort.SIGN, "(")]
        names = {folded(token.text) for token in without_length if token.sort in {Sort.WORD, Sort.NAME}}
        size = sum(_index_bytes_max(column) for column in schema.columns if folded(column.source_name) in names)
        return size > _INDEX_BYTES or self._has("HASH")

    def _has(self, *words: str) -> bool:
        """Whether the statement has one of `words` anywhere, outside of quotes."""
        return any(token.sort is Sort.WORD and token.text.upper() in words for token in self._tokens)


class Action(DdlReader):
    """Reads one action of an ALTER TABLE."""

    def is_partition_maintenance(self) -> bool:
        """Whether the action only maintains partitions. Then it is the only action: its commas separate partitions."""
        maintains = self._skip(*_MAINTENANCE)
        self._skip("NO_WRITE_TO_BINLOG", "LOCAL")
        return maintains and self._skip("PARTITION")

    def other_tables(self) -> list[TableSchema] | None:
        """The copied tables that the action names beside the altered table; None if it names no other table."""
        if self._skip("RENAME"):
            if self._peek() in {*_INDEX, "COLUMN"}:
                return None
            if not self._skip("TO", "AS") and self._is_sign("="):  # RENAME TO t, RENAME AS t, RENAME = t, or RENAME t
                self._at += 1
            renamed_to = self._read_tables()
            if not self._is_over:
                raise Unclear("it does more than rename a table")
            return renamed_to
        if self._skip("EXCHANGE"):
            self._expect("PARTITION")
            self._read_name()
            self._expect("WITH")
        elif self._skip("CONVERT"):
            if self._skip("PARTITION"):  # CONVERT PARTITION … TO TABLE; else CONVERT TABLE or CONVERT TO CHARACTER SET
                self._read_name()
                self._expect("TO")
        else:
            return None
        return self._read_tables() if self._skip("TABLE") else None  # no TABLE: CONVERT TO CHARACTER SET

    def may_change_another(self) -> bool:
        """Whether the action of a table that is not copied may change a copied table."""
        other_tables = self.other_tables()
        if other_tables is not None:
            return bool(other_tables)
        # `other_tables` may not know the action: this reaches a table only by TABLE or UNION and the table's name
        names = {folded(token.text) for token in self._tokens if token.sort in {Sort.WORD, Sort.NAME}}
        return self._has("TABLE", "UNION") and not names.isdisjoint(folded(table.name) for table in self._copied)

    def is_harmless(self, schema: TableSchema) -> bool:
        """Whether the action leaves the rows, columns and key of this table as they are."""
        if self._skip("ADD"):
            return self._is_harmless_add(schema)
        if self._skip("DROP"):
            if self._skip("FOREIGN"):
                self._expect("KEY")
                return True
            if self._skip("CHECK"):
                return True
            return self._skip(*_INDEX) and not _may_be_key(schema, self._index_name())
        if self._skip("RENAME"):
            if not self._skip(*_INDEX):
                return False
            old_name = self._index_name()
            self._expect("TO")
            return not (_may_be_key(schema, old_name) or _may_be_key(schema, self._read_name()))
        if self._skip("ALTER"):
            return self._skip(*_INDEX) and not _may_be_key(schema, self._index_name())
        if self._skip("ENABLE", "DISABLE"):
            return self._skip("KEYS") and self._is_over
        if self._skip("WITH", "WITHOUT"):
            return self._skip("VALIDATION") and self._is_over
        while not self._is_over:  # table options, which need no commas between them
            if not (self._skip("FORCE") or self._skip_option()):
                return False
        return True

    def _is_harmless_add(self, schema: TableSchema) -> bool:
        """Whether an ADD only adds a check, or an index that cannot become the key and adds no hidden column."""
        if self._skip("CONSTRAINT") and self._peek() not in {"CHECK", "UNIQUE", "PRIMARY", "FOREIGN"}:
            self._read_name()  # of the constraint, which need not have one
        if self._skip("UNIQUE"):
            return _keeps_its_key(schema) and not self._may_add_hidden_column(schema)
        return self._skip(*_INDEX, "FULLTEXT", "SPATIAL", "CHECK")

    def _index_name(self) -> str:
        self._skip_all("IF", "EXISTS")
        return self._read_name()

    def _skip_option(self) -> bool:
        """Skip a table option that changes no row, with its value. Returns False for anything else."""
        option = self._read_word()
        if option not in _OPTIONS:
            return False
        if self._is_sign("="):
            self._at += 1
        if self._is_over or self._tokens[self._at].sort is Sort.SIGN:
            return False
        value = self._tokens[self._at].text.upper()
        self._at += 1
        return option != "ENGINE" or value == "INNODB"  # another engine is no harmless option


def folded(name: str) -> str:
    """A name without case and accents: two names that a server may treat as equal have the same result."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


def _index_bytes_max(column: Column) -> int:
    """The most bytes that a value of a column takes in an index; for TEXT and the like, more than an index can have."""
    source = column.source_type
    if source.name in {"varchar", "char"}:
        return source.size * _CHARACTER_BYTES
    if source.name in {"varbinary", "binary"}:
        return source.size
    return _INDEX_BYTES + 1 if column.kind in {Kind.STRING, Kind.BINARY, Kind.JSON} else _NUMBER_BYTES


def _keeps_its_key(schema: TableSchema) -> bool:
    """Whether the key stays the same when a unique index is added (see `mysql.key_choice`)."""
    return schema.declared or schema.index == PRIMARY


def _may_be_key(schema: TableSchema, index: str) -> bool:
    """Whether the index with the name `index` may be the index of the key, or the index of a hidden column."""
    may_have_name = not schema.index or folded(schema.index) == folded(index)  # '': the key's index is not known
    return schema.hides or (may_have_name and not schema.declared)  # a key that the user declared needs no index


def split_at_commas(tokens: Sequence[Token]) -> Iterable[Sequence[Token]]:
    """Split tokens at the commas that are not in parentheses."""
    depth, begins = 0, 0  # the number of open parentheses, and the first token after the last comma
    for index, token in enumerate(tokens):
        if token.sort is Sort.SIGN:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "," and not depth:
                yield tokens[begins:index]
                begins = index + 1
    yield tokens[begins:]


def _names_copied_database(query: Query, copied: Tables) -> bool:
    """Whether the default database, or a database that the text names, has copied tables; in doubt, True."""
    if not is_in_utf8(query):  # names in another charset cannot be compared
        return bool(copied)
    databases = {table.database for table in copied}
    if folded(query.database) in map(folded, databases):
        return True
    # the forms that a name may have in the text, as a whole word: as it is, or with the quotes in it doubled
    spellings = {form for name in databases for form in (name, name.replace("`", "``"), name.replace('"', '""'))}
    text = folded(query.text)
    return any(re.search(rf"(?<![\w$]){re.escape(folded(form))}(?![\w$])", text) for form in spellings)
