"""Defaults: the values of columns that an INSERT does not name. NULL, none and unknown are three different things.

The texts of defaults that information_schema shows are for people: they have only six digits of a FLOAT, and question
marks for characters beyond U+FFFF. So a value is taken only from a query that returns the default in the column's type.
"""

import enum
from dataclasses import dataclass


class Default(enum.Enum):
    """The state of a default whose value is not known."""

    UNKNOWN = "nobody has looked at it"
    NONE = "it is NOT NULL and has no default"
    CONSTANT = "nobody has read its default"
    COMPUTED = "its default is computed for each row"
    NUMBERED = "the server numbers its rows"


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a constant default as a result set has it; None is NULL."""

    value: object
