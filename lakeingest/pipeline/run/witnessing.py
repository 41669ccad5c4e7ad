"""What a run lets the second decoder compare, and what it stores of the results (`core.proofs.witness`)."""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeingest.core.proofs.witness import (
    EVERY_ROW,
    FIRST_ROWS,
    LEAST_FIRST_ROWS,
    NO_CHUNK_LOOK,
    ChunkLook,
    Look,
    Looked,
    Met,
    of_chunks,
    traits,
)
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import DecodersDisagree
from lakeingest.files.file import File
from lakeingest.state.stopped import StoppedTables
from lakeingest.state.witness import read_met, store_met
from lakeingest.version import VERSION

_STORE_SECONDS = 60.0  # CPU seconds of runs are stored at most so often, if nothing was compared meanwhile


@dataclass(slots=True)
class Witness:
    """What this installation has compared so far. `masked`: messages and files do not show values."""

    met: Met
    masked: bool
    _cpu: float = field(default_factory=time.process_time, init=False)  # CPU seconds of the run that are counted
    _stored_at: float = field(default=0.0, init=False)
    _suspects: set[TableId] | None = field(default=None, init=False)  # None: not known yet
    # by table, because many tables cost much time: the last definition, and its traits
    _traits: dict[TableId, tuple[TableSchema, frozenset[str]]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, state: File, *, masked: bool) -> "Witness":
        """What the state folder has; nothing if another version of lakeingest has compared it."""
        return cls(read_met(state, VERSION), masked)

    def looks(
        self, server: str, schemas: Mapping[TableId, TableSchema], stopped: StoppedTables, segments: int
    ) -> list[Look]:
        """What is compared of each of so many segments.

        All segments share the rows of tables with new traits. One segment, chosen by chance, has the sample, too.
        """
        if self._suspects is None:  # at first each table may be one; its record decides
            self._suspects = set() if stopped.is_empty else set(schemas)
        self._suspects = {table for table in self._suspects if _has_disagreed(stopped, table)}
        all_traits = {table: self._traits_of(schema) for table, schema in schemas.items()}
        # once for the tables of the same traits: a run may have thousands of tables
        has_news = {table_traits: self.met.has_news(server, table_traits) for table_traits in set(all_traits.values())}
        first = frozenset(table for table, table_traits in all_traits.items() if has_news[table_traits])
        chosen, seed = random.randrange(max(1, segments)), random.getrandbits(60)  # noqa: S311 - no secret
        suspects, sample = frozenset(self._suspects), self.met.sample_rows
        first_rows, least_rows = (rows // max(1, segments) for rows in (FIRST_ROWS, LEAST_FIRST_ROWS))
        return [
            Look(suspects, first, first_rows, least_rows, sample if number == chosen else 0, seed, self.masked)
            for number in range(segments)
        ]

    def looks_at_chunks(self, server: str, schema: TableSchema, stopped: StoppedTables, chunks: int) -> list[ChunkLook]:
        """What is compared of each of so many chunks of a table, at least one.

        All rows, if the decoders have disagreed about the table before. If the table has new traits, all chunks share
        its first rows. Else one chunk, chosen by chance, has the sample.
        """
        if not stopped.is_empty and _has_disagreed(stopped, schema.table):
            return [ChunkLook(EVERY_ROW, masked=self.masked)] * chunks
        if self.met.has_news(of_chunks(server), self._traits_of(schema)):
            first_rows, least_rows = (max(1, rows // chunks) for rows in (FIRST_ROWS, LEAST_FIRST_ROWS))
            return [ChunkLook(first_rows, least_rows, masked=self.masked)] * chunks
        looks = [NO_CHUNK_LOOK] * chunks
        chosen = random.randrange(chunks)  # noqa: S311 - no secret
        looks[chosen] = ChunkLook(self.met.sample_rows, is_sample=True, masked=self.masked)
        return looks

    def _traits_of(self, schema: TableSchema) -> frozenset[str]:
        """What the decoders can meet in the table, by its last definition."""
        known, table_traits = self._traits.get(schema.table, (None, frozenset[str]()))
        if known is not schema:  # a definition is another object after DDL
            table_traits = traits(schema)
            self._traits[schema.table] = schema, table_traits
        return table_traits

    def suspect(self, table: TableId) -> None:
        """From now on, everything of the table is compared, until it has no record of its stop any more."""
        if self._suspects is not None:
            self._suspects.add(table)

    def note(
        self, server: str, schemas: Mapping[TableId, TableSchema], looked: Iterable[Looked], elsewhere: float
    ) -> None:
        """Note what was compared. `elsewhere`: the CPU seconds that other processes of the run have taken so far."""
        cpu = time.process_time() + elsewhere
        self.met = self.met.after(server, schemas, looked, cpu - self._cpu)
        self._cpu = cpu

    def store(self, state: File, *, now: bool) -> None:
        """Store what was compared, with `now` at once, else only if nothing was stored for a minute."""
        if now or time.monotonic() - self._stored_at > _STORE_SECONDS:
            self._stored_at = time.monotonic()
            store_met(state, self.met)


def _has_disagreed(stopped: StoppedTables, table: TableId) -> bool:
    """Whether the table has stopped because the decoders disagree about it."""
    record = stopped.read(table)
    return record is not None and record.error == DecodersDisagree.__name__
