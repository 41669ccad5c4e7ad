"""The errors for values that cannot be copied. Each error names the column and says what to do.

A value that the column's Arrow type cannot hold exactly is refused. It is never rounded. It is replaced only if the
user chose so.
"""

from lakeingest.core.tables.kinds import is_cast_number
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import UnsupportedValue


def no_day(column: Column, value: object) -> UnsupportedValue:
    """The error for an impossible date, which the lake cannot hold."""
    return UnsupportedValue(
        f"column {column.source_name} ({column.source_type}) holds {value!r}, which is no day of the calendar; correct"
        " the row, or choose zero_dates in tables.options → types, or leave the table out with tables.exclude"
    )


def unholdable(column: Column, why: ValueError) -> UnsupportedValue:
    """The error for a value that the column's type in the lake cannot hold exactly; `why` is the reader's error."""
    return UnsupportedValue(
        f"column {column.source_name} ({column.source_type}): {why}; correct the row and copy the table again, or leave"
        " it out with tables.exclude"
    )


def beyond_reference(column: Column) -> UnsupportedValue:
    """The error for a column that only the fast decoders read exactly, in a run with LAKEINGEST_WIRE=reference."""
    return UnsupportedValue(
        f"column {column.source_name} ({column.source_type}): LAKEINGEST_WIRE=reference cannot read it exactly; "
        "unset that variable, or exclude the table with tables.exclude"
    )


def is_chosen(column: Column) -> bool:
    """Whether the user chose how the column is mapped, by a choice that only the fast decoders can carry out.

    A cast of an integer to a wider integer is no such choice, because all decoders can carry it out.
    """
    is_flag = column.kind is Kind.BOOLEAN and column.source_type.name == "tinyint"
    is_text = column.kind is Kind.NUMERAL and is_cast_number(column)
    return is_flag or bool(column.choice) or is_text or column.kind in {Kind.MOMENT, Kind.MICROS}
