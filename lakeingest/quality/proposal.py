"""Proposals: expectations for the columns of a table, taken from rows of it, each with what was seen.

All rows that a proposal is taken from pass it. Three kinds of proposals are only warnings: a proposal that few values
speak for; a range or a length that is taken from a sample, because rows outside of the sample may exceed it; and a
range of values that are mostly different, because later rows may exceed it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from lakeingest.core.printable import printable
from lakeingest.core.tables.schema import INTEGERS, Column, Kind, TableSchema
from lakeingest.quality.suites import Document
from lakeingest.rows import arrow_type

ENOUGH_VALUES = 1_000  # a proposal from fewer values is only a warning
SET_SIZE = 20  # the most values of a value set
SEEN_EACH = 10  # if a value of a set was seen less often, the set is only a warning
_GREGORIAN = 1582  # from the next year on, the calendars of Python, Java and Spark are the same
_SET_CHARACTERS = 100  # the longest text of a value set
_SHOWN = 80  # the longest text of a value in a comment
_MOMENTS = {Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}
_NUMBERS = INTEGERS | {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.MICROS}
_DECIMALS = {Kind.DECIMAL, Kind.UINT64}  # the kinds whose values are decimals in Arrow; YAML has no decimals
_MEASURED = {Kind.STRING, Kind.NUMERAL, Kind.JSON, Kind.BINARY}  # the kinds whose lengths say something
_COUNTED = {Kind.INT32, Kind.INT64, Kind.STRING}  # the kinds whose values a suite can list exactly
_LISTED = {"enum", "set"}  # types whose members the definition has; the definition's suite checks those of an ENUM


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was seen of a column, and the expectations that follow; `column` is None for the key.

    `values` and `nulls` count rows. `distinct` is None if the values cannot be counted. `least` and `greatest` are
    values or, with `of_lengths`, lengths; None if there are none.
    """

    column: str | None
    type: str
    values: int
    nulls: int
    distinct: int | None
    least: Any
    greatest: Any
    of_lengths: bool
    expectations: tuple[Document, ...]

    @property
    def evidence(self) -> str:
        """What was seen, as a line of text without characters that could leave a comment."""
        parts = [f"{self.values:,} values", f"{self.nulls:,} NULL"]
        if self.distinct is not None:
            parts.append(f"{self.distinct:,} distinct")
        if self.least is not None:
            what = "lengths" if self.of_lengths else "values"
            parts.append(f"{what} from {_shown(self.least)} to {_shown(self.greatest)}")
        name = "key" if self.column is None else self.column
        return printable(f"{name} ({_shown(self.type)}): {', '.join(parts)}")


def propose(schema: TableSchema, rows: pa.Table, *, is_whole: bool) -> tuple[Proposal, ...]:
    """A proposal for the key, and one for each column, from some `rows` of the table, or all of them (`is_whole`)."""
    if len(schema.key) == 1:
        unique: Document = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": schema.key[0]}}
    else:
        unique = {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": list(schema.key)}}
    key = Proposal(
        column=None,
        type=", ".join(schema.key),  # the property `evidence` shows the key's columns in place of a type
        values=rows.num_rows,
        nulls=0,
        distinct=rows.num_rows,
        least=None,
        greatest=None,
        of_lengths=False,
        expectations=tuple(_sayable([unique])),
    )
    of_columns = [_of_column(column, rows[column.name], schema, is_whole=is_whole) for column in schema.columns]
    return (key, *of_columns)


def suite_text(head: Sequence[str], proposals: Iterable[Proposal]) -> str:
    """The suite as a file in YAML. The lines `head`, and what was seen of each column, are comments."""
    lines = [f"# {printable(line)}" for line in head]
    lines.append("expectations:")
    for proposal in proposals:
        lines.append(f"  # {proposal.evidence}")
        lines += [f"  - {_as_yaml(document)}" for document in proposal.expectations]
    return "\n".join(lines) + "\n"


def _of_column(column: Column, values: pa.ChunkedArray, schema: TableSchema, *, is_whole: bool) -> Proposal:
    """The proposal for a column, from its `values` in the rows of `propose`."""
    known = values.drop_null()
    counts = _counts(column, known)
    of_lengths = column.kind in _MEASURED
    least, greatest = _ends(column, known)
    expectations: list[Document] = []

    def expect(kind: str, *, is_thin: bool, **kwargs: Any) -> None:
        """Add an expectation about the column. `is_thin`: too little speaks for it, so it is only a warning."""
        document: dict[str, Any] = {"type": kind, "kwargs": {"column": column.name, **kwargs}}
        expectations.append(document | ({"severity": "warning"} if is_thin else {}))

    are_few = len(known) < ENOUGH_VALUES
    # of a column that cannot be NULL, the suite of the definition expects this already
    if column.nullable and column.name not in schema.key and len(known) and not values.null_count:
        expect("expect_column_values_to_not_be_null", is_thin=are_few)
    if counts is not None and _is_set(column, counts, schema):
        rarest = min(counts.values())
        expect("expect_column_values_to_be_in_set", is_thin=are_few or rarest < SEEN_EACH, value_set=sorted(counts))
    elif least is not None and column.name not in schema.key:  # most keys grow from row to row
        is_thin = are_few or not is_whole
        if of_lengths:
            kind = "expect_column_value_lengths_to_be_between"
            expect(kind, is_thin=is_thin, min_value=least, max_value=greatest)
        elif _can_be_bound(column, least):
            are_mostly_different = counts is not None and 2 * len(counts) > len(known)
            kind = "expect_column_values_to_be_between"
            expect(kind, is_thin=is_thin or are_mostly_different, **_bounds(column, least, greatest))
    return Proposal(
        column.name,
        str(column.source_type),
        len(known),
        values.null_count,
        None if counts is None else len(counts),
        least,
        greatest,
        of_lengths,
        tuple(_sayable(expectations)),
    )


def _counts(column: Column, known: pa.ChunkedArray) -> dict[Any, int] | None:
    """How often each value was seen; None for vectors, which Arrow does not count."""
    if column.kind is Kind.VECTOR:
        return None
    counted = pc.value_counts(known.combine_chunks())
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _is_set(column: Column, counts: dict[Any, int], schema: TableSchema) -> bool:
    """Whether the values are so few, and were seen so often, that a suite can list them."""
    if column.kind not in _COUNTED or column.name in schema.key or column.source_type.name in _LISTED:
        return False
    are_short = all(len(str(value)) <= _SET_CHARACTERS for value in counts)
    are_seen_twice = sum(counts.values()) >= 2 * len(counts)  # on average
    return 0 < len(counts) <= SET_SIZE and are_seen_twice and are_short


def _ends(column: Column, known: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest value, or length of a value; None twice without values, or for types without ends."""
    if column.source_type.name in _LISTED:
        return None, None
    if column.kind in _MEASURED:
        is_text = pa.types.is_string(arrow_type(column))
        known = pc.utf8_length(known) if is_text else pc.binary_length(known)
    elif column.kind not in _MOMENTS | _NUMBERS:
        return None, None
    ends = pc.min_max(known)
    return ends["min"].as_py(), ends["max"].as_py()


def _bounds(column: Column, least: Any, greatest: Any) -> dict[str, Any]:
    """The bounds of a range, which YAML and Spark read exactly. They may be wider than the values.

    Dates and times have no upper bound, because later rows exceed it. Great Expectations reads a bound in the time zone
    of the machine, so the bound is a day before the least value.
    """
    if column.kind in _MOMENTS:
        return {"min_value": str(_day(least) - timedelta(days=1))}
    if column.kind in _DECIMALS:
        return {"min_value": math.floor(least), "max_value": math.ceil(greatest)}
    return {"min_value": least, "max_value": greatest}


def _can_be_bound(column: Column, least: Any) -> bool:
    """Whether Great Expectations compares with this value as Spark does: for early dates, their calendars differ."""
    return column.kind not in _MOMENTS or _day(least).year > _GREGORIAN


def _day(moment: date | datetime) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _sayable(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents that lack the text `$PARAMETER`: Great Expectations would take this text for a parameter."""
    return (document for document in documents if "$PARAMETER" not in str(document["kwargs"]))


class _OneLine(yaml.SafeDumper):
    """Writes each text in one line, even a text with line feeds."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """A text for `_OneLine`. In double quotes, YAML writes a line feed as an escape."""
    style = None if text.isprintable() else '"'
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, style)
    return node


_OneLine.add_representer(str, _represent_text)


def _as_yaml(document: Document) -> str:
    """A document in one line. Characters that a terminal would not show as they are become escapes of YAML."""
    options: dict[str, Any] = {"Dumper": _OneLine, "default_flow_style": True, "width": math.inf, "sort_keys": False}
    text = str(yaml.dump(document, allow_unicode=True, **options)).strip()
    return text if text.isprintable() else str(yaml.dump(document, **options)).strip()


def _shown(value: Any) -> str:
    """A value in a comment. A long text is cut."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
