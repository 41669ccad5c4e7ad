"""Generated columns: which of them may have another value in the server later, without a row event.

Whenever DDL copies the table, the server computes each generated column again for all rows, in the session of that DDL,
and writes no row events (measured, MySQL 9.7 and MariaDB 11.4). So HOUR of a TIMESTAMP is then in that session's time
zone. But if DDL only changes how a number is shown, the server does not compute the column again. So a text made of the
number keeps the zeros of a dropped ZEROFILL until later DDL copies the table.
"""

import re
from collections.abc import Mapping, Sequence

# Words of expressions whose result depends only on their arguments. Not here: `/`, whose digits depend on
# div_precision_increment, and functions of dates, which depend on sql_mode, on lc_time_names, or on the time zone
_FREE = {
    *("abs", "and", "as", "between", "case", "cast", "ceil", "ceiling", "char", "char_length", "charset", "coalesce"),
    *("collate", "concat", "concat_ws", "crc32", "decimal", "div", "else", "end", "false", "floor", "greatest", "hex"),
    *("if", "ifnull", "in", "is", "json_extract", "json_unquote", "lcase", "least", "left", "length", "like", "lower"),
    *("ltrim", "md5", "mod", "not", "null", "nullif", "octet_length", "or", "replace", "reverse", "right", "round"),
    *("rtrim", "sha", "sha1", "sha2", "sign", "signed", "substr", "substring", "then", "trim", "true", "ucase"),
    *("unhex", "unsigned", "upper", "using", "when", "xor"),
}
# Types whose values depend on the session: on its time zone, and on PAD_CHAR_TO_FULL_LENGTH
_SESSION_TYPES = {"timestamp", "char"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
# Words that never turn a number into a text
_NUMERIC = {
    *("abs", "and", "as", "between", "case", "cast", "ceil", "ceiling", "coalesce", "decimal", "div", "else", "end"),
    *("false", "floor", "greatest", "if", "ifnull", "in", "is", "least", "mod", "not", "null", "nullif", "or", "round"),
    *("sign", "signed", "then", "true", "unsigned", "when", "xor"),
}
_TOKEN = re.compile(
    r"`(?P<name>(?:[^`]|``)*)`|(?P<text>'(?:[^']|'')*')|(?P<word>[\w$]+)|(?P<sign>[-+*(),<>=!%.&|^~\s]+)|(?P<other>.)",
    re.DOTALL,
)
# A charset or a collation, such as _utf8mb4, utf8mb4 or utf8mb4_bin
_CHARSET = re.compile(r"_?(?:utf8|utf8mb3|utf8mb4|latin1|ascii|binary)(?:_\w+)?")


def may_change_later(expression: str, types: Mapping[str, str], own: str) -> bool:
    """Whether a generated column of the type `own` may get another value later; True in doubt.

    `expression`: the column's expression, as information_schema prints it; '' if it is not known. `types`: the types of
    the table's columns, by their casefolded names. Types have the form of `SourceType.name`.
    """
    text = expression.replace("\\'", "'")  # MySQL prints a backslash before the quotes of a literal
    tokens = list(_TOKEN.finditer(text))
    is_understood = bool(text) and "\\" not in text  # '' is an unknown expression; other backslashes are not understood
    is_free = is_understood and all(_is_free(token, types) for token in tokens)
    return not is_free or _may_show_a_number(tokens, types, own)


def _may_show_a_number(tokens: Sequence[re.Match[str]], types: Mapping[str, str], own: str) -> bool:
    """Whether the value of the expression may depend on how a number is shown as a text."""
    names_number = any(token.lastgroup == "name" and _type(token, types) in _NUMBERS for token in tokens)
    has_text = any(token.lastgroup == "text" for token in tokens)
    words = [token["word"].casefold() for token in tokens if token["word"]]
    is_no_number = own not in _NUMBERS  # then the generated column itself may show the number as a text
    may_make_text = has_text or not all(map(_is_numeric, words))  # within the expression
    return names_number and (is_no_number or may_make_text)


def _is_numeric(word: str) -> bool:
    """Whether the word never turns a number into a text."""
    return word in _NUMERIC or word.isdecimal()


def _type(token: re.Match[str], types: Mapping[str, str]) -> str:
    """The type of the column that the token names; 'char' for an unknown column, because 'char' is never free."""
    return types.get(token["name"].replace("``", "`").casefold(), "char")


def _is_free(token: re.Match[str], types: Mapping[str, str]) -> bool:
    """Whether the value of the token depends on no session, mode or time zone; False for a token of unknown meaning."""
    match token.lastgroup:
        case "name":
            return _type(token, types) not in _SESSION_TYPES
        case "word":
            word = token["word"].casefold()
            return word in _FREE or word.isdecimal() or _CHARSET.fullmatch(word) is not None
    return token.lastgroup != "other"  # a literal or a sign
