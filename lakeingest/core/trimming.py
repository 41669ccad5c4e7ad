"""What the spool may forget, and what it keeps of tables that stand still."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.cascades import ForeignKeys
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId


@dataclass(frozen=True, slots=True)
class Watched:
    """A table whose changes are in the spool.

    It needs those after the place `needed`; None: that is not known. `stands` are the places where the copy stands and
    where readers see it. `still`: it has stopped or is paused, maybe for weeks.
    """

    table: TableId
    needed: Place | None
    stands: Collection[Place]
    still: bool


@dataclass(frozen=True, slots=True)
class Trim:
    """The spool may forget everything up to `forget`.

    `needed` says from where on each table needs its rows, so that the others are dropped; None where no table stands
    still, and the spool will soon be forgotten. Then segments may be joined, but not over the places in `stands`.
    """

    forget: Place
    needed: Mapping[TableId, Place] | None
    stands: Collection[Place]


def trim(tables: Sequence[Watched], keys: ForeignKeys) -> Trim | None:
    """What can be trimmed; None where it is not known of some table what it needs, or no table is watched.

    `keys` are the foreign keys whose changes the source does not log: a child needs the changes of its parents.
    """
    needed = {one.table: one.needed for one in tables if one.needed is not None}
    if not tables or len(needed) < len(tables):
        return None
    stands = {place for one in tables for place in one.stands}
    least = [needed[table] for table in keys if table in needed]
    parents = {key.parent for some in keys.values() for key in some if least and key.parent in needed}
    of_parents = {table: min(needed[table], *least) for table in parents}
    return Trim(min(needed.values()), needed | of_parents if any(one.still for one in tables) else None, stands)
