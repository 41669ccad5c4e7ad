"""Names of tables: which ones a catalog can have, and how a table that was built gets its own at the first publish.

SQL and REST rename it in one step. The clients of Glue and Hive cannot: their rename creates and drops, and a lost
answer loses the table. There its metadata is registered under the final name, then the other entry is dropped, without
its files. Each step may be repeated, and between them both names lead to the same table.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from lakeingest.config.catalogs import CatalogType

Name = tuple[str, str]

_FOLDED = re.compile(r"[a-z0-9_]+")  # in other names Glue and Hive change or refuse characters


def refusal(kind: CatalogType | None, name: Name) -> str | None:
    """Why a catalog of this type cannot have the name; None if it can."""
    if kind not in _REGISTERING or all(map(_FOLDED.fullmatch, name)):
        return None
    return f"a catalog of type {kind} has only names of a-z, 0-9 and _, not {'.'.join(name)}; leave the table out"


@dataclass(frozen=True, slots=True)
class FirstPublish:
    """How a table that was built under another name gets its own.

    `give_name` takes the two names in this order. `drop_other_name` drops the entry that a killed run may have left
    under the first; never its files.
    """

    give_name: Callable[[Catalog, Name, Name], None]
    drop_other_name: Callable[[Catalog, Name], None]


def first_publish(kind: CatalogType | None) -> FirstPublish:
    """The way that a catalog of this type has."""
    return _BY_REGISTERING if kind in _REGISTERING else _BY_RENAMING


def _rename(catalog: Catalog, building: Name, final: Name) -> None:
    catalog.rename_table(building, final)


def _register(catalog: Catalog, building: Name, final: Name) -> None:
    """TableAlreadyExistsError if another table has the final name; if this one has it, only the drop is left."""
    staged = catalog.load_table(building)
    try:
        catalog.register_table(final, staged.metadata_location)
    except TableAlreadyExistsError:
        if catalog.load_table(final).metadata.table_uuid != staged.metadata.table_uuid:
            raise
    catalog.drop_table(building)


def _drop(catalog: Catalog, building: Name) -> None:
    with suppress(NoSuchTableError):
        catalog.drop_table(building)


_REGISTERING = {"glue", "hive"}
_BY_RENAMING = FirstPublish(_rename, lambda *_: None)
_BY_REGISTERING = FirstPublish(_register, _drop)
