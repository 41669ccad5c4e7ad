"""Finds the rows of chunks, and the row images of the binlog, that meet the condition of the user.

The conditions are those of `core.tables.row_filter`. No other module evaluates conditions for a copy. This module
evaluates them on decoded values, so that a chunk and the binlog agree about each row.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.change import KIND, RowKind
from lakeingest.core.tables.row_filter import (
    DIGITS_MAX,
    Both,
    Comparison,
    Condition,
    Either,
    IsNull,
    Literal,
    Not,
    OneOf,
    Operand,
    is_padded,
    operands,
    parse,
)
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.rows import INSTANT

_COMPARED = {  # names of functions of `pc`, which is imported late (`late_imports`)
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_PRECISION = 2 * DIGITS_MAX  # enough for a column of so many digits beside a number of so many digits
_INT64 = np.iinfo(np.int64)
_INSERT, _BEFORE, _, _DELETE = (int(kind) for kind in RowKind)


def matching(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The rows that meet the condition of the user."""
    if not schema.choices.rows:
        return batch
    return batch.filter(pa.array(matches(_by_name(batch), schema)))


def compared_columns(schema: TableSchema) -> tuple[str, ...]:
    """The columns that the user's condition compares, by their names in the copy; () without a condition."""
    if not schema.choices.rows:
        return ()
    names = operands(parse(schema.choices.rows))
    return tuple(column.name for column in schema.columns if column.source_name.casefold() in names)


def matches(values: Mapping[str, pa.Array], schema: TableSchema) -> np.ndarray:
    """For each row, whether it meets the condition of the user. `values` has columns, by their names in the copy.

    `values` may lack columns that the condition does not compare.
    """
    columns = {
        column.source_name.casefold(): (column, values[column.name])
        for column in schema.columns
        if column.name in values
    }
    found = _Evaluation(columns).of(parse(schema.choices.rows))
    return np.asarray(pc.fill_null(found, False))  # as WHERE takes NULL


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def matching_changes(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The rows of `batch` that meet the condition of the user, with the kinds that `kinds_of_matching` gives them.

    In `batch`, the new row of an update must follow its old row.
    """
    if not schema.choices.rows:
        return batch
    is_match = matches(_by_name(batch), schema)
    kinds = pa.array(kinds_of_matching(batch[KIND].to_numpy(), is_match))
    return batch.set_column(batch.schema.get_field_index(KIND), batch.schema.field(KIND), kinds).filter(
        pa.array(is_match)
    )


def kinds_of_matching(kinds: np.ndarray, is_match: np.ndarray) -> np.ndarray:
    """The kind of each row image, for a copy of only the rows that meet the condition (`is_match`).

    An update of which only the new row meets the condition is an insert for the copy. An update of which only the old
    row meets the condition is a delete. In `kinds`, each new row follows its old row.
    """
    before = np.flatnonzero(kinds == _BEFORE)
    after = before + 1
    new_kinds = kinds.copy()
    new_kinds[after[is_match[after] & ~is_match[before]]] = _INSERT
    new_kinds[before[is_match[before] & ~is_match[after]]] = _DELETE
    return new_kinds


class _Evaluation:
    """Evaluates conditions on rows. `columns` has each column and its values, by the case-folded name at the source."""

    def __init__(self, columns: dict[str, tuple[Column, pa.Array]]) -> None:
        self._columns = columns

    def of(self, condition: Condition) -> pa.Array:
        """For each row whether the condition is true; null if it is neither true nor false."""
        match condition:
            case Not(term):
                return pc.invert(self.of(term))
            case Both(terms):
                return self._combined(pc.and_kleene, terms)
            case Either(terms):
                return self._combined(pc.or_kleene, terms)
            case IsNull(operand):
                return pc.is_null(self._values(operand))
            case Comparison(operand, operator, literal):
                return self._compared(operand, operator, literal)
            case OneOf(operand, literals):
                found = self._compared(operand, "=", literals[0])
                for literal in literals[1:]:
                    found = pc.or_kleene(found, self._compared(operand, "=", literal))
                return found

    def _combined(self, combine: Any, terms: Sequence[Condition]) -> pa.Array:
        """The results of all terms, combined to one by a function of two results."""
        found = self.of(terms[0])
        for term in terms[1:]:
            found = combine(found, self.of(term))
        return found

    def _values(self, operand: Operand) -> pa.Array:
        return self._columns[operand.name.casefold()][1]

    def _compared(self, operand: Operand, operator: str, literal: Literal) -> pa.Array:
        """For each row whether the comparison with the literal is true; null if the row's value is NULL."""
        column, values = self._columns[operand.name.casefold()]
        compare = getattr(pc, _COMPARED[operator])
        if isinstance(literal, Decimal):
            return compare(*_numbers(values, literal))
        if column.kind is Kind.STRING:
            if is_padded(operand.collation):
                values, literal = pc.utf8_rtrim(values, " "), literal.rstrip(" ")
            return compare(values, pa.scalar(literal, pa.string()))
        if column.kind is Kind.DATE:
            return compare(values, pa.scalar(dt.date.fromisoformat(literal), pa.date32()))
        instant = dt.datetime.fromisoformat(literal)
        if column.kind is Kind.TIMESTAMP:  # the sessions of lakeingest are in UTC
            return compare(values, pa.scalar(instant.replace(tzinfo=dt.UTC), INSTANT))
        return compare(values, pa.scalar(instant, pa.timestamp("us")))


def _numbers(values: pa.Array, literal: Decimal) -> tuple[pa.Array, pa.Scalar]:
    """The values and the literal in one type, which holds them exactly."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    is_integer = literal == literal.to_integral_value()
    if pa.types.is_integer(values.type) and is_integer and _INT64.min <= literal <= _INT64.max:
        return values.cast(pa.int64()), pa.scalar(int(literal), pa.int64())
    # as many digits after the point as the literal and the column have; an integer column has no scale
    scale = max(-int(literal.as_tuple().exponent), getattr(values.type, "scale", 0))
    exact = pa.decimal256(_PRECISION, scale)
    return values.cast(exact), pa.scalar(literal, exact)
