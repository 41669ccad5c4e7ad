"""Recognises the kind of a statement in the binlog by its beginning. Pure.

Fail closed: a statement whose beginning is not in the table `_BEGINNINGS` is UNKNOWN. `wire.ddl` says which tables DDL
may change.
"""

import enum
import re

from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.tokens import Sort, Token, Unclear, readings


class Statement(enum.Enum):
    """The kinds of statements that the replay of rows distinguishes."""

    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    ROLLBACK_TO = enum.auto()
    SAVEPOINT = enum.auto()
    XA_START = enum.auto()
    XA_END = enum.auto()
    XA_COMMIT = enum.auto()
    XA_ROLLBACK = enum.auto()
    HARMLESS = enum.auto()  # changes no row and no column of any base table
    CREATE_TABLE = enum.auto()
    DDL = enum.auto()
    DML = enum.auto()  # a change in statement format
    UNKNOWN = enum.auto()


# Statements that are always refused: the name, and the change on the source that avoids them.
REFUSED: dict[Statement, tuple[str, str]] = {
    Statement.ROLLBACK_TO: ("a ROLLBACK TO", "use no savepoints across storage engines"),
    Statement.UNKNOWN: ("a statement of unknown meaning", "report it to the lakeingest project"),
}

_COMMENT = re.compile(r"/\*(?!M?!)|--[ \t][^\n]*|#[^\n]*")  # the start of a comment, or a comment up to the line's end
_MARIADB_COMMENT = re.compile(r"/\*M!")  # a comment that MariaDB executes, and MySQL does not
_EXECUTED = re.compile(r"/\*M?!\d*|\*/")  # the beginning and the end of a comment that the server executes
_SETTINGS = re.compile(r"set\s+statement\b", re.IGNORECASE)
_NAME = r"(?:`(?:[^`]|``)*`|[\w$]+)"
_USER = r"""(?:`[^`]*`|'[^']*'|"[^"]*"|[\w$.%-]+)"""
_OPTION = rf"""(?:or\s+replace|algorithm\s*=\s*\w+|definer\s*=\s*{_USER}(?:\s*@\s*{_USER}|\s*\(\s*\))?
    |sql\s+security\s+\w+|aggregate|json\s+relational\s+duality|undo)"""
_XID = r"x'[0-9a-f]*',x'[0-9a-f]*',-?\d+"  # as a server writes it
_OBJECT = r"""(?:view|trigger|event|procedure|function|server|resource\s+group|library|tablespace
    |logfile\s+group|spatial\s+reference\s+system|user|role|sequence|package)"""

# The first pattern that matches the beginning of a statement decides.
_BEGINNINGS: tuple[tuple[str, Statement], ...] = (
    (r"begin\s*$", Statement.BEGIN),
    (r"commit\s*$", Statement.COMMIT),
    (r"rollback\s*$", Statement.ROLLBACK),
    (r"rollback\s+to\b", Statement.ROLLBACK_TO),
    (r"(?:release\s+)?savepoint\b", Statement.SAVEPOINT),
    (rf"xa\s+start\s+{_XID}\s*$", Statement.XA_START),
    (rf"xa\s+end\s+{_XID}\s*$", Statement.XA_END),
    (rf"xa\s+commit\s+{_XID}\s*$", Statement.XA_COMMIT),
    (rf"xa\s+rollback\s+{_XID}\s*$", Statement.XA_ROLLBACK),
    (rf"(?:create|alter|drop|rename)\s+(?:{_OPTION}\s+)*{_OBJECT}\b", Statement.HARMLESS),
    (r"(?:create|drop)\s+(?:or\s+replace\s+)?temporary\s+(?:tables?|sequence)\b", Statement.HARMLESS),
    (r"create\s+or\s+replace\s+(?:table|database|schema)\b", Statement.DDL),
    (r"create\s+(?:database|schema)\b", Statement.HARMLESS),
    (r"(?:grant|revoke|flush|install|uninstall|alter\s+instance)\b", Statement.HARMLESS),
    # in MariaDB, ANALYZE before a change executes the change
    (r"(?:analyze|check)\s+(?:no_write_to_binlog\s+|local\s+)?tables?\b", Statement.HARMLESS),
    (r"set\s+(?:password|default\s+role)\b", Statement.HARMLESS),
    (r"create\s+table\b", Statement.CREATE_TABLE),
    (r"create\s+(?:or\s+replace\s+)?(?:unique\s+|fulltext\s+|spatial\s+|vector\s+)?index\b", Statement.DDL),
    (r"alter\s+(?:(?:online\s+)?(?:ignore\s+)?table|database|schema)\b", Statement.DDL),
    (r"drop\s+(?:tables?|index|database|schema)\b", Statement.DDL),
    (r"(?:rename\s+tables?|truncate|repair|optimize)\b", Statement.DDL),
    (r"(?:insert|update|delete|replace|load|call|with|select|values|table|do)\b", Statement.DML),
)
_TABLE = [(re.compile(beginning, re.IGNORECASE | re.VERBOSE), meaning) for beginning, meaning in _BEGINNINGS]


def classify(query: Query) -> Statement:
    """The kind of a statement by its beginning, read by the rules of the server that wrote it to the binlog.

    With MariaDB's `SET STATEMENT … FOR`, the result is the kind of the statement after FOR; UNKNOWN if it is unclear.
    """
    text = query.text
    if not query.is_mariadb:  # to MySQL, a comment that MariaDB executes is a plain comment
        text = _without_comments(_MARIADB_COMMENT, text)
    plain = _text_without_comments(text)
    has_settings = query.is_mariadb and _SETTINGS.match(plain)
    if not has_settings:
        return _kind_of(plain)
    kinds = set[Statement]()  # in all charsets in which the server may have read the statement
    try:
        for tokens in readings(query):  # `readings` leaves the settings out
            kinds.add(_kind_of(" ".join(map(_as_text, tokens))))
    except Unclear:
        return Statement.UNKNOWN
    return kinds.pop() if len(kinds) == 1 else Statement.UNKNOWN


def _kind_of(text: str) -> Statement:
    return next((meaning for pattern, meaning in _TABLE if pattern.match(text)), Statement.UNKNOWN)


def _text_without_comments(text: str) -> str:
    """The text without comments, but with the content of executed comments.

    What looks like a comment in a string literal is removed, too, so only the beginning of the result is exact.
    """
    return _EXECUTED.sub(" ", _without_comments(_COMMENT, text)).strip().removesuffix(";")


def _without_comments(comment: re.Pattern[str], text: str) -> str:
    """The text with a blank for each comment that begins as `comment` says. A comment without an end is kept as text.

    The time is linear in the length of the text, because no end is searched behind the last `*/`.
    """
    kept: list[str] = []  # the texts before and between the comments
    kept_to, at, last_end = 0, 0, text.rfind("*/")
    while opened := comment.search(text, at):
        at = opened.end()
        if opened[0].startswith("/*"):  # else a comment up to the line's end, which the pattern has matched completely
            if at > last_end:  # the comment has no end: its text is kept, and the search goes on behind its begin
                continue
            at = text.index("*/", at) + 2
        kept.append(text[kept_to : opened.start()])
        kept_to = at
    return " ".join((*kept, text[kept_to:]))


def _as_text(token: Token) -> str:
    """A token as it is written in a statement. A text loses its single quotes: the statement's kind stays the same."""
    match token.sort:
        case Sort.NAME:
            return f"`{token.text.replace('`', '``')}`"
        case Sort.TEXT:
            return "'{}'".format(token.text.replace("'", ""))
    return token.text
