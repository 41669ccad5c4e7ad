"""The folders of new copies: none may be in that of another copy, because each folder is of one table alone."""

import re
from collections.abc import Iterable, Iterator

from lakeingest.config import Config
from lakeingest.core.schema import TableId
from lakeingest.errors import NotOurTable
from lakeingest.lake.formats import package_of


def nested(config: Config, tables: Iterable[TableId]) -> dict[TableId, NotOurTable]:
    """Of these tables without a copy, those whose folder would be that of another one, or would contain it."""
    place = package_of(config).new_place
    found = {table: at for table in tables if (at := place(config.target, config.tables.of(table), table)) is not None}
    places = {table: re.sub("/+", "/", at).rstrip("/") for table, at in found.items()}
    there, below = dict[str, TableId](), dict[str, TableId]()
    refused: dict[TableId, NotOurTable] = {}
    for table, at in places.items():
        for above in _above(at):
            below.setdefault(above, table)
    for table, at in places.items():
        other = below.get(at, there.get(at))
        if other is not None:
            where = "be in" if at in below else "be"
            refused[table] = NotOurTable(
                f"{table}: the folder of {other} would {where} its folder {found[table]}; choose another (location)"
            )
        elif not at.endswith("-"):  # how a name begins that is completed with digits by chance
            there[at] = table
    return refused


def _above(place: str) -> Iterator[str]:
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place
