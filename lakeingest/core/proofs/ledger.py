"""The ledger: tables in the lake in which a pipeline writes what its gates and its proofs have found.

These tables are written in the same way as copies. No source has their rows, so their positions count their commits.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from lakeingest.core.copies import counted
from lakeingest.core.copies.progress import Progress
from lakeingest.core.proofs.proof import TableProof
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

KEY = "id"  # the key of each table of the ledger
REPEAT_SECONDS = 3_600.0  # after which a run writes a result again that is still the same

_TYPES = {
    Kind.STRING: SourceType("text", "text"),
    Kind.BOOLEAN: SourceType("bit(1)", "bit", size=1),
    Kind.INT64: SourceType("bigint", "bigint"),
    Kind.TIMESTAMP: SourceType("timestamp(6)", "timestamp", size=6),
}
Row = dict[str, Any]  # a row of the ledger; times are in microseconds since 1970


def quality_table(database: str) -> TableSchema:
    """The table with the results of gates: a row for each expectation that was evaluated.

    The id begins with the time of the gate, so that later rows have greater ids.
    """
    columns = (
        _column("checked_at", Kind.TIMESTAMP, "when the gate checked the rows"),
        _column("run_began", Kind.TIMESTAMP, "when the run began; a pipeline has one run at a time"),
        _column("source_table", Kind.STRING, "the table of the source, as database.table"),
        _column("stage", Kind.STRING, "what the gate stands before or after"),
        _column("suite", Kind.STRING, "schema: the suite that is made from the table's definition"),
        _column("expectation", Kind.STRING, "the type of the expectation, with its columns"),
        _column("severity", Kind.STRING, "critical: a failure stops the publish"),
        _column("success", Kind.BOOLEAN, "whether the rows meet the expectation"),
        _column("row_count", Kind.INT64, "the number of rows that the gate checked"),
        _column("failing_rows", Kind.INT64, "the number of rows that fail, if single rows can fail", nullable=True),
        _column("failing_keys", Kind.STRING, "the keys of some of these rows", nullable=True),
        _column("evaluated", Kind.BOOLEAN, "whether the expectation could be evaluated; if not, it has failed"),
        _column("position", Kind.STRING, "the position of the rows in the source's binlog", nullable=True),
    )
    return _table(TableId(database, "quality"), columns, "Results of the quality checks of lakeingest")


def result_id(checked_at: datetime, rest: str = "") -> str:
    """The id of a gate's result: time, then `rest`. Without `rest`, a text that sorts before all ids of this time."""
    return f"{checked_at:%Y%m%dT%H%M%S.%fZ} {rest}"


def proofs_table(database: str) -> TableSchema:
    """The table with the present state of each range of keys that runs compare with the source."""
    columns = (
        _column("source_table", Kind.STRING, "the table of the source, as database.table"),
        _column("key_range", Kind.STRING, "the range of keys, in words"),
        _column("lower_key", Kind.STRING, "the least key as a JSON array; NULL: no bound", nullable=True),
        _column("upper_key", Kind.STRING, "the key before which the range ends; NULL: no bound", nullable=True),
        _column("state", Kind.STRING, "proven: source = target when the range was last compared"),
        _column("proven_at", Kind.TIMESTAMP, "when the range was last proven equal", nullable=True),
        _column("position", Kind.STRING, "the published position as of which it was proven", nullable=True),
        _column("checked_at", Kind.TIMESTAMP, "when the range was last compared", nullable=True),
        _column("why", Kind.STRING, "what differs, or why the proof is lost", nullable=True),
    )
    return _table(TableId(database, "proofs"), columns, "Proofs of lakeingest that source = target")


def _table(table: TableId, columns: tuple[Column, ...], comment: str) -> TableSchema:
    key = _column(KEY, Kind.STRING, "tells the rows of this table apart")
    return TableSchema(table, (key, *columns), (KEY,), comment=comment)


def _column(name: str, kind: Kind, comment: str, *, nullable: bool = False) -> Column:
    return Column(name, kind, _TYPES[kind], nullable=nullable, comment=comment)


def begun(schema: TableSchema) -> Progress:
    """The progress of a new table of the ledger, which has no rows."""
    return counted.begun(schema, "ledger")


def written(progress: Progress, inserted: int, deleted: int) -> Progress:
    """The progress after one more commit. `inserted`, `deleted`: the numbers of its rows."""
    return counted.written(progress, 1, inserted, deleted)


@dataclass(frozen=True, slots=True)
class Result:
    """The last result of an expectation that a run has written, `at` this time (seconds since 1970).

    `failing_rows` is None if the expectation does not blame single rows.
    """

    success: bool
    failing_rows: int | None
    at: float

    def covers(self, later: Self) -> bool:
        """Whether a later result says the same, and comes so soon that it is not written."""
        is_same = (self.success, self.failing_rows) == (later.success, later.failing_rows)
        return is_same and 0 <= later.at - self.at < REPEAT_SECONDS


def proof_rows(proofs: Mapping[TableId, TableProof]) -> Iterator[Row]:
    """The rows of the table of proofs, in a fixed order."""
    for table in sorted(proofs):
        for proof in proofs[table].ranges:
            lower, upper = (None if key is None else json.dumps(key) for key in (proof.keys.lower, proof.keys.upper))
            yield {
                KEY: f"{table} {json.dumps(proof.keys.lower)}",
                "source_table": str(table),
                "key_range": proof.keys_text,
                "lower_key": lower,
                "upper_key": upper,
                "state": proof.state.value,
                "proven_at": _micros(proof.proven_at),
                "position": proof.position,
                "checked_at": _micros(proof.checked_at),
                "why": proof.why or None,
            }


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def digest(rows: Collection[Row]) -> str:
    """A text that is the same only for the same rows in the same order."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()


def differences(present: Collection[Row], wanted: Collection[Row]) -> tuple[list[Row], list[str]]:
    """The wanted rows that a table lacks or has with other values, and the ids of its rows that are not wanted."""
    by_id = {row[KEY]: row for row in present}
    changed = [row for row in wanted if by_id.get(row[KEY]) != row]
    return changed, sorted(by_id.keys() - {row[KEY] for row in wanted})
