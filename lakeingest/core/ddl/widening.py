"""Widening: whether a column of the next definition holds every old value, without a change of the values in the copy.

Each property of a column has one rule. The rule is true for changes of the property that keep every value, in any SQL
mode of the session. A column holds every old value only if each rule is true. So every property needs a rule.
"""

from collections.abc import Callable, Mapping

from lakeingest.core.tables.default import Default
from lakeingest.core.tables.schema import Column, Kind

_BYTES: Mapping[str, int] = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
# The types of each family in the order of their length; declared lengths are compared only for the first type
_TEXTS = ("varchar", "text", "mediumtext", "longtext")
_BLOBS = ("varbinary", "blob", "mediumblob", "longblob")
_DATED = frozenset({Kind.DATETIME, Kind.TIMESTAMP})  # stored with six digits of a second, whatever the column has
_IN_CHARSET = frozenset({"char", "enum", "set", "tinytext", *_TEXTS})

Rule = Callable[[Column, Column], bool]


def holds(before: Column, after: Column) -> bool:
    """True if the new column holds every old value, and old rows in the copy need no change."""
    return not unfitting_properties(before, after)


def unfitting_properties(before: Column, after: Column) -> tuple[str, ...]:
    """The properties whose change may make old rows wrong, by the names of their rules; empty if there is none."""
    return tuple(name for name, rule in RULES.items() if not rule(before, after))


def is_same(before: Column, after: Column) -> bool:
    """Whether both columns certainly give the same values, comparisons and results of expressions."""
    is_text = after.source_type.name in _IN_CHARSET
    same_collation = (before.charset, before.collation) == (after.charset, after.collation)
    same_text = not is_text or (bool(after.collation) and same_collation)  # '' is not known
    exact_members = not after.members or after.has_exact_members
    return before == after and same_text and exact_members and before.generation == after.generation


def _any(_before: Column, _after: Column) -> bool:
    """True: each change of the property keeps every value."""
    return True


def _kind(before: Column, after: Column) -> bool:
    """Whether the kind is the same, or INT32 has become INT64."""
    return before.kind is after.kind or (before.kind, after.kind) == (Kind.INT32, Kind.INT64)


def _nullable(before: Column, after: Column) -> bool:
    """Whether the new column can be NULL if the old one could."""
    return after.nullable or not before.nullable


def _precision(before: Column, after: Column) -> bool:
    """Whether the precision is the same, or that of a decimal has grown."""
    return before.precision == after.precision or (after.kind is Kind.DECIMAL and before.precision < after.precision)


def _fraction(before: Column, after: Column) -> bool:
    """Whether the digits of a second are as many as before; a DATETIME or TIMESTAMP may have more."""
    return before.fraction == after.fraction or (after.kind in _DATED and before.fraction < after.fraction)


def _text(before: Column, after: Column) -> bool:
    """Whether the text of the type is the same. True, too, if other rules judge all parts of the type."""
    return before.source_type.text == after.source_type.text or _is_known(before, after)


def _is_known(before: Column, after: Column) -> bool:
    """Whether the other rules judge all parts of these two types."""
    old, new = before.source_type.name, after.source_type.name
    is_number = old in _BYTES and new in _BYTES and after.kind in {Kind.INT32, Kind.INT64, Kind.NUMERAL}
    is_string = any(old in family and new in family for family in (_TEXTS, _BLOBS))
    is_of_kind = before.kind is after.kind and after.kind in {Kind.DECIMAL, *_DATED}
    return is_number or is_string or is_of_kind or bool(before.members and after.members)


def _name(before: Column, after: Column) -> bool:
    """Whether the type is the same, or a longer type of its family."""
    old, new = before.source_type.name, after.source_type.name
    return old == new or any(
        old in family and new in family and family.index(old) < family.index(new)
        for family in (_TEXTS, _BLOBS, tuple(_BYTES))
    )


def _unsigned(before: Column, after: Column) -> bool:
    """Whether the sign is as before, or a longer signed integer takes the place of an unsigned one."""
    old, new = before.source_type, after.source_type
    if old.unsigned == new.unsigned:
        return True
    is_longer = _BYTES.get(old.name, 0) < _BYTES.get(new.name, 0)
    # a longer signed integer holds every unsigned value; no unsigned integer holds a negative value
    return old.unsigned and is_longer


def _size(before: Column, after: Column) -> bool:
    """Whether a VARCHAR or VARBINARY is not shorter.

    True for other types if the size is the same, or if other rules judge all parts of the type.
    """
    old, new = before.source_type, after.source_type
    has_declared_length = old.name == new.name and new.name in {"varchar", "varbinary"}
    if has_declared_length:
        return old.size <= new.size
    return old.size == new.size or _is_known(before, after)


def _members(before: Column, after: Column) -> bool:
    """Whether each old member keeps its number and its text; new members may follow.

    A row of the source has the member's number. A row of the copy has the member's text.
    """
    if not before.members and not after.members:
        return True
    are_exact = before.has_exact_members and after.has_exact_members
    return are_exact and after.members[: len(before.members)] == before.members


def _default(_before: Column, after: Column) -> bool:
    """Whether the new column is not AUTO_INCREMENT. If it is, its old rows may get numbers."""
    return after.default is not Default.NUMBERED


def _charset(before: Column, after: Column) -> bool:
    """Whether the charset is certainly the same. Only strict sessions refuse a new charset that lacks a character."""
    is_text = before.source_type.name in _IN_CHARSET or after.source_type.name in _IN_CHARSET
    is_unknown = is_text and not after.charset
    return before.charset == after.charset and not is_unknown


def _generation(before: Column, after: Column) -> bool:
    """Whether neither column is generated: the server may compute other values for a generated column."""
    return not before.generation and not after.generation


def _same(name: str) -> Rule:
    """The rule that is true if the property `name` has not changed."""

    def rule(before: Column, after: Column) -> bool:
        return bool(getattr(before, name) == getattr(after, name))

    return rule


# By the fields of Column; those of its SourceType begin with `source_type.`. tests/core/test_widening.py wants them all
RULES: Mapping[str, Rule] = {
    "name": _any,  # the statement says which column became which
    "kind": _kind,
    "source_type.text": _text,
    "source_type.name": _name,
    "source_type.unsigned": _unsigned,
    "source_type.size": _size,
    "source_type.members": _members,
    "nullable": _nullable,
    "precision": _precision,
    "scale": _same("scale"),
    "fraction": _fraction,
    "length": _same("length"),
    "choice": _same("choice"),
    "renamed_from": _any,
    "comment": _any,  # readers get it with the next publish
    "default": _default,
    "charset": _charset,
    "collation": _any,  # it orders and compares values, and changes none; `core.ddl.lift` judges the collation of a key
    "generation": _generation,
    "secret": _any,
}
