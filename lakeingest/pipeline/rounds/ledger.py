"""Writes the ledger: what gates and comparisons have found becomes tables in the lake (`core.proofs.ledger`).

Its tables are written by the steps with which a copy is written: rows are merged by their keys on staging, then
published. If a run dies between the two steps, readers do not see its commit, and the next run writes the same rows
once more, under the same keys. Rows that cannot be written are kept for the next time. They stop neither the run nor a
table.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.proofs.ledger import (
    KEY,
    Row,
    begun,
    differences,
    digest,
    proof_rows,
    proofs_table,
    quality_table,
    result_id,
    written,
)
from lakeingest.core.proofs.proof import TableProof
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurTable, StateUnreadable
from lakeingest.lake.target import Staged
from lakeingest.pipeline.events import Undelivered
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.rows import table_schema
from lakeingest.state.ledger import (
    MOST_GATES,
    given_proofs,
    note_proofs,
    note_trimmed,
    noted_results,
    remove_results,
    trimmed_on,
)

PAUSE_SECONDS = 300.0  # between two commits of a run that follows


@dataclass(slots=True)
class Ledger:
    """The ledger of a run. It does nothing, and reads nothing, without `quality.ledger`."""

    edges: Edges
    _next_at: float = field(default_factory=lambda: time.monotonic() + PAUSE_SECONDS, init=False)

    def write_if_due(self, proofs: Mapping[TableId, TableProof]) -> None:
        """Call `write`, unless it was called in the last PAUSE_SECONDS."""
        if time.monotonic() >= self._next_at:
            self.write(proofs)

    def write(self, proofs: Mapping[TableId, TableProof]) -> None:
        """Write the noted results of gates, and the states of the ranges in `proofs`, as far as they are new.

        Rows of tables that are not in `proofs` stay. An error is reported, and the run goes on.
        """
        database = self.edges.config.quality.ledger
        if database is None:
            return
        write_results = partial(self._write_results, quality_table(database))
        write_proofs = partial(self._write_proofs, proofs_table(database), proofs)
        for write in (write_results, write_proofs):
            try:
                with translate_errors(self.edges.source.settings, self.edges.target):
                    write()
            except LakeIngestError as error:
                self.edges.observe(Undelivered("quality.ledger", error.line))
        self._next_at = time.monotonic() + PAUSE_SECONDS

    def _write_results(self, schema: TableSchema) -> None:
        """Write the noted results of gates, then remove the notes. Once a day, old results leave the table, too."""
        paths, rows = noted_results(self.edges.state)
        if len(paths) > MOST_GATES:  # all writes failed for a long time: keep fewer, in case this one fails, too
            remove_results(self.edges.writing, paths[:-MOST_GATES])
        complete = [row for row in rows if row.keys() >= set(schema.names)]  # another version may note other columns
        if complete:
            staged, today = self._loaded(schema), f"{datetime.now(UTC):%Y-%m-%d}"
            is_trimmed = trimmed_on(self.edges.state) == today  # once a day, because trimming reads all ids
            self._publish(schema, staged, complete, () if is_trimmed else self._old_results(schema, staged))
            if not is_trimmed:
                note_trimmed(self.edges.writing, today)
        if paths:
            remove_results(self.edges.writing, paths)

    def _old_results(self, schema: TableSchema, staged: Staged) -> list[str]:
        """The ids of the results in the table that are older than `quality.ledger_keep`."""
        kept_from = result_id(datetime.now(UTC) - self.edges.config.quality.ledger_keep)
        return sorted(row[KEY] for row in self._present(schema, staged, [KEY]) if row[KEY] < kept_from)

    def _write_proofs(self, schema: TableSchema, proofs: Mapping[TableId, TableProof]) -> None:
        """Write the rows that have changed since the last write, and remove the rows that `proofs` do not give now."""
        wanted = list(proof_rows(proofs))
        if not wanted or given_proofs(self.edges.state) == digest(wanted):
            return
        staged = self._loaded(schema)
        tables = set(map(str, proofs))
        present = [row for row in self._present(schema, staged, schema.names) if row["source_table"] in tables]
        changed, gone = differences(present, wanted)
        if changed or gone:
            self._publish(schema, staged, changed, gone)
        note_proofs(self.edges.writing, digest(wanted))

    def _loaded(self, schema: TableSchema) -> Staged:
        """The table at its last commit, which readers see if they see the table at all. A missing table is made."""
        target = self.edges.committing
        target.types(schema)  # raises UnsupportedTable if the catalog cannot have the name
        staged = target.recover(schema.table)
        if staged is None:
            return self.edges.committing.create(schema, begun(schema))
        if staged.progress.fingerprint != schema.fingerprint:
            raise NotOurTable(
                f"{schema.table} has other columns than this version of lakeingest writes; rename or drop it"
            )
        if staged.published is not None and not staged.visible:  # a run died before its publish
            return self._shown(schema, staged)
        return staged

    def _present(self, schema: TableSchema, staged: Staged, names: Sequence[str]) -> list[Row]:
        """The rows that readers see, with these columns."""
        if staged.published is None:
            return []
        readers = self.edges.target.batch_readers(schema.table, staged.published, names)
        if readers is None:
            raise StateUnreadable(
                f"{schema.table} is not as lakeingest wrote it; drop it, and the next run makes it anew"
            )
        fields = [pa.field(name, _in_micros(table_schema(schema).field(name).type)) for name in names]
        batches = (batch.select(names) for reader in readers for batch in reader.batches())
        return [row for batch in batches for row in batch.cast(pa.schema(fields)).to_pylist()]

    def _publish(self, schema: TableSchema, staged: Staged, rows: Collection[Row], gone: Collection[str] = ()) -> None:
        """Put the rows into the table, in the place of rows with the same ids. Remove the rows with the ids `gone`."""
        target, fields = self.edges.target, [*table_schema(schema), pa.field(DELETED, pa.bool_())]
        last = {row[KEY]: row | {DELETED: False} for row in rows}  # by id, of several rows the last one
        removed = [dict.fromkeys(schema.names) | {KEY: id_, DELETED: True} for id_ in gone]
        columns = pa.schema([field.with_nullable(True) for field in fields])  # removed rows have their key alone
        changes = pa.Table.from_pylist([*last.values(), *removed], columns).sort_by(KEY)
        ends = pc.min_max(changes[KEY])
        merger = target.merger(staged, schema.key, (ends["min"].as_py(), ends["max"].as_py()))
        new = changes
        if target.capabilities.merges_by == "rows":  # then deletes are not written as rows
            new = changes.filter(pc.invert(changes[DELETED])).drop(DELETED).cast(table_schema(schema))
        parts = [merger.replace(changes.select([KEY, DELETED])), *([merger.write(new)] if new.num_rows else [])]
        merged, _ = self.edges.committing.commit_merge(
            staged, parts, lambda effects: written(staged.progress, effects.inserted, effects.deleted)
        )
        self._shown(schema, merged)

    def _shown(self, schema: TableSchema, staged: Staged) -> Staged:
        """Let readers see a commit of the ledger. Returns its staged state after that."""
        audited = replace(staged, progress=staged.progress.audited())
        published = self.edges.committing.publish(audited, schema, {})
        return replace(published, progress=published.progress.published())


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values in a `Row`."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind
