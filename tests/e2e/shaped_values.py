"""What a copy has in the place of a value that it hides or casts, made of the server's text past our code."""

import hmac
import unicodedata
from collections.abc import Callable, Mapping
from decimal import Decimal

from lakeingest.config.tables import Columns

SECRET = "a key of sixteen!"
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_WITH_TEXT = {*_INTEGERS, *_TEXTS, "decimal", "date", "datetime", "timestamp", "time", "json", "enum", "set"}
# By the role of a column: the types, as information_schema names them, which it surely can have
SUITABLE: Mapping[str, set[str]] = {
    "hash": _WITH_TEXT,
    "mask": _TEXTS,
    "string": _WITH_TEXT,
    "bigint": _INTEGERS - {"bigint"},
}
# Errors of a table that has a column of another type, or lacks one that the condition names
UNFIT = ("no exact text", "only texts can be masked", "cannot be cast to", "is cast to", "no such column is copied")


def role_of(columns: Columns, name: str) -> str:
    """What the copy makes of a column; '' if it copies the column, or leaves it out."""
    if name in columns.hash:
        return "hash"
    return "mask" if name in columns.mask else columns.cast.get(name, "")


def shaped_reader(role: str, type_: str) -> Callable[[bytes], object]:
    """What makes the value of the copy of the server's text of a value, for a column with a role."""
    if role == "bigint":
        return int
    text = _printed(type_)
    if role == "string":
        return lambda raw: text(raw).decode()
    if role == "mask":
        return lambda raw: "".join(map(_masked, raw.decode()))
    return lambda raw: hmac.new(SECRET.encode(), text(raw), "sha256").hexdigest()


def _printed(type_: str) -> Callable[[bytes], bytes]:
    """The text of a value without the zeros of ZEROFILL, as bytes."""
    if type_ in {*_INTEGERS, "year"}:
        return lambda raw: str(int(raw)).encode()
    if type_ == "decimal":
        return lambda raw: f"{Decimal(raw.decode()):f}".encode()
    return bytes


def _masked(character: str) -> str:
    category = unicodedata.category(character)
    if category in {"Lu", "Lt"}:
        return "X"
    if category[0] in "LM":
        return "x"
    if category[0] == "N":
        return "9"
    return character if character.isascii() else "*"
