"""Checks with Arrow whether rows in memory pass the suite that is made from the table's definition.

Executors run these checks before they write rows. The checks are a hundred times as fast as Great Expectations, which
reads the written rows back with Spark. If a check does not pass, Great Expectations evaluates the suite.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.quality.gates import GateReport, Outcome, summed, with_suite_name
from lakeingest.quality.suites import ROW_COUNT, Suite


def is_sound(suite: Suite, rows: pa.Table) -> bool:
    """True if the rows certainly pass every expectation of the suite; the expected number of rows is not checked.

    False if the rows fail, or if the suite has an expectation that this module cannot check.
    """
    if rows.num_rows == 0:
        return True
    for expectation in suite.expectations:
        if expectation["type"] == ROW_COUNT:
            continue
        check = _CHECKS.get(expectation["type"])
        if check is None or not check(rows, expectation["kwargs"]):
            return False
    return True


def with_passed_suite(suite: Suite, evaluated: GateReport | None) -> GateReport:
    """The report of a gate whose `suite` is known to pass, so that it was not evaluated.

    `evaluated` is the report of the gate's other suites; None if the gate has no other suites.
    """
    outcomes = tuple(Outcome(suite.name, expectation, success=True) for expectation in suite.expectations)
    results = [
        {"success": True, "expectation_config": with_suite_name(expectation, suite.name), "result": {}}
        for expectation in suite.expectations
    ]
    if evaluated is None:
        return GateReport(outcomes, summed(results))
    document = {**evaluated.document, **summed([*results, *evaluated.document["results"]])}
    return GateReport((*outcomes, *evaluated.outcomes), document)


def _has_no_null(rows: pa.Table, kwargs: Mapping[str, Any]) -> bool:
    return bool(rows[kwargs["column"]].null_count == 0)


def _is_unique(rows: pa.Table, names: Sequence[str]) -> bool:
    """Whether no two rows have the same values in these columns."""
    columns = [rows[name] for name in names]
    is_ascending = pc.all(_is_less_than_next(columns), min_count=0).as_py()  # True for a single row
    if is_ascending:  # the usual case, because a chunk is read in the order of its key
        return True
    distinct = rows.select(list(names)).group_by(list(names)).aggregate([])  # a row for each group of equal rows
    return bool(distinct.num_rows == rows.num_rows)


def _is_less_than_next(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """For each row except the last row, whether its key is less than the key of the next row.

    `columns` has the columns of the key. A later column counts only if the columns before it are equal.
    """
    current, following = columns[0][:-1], columns[0][1:]
    if len(columns) == 1:
        return pc.less(current, following)
    return pc.or_(pc.less(current, following), pc.and_(pc.equal(current, following), _is_less_than_next(columns[1:])))


def _is_in_set(rows: pa.Table, kwargs: Mapping[str, Any]) -> bool:
    """Whether the column has only values of the set, and NULL."""
    column = rows[kwargs["column"]].drop_null()
    return bool(pc.all(pc.is_in(column, value_set=pa.array(kwargs["value_set"], column.type)), min_count=0).as_py())


def _is_short(rows: pa.Table, kwargs: Mapping[str, Any]) -> bool:
    """Whether no value is longer than `max_value`, the only bound that the suite of a definition sets for lengths."""
    column = rows[kwargs["column"]]
    lengths = pc.utf8_length(column) if pa.types.is_string(column.type) else pc.binary_length(column)
    longest = pc.max(lengths).as_py()  # None if all values are NULL
    return longest is None or longest <= kwargs["max_value"]


def _is_between(rows: pa.Table, kwargs: Mapping[str, Any]) -> bool:
    ends = pc.min_max(rows[kwargs["column"]])
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None:  # all values are NULL
        return True
    # a bound that is missing is replaced by the value itself, so that its comparison is True
    lower, upper = kwargs.get("min_value", least), kwargs.get("max_value", greatest)
    return bool(lower <= least and greatest <= upper)


_CHECKS: Mapping[str, Callable[[pa.Table, Mapping[str, Any]], bool]] = {
    "expect_column_values_to_not_be_null": _has_no_null,
    "expect_column_values_to_be_unique": lambda rows, kwargs: _is_unique(rows, [kwargs["column"]]),
    "expect_compound_columns_to_be_unique": lambda rows, kwargs: _is_unique(rows, kwargs["column_list"]),
    "expect_column_values_to_be_in_set": _is_in_set,
    "expect_column_value_lengths_to_be_between": _is_short,
    "expect_column_values_to_be_between": _is_between,
}
