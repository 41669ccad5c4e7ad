"""The folders of new copies: none may be inside another copy's folder, because each folder belongs to one table."""

import re
from collections.abc import Iterable, Iterator

from lakeingest.config import Config
from lakeingest.core.schema import TableId
from lakeingest.errors import NotOurTable
from lakeingest.lake.formats import package_of


def nested(config: Config, tables: Iterable[TableId]) -> dict[TableId, NotOurTable]:
    """Those of these tables without a copy whose folder would be, or contain, another one's; each with its error."""
    place = package_of(config).new_place
    chosen = {table: at for table in tables if (at := place(config.target, config.tables.of(table), table)) is not None}
    places = {table: re.sub("/+", "/", at).rstrip("/") for table, at in chosen.items()}
    taken, below = dict[str, TableId](), dict[str, TableId]()
    refused: dict[TableId, NotOurTable] = {}
    for table, at in places.items():
        for above in _above(at):
            below.setdefault(above, table)
    for table, at in places.items():
        occupant = below.get(at, taken.get(at))
        if occupant is not None:
            where = "be in" if at in below else "be"
            refused[table] = NotOurTable(
                f"{table}: the folder of {occupant} would {where} its folder {chosen[table]}; choose another (location)"
            )
        elif not at.endswith("-"):  # random digits will follow such a beginning: no two folders are the same
            taken[at] = table
    return refused


def _above(place: str) -> Iterator[str]:
    """The folders above a place, from the inside out."""
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place
