"""Preflight of the target: which copies of our tables the lake already has. Nothing is changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeingest import config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.target import Looked, Staged, Tables
from lakeingest.side_by_side import side_by_side


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies that the lake has. `staged` has those that a run can continue, `properties` their table properties.

    `refused` has, for each other copy, the reason why no run can continue the copy. `unopened` is the reason why the
    catalog cannot be opened, and the rest is empty; None if it can be opened.
    """

    staged: Mapping[TableId, Staged] = field(default_factory=dict)
    refused: Mapping[TableId, LakeIngestError] = field(default_factory=dict)
    properties: Mapping[TableId, Mapping[str, str]] = field(default_factory=dict)
    unopened: LakeIngestError | None = None


def copied(target: Tables, settings: config.Target) -> list[TableId]:
    """The source tables of all copies in the lake, by the names of the copies. The source may no longer have some."""
    if not target.exists():
        return []
    source_tables = (settings.source_of(namespace, name) for namespace, name in target.names())
    return sorted(table for table in source_tables if table is not None)


def copies(target: Tables, tables: Iterable[TableId]) -> Copies:
    """The copies of these tables, and why no run can continue some of them. If no lake exists, there are no copies."""
    try:
        if not target.exists():
            return Copies()
    except LakeIngestError as error:
        return Copies(unopened=error)
    all_tables = list(tables)
    known = target.unchanged(all_tables)
    others = [table for table in all_tables if table not in known]

    def look(table: TableId) -> Looked | LakeIngestError | None:
        """What `target.look` returns, or the error that it raises."""
        try:
            return target.look(table)
        except LakeIngestError as error:
            return error

    looks = side_by_side(look, others, target.settings.tables_at_once)
    answers = {**known, **dict(zip(others, looks, strict=True))}
    found = {table: answer for table in all_tables if isinstance(answer := answers[table], Looked)}
    return Copies(
        {table: looked.staged for table, looked in found.items()},
        {table: answer for table, answer in answers.items() if isinstance(answer, LakeIngestError)},
        {table: looked.properties for table, looked in found.items()},
    )
