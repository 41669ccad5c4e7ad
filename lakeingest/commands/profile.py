"""Profile: proposes a suite of expectations for a table, from a sample of its rows in the source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakeingest.commands.drawn_rows import ROWS, draw_rows
from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.quality.proposal import Proposal, propose, suite_text
from lakeingest.quality.suites import write_suite


@dataclass(frozen=True, slots=True, repr=False)
class TableProfile(Report):
    """What was seen of a table in a sample of its rows, and the expectations that follow.

    `read`: which rows were read, in words. `rows` and `ranges`: the number of rows, and of the ranges of keys in which
    they were read. `is_whole`: all rows of the table were read. `path`: the file that was written; None if none was.
    """

    table: TableId
    read: str
    rows: int
    ranges: int
    seed: int
    is_whole: bool
    proposals: tuple[Proposal, ...]
    path: Path | None = None

    headers = ("column", "type", "values", "NULL", "distinct", "least", "greatest", "expectations")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for the key and for each column. Of texts and bytes, the least and the greatest length are shown."""
        for proposal in self.proposals:
            kinds = [
                f"{document['type']}{' (warning)' if 'severity' in document else ''}"
                for document in proposal.expectations
            ]
            numbers = proposal.values, proposal.nulls, proposal.distinct
            ends = proposal.least, proposal.greatest
            yield proposal.column or "key", proposal.type, *numbers, *ends, ", ".join(kinds)

    @property
    def notes(self) -> Sequence[str]:
        """Which rows were read, and the file that was written."""
        return [f"from {self.read}", *([f"written to {self.path}"] if self.path is not None else [])]

    @property
    def suite(self) -> str:
        """The proposed suite, as a file in YAML. Its comments have what was seen."""
        return suite_text(
            [
                f"Expectations that `lakeingest profile` proposes, from {self.read}.",
                "Read them before you use them: a failure stops the table, unless it is a warning.",
            ],
            self.proposals,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON document for programs."""
        columns = [
            {
                "column": proposal.column,
                "type": proposal.type,
                "values": proposal.values,
                "nulls": proposal.nulls,
                "distinct": proposal.distinct,
                "evidence": proposal.evidence,
                "expectations": list(proposal.expectations),
            }
            for proposal in self.proposals
        ]
        return {
            "table": str(self.table),
            "rows": self.rows,
            "ranges": self.ranges,
            "seed": self.seed,
            "whole_table": self.is_whole,
            "columns": columns,
            "suite": self.suite,
            "path": None if self.path is None else str(self.path),
        }


def profile(
    config: Config, table: str, rows: int = ROWS, seed: int | None = None, *, write: bool = False
) -> TableProfile:
    """Propose a suite for a table, from about `rows` rows that are spread over the whole table in the source.

    Without a `seed`, one is drawn. With `write`, the suite is written to a new file in the folder of suites. The target
    is not used. The errors are those of `draw_rows` and `write_suite`.
    """
    with BinlogSource.open(config.source) as source:
        included = config.tables.select(source.tables())
        [chosen] = config.tables.choose(included, [table])
        schema = source.schema(chosen, config.tables.of(chosen).choices)
        drawn = draw_rows(config, source, schema, rows, seed)
    proposals = propose(schema, drawn.rows, is_whole=drawn.is_whole)
    proposed = TableProfile(
        chosen, str(drawn), drawn.rows.num_rows, drawn.ranges, drawn.seed, drawn.is_whole, proposals
    )
    if not write:
        return proposed
    return replace(proposed, path=write_suite(config.quality, chosen, included, proposed.suite))
