"""The place up to which the spool is allowed to forget changes, and the rows that it keeps while a table is stopped."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascades import ForeignKeys
from lakeingest.core.tables.schema import TableId


@dataclass(frozen=True, slots=True)
class Watched:
    """A table whose changes are in the spool.

    `needed`: the place after which the table needs its changes; None if that place is not known. `copy_places`: the
    place of the staged rows of the copy, and the place of the rows that readers see. `is_idle`: the table has stopped
    or is paused, so that it may need old changes for weeks.
    """

    table: TableId
    needed: Place | None
    copy_places: Collection[Place]
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Trim:
    """How the spool is trimmed: it forgets everything up to the place `forget_before`.

    `needed`: for each table, the place after which its rows in the spool are needed. The spool drops all other rows,
    and joins segments, but not across a place in `copy_places`. `needed` is None if no table is idle: then no row is
    dropped, because the tables go on, and all rows are soon forgotten.
    """

    forget_before: Place
    needed: Mapping[TableId, Place] | None
    copy_places: Collection[Place]


def trim(tables: Sequence[Watched], keys: ForeignKeys) -> Trim | None:
    """How the spool can be trimmed. None if it is not known what some table needs, or if no table is watched.

    `keys`: the foreign keys whose changes the source does not log. A child needs the changes of its parents.
    """
    needed = {watched.table: watched.needed for watched in tables if watched.needed is not None}
    if not tables or len(needed) < len(tables):
        return None
    copy_places = {place for watched in tables for place in watched.copy_places}
    forget_before = min(needed.values())
    if not any(watched.is_idle for watched in tables):
        return Trim(forget_before, None, copy_places)
    # each parent keeps what the children of any parent need: that is simpler, and never too little
    needed_by_children = [needed[child] for child in keys if child in needed]
    parents = {key.parent for keys_of_child in keys.values() for key in keys_of_child} & needed.keys()
    by_parents = {parent: min([needed[parent], *needed_by_children]) for parent in parents}
    return Trim(forget_before, needed | by_parents, copy_places)
