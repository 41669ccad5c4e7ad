"""Preflight of the target: what it already holds under our tables' names. Nothing is made or changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeingest import config
from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.target import Staged, Target


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies that are there, and by table why what is there cannot be gone on with.

    `unopened` is why the catalog cannot tell, None when it can.
    """

    there: Mapping[TableId, Staged] = field(default_factory=dict)
    refused: Mapping[TableId, LakeIngestError] = field(default_factory=dict)
    unopened: LakeIngestError | None = None


def copied(target: Target, settings: config.Target) -> list[TableId]:
    """The tables that a name in the lake is the target of, whether the source still has them or not."""
    if not target.exists():
        return []
    found = (settings.source_of(namespace, name) for namespace, name in target.names())
    return sorted(table for table in found if table is not None)


def copies(target: Target, tables: Iterable[TableId]) -> Copies:
    """What the lake holds of the tables; one that is not there yet holds nothing."""
    try:
        if not target.exists():
            return Copies()
    except LakeIngestError as error:
        return Copies(unopened=error)
    there: dict[TableId, Staged] = {}
    refused: dict[TableId, LakeIngestError] = {}
    for table in tables:
        try:
            staged = target.inspect(table)
        except LakeIngestError as error:
            refused[table] = error
        else:
            if staged is not None:
                there[table] = staged
    return Copies(there, refused)
