"""How far values of a foreign key can be compared outside the server, as InnoDB compares them in a foreign key.

InnoDB compares texts by their collation, and other values by their bytes. The server tells which texts are equal
(`mysql.text_classes`). Other values can be compared outside the server if each value has exactly one form in the lake,
and no two values have the same form. If values of a type cannot be compared, and a change of the parent may have an
effect, all rows of the child are compared with the source.
"""

import enum

from lakeingest.core.cascades.cascades import ForeignKey
from lakeingest.core.tables.schema import INTEGERS, NULL_DATES, Column, Kind, TableSchema

UNLIKE = "?"  # in `ForeignKey.types`: the columns of child and parent have two types, or one is generated
# In each collation of these charsets, texts of one class are equal by `=`: tests/mysql/test_text_classes.py
CHARSETS = frozenset({"ascii", "latin1", "utf8", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"})
TEXTS = frozenset({"char", "varchar"})
_WITH_ONE_FORM = INTEGERS | {  # kinds of which each value has one form in the lake
    *(Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME),
    *(Kind.UUID, Kind.ADDRESS, Kind.BOOLEAN, Kind.BINARY),
}


class Comparison(enum.Enum):
    """How far the values of a foreign key's columns can be compared outside the server."""

    VALUES = "values"  # it is known which values may be equal
    CHANGES = "changes"  # it is only known whether a change gave the parent's row other values
    NOTHING = "nothing"  # it is not even known whether a change gave the parent's row other values


def comparison(key: ForeignKey, child: TableSchema, parent: TableSchema) -> Comparison:
    """How far a foreign key's values can be compared outside the server, by the definitions of both copies."""
    has_all_columns = set(key.columns) <= set(child.names) and set(key.referenced) <= set(parent.names)
    if not has_all_columns:
        return Comparison.NOTHING
    columns = [child.column(name) for name in key.columns]
    referenced = [parent.column(name) for name in key.referenced]
    types = key.types or ("",) * len(key.columns)  # without types, all columns are integers
    if all(map(_can_be_compared, columns, referenced, types)):
        return Comparison.VALUES
    # whether a change gave other values can be seen in the lake if different values differ there, too
    return Comparison.CHANGES if all(map(_is_exact, referenced)) else Comparison.NOTHING


def collation_of(type_: str) -> str:
    """The collation that `type_`, one of `ForeignKey.types`, names; '' if it is not a type of texts."""
    name, _, collation = type_.partition(" ")
    return collation if name in TEXTS | {"text"} else ""


def collations(key: ForeignKey) -> dict[str, str]:
    """The collations of the foreign key's columns that are texts, by column."""
    by_column = zip(key.columns, map(collation_of, key.types), strict=True) if key.types else ()
    return {name: collation for name, collation in by_column if collation}


def _can_be_compared(child: Column, parent: Column, type_: str) -> bool:
    """Whether it is known outside the server which values of the two columns the server may take for equal."""
    if collation := collation_of(type_):
        return collation.partition("_")[0] in CHARSETS
    if type_ == UNLIKE or not (_is_exact(child) and _is_exact(parent)):
        return False
    return child.kind in _WITH_ONE_FORM and (child.kind is parent.kind or {child.kind, parent.kind} <= INTEGERS)


def _is_exact(column: Column) -> bool:
    """Whether two values of the source that differ in any byte also differ in the lake."""
    if column.members:
        return "" not in column.members  # the text of an invalid value is '', as that of this member
    match column.kind:
        case Kind.FLOAT | Kind.DOUBLE:
            return False  # zero has two signs
        case Kind.STRING:
            return column.charset in CHARSETS  # each character has its own character of Unicode
    return column.choice != NULL_DATES  # with that choice, a zero date becomes NULL in the lake, like a NULL
