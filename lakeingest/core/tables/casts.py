"""Casts: the types that a user may give to columns of the copy, by `tables.options` → `columns` → `cast`.

A cast is allowed if the new type has a value of its own for each value that the type of the source can hold: two values
never become one, and none is rounded. A cast to `boolean` keeps only the values 0 and 1: any other value stops the
table.
"""

from collections.abc import Mapping

from lakeingest.core.tables.kinds import usual_kind
from lakeingest.core.tables.schema import Kind, SourceType

_SAME_TEXT = {kind: kind for kind in (Kind.STRING, Kind.JSON, Kind.UUID, Kind.ADDRESS, Kind.TIME)}
# By the type in the copy: the kind that each kind of the source becomes
CASTS: Mapping[str, Mapping[Kind, Kind]] = {
    "string": {
        **_SAME_TEXT,
        **dict.fromkeys((Kind.INT32, Kind.INT64, Kind.UINT64, Kind.DECIMAL, Kind.NUMERAL), Kind.NUMERAL),
        **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP), Kind.MOMENT),
    },
    "bigint": {Kind.INT32: Kind.INT64, Kind.INT64: Kind.INT64},
    "boolean": {Kind.BOOLEAN: Kind.BOOLEAN},
}
_WHY_NOT = {
    "string": "its values have no exact text",
    "bigint": "not every value is a whole number within the range of a bigint",
    "boolean": "only tinyint(1) and bit(1) are flags",
}


def kind_in_copy(type_: SourceType, precision: int, to: str) -> Kind | None:
    """The kind that a column of this type has in the copy if it is cast; None if a value might be lost.

    `precision`: that of a decimal. `to`: a key of CASTS.
    """
    kind = usual_kind(type_, precision)
    if to == "boolean" and (type_.name, type_.size, type_.unsigned) == ("tinyint", 1, False):
        return Kind.BOOLEAN
    if kind is None or (to == "string" and type_.name == "year"):  # the text of the year 0 is 0000, but its number is 0
        return None
    return CASTS[to].get(kind)


def why_not(to: str) -> str:
    """Why a type for which `kind_in_copy` returned None cannot be cast to `to`."""
    return f"it cannot be cast to {to}: {_WHY_NOT[to]}"
