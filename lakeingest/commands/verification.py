"""Verifications: the results of `verify`. A result says for which part of a table it holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self

from lakeingest.commands.extent import share_text
from lakeingest.commands.report import Report
from lakeingest.core.proofs.checksum import Checksum, Difference
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.pipeline.proving.comparison import ChunkPlan
from lakeingest.state.stopped import most_serious


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of a table. `repaired` are differences that a repair has removed before this comparison.

    `chunks`: the number of ranges that the source read.
    `moved`: rows were changed during the comparison. Then the checksums are of different moments, and may be unequal
    without differences.
    `compared_chunks` and `all_chunks`: the number of chunks that were compared, and of all chunks of the table. Both
    are 0 if the time was over before the table was cut into chunks.
    `columns`: the columns that were compared, with those of the key; None: all columns.
    `seed`: the seed by which the chunks were drawn; None if nothing was left to chance.
    `quarantined`: the keys in quarantine whose rows are in the source alone: they are no differences.
    `plan`: the chunks, so that another comparison can compare the same chunks.
    `began_empty`: where the copy began without rows (`tables.startup`); None for any other copy. Such a copy
    lacks rows by the user's choice, so it is not compared.
    """

    table: TableId
    source: Checksum
    target: Checksum
    chunks: int
    differences: tuple[Difference, ...]
    seconds: float
    repaired: tuple[Difference, ...] = ()
    moved: bool = False
    compared_chunks: int = 1
    all_chunks: int = 1
    columns: tuple[str, ...] | None = None
    seed: int | None = None
    quarantined: tuple[Key, ...] = ()
    plan: ChunkPlan | None = field(default=None, repr=False, compare=False)
    began_empty: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the compared parts of source and target differ.

        If rows were changed during the comparison, or are in quarantine, only `differences` count, no checksums.
        """
        do_checksums_count = not self.moved and not self.quarantined
        return bool(self.differences) or (do_checksums_count and self.source != self.target)

    @property
    def complete(self) -> bool:
        """Whether all chunks and all columns were compared."""
        return 0 < self.compared_chunks == self.all_chunks and self.columns is None

    @property
    def equal(self) -> bool:
        """Whether source = target, and no row is in quarantine.

        False if only a part was compared, because nothing is known of the other part.
        """
        return self.complete and not self.differs and not self.quarantined

    @property
    def share(self) -> float:
        """The share of the chunks that was compared, from 0 to 1."""
        return self.compared_chunks / self.all_chunks if self.all_chunks else 0.0

    @property
    def result(self) -> str:
        """The result in words; if only a part of the table was compared, with this part.

        Rows in quarantine are counted, because they are missing in the target.
        """
        if self.began_empty is not None:
            return f"not compared, because the copy began empty at {self.began_empty}"
        if not self.compared_chunks:
            return "not compared, because the time was over"
        sign = "≠" if self.differs else "="
        but = f", but for {len(self.quarantined):,} rows in quarantine" if self.quarantined else ""
        return f"source {sign} target" + (f" in {self.part}" if self.part else "") + but

    @property
    def part(self) -> str:
        """The part of the table that was compared, in words; '' for the whole table."""
        parts = []
        if self.compared_chunks != self.all_chunks:
            share = share_text(self.compared_chunks, self.all_chunks) if self.all_chunks else "0 %"
            parts.append(f"{share} of the chunks ({self.compared_chunks:,} of {self.all_chunks:,})")
        if self.columns is not None:
            parts.append(f"the columns {', '.join(self.columns)}")
        return " and ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """A JSON document for programs. `equal` is true only if the whole table was compared."""
        document = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "plan"}
        for name in ("source", "target"):
            document[name] = asdict(document[name])
        for name in ("differences", "repaired"):
            document[name] = [asdict(difference) for difference in document[name]]
        return document | {
            "table": asdict(self.table),
            "share": self.share,
            "result": self.result,
            "equal": self.equal,
        }


class Verifications(Report, tuple[TableVerification, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The comparisons of several tables. `refused` are the tables that could not be compared, each with its error."""

    refused: Mapping[TableId, LakeIngestError] = MappingProxyType({})

    @classmethod
    def of(cls, results: Iterable[TableVerification], refused: Mapping[TableId, LakeIngestError]) -> Self:
        """The comparisons `results`, with the tables that could not be compared."""
        verifications = cls(results)
        verifications.refused = refused
        return verifications

    @property
    def equal(self) -> bool:
        """Whether all tables were compared, and source = target for each."""
        return not self.refused and all(result.equal for result in self)

    @property
    def notes(self) -> Sequence[str]:
        """A line for each table that could not be compared, and a line with the seed, if chunks were drawn."""
        lines = [f"{table}: not compared: {error.line}" for table, error in self.refused.items()]
        seeds = dict.fromkeys(result.seed for result in self if result.seed is not None)
        return lines + [f"the chunks were drawn with the seed {seed}; --seed {seed} draws them again" for seed in seeds]

    def raise_refused(self) -> None:
        """Raise the most serious error of the tables that could not be compared, if there are any.

        Raises Retryable if the time was over before the first chunk of any table. The error's `result` is this object.
        """
        error: LakeIngestError | None = None
        is_one_wanted = any(one.began_empty is None for one in self)  # a copy that began empty is never compared
        is_one_compared = any(one.compared_chunks for one in self)
        if self.refused:
            error = most_serious(self.refused.values())
        elif is_one_wanted and not is_one_compared:
            error = Retryable("no chunk was compared, because the time was over; give more seconds to --max-seconds")
        if error is not None:
            error.result = self
            raise error

    headers = (
        "table",
        "result",
        "source rows",
        "target rows",
        "keys that differ",
        "repaired",
        "checksum",
        "chunks",
        "seconds",
        "compared part",
    )

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table, with the number of keys that differ. `TableVerification.differences` has these keys."""
        for verified in self:
            rows = verified.source.rows, verified.target.rows
            keys = len(verified.differences), len(verified.repaired)
            are_same = verified.source == verified.target
            checksum = str(verified.source) if are_same else f"{verified.source} ≠ {verified.target}"
            if verified.moved:
                checksum += " (rows changed meanwhile)"
            part = verified.part or "all"
            numbers = verified.chunks, verified.seconds
            yield str(verified.table), verified.result, *rows, *keys, checksum, *numbers, part
