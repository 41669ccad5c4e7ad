"""What the text of a statement in the binlog means to the tables that we watch. Pure.

Fail closed: a beginning that is not in the table is UNKNOWN, and what looks like the name of a watched table's database
counts as it.
"""

import enum
import re
from collections.abc import Iterable

from lakeingest.core.schema import TableId


class Statement(enum.Enum):
    """What a statement is, as far as replaying rows goes."""

    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    ROLLBACK_TO = enum.auto()
    SAVEPOINT = enum.auto()
    XA = enum.auto()
    HARMLESS = enum.auto()  # changes no row and no column of any base table
    CREATE_TABLE = enum.auto()
    DDL = enum.auto()
    DML = enum.auto()  # rows changed without row events
    UNKNOWN = enum.auto()


# What is refused wherever it stands: its name, and what to change on the source.
REFUSED: dict[Statement, tuple[str, str]] = {
    Statement.XA: ("an XA statement (not built yet)", "use no XA transactions on the source"),
    Statement.ROLLBACK_TO: ("a ROLLBACK TO", "use no savepoints across storage engines"),
    Statement.DML: ("a change in statement format", "set binlog_format=ROW in every session of the source"),
    Statement.UNKNOWN: ("a statement of unknown meaning", "name it in a report to the lakeingest project"),
}

_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_EXECUTED = re.compile(r"/\*M?!\d*|\*/")  # around text that the server executes
_NAME = r"(?:`(?:[^`]|``)*`|[\w$]+)"
_USER = r"""(?:`[^`]*`|'[^']*'|"[^"]*"|[\w$.%-]+)"""
_OPTION = rf"""(?:or\s+replace|algorithm\s*=\s*\w+|definer\s*=\s*{_USER}(?:\s*@\s*{_USER}|\s*\(\s*\))?
    |sql\s+security\s+\w+|aggregate|json\s+relational\s+duality|undo)"""
_OBJECT = r"""(?:view|trigger|event|procedure|function|server|resource\s+group|library|tablespace
    |logfile\s+group|spatial\s+reference\s+system|user|role|sequence|package)"""

# The first that matches the beginning decides.
_BEGINNINGS: tuple[tuple[str, Statement], ...] = (
    (r"begin\s*$", Statement.BEGIN),
    (r"commit\s*$", Statement.COMMIT),
    (r"rollback\s*$", Statement.ROLLBACK),
    (r"rollback\s+to\b", Statement.ROLLBACK_TO),
    (r"(?:release\s+)?savepoint\b", Statement.SAVEPOINT),
    (r"xa\b", Statement.XA),
    (rf"(?:create|alter|drop|rename)\s+(?:{_OPTION}\s+)*{_OBJECT}\b", Statement.HARMLESS),
    (r"(?:create|drop)\s+(?:or\s+replace\s+)?temporary\s+(?:tables?|sequence)\b", Statement.HARMLESS),
    (r"create\s+or\s+replace\s+(?:table|database|schema)\b", Statement.DDL),
    (r"create\s+(?:database|schema)\b", Statement.HARMLESS),
    (r"(?:grant|revoke|flush|analyze|optimize|install|uninstall|alter\s+instance)\b", Statement.HARMLESS),
    (r"set\s+(?:password|default\s+role)\b", Statement.HARMLESS),
    (r"create\s+table\b", Statement.CREATE_TABLE),
    (r"create\s+(?:unique\s+|fulltext\s+|spatial\s+)?index\b", Statement.DDL),
    (r"alter\s+(?:table|database|schema)\b", Statement.DDL),
    (r"drop\s+(?:tables?|index|database|schema)\b", Statement.DDL),
    (r"(?:rename\s+tables?|truncate|repair)\b", Statement.DDL),
    (r"(?:insert|update|delete|replace|load|call|with|select|values|table|do)\b", Statement.DML),
)
_TABLE = [(re.compile(beginning, re.IGNORECASE | re.VERBOSE), meaning) for beginning, meaning in _BEGINNINGS]


def classify(text: str) -> Statement:
    """What the statement is, by its beginning."""
    beginning = _plain(text)
    return next((meaning for pattern, meaning in _TABLE if pattern.match(beginning)), Statement.UNKNOWN)


def is_harmful(text: str, database: str, watched: Iterable[TableId]) -> bool:
    """Whether a DDL or CREATE TABLE statement may change a watched table; more of them than really do.

    It may when its default database holds watched tables, since a name without its database is of that one, or when the
    database of a watched table is named anywhere in it. A CREATE TABLE that succeeded changes no table that was there:
    a watched one of its name was dropped or renamed before, and that is harmful.
    """
    tables = list(watched)
    if classify(text) is Statement.CREATE_TABLE:
        return False
    if any("\udc80" <= sign <= "\udcff" for sign in text + database):  # another charset: names are not comparable
        return bool(tables)
    databases = {table.database for table in tables}
    names = {spelled for name in databases for spelled in _spellings(name)}
    return database.casefold() in {name.casefold() for name in databases} or any(
        _is_named(name, text) for name in names
    )


def _plain(text: str) -> str:
    """The text without comments. Strings with signs of a comment are not spared: use its beginning."""
    return _EXECUTED.sub(" ", _COMMENT.sub(" ", text)).strip().removesuffix(";")


def _spellings(name: str) -> set[str]:
    """A name as it is, and as it stands between quotes, where one of their own signs is doubled."""
    return {name, name.replace("`", "``"), name.replace('"', '""')}


def _is_named(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.IGNORECASE) is not None
