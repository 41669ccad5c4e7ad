"""Rows that fail a gate move to the quarantine (`core.copies.quarantine`), so that the other rows can be published.

1. The gate has failed, and each failure blames single rows. Their keys are found, and must be within the limit.
2. The rows are stored as evidence. If the run dies now, the next one stores the same rows once more, under one name.
3. One commit on staging removes the rows and lists their keys. If the run dies now, the next one goes on with that.
4. The gate looks at the rest, and the commit is published: readers see the rows and the list together.
5. Evidence of keys that are no longer listed is closed, once readers see that.
"""

import datetime as dt
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.quarantine import Failed, Limit, refusal, refusal_of_keys
from lakeingest.core.proofs.audit import MOST_CHANGES
from lakeingest.core.tables.change import COMMITTED_AT, DELETED, EPOCH, GTID, KIND, PLACE, RowKind
from lakeingest.core.tables.keys import Key
from lakeingest.errors import StateUnreadable
from lakeingest.lake.target import Effects
from lakeingest.mysql.key_values import compared_keys
from lakeingest.pipeline.events import Quarantined
from lakeingest.pipeline.publishing.audit import changed_since_shown, key_pairs
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.quality.blame import Blamed, blame, blamed_rows
from lakeingest.quality.gates import GateReport
from lakeingest.rows import INSTANT
from lakeingest.spark.collected import collected
from lakeingest.spool.collapse import bounds_of, take
from lakeingest.spool.patch_files import FOR_QUARANTINE, PatchFolder
from lakeingest.spool.spool import Spool
from lakeingest.state import evidence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNTOLD = "not all of the rows that fail can be told by their keys"
_KINDS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}


def refusal_of(edges: Edges, table: TableRun, report: GateReport, rows: int, *, is_part: bool = False) -> str | None:
    """Why rows that failed a gate may not move to the quarantine, as far as their number tells; None if they may.

    '' if `quality.on_failure` does not ask for a quarantine. `rows`: the number of rows of the copy. `is_part`: the
    copy does not have all rows of the table yet, so the share of the failing rows is not known.
    """
    quality = edges.config.quality
    if quality.on_failure != "quarantine":
        return ""
    if table.schema.keeps_deleted:
        return "a copy with deletes: soft has no quarantine, because it keeps all rows"
    if table.cascade_keys or table.progress.cascades is not None:
        # the rows that foreign keys change are found by the rows of the copy, which lacks those in quarantine
        return "foreign keys change its rows outside the binlog, and are followed by the rows of the copy"
    failed = [Failed(failure.name, blamed_rows(failure)) for failure in report.failures]
    limit = _limit(edges)
    return refusal(failed, table.progress.quarantine, rows, replace(limit, max_share=1.0) if is_part else limit)


def move_failing(
    edges: Edges, spool: Spool, table: TableRun, report: GateReport, count: int, rows: "Callable[[], DataFrame]"
) -> str | None:
    """Move the rows that failed the gate to the quarantine, and return None. If they may not move, only return why.

    `rows`: reads the staged commit, which has `count` rows. `report`: what the gate has found in this commit.
    """
    reason = refusal_of(edges, table, report, count)
    if reason is not None:
        return reason
    # here, because most runs never need it, and it imports pandas
    from lakeingest.spark.checksum import with_key_texts, with_keys

    # Step 1: find the keys of all rows that fail
    with edges.profile.stage("gates"):
        texts, names = with_key_texts(rows(), table.schema)
        title = f"{table.id} rows that fail"
        blamed = blame(title, texts, names, report.failures, ordered=table.schema.ordered)
    if blamed is None:
        return _UNTOLD
    reason = refusal_of_keys(blamed, table.progress.quarantine, count, _limit(edges))
    if reason is not None:
        return reason
    with edges.profile.stage("gates"):
        failing = collected(with_keys(rows(), table.schema, list(blamed)))
    if failing is None or failing.num_rows != len(blamed):
        return _UNTOLD
    # Step 2: store the rows. Step 3: remove them
    _store_evidence(edges, spool, table, failing, blamed)
    _remove(edges, table, list(blamed), count - len(blamed))
    edges.observe(Quarantined(table.id, len(blamed), len(table.progress.quarantine)))
    return None


def close_evidence(edges: Edges, table: TableRun) -> None:
    """Close the evidence of keys that are no longer in quarantine. Call it once readers see the staged commit."""
    edges.evidence.close(table.id, table.progress.quarantine)


def _limit(edges: Edges) -> Limit:
    settings = edges.config.quality.quarantine
    return Limit(settings.max_rows, settings.max_share)


def _remove(edges: Edges, table: TableRun, keys: Collection[Key], left: int) -> None:
    """Remove the rows of these keys and list the keys, in one commit on staging. `left`: how many rows stay."""
    schema, staged = table.schema, table.staged
    folder = PatchFolder.of(edges.writing, schema)
    # deletes are written by way of a patch: so they have exactly the form of a merge's deletes
    removed = compared_keys(schema, keys)
    file = folder.file(folder.write_absent(FOR_QUARANTINE, removed))
    merger = edges.target.merger(staged, schema.key, bounds_of([file], schema.key[0]))
    changes = removed.append_column(DELETED, pa.array(np.ones(removed.num_rows, bool)))
    parts = [merger.replace(changes)]
    if edges.target.capabilities.merges_by == "changes":
        stop = staged.progress.least_stop
        rows = take(file, np.arange(removed.num_rows), stop, deleted=True, schema=schema)
        parts.append(merger.write(rows))

    def progress_after(effects: Effects) -> Progress:
        """The progress that the commit carries. Raises StateUnreadable if it does not delete exactly these rows."""
        edges.lease.assert_held()  # just before the commit
        if (effects.inserted, effects.updated, effects.deleted) != (0, 0, len(keys)):
            raise StateUnreadable(f"{table.id}: {effects} by {len(keys)} deletes; drop the table to copy it again")
        return staged.progress.quarantined(keys, left)

    committed, _ = edges.target.commit_merge(staged, parts, progress_after)
    table.advance(committed, sound=True)  # no row was added
    folder.remove(FOR_QUARANTINE)


def _store_evidence(edges: Edges, spool: Spool, table: TableRun, rows: pa.Table, blamed: Blamed) -> None:
    """Store the failing rows: each with the expectations that it fails, and with the change that has brought it."""
    position = table.progress.position
    assert position is not None  # noqa: S101 - a table that passes gates has one
    keys = compared_keys(table.schema, blamed)
    row_numbers, key_numbers = key_pairs(rows.select(list(table.schema.key)), keys)
    order = key_numbers[np.argsort(row_numbers)]  # for each row, the number of its key
    count, now = keys.num_rows, dt.datetime.now(dt.UTC)
    columns = {
        evidence.KEY: pa.array(map(evidence.key_text, blamed), pa.string()),
        evidence.EXPECTATIONS: pa.array(list(map(list, blamed.values())), pa.list_(pa.string())),
        evidence.POSITION: pa.repeat(str(position.at), count),
        **_changes(spool, table, keys),
        evidence.QUARANTINED_AT: pa.repeat(pa.scalar(now, INSTANT), count),
        evidence.RELEASED_AT: pa.nulls(count, INSTANT),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, values.take(pa.array(order)))
    edges.evidence.store(table.id, position.place, rows)


def _changes(spool: Spool, table: TableRun, keys: pa.Table) -> dict[str, pa.Array]:
    """The change of the binlog that has brought the row of each key; NULL if the spool does not tell."""
    found: list[dict[str, Any]] = [{} for _ in range(keys.num_rows)]
    changed = changed_since_shown(spool, table, MOST_CHANGES)
    if changed is not None:
        changes, numbers = key_pairs(changed.keys.select(keys.column_names), keys)
        images = changed.images(changes, [KIND, *PLACE, GTID, COMMITTED_AT]).to_pylist() if len(changes) else []
        for number, image in zip(numbers.tolist(), images, strict=True):
            if image[EPOCH]:  # else the row was read again
                found[number] = image | {evidence.CHANGE_PLACE: str(Place(*(image[name] for name in PLACE)))}
    kinds = [None if KIND not in image else _KINDS[RowKind(image[KIND])] for image in found]
    return {
        evidence.CHANGE_KIND: pa.array(kinds, pa.string()),
        evidence.CHANGE_PLACE: pa.array([image.get(evidence.CHANGE_PLACE) for image in found], pa.string()),
        evidence.CHANGE_GTID: pa.array([image.get(GTID) for image in found], pa.string()),
        evidence.CHANGE_COMMITTED_AT: pa.array([image.get(COMMITTED_AT) for image in found], INSTANT),
    }
