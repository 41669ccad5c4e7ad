"""How much of the binlog a second, independent decoder reads again, and what a difference between the decoders is.

The first rows of whatever this installation has not met yet are compared: of a version of lakeingest or of the server,
a type of column, a default. After that, samples are compared, for a small share of the CPU time of runs.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.schema import Column, TableId, TableSchema

FIRST_ROWS = 10_000  # so many rows of something new are compared, in one read or in several
FIRST_PART = 200  # a read compares one of so many of its rows, which takes about a tenth of its time
LEAST_FIRST_ROWS = 2_000  # a read compares at least so many rows, or all if it has fewer
SHARE = 0.01  # of the CPU seconds of runs: what samples may cost
LEAST_SECONDS = 0.2  # a sample is read once so many CPU seconds may be spent: the connection alone costs some
GUESSED_RATE = 5_000  # rows a CPU second, before a sample has been read
FIRST_EVENTS = 100_000  # of one part of a segment, with those of other tables: they cost time, too
MOST_TABLES = 50  # of one part of a segment: each costs the time to open its file
PART_ROWS, EVERY_EVENT = 1_000_000, 1 << 62  # of one part of a segment of which everything is compared
EVERY_ROW = 1 << 62  # of a chunk of which everything is compared
_REASONS = 200  # at most so many reasons are kept by name
_OTHER = "other reasons"


@dataclass(frozen=True, slots=True)
class Look:
    """What the second decoder reads of a segment.

    `everything`: tables whose every row is compared, because the decoders have disagreed about them before. `first`:
    tables with something new, of which up to `first_rows` rows are compared, and at least `least_rows` if a part of
    the rows would be fewer. `sample`: how many rows of all tables are compared, from a place that `seed` decides; 0:
    none. `masked`: messages do not show values.
    """

    everything: frozenset[TableId] = frozenset()
    first: frozenset[TableId] = frozenset()
    first_rows: int = FIRST_ROWS
    least_rows: int = LEAST_FIRST_ROWS
    sample: int = 0
    seed: int = 0
    masked: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is compared."""
        return not (self.everything or self.first or self.sample)


NO_LOOK = Look()


@dataclass(frozen=True, slots=True)
class ChunkLook:
    """What the second decoder reads of a chunk: its first `rows` rows. `is_sample`: they are a sample.

    `least_rows`: so many rows if a part of the chunk would be fewer; None: always `rows`. `masked`: messages do not
    show values.
    """

    rows: int = 0
    least_rows: int | None = None
    is_sample: bool = False
    masked: bool = False

    def rows_of(self, read: int) -> int:
        """How many rows at most are compared of a chunk of `read` rows; it may have fewer."""
        return self.rows if self.least_rows is None else rows_to_compare(self.rows, self.least_rows, read)


NO_CHUNK_LOOK = ChunkLook()


@dataclass(frozen=True, slots=True)
class Stint:
    """A part of a look: up to `rows` rows of `tables`, and up to `events` events of any table.

    `transaction`: the number, from 0 on, of the transaction with which it begins; None: the first that changes one of
    the `tables`.
    """

    transaction: int | None
    tables: frozenset[TableId]
    rows: int
    events: int


def rows_to_compare(most: int, least: int, read: int) -> int:
    """How many of `read` rows with something new are compared: one of FIRST_PART, but from `least` to `most` rows.

    If there are fewer than the result, all are compared.
    """
    return min(most, max(least, read // FIRST_PART))


def first_stint(look: Look, changed: Mapping[TableId, int], transactions: int) -> Stint | None:
    """What the second decoder reads first of a segment with `transactions` transactions; None if it reads nothing.

    `changed`: the tables with rows in the segment, and how many rows. If the stint is for tables of `look.everything`,
    other stints follow until the end of the segment.
    """
    if everything := look.everything.intersection(changed):
        return Stint(None, everything, PART_ROWS, EVERY_EVENT)
    if first := look.first.intersection(changed):
        tables = _drawn(first, look.seed)
        rows = rows_to_compare(look.first_rows, look.least_rows, sum(changed[table] for table in tables))
        return Stint(None, tables, rows, FIRST_EVENTS)
    if look.sample and changed:
        return Stint(look.seed % transactions, _drawn(changed, look.seed), look.sample, FIRST_EVENTS)
    return None


def _drawn(tables: Collection[TableId], seed: int) -> frozenset[TableId]:
    """At most MOST_TABLES of the tables, chosen by the seed."""
    ordered = sorted(tables)
    begin = seed % len(ordered)
    return frozenset((ordered[begin:] + ordered[:begin])[:MOST_TABLES])


@dataclass(slots=True)
class Looked:
    """What the second decoder has read: `rows` by table, `unread` by reason, and the CPU seconds for both.

    `unread` counts, by reason, the values or events that the second decoder left out. `is_sample`: the seconds count
    against the share of samples.
    """

    rows: Counter[TableId] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    is_sample: bool = False


@dataclass(frozen=True, slots=True)
class Met:
    """What this installation has compared.

    `version`: of lakeingest. `rows`: by server version and trait (`traits`), how many rows of the binlog were compared;
    rows of chunks have a name of their own in place of the server version (`of_chunks`). `unread`: by reason, how many
    values or events were left out. `run_seconds`: the CPU seconds of all runs. `seconds`: the CPU seconds of samples.
    `sampled`: how many rows were compared in samples.
    """

    version: str
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    run_seconds: float = 0.0
    sampled: int = 0

    def under(self, version: str) -> Self:
        """What `version` of lakeingest has compared: nothing yet, if it is a new version. The cost of samples stays."""
        return self if version == self.version else replace(self, version=version, rows={}, unread={})

    def has_news(self, server: str, of_table: Iterable[str]) -> bool:
        """Whether for one of the traits `of_table`, fewer than FIRST_ROWS rows were compared on this server version."""
        counts = self.rows.get(server, {})
        return any(counts.get(trait, 0) < FIRST_ROWS for trait in of_table)

    @property
    def sample_rows(self) -> int:
        """The number of rows that a sample may have now; 0 if samples have cost their share of CPU seconds."""
        allowed = SHARE * self.run_seconds - self.seconds
        if allowed < LEAST_SECONDS:
            return 0
        rate = self.sampled / self.seconds if self.sampled and self.seconds else GUESSED_RATE
        return min(FIRST_ROWS, max(1, int(allowed * rate)))

    def after(
        self, server: str, schemas: Mapping[TableId, TableSchema], looked: Iterable[Looked], run_seconds: float
    ) -> Self:
        """What has been compared after looks with the results `looked`, and `run_seconds` more CPU seconds of runs.

        `server`: the name in `rows` under which the results count. `schemas`: the definitions of the tables.
        """
        counts, unread = Counter(self.rows.get(server, {})), Counter(self.unread)
        seconds, sampled = self.seconds, self.sampled
        for result in looked:
            for table, rows in result.rows.items():
                for trait in traits(schemas[table]):
                    counts[trait] = min(FIRST_ROWS, counts[trait] + rows)
            for reason, count in result.unread.items():
                is_known = reason in unread or len(unread) < _REASONS
                unread[reason if is_known else _OTHER] += count
            if result.is_sample:
                seconds, sampled = seconds + result.seconds, sampled + result.rows.total()
        rows_by_server = {**self.rows, server: dict(counts)} if counts else self.rows
        return replace(
            self,
            rows=rows_by_server,
            unread=dict(unread),
            seconds=seconds,
            sampled=sampled,
            run_seconds=self.run_seconds + run_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        names = ("version", "rows", "unread", "seconds", "run_seconds", "sampled")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        return cls(
            str(doc["version"]),
            {str(server): _counts(counts) for server, counts in doc["rows"].items()},
            _counts(doc["unread"]),
            float(doc["seconds"]),
            float(doc["run_seconds"]),
            int(doc["sampled"]),
        )


def _counts(doc: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(count) for name, count in doc.items()}


def of_chunks(server: str) -> str:
    """The name in `Met.rows` for rows of chunks: other decoders read them than rows of the binlog."""
    return f"{server}, chunks"


def traits(schema: TableSchema) -> frozenset[str]:
    """What decides how the rows of a table are decoded: the types of its columns, and what is known of their defaults.

    The texts of defaults and members may be secret, so a digest and a number stand for them.
    """
    return frozenset(trait for column in schema.columns for trait in _traits_of(column))


def _traits_of(column: Column) -> Iterable[str]:
    """The trait of a column's type, and one more for its default if anything is known of a default."""
    source = column.source_type
    text = f"{source.name} of {len(source.members)} members" if source.members else source.text
    name = " ".join(filter(None, [text, column.charset, str(column.kind), column.choice]))
    yield name
    if isinstance(column.default, Value):
        digest = hashlib.sha256(repr(column.default.value).encode()).hexdigest()[:12]
        yield f"{name}, default {digest}"
    elif column.default not in {Default.UNKNOWN, Default.NONE}:
        yield f"{name}, default {column.default.name}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between the decoders in a table.

    `at`: where the row event begins in the binlog; if it is not known, where its transaction is. `what`: the column,
    or what else differs. `ours` and `theirs`: the value of the fast decoder, and of the second one.
    """

    table: TableId
    at: str
    what: str
    ours: object
    theirs: object

    def line(self, *, masked: bool) -> str:
        """What a message says about it; with `masked`, without the two values."""
        values = "" if masked else f": {_shown(self.ours)}, and the second one reads {_shown(self.theirs)}"
        return f"the decoders disagree at {self.at} about {self.what}{values}"

    def to_json(self, *, masked: bool) -> dict[str, str]:
        """The document to attach to a report; with `masked`, only the types of the two values."""
        show = _type_of if masked else repr
        return {
            "table": str(self.table),
            "at": self.at,
            "what": self.what,
            "fast": show(self.ours),
            "second": show(self.theirs),
        }


_SHOWN = 60  # characters of a value in a message


def _shown(value: object) -> str:
    """The value in a message; a long one is cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _type_of(value: object) -> str:
    """The type of the value, and the length of a text or of bytes."""
    size = f" of {len(value)}" if isinstance(value, str | bytes) else ""
    return type(value).__name__ + size


@dataclass(frozen=True, slots=True)
class Compared:
    """What a part of a look has found, with the first difference of each table.

    `rows`: the number of row images by table. `unread`: by reason, the number of values or events that were left out.
    `last`: the place of the last transaction that was read (the file's number, and the position); None if there is
    none. `is_partial`: only some rows of this transaction were read.
    """

    rows: Counter[TableId]
    unread: Counter[str]
    last: tuple[int, int] | None
    is_partial: bool
    differences: Sequence[Difference]
