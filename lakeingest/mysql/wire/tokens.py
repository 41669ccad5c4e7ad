"""Splits a statement in the binlog into tokens: words, quoted names, texts and signs, without comments. Pure.

Sources: MySQL manual, "Schema Object Names", "Comments", "String Literals"; MariaDB documentation, "Comment Syntax".
A version comment (`/*!50000 … */`) in the binlog was executed: a version comment that the server does not execute is
rewritten to a plain comment. MariaDB's own version comments (`/*M!100300 … */`) are plain comments to MySQL.
"""

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from lakeingest.mysql.wire.charsets import texts
from lakeingest.mysql.wire.collations import UnknownCharset, charset_of
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.values import Values

_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20  # of sql_mode
_UTF8 = {"utf8mb3", "utf8mb4"}


class Unclear(ValueError):
    """The effect of a statement on the copied tables is not certain."""


class Sort(enum.Enum):
    """The sorts of tokens."""

    WORD = enum.auto()  # a keyword, a number, or a name without quotes
    NAME = enum.auto()  # a name in quotes
    TEXT = enum.auto()  # a string literal
    SIGN = enum.auto()  # a single punctuation character


class Token(NamedTuple):
    """A token; `text` is without quotes."""

    sort: Sort
    text: str


# A token or what separates tokens. The three %s: the beginnings of executed comments, the characters between ' and "
_PATTERN = r"""
    (?P<blank>[ \t\n\v\f\r]+ | \#[^\n]* | --(?=[\x00-\x20])[^\n]* | --\Z | /\*(?!%s).*?\*/)
    |(?P<opened>/\*M?!(?:\d{5,6})?)
    |(?P<closed>\*/)
    |`(?P<NAME>(?:[^`]|``)+)`
    |(?P<WORD>(?:[0-9A-Za-z$_]|[^\x00-\x7f\s])+)
    |'(?P<TEXT>(?:%s)*)'
    |"(?P<quoted>(?:%s)*)"
    |(?P<SIGN>(?!/\*)[!%%&()*+,\-./:;<=>?@\[\]^{|}~])
"""
# A character between ' or ", with backslash escapes or (PLAIN) without
_SINGLE, _DOUBLE = r"[^'\\]|''|\\.", r"""[^"\\]|""|\\."""
_SINGLE_PLAIN, _DOUBLE_PLAIN = r"[^']|''", r'[^"]|""'


def readings(query: Query) -> Iterator[list[Token]]:
    """Yield the tokens of a statement, once for each charset in which the server may have read it.

    MariaDB's `SET STATEMENT … FOR` before a statement is left out. Raises Unclear if the text cannot be split into
    tokens, or if the tokens depend on an unknown sql_mode or an unknown charset of the session.
    """
    for text in _possible_texts(query):
        tokens = list(_tokens(text, query.sql_mode, is_mariadb=query.is_mariadb))
        yield _without_settings(tokens, text) if query.is_mariadb else tokens


def is_in_utf8(query: Query) -> bool:
    """Whether the database and text of a statement are certainly in UTF-8."""
    try:
        whole = (query.database + query.text).encode()
        return whole.isascii() or (query.collation is not None and charset_of(query.collation) in _UTF8)
    except (UnicodeEncodeError, UnknownCharset):  # the first: for a lone surrogate, a byte that is not UTF-8
        return False


def _without_settings(tokens: list[Token], text: str) -> list[Token]:
    """The tokens after MariaDB's `SET STATEMENT … FOR`, which has settings for this statement only.

    If the settings have a sql_mode, the event has the sql_mode of the settings. But the server has read the text by the
    session's own sql_mode, which is then unknown. Raises Unclear if the tokens depend on the session's sql_mode.
    """
    begin = 0
    while _words(tokens[begin : begin + 2]) == ["SET", "STATEMENT"]:  # there can be several in a row
        if "sql_mode" in text.casefold() and ('"' in text or "\\" in text):
            raise Unclear("its sql_mode, which says how to read quotes, is unknown")
        begin = _end_of_settings(tokens, begin)
    return tokens[begin:]


def _words(tokens: list[Token]) -> list[str]:
    return [token.text.upper() for token in tokens if token.sort is Sort.WORD]


def _end_of_settings(tokens: list[Token], begin: int) -> int:
    """The index of the first token after the settings, whose first token is at `begin`.

    A FOR that is not in parentheses ends the settings. Raises Unclear if there is no such FOR.
    """
    depth = 0
    for at in range(begin, len(tokens)):
        token = tokens[at]
        if token.sort is Sort.SIGN:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.sort is Sort.WORD and token.text.upper() == "FOR" and not depth:
            return at + 1
    raise Unclear("it has settings, and no statement after them")


def _possible_texts(query: Query) -> set[str]:
    """The statement's text, read in the charset of the session's client; and read in UTF-8, if it is valid UTF-8.

    The server uses UTF-8 for statements that it generates. Raises Unclear if the charset is not known, or the text is
    not valid in the charset. A text in ASCII alone needs no charset.
    """
    raw = query.text.encode(errors="surrogateescape")
    if raw.isascii():
        return {query.text}
    decoded = set()
    try:
        charset = charset_of(query.collation) if query.collation is not None else ""  # '' is an unknown charset
        [text] = texts(Values.of([raw]), charset).to_pylist()
        decoded.add(text)
        if charset not in _UTF8:
            decoded.add(raw.decode())
    except UnicodeDecodeError:  # not UTF-8: the server did not generate the text, so the first reading suffices
        pass
    except (UnknownCharset, ValueError) as error:
        raise Unclear("its text cannot be read in its charset") from error
    return decoded


def _tokens(text: str, sql_mode: int | None, *, is_mariadb: bool) -> Iterator[Token]:
    """Yield the tokens of a text. `sql_mode` says how to read quotes; None if it is unknown.

    Raises Unclear if the tokens depend on an unknown sql_mode, or the text cannot be split into tokens.
    """
    if sql_mode is None and ('"' in text or "\\" in text):
        raise Unclear("its sql_mode, which says how to read quotes, is unknown")
    mode = sql_mode or 0
    has_ansi_quotes, has_escapes = bool(mode & _ANSI_QUOTES), not mode & _NO_BACKSLASH_ESCAPES
    single = _SINGLE if has_escapes else _SINGLE_PLAIN
    double = _DOUBLE if has_escapes and not has_ansi_quotes else _DOUBLE_PLAIN  # a name has no escapes
    pattern = re.compile(_PATTERN % ("M?!" if is_mariadb else "!", single, double), re.VERBOSE | re.DOTALL)
    at = 0
    is_in_comment = False  # in a comment that the server executes: its tokens belong to the statement
    while at < len(text):
        part = pattern.match(text, at)
        if part is None:
            raise Unclear("it has an unknown sign")
        at = part.end()
        match part.lastgroup:
            case "opened" | "closed" as bracket:
                is_opened = bracket == "opened"
                if is_in_comment == is_opened:  # opened within a comment, or closed outside of one
                    raise Unclear("it has a comment within a comment")
                is_in_comment = is_opened
            case "quoted":
                sort = Sort.NAME if has_ansi_quotes else Sort.TEXT
                yield Token(sort, part["quoted"].replace('""', '"'))
            case "NAME":
                yield Token(Sort.NAME, part["NAME"].replace("``", "`"))
            case "WORD" | "TEXT" | "SIGN" as sort_name:
                yield Token(Sort[sort_name], part[sort_name])
            # a blank or a comment is no token
    if is_in_comment:
        raise Unclear("it has a comment that does not end")
