"""Generated columns: whose expressions a server may compute to another value later. Pure.

A server computes all rows of a generated column anew whenever DDL copies the table, in the session of that DDL, and no
row event says so (measured, MySQL 9.7 and MariaDB 11.4): HOUR of a TIMESTAMP then has the time zone of that session.
Nor are the rows computed when DDL changes only how a number is shown: its text may still have the zeros of ZEROFILL.
"""

import re
from collections.abc import Mapping, Sequence

# What depends on arguments alone. Not here: `/`, whose digits depend on div_precision_increment, and functions of
# dates, which depend on sql_mode, on lc_time_names, or on the time zone
_FREE = {
    *("abs", "and", "as", "between", "case", "cast", "ceil", "ceiling", "char", "char_length", "charset", "coalesce"),
    *("collate", "concat", "concat_ws", "crc32", "decimal", "div", "else", "end", "false", "floor", "greatest", "hex"),
    *("if", "ifnull", "in", "is", "json_extract", "json_unquote", "lcase", "least", "left", "length", "like", "lower"),
    *("ltrim", "md5", "mod", "not", "null", "nullif", "octet_length", "or", "replace", "reverse", "right", "round"),
    *("rtrim", "sha", "sha1", "sha2", "sign", "signed", "substr", "substring", "then", "trim", "true", "ucase"),
    *("unhex", "unsigned", "upper", "using", "when", "xor"),
}
_BOUND_TYPES = {"timestamp", "char"}  # in the session's time zone; padded by PAD_CHAR_TO_FULL_LENGTH
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
# What makes no text of a number
_NUMERIC = {
    *("abs", "and", "as", "between", "case", "cast", "ceil", "ceiling", "coalesce", "decimal", "div", "else", "end"),
    *("false", "floor", "greatest", "if", "ifnull", "in", "is", "least", "mod", "not", "null", "nullif", "or", "round"),
    *("sign", "signed", "then", "true", "unsigned", "when", "xor"),
}
_TOKEN = re.compile(
    r"`(?P<name>(?:[^`]|``)*)`|(?P<text>'(?:[^']|'')*')|(?P<word>[\w$]+)|(?P<sign>[-+*(),<>=!%.&|^~\s]+)|(?P<other>.)",
    re.DOTALL,
)
_CHARSET = re.compile(r"_?(?:utf8|utf8mb3|utf8mb4|latin1|ascii|binary)(?:_\w+)?")


def is_bound(expression: str, types: Mapping[str, str], own: str) -> bool:
    """Whether the value of a generated column of the type `own` may be another one later; in doubt, True.

    `expression` is as information_schema prints it, `types` are those of the columns, by their names in lower case.
    """
    text = expression.replace("\\'", "'")  # as MySQL prints a literal
    found = list(_TOKEN.finditer(text))
    is_free = text and "\\" not in text and all(_is_free(one, types) for one in found)
    return not is_free or _shows_a_number(found, types, own)


def _shows_a_number(found: Sequence[re.Match[str]], types: Mapping[str, str], own: str) -> bool:
    """Whether the value may have the text of a number."""
    is_text = own not in _NUMBERS or any(
        one.lastgroup == "text" or (one["word"] and not _is_numeric(one["word"].casefold())) for one in found
    )
    return is_text and any(one.lastgroup == "name" and _type(one, types) in _NUMBERS for one in found)


def _is_numeric(word: str) -> bool:
    return word in _NUMERIC or word.isdecimal()


def _type(found: re.Match[str], types: Mapping[str, str]) -> str:
    """The type of the column that is named; what is not known may be any."""
    return types.get(found["name"].replace("``", "`").casefold(), "char")


def _is_free(found: re.Match[str], types: Mapping[str, str]) -> bool:
    match found.lastgroup:
        case "name":
            return _type(found, types) not in _BOUND_TYPES
        case "word":
            word = found["word"].casefold()
            return word in _FREE or word.isdecimal() or _CHARSET.fullmatch(word) is not None
    return found.lastgroup != "other"
