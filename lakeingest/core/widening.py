"""Widening: whether a column of the next definition holds every value of before, as the very same value in the copy."""

from collections.abc import Mapping
from dataclasses import replace

from lakeingest.core.schema import Column, Kind, SourceType

_BYTES: Mapping[str, int] = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
# Of each family the types in the order of their length; a declared length counts only between two of the first type
_TEXTS = ("varchar", "text", "mediumtext", "longtext")
_BLOBS = ("varbinary", "blob", "mediumblob", "longblob")
_DATED = frozenset({Kind.DATETIME, Kind.TIMESTAMP})  # stored with all digits of a second; TIME is text with its own
_ANY = SourceType("", "")


def holds(before: Column, after: Column, *, strict: bool) -> bool:
    """Whether rows of before need no change; names and comments do not matter.

    `strict`: the DDL failed if a value did not fit. Otherwise a text could have lost characters with its charset, which
    the definition does not tell.
    """
    if before.nullable != after.nullable and not after.nullable:
        return False
    if _mapping(before) == _mapping(after):
        return True
    if _mapping(replace(before, source_type=_ANY)) == _mapping(replace(after, source_type=_ANY)):
        return _of_one_mapping(before, after, strict=strict)
    if before.kind is Kind.INT32 and after.kind is Kind.INT64:
        return _is_wider_integer(before.source_type, after.source_type)
    if before.kind is after.kind is Kind.DECIMAL:
        is_longer = before.scale == after.scale and before.precision <= after.precision
        return is_longer and before.source_type.unsigned == after.source_type.unsigned
    return before.kind is after.kind and before.kind in _DATED and before.fraction <= after.fraction


def _mapping(column: Column) -> tuple[object, ...]:
    """All that decides how a value is mapped."""
    return (
        *(column.kind, column.source_type, column.precision, column.scale, column.length, column.choice),
        column.fraction,
    )


def _of_one_mapping(before: Column, after: Column, *, strict: bool) -> bool:
    """Whether MySQL's type alone has become wider."""
    old, new = before.source_type, after.source_type
    match before.kind:
        case Kind.INT32 | Kind.INT64:
            return _is_wider_integer(old, new)
        case Kind.STRING if old.members:
            return old.name == new.name and new.members[: len(old.members)] == old.members
        case Kind.STRING:
            return strict and _is_longer(old, new, _TEXTS)
        case Kind.BINARY:
            return _is_longer(old, new, _BLOBS)
    return False


def _is_wider_integer(old: SourceType, new: SourceType) -> bool:
    if old.name not in _BYTES or new.name not in _BYTES:  # YEAR
        return False
    if old.unsigned == new.unsigned:
        return _BYTES[old.name] <= _BYTES[new.name]
    return old.unsigned and _BYTES[old.name] < _BYTES[new.name]


def _is_longer(old: SourceType, new: SourceType, family: tuple[str, ...]) -> bool:
    if old.name not in family or new.name not in family:
        return False
    if old.name == new.name == family[0]:
        return old.size <= new.size
    return family.index(old.name) < family.index(new.name) or old.name == new.name
