"""Up to where the spool may forget changes, and which rows it keeps while a table stands still."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.cascades import ForeignKeys
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId


@dataclass(frozen=True, slots=True)
class Watched:
    """A table whose changes are in the spool.

    `needed`: the table needs its changes after this place; None: the place is not known. `stands`: the position of the
    copy, and the position that readers see. `still`: the table has stopped or is paused, maybe for weeks.
    """

    table: TableId
    needed: Place | None
    stands: Collection[Place]
    still: bool


@dataclass(frozen=True, slots=True)
class Trim:
    """The spool may forget everything up to `forget`.

    `needed` has for each table the place after which it needs rows, so that other rows are dropped and segments are
    joined, but not over the places in `stands`. It is None if no table stands still: then the whole spool will soon be
    forgotten.
    """

    forget: Place
    needed: Mapping[TableId, Place] | None
    stands: Collection[Place]


def trim(tables: Sequence[Watched], keys: ForeignKeys) -> Trim | None:
    """How the spool can be trimmed; None if the needs of some table are not known, or no table is watched.

    `keys` are the foreign keys whose changes the source does not log: a child needs the changes of its parents.
    """
    needed = {watched.table: watched.needed for watched in tables if watched.needed is not None}
    if not tables or len(needed) < len(tables):
        return None
    stands = {place for watched in tables for place in watched.stands}
    forget = min(needed.values())
    if not any(watched.still for watched in tables):
        return Trim(forget, None, stands)
    by_children = [needed[table] for table in keys if table in needed]
    parents = {key.parent for of_table in keys.values() for key in of_table if by_children and key.parent in needed}
    of_parents = {table: min(needed[table], *by_children) for table in parents}
    return Trim(forget, needed | of_parents, stands)
