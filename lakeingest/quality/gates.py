"""Gates: expectation suites on staged rows. One that cannot be evaluated has failed; a failure stops the next stage."""

from collections.abc import Mapping, Sequence
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

EXAMPLES = 5  # of the rows that an expectation fails on
_TEXT = 80  # characters of a value in a line
_ROWS, _VALUES = "partial_unexpected_index_list", "partial_unexpected_list"  # in a result
_SUITE = "suite"  # in an expectation's meta


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one expectation.

    For an expectation about rows, `unexpected` counts the rows it fails on; `keys` has the keys of some of them, and
    `examples` the same with the values that fail. For an expectation about the table, `observed` is the value it found.
    `error` says why it could not be evaluated. Its text goes to terminals and logs, so no value is in it but keys.
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
        """Whether it stops the publish: it failed, and its severity is not `warning`."""
        return not self.success and self.document.get("severity", "critical") == "critical"

    def __str__(self) -> str:
        kind, kwargs = self.document["type"], self.document["kwargs"]
        if self.error is None and (self.suite, kind) == (SCHEMA, ROW_COUNT):
            return f"{self.observed} rows are staged, {kwargs['value']} were written"
        of = ", ".join(str(kwargs[key]) for key in COLUMN_KEYS if key in kwargs)
        named = f"{kind}({of}) of {self.suite}"
        if self.error is not None:
            return f"{named} cannot be evaluated: {self.error}"
        if self.unexpected is not None:
            return f"{named} fails on {self.unexpected} rows" + (f", such as {self.keys[0]}" if self.keys else "")
        return f"{named} fails" + ("" if of else f", observed {_shortened(self.observed)}")


@dataclass(frozen=True, slots=True)
class GateReport:
    """The result of a gate: its outcomes, also as a result document of Great Expectations."""

    outcomes: tuple[Outcome, ...]
    document: Mapping[str, Any]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that stop the publish; empty when the gate passes."""
        return tuple(outcome for outcome in self.outcomes if outcome.stops)

    @property
    def warnings(self) -> tuple[Outcome, ...]:
        """The outcomes that failed but stop nothing."""
        return tuple(outcome for outcome in self.outcomes if not outcome.success and not outcome.stops)


def run_gate(
    name: str, rows: "DataFrame", key: Sequence[str], suites: Sequence[Suite], *, samples: bool = True
) -> GateReport:
    """Evaluate all suites in few passes over the rows; only failures are evaluated again, for counts and examples.

    Without `samples` the report has no value of a row but keys.
    An expectation that raises has failed. But if the rows cannot be read, Spark's error is raised.
    """
    plain_names = {name: _plain_name(name) for name in rows.columns}
    rows, key = rows.toDF(*plain_names.values()), [plain_names[name] for name in key]
    asked = [
        _renamed(of_suite(document, suite.name), plain_names) for suite in suites for document in suite.expectations
    ]
    detailed = {
        "result_format": "SUMMARY",
        "partial_unexpected_count": EXAMPLES,
        "unexpected_index_column_names": list(key),
    }
    result = _validated(name, rows, asked, "BOOLEAN_ONLY")
    failed = [found for found in result.results if not found.success and _error(found.exception_info) is None]
    if failed:
        again = _validated(name, rows, [_document(one) for one in failed], detailed).results
        result.results = [one for one in result.results if one not in failed] + again
        for one in again:
            one.success = False  # also if the second evaluation passes
            one.result = _plain(one.result) if samples else _without_values(one, key)
    outcomes = tuple(_outcome(one, key) for one in result.results)
    if any(one.error for one in outcomes):
        rows.write.format("noop").mode("overwrite").save()
    document: Mapping[str, Any] = result.to_json_dict()  # type: ignore[no-untyped-call]
    return GateReport(outcomes, document)


def joined(one: GateReport, other: GateReport) -> GateReport:
    """The report of a gate whose suites were asked in two passes."""
    results = [*one.document["results"], *other.document["results"]]
    success = one.document["success"] and other.document["success"]
    document = {**one.document, "results": results, "success": success}
    return GateReport((*one.outcomes, *other.outcomes), document)


def of_suite(document: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    """The document of an expectation with the name of its suite in it."""
    return {**document, "meta": {**(document.get("meta") or {}), _SUITE: suite}}


def _plain_name(name: str) -> str:
    """A column's name with look-alikes for the characters that Great Expectations and Spark read as a path."""
    return name.replace(".", "․").replace("`", "‵")  # noqa: RUF001


def _renamed(document: Mapping[str, Any], plain_names: Mapping[str, str]) -> Mapping[str, Any]:
    """The document with the columns with their plain names."""

    def renamed(value: Any) -> Any:
        return (
            [plain_names.get(one, one) for one in value] if isinstance(value, list) else plain_names.get(value, value)
        )

    columns = {key: renamed(value) for key, value in document["kwargs"].items() if key in COLUMN_KEYS}
    return {**document, "kwargs": {**document["kwargs"], **columns}}


def _validated(
    name: str, rows: "DataFrame", documents: Sequence[Mapping[str, Any]], result_format: Any
) -> "ExpectationSuiteValidationResult":
    batch = library.batch(rows)
    from great_expectations.core.expectation_suite import ExpectationSuite

    suite = ExpectationSuite(name, expectations=[library.expectation(document) for document in documents])
    return batch.validate(suite, result_format=result_format)


def _document(result: "ExpectationValidationResult") -> Mapping[str, Any]:
    """The document of the expectation, without what Great Expectations adds to it."""
    asked = result.expectation_config
    assert asked is not None  # noqa: S101 - every result has one
    kwargs = {key: value for key, value in asked.kwargs.items() if key != "batch_id"}
    return {"type": asked.type, "kwargs": kwargs, "severity": asked.severity.value, "meta": asked.meta}


def _outcome(result: "ExpectationValidationResult", key: Sequence[str]) -> Outcome:
    document, found = _document(result), result.result
    rows = found.get(_ROWS, ())
    examples = [_line(row) for row in rows] or [f"value={_shortened(value)}" for value in found.get(_VALUES, ())]
    return Outcome(
        document["meta"][_SUITE],
        document,
        bool(result.success),
        found.get("unexpected_count"),
        tuple(_line(_of_key(row, key)) for row in rows[:EXAMPLES]),
        tuple(examples[:EXAMPLES]),
        found.get("observed_value"),
        _error(result.exception_info),
    )


def _line(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_shortened(value)}" for name, value in row.items())


def _of_key(row: Mapping[str, Any], key: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in key if name in row}


def _without_values(found: "ExpectationValidationResult", key: Sequence[str]) -> dict[str, Any]:
    """A result with its counts, and the keys of the rows that fail; any other value is one of a row."""
    result = _plain(found.result)
    known = (
        set() if _document(found)["kwargs"].keys() & set(COLUMN_KEYS) else {"observed_value"}
    )  # of the table as a whole
    counts = {name: value for name, value in result.items() if name.endswith(("_count", "_percent")) or name in known}
    return counts | {_ROWS: [_of_key(row, key) for row in result.get(_ROWS, ())]}


def _error(info: Any) -> str | None:
    """The first line that says why. Great Expectations has an error for the expectation, or for each of its metrics."""
    each = [info] if "raised_exception" in info else list((info or {}).values())
    raised = [str(one["exception_message"]).strip() for one in each if one["raised_exception"]]
    lines = raised[0].splitlines() if raised else []
    of_java = len(lines) > 1 and lines[0].startswith("An error occurred while calling ")  # then Java's error
    return _shortened(lines[of_java].lstrip(": "), 300) if lines else None


def _shortened(value: Any, length: int = _TEXT) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[:length] + "…"


def _plain(value: Any) -> Any:
    """A result with bytes as hexadecimal text, because Great Expectations cannot put bytes into a document."""
    match value:
        case bytes() | bytearray():
            return value.hex()
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
    return value
