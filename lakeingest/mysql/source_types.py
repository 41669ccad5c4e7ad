"""Parses the text of a column's type, as MySQL and MariaDB write it."""

import re

from lakeingest.core.tables.schema import SourceType

_SIZED = re.compile(r"\w+\((\d+)")
_WITH_MEMBERS = {"enum", "set"}
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_ESCAPED = re.compile(r"''|\\[\\0nr]")
_UNESCAPED = {"''": "'", "\\\\": "\\", "\\0": "\0", "\\n": "\n", "\\r": "\r"}


def source_type(text: str) -> SourceType:
    """The type in a text of COLUMN_TYPE (information_schema), such as `decimal(10,2) unsigned` or `enum('a','b')`."""
    name = re.split(r"\W", text, maxsplit=1)[0].lower()
    if name in _WITH_MEMBERS:
        return SourceType(text, name, members=tuple(map(_unescaped, _MEMBER.findall(text))))
    sized = _SIZED.match(text)
    is_unsigned = "unsigned" in text.lower().split()
    return SourceType(text, name, unsigned=is_unsigned, size=int(sized[1]) if sized else 0)


def _unescaped(member: str) -> str:
    """A member of an ENUM or SET without its escapes."""
    return _ESCAPED.sub(lambda match: _UNESCAPED[match[0]], member)
