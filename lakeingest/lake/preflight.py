"""Preflight of the target: what it already has under the names of our tables. It changes nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeingest import config
from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.target import Staged, Tables


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies that the lake has, and the reason for each table with which no run can continue.

    `unopened` is the reason why the catalog cannot be opened, None when it can.
    """

    staged: Mapping[TableId, Staged] = field(default_factory=dict)
    refused: Mapping[TableId, LakeIngestError] = field(default_factory=dict)
    unopened: LakeIngestError | None = None


def copied(target: Tables, settings: config.Target) -> list[TableId]:
    """The source tables whose copies the lake has, by the copies' names, whether the source still has them or not."""
    if not target.exists():
        return []
    sources = (settings.source_of(namespace, name) for namespace, name in target.names())
    return sorted(table for table in sources if table is not None)


def copies(target: Tables, tables: Iterable[TableId]) -> Copies:
    """The copies of these tables, and why no run can go on with some of them; none if the lake does not exist yet."""
    try:
        if not target.exists():
            return Copies()
    except LakeIngestError as error:
        return Copies(unopened=error)
    all_staged: dict[TableId, Staged] = {}
    refused: dict[TableId, LakeIngestError] = {}
    for table in tables:
        try:
            staged = target.inspect(table)
        except LakeIngestError as error:
            refused[table] = error
        else:
            if staged is not None:
                all_staged[table] = staged
    return Copies(all_staged, refused)
