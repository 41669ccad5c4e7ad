"""The errors that all formats share: why lakeingest does not write a table of the lake."""

import re

from lakeingest.config.catalogs import CatalogType
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite, NotOurTable, StaleWriter, UnsupportedTable

_FOLDING = {"glue", "hive"}  # catalogs that change or refuse names with other characters than in _FOLDED
_DIVIDING = {"sql", "rest"}  # catalogs in which dots divide a namespace into parts
_FOLDED = re.compile(r"[a-z0-9_]+")


def assert_nameable(kind: CatalogType | None, name: tuple[str, str]) -> None:
    """Raises UnsupportedTable if a catalog of this type cannot have this namespace and name of a table."""
    if (reason := unnameable(kind, name)) is not None:
        raise UnsupportedTable(f"{reason}; leave the table out, or name its target by target.table")


def unnameable(kind: CatalogType | None, name: tuple[str, str]) -> str | None:
    """The reason why a catalog of this type cannot have this namespace and table name; None if it can."""
    if kind in _FOLDING and not all(map(_FOLDED.fullmatch, name)):
        return f"a catalog of type {kind} has only names of a-z, 0-9 and _, not {'.'.join(name)}"
    if kind in _DIVIDING and not all(part.strip() for part in name[0].split(".")):
        return f"a catalog of type {kind} has no namespace {name[0]!r}: a part before or after a dot is empty"
    if kind == "rest" and name[1] in {".", ".."}:
        return f"a catalog of type rest has no table {name[1]!r}: it would be another place of its URLs"
    return None


def stale(table: TableId) -> StaleWriter:
    """The error for a table that another writer has changed since this run read the table."""
    return StaleWriter(f"{table}: another writer is at work on it; run the same command again")


def published_by_another(table: TableId) -> StaleWriter:
    """The error for a table that another run of ours published first."""
    return StaleWriter(f"{table}: another writer published it; run the same command again")


def not_ours(name: str, table: TableId) -> NotOurTable:
    """The error if the lake has something else under the name of a copy."""
    return NotOurTable(
        f"{name} exists and is no copy of {table}; rename it, set target.table, or see tables.startup: adopt"
    )


def written_meanwhile(table: TableId, commit: str, stopped: str) -> ForeignWrite:
    """The error for a foreign table that is being taken over, and to which its tool still writes.

    `stopped` is the tool that the user has named as stopped.
    """
    return ForeignWrite(
        f"{table}: someone else wrote {commit} to it since it was taken over, and before a first publish: is {stopped}"
        " still on? Switch it off; then drop the branch lakeingest of the table, and the next run begins again"
    )


def foreign_write(table: TableId, commit: str, ours: str | None) -> ForeignWrite:
    """The error for a copy with a `commit` of someone else that readers see.

    `ours` is our last commit before `commit`; None if the table has no commit of ours any more.
    """
    if ours is None:
        return ForeignWrite(
            f"{table}: someone else wrote {commit} to it, which readers see, and no commit of lakeingest is left below"
            " it; drop the copy, it must be made again"
        )
    return ForeignWrite(
        f"{table}: someone else wrote {commit} to it, which readers see; `lakeingest rollback {table}` lets them see"
        f" {ours}, the last one of lakeingest, again"
    )
