"""Gates: staged rows are checked by suites of expectations before they are published.

Rows are published only if no expectation of the severity `critical` fails, which is the default severity. An
expectation that cannot be evaluated has failed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeingest.quality import great_expectations as library
from lakeingest.quality.suites import COLUMN_KEYS, ROW_COUNT, SCHEMA, Suite

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from pyspark.sql import DataFrame

EXAMPLES = 5  # the greatest number of failing rows that an outcome shows
_TEXT = 80  # the greatest length of a value's text, in characters
_ROWS, _VALUES = "partial_unexpected_index_list", "partial_unexpected_list"  # keys of a result of Great Expectations
_SUITE = "suite"  # the key in an expectation's `meta` with the name of its suite
_NUMBER = "number"  # the key in `meta` with the number of the expectation, because results have another order


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one expectation, whose definition is `document`.

    For an expectation about rows, `unexpected` is the number of rows that fail. `keys` has the keys of some of these
    rows, and `examples` has their keys with the failing values. For an expectation about the whole table, `observed` is
    the table's value. `error` is the reason if the expectation could not be evaluated; then `success` is False. The
    text of an outcome (`str`) goes to terminals and logs, so it has no values of rows except keys.
    """

    suite: str
    document: Mapping[str, Any]
    success: bool
    unexpected: int | None = None
    keys: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    observed: Any = None
    error: str | None = None

    @property
    def stops(self) -> bool:
        """Whether the outcome stops the publish: the expectation failed, and its severity is `critical`."""
        return not self.success and self.document.get("severity", "critical") == "critical"

    @property
    def name(self) -> str:
        """The expectation with its columns and its suite."""
        return f"{self.document['type']}({self._columns}) of {self.suite}"

    @property
    def expectation(self) -> str:
        """The type of the expectation, with its columns if it has some."""
        columns = self._columns
        return f"{self.document['type']}({columns})" if columns else str(self.document["type"])

    @property
    def _columns(self) -> str:
        """The columns that the expectation names; '' if it is about the whole table."""
        kwargs = self.document["kwargs"]
        return ", ".join(str(kwargs[key]) for key in COLUMN_KEYS if key in kwargs)

    def __str__(self) -> str:
        if self.error is None and (self.suite, self.document["type"]) == (SCHEMA, ROW_COUNT):
            return f"{self.observed} rows are staged, {self.document['kwargs']['value']} were written"
        if self.error is not None:
            return f"{self.name} cannot be evaluated: {self.error}"
        if self.unexpected is not None:
            return f"{self.name} fails on {self.unexpected} rows" + (f", such as {self.keys[0]}" if self.keys else "")
        # the observed value of a column may be the value of a row, which is not shown
        return f"{self.name} fails" + ("" if self._columns else f", observed {_shortened(self.observed)}")


@dataclass(frozen=True, slots=True)
class GateReport:
    """The result of a gate: the outcomes, and as `document` the same results in the form of Great Expectations."""

    outcomes: tuple[Outcome, ...]
    document: Mapping[str, Any]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that stop the publish; empty if the gate passes."""
        return tuple(outcome for outcome in self.outcomes if outcome.stops)

    @property
    def warnings(self) -> tuple[Outcome, ...]:
        """The outcomes that failed, but do not stop the publish."""
        return tuple(outcome for outcome in self.outcomes if not outcome.success and not outcome.stops)


def run_gate(
    name: str, rows: "DataFrame", key: Sequence[str], suites: Sequence[Suite], *, samples: bool = True
) -> GateReport:
    """Evaluate all expectations of the suites on the rows, in few passes over the rows.

    `name` is the title of the report, and `key` has the names of the key columns. Without `samples`, the report has no
    values of rows except keys. An expectation whose evaluation raises an error has failed. But if the rows themselves
    cannot be read, Spark's error is raised.
    """
    plain_names = {column: _plain_name(column) for column in rows.columns}
    rows = rows.toDF(*plain_names.values())  # from here on, rows and key have the plain names
    key = [plain_names[column] for column in key]
    documents = [
        _with_plain_names(with_suite_name(document, suite.name), plain_names)
        for suite in suites
        for document in suite.expectations
    ]
    detailed_format = {
        "result_format": "SUMMARY",
        "partial_unexpected_count": EXAMPLES,
        "unexpected_index_column_names": list(key),
    }
    # Step 1: evaluate all expectations, without counts and examples
    validation = _validate(name, rows, documents, "BOOLEAN_ONLY")
    not_passed = [result for result in validation.results if not result.success]
    failed = [result for result in not_passed if _error(result.exception_info) is None]  # else it raised an error
    # Step 2: evaluate the failed expectations a second time, with counts and examples, and put these results in the
    # place of the first ones. They count as failed, even if they pass now
    if failed:
        detailed = _validate(name, rows, [_document(result) for result in failed], detailed_format).results
        other_results = [result for result in validation.results if result not in failed]
        validation.results = other_results + detailed
        for result in detailed:
            result.success = False
            result.result = _with_hex_bytes(result.result) if samples else _details_without_values(result, key)
    outcomes = tuple(_outcome(result, key) for result in validation.results)
    # Step 3: if an expectation could not be evaluated, perhaps the rows cannot be read. So read all rows: then Spark
    # raises its error
    if any(outcome.error for outcome in outcomes):
        rows.write.format("noop").mode("overwrite").save()
    document: Mapping[str, Any] = validation.to_json_dict()  # type: ignore[no-untyped-call]
    return GateReport(outcomes, document)


def evaluated(
    name: str, rows: "DataFrame", key: Collection[str], outcomes: Sequence[Outcome]
) -> list[Mapping[str, Any]]:
    """Evaluate the expectations of outcomes again. Returns the complete results, in the order of the outcomes.

    A result has the columns `key` of every row that fails, and is empty if the expectation cannot be evaluated. The
    names in `key` have no dots and backticks, and the outcomes are those of `run_gate` on rows with the same columns.
    """
    rows = rows.toDF(*map(_plain_name, rows.columns))  # the documents of outcomes have the plain names
    result_format = {"result_format": "COMPLETE", "unexpected_index_column_names": list(key)}
    documents = [
        {**outcome.document, "meta": {**outcome.document["meta"], _NUMBER: number}}
        for number, outcome in enumerate(outcomes)
    ]
    results: list[Mapping[str, Any]] = [{} for _ in outcomes]
    for result in _validate(name, rows, documents, result_format).results:
        if _error(result.exception_info) is None:
            results[_document(result)["meta"][_NUMBER]] = result.result
    return results


def joined_reports(first: GateReport, second: GateReport) -> GateReport:
    """The report of a gate whose suites were evaluated in two passes."""
    results = [*first.document["results"], *second.document["results"]]
    return GateReport((*first.outcomes, *second.outcomes), {**first.document, **summed(results)})


def summed(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Results of expectations with their sums, in the form of Great Expectations."""
    successes = sum(result["success"] for result in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": successes,
        "unsuccessful_expectations": len(results) - successes,
        "success_percent": 100 * successes / len(results) if results else None,
    }
    return {"success": successes == len(results), "results": list(results), "statistics": statistics}


def with_suite_name(document: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    """The document of an expectation, with the name of its suite in `meta`."""
    return {**document, "meta": {**(document.get("meta") or {}), _SUITE: suite}}


def _plain_name(name: str) -> str:
    """A column's name in which characters that look alike replace dots and backticks.

    Great Expectations and Spark would read a dot or a backtick as a part of a path.
    """
    return name.replace(".", "․").replace("`", "‵")  # noqa: RUF001


def _with_plain_names(document: Mapping[str, Any], plain_names: Mapping[str, str]) -> Mapping[str, Any]:
    """The document of an expectation with the plain names of its columns. Unknown names stay as they are."""

    def renamed(value: Any) -> Any:  # `value` is a name or a list of names
        if isinstance(value, list):
            return [plain_names.get(name, name) for name in value]
        return plain_names.get(value, value)

    columns = {key: renamed(value) for key, value in document["kwargs"].items() if key in COLUMN_KEYS}
    return {**document, "kwargs": {**document["kwargs"], **columns}}


def _validate(
    name: str, rows: "DataFrame", documents: Sequence[Mapping[str, Any]], result_format: Any
) -> "ExpectationSuiteValidationResult":
    """Evaluate the expectations of these documents on the rows."""
    batch = library.batch(rows)
    from great_expectations.core.expectation_suite import ExpectationSuite

    suite = ExpectationSuite(name, expectations=[library.expectation(document) for document in documents])
    return batch.validate(suite, result_format=result_format)


def _document(result: "ExpectationValidationResult") -> Mapping[str, Any]:
    """The document of the expectation of a result, without the batch id that Great Expectations has added."""
    config = result.expectation_config
    assert config is not None  # noqa: S101 - every result has one
    kwargs = {key: value for key, value in config.kwargs.items() if key != "batch_id"}
    return {"type": config.type, "kwargs": kwargs, "severity": config.severity.value, "meta": config.meta}


def _outcome(result: "ExpectationValidationResult", key: Sequence[str]) -> Outcome:
    """The outcome for a result of Great Expectations. The outcome shows at most EXAMPLES rows."""
    document, details = _document(result), result.result
    rows = details.get(_ROWS, ())
    examples = [_as_line(row) for row in rows] or [f"value={_shortened(value)}" for value in details.get(_VALUES, ())]
    return Outcome(
        suite=document["meta"][_SUITE],
        document=document,
        success=bool(result.success),
        unexpected=details.get("unexpected_count"),
        keys=tuple(_as_line(_key_values(row, key)) for row in rows[:EXAMPLES]),
        examples=tuple(examples[:EXAMPLES]),
        observed=details.get("observed_value"),
        error=_error(result.exception_info),
    )


def _as_line(row: Mapping[str, Any]) -> str:
    """The values of a row as one line of text."""
    return ", ".join(f"{name}={_shortened(value)}" for name, value in row.items())


def _key_values(row: Mapping[str, Any], key: Sequence[str]) -> dict[str, Any]:
    """The values of the key's columns, as far as the row of a result has these columns."""
    return {name: row[name] for name in key if name in row}


def _details_without_values(result: "ExpectationValidationResult", key: Sequence[str]) -> dict[str, Any]:
    """The details of a result without values of rows: only its counts, and the keys of the rows that fail."""
    details = _with_hex_bytes(result.result)
    # an expectation without columns is about the table, so its observed value is not the value of a row
    column_keys = _document(result)["kwargs"].keys() & set(COLUMN_KEYS)
    is_of_table = not column_keys
    without_rows = {
        name: value
        for name, value in details.items()
        if name.endswith(("_count", "_percent")) or (is_of_table and name == "observed_value")
    }
    return without_rows | {_ROWS: [_key_values(row, key) for row in details.get(_ROWS, ())]}


def _error(info: Any) -> str | None:
    """The first line of the error that an evaluation raised, at most 300 characters; None if it raised no error.

    `info` is a document of Great Expectations about the error, or has such a document for each metric.
    """
    info = info or {}
    documents = [info] if "raised_exception" in info else list(info.values())
    messages = [str(document["exception_message"]).strip() for document in documents if document["raised_exception"]]
    lines = messages[0].splitlines() if messages else []
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines = lines[1:]  # the first line only names the call; the second line has Java's error, after a colon
    return _shortened(lines[0].lstrip(": "), 300) if lines else None


def _shortened(value: Any, length: int = _TEXT) -> str:
    """The text of a value in one line, cut after `length` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[:length] + "…"


def _with_hex_bytes(value: Any) -> Any:
    """The value, in which hexadecimal texts replace bytes, because a JSON document cannot have bytes."""
    match value:
        case bytes() | bytearray():
            return value.hex()
        case dict():
            return {name: _with_hex_bytes(item) for name, item in value.items()}
        case list():
            return [_with_hex_bytes(item) for item in value]
    return value
