"""Why a table of the lake is not written: the messages that both formats have in common."""

import re

from lakeingest.config.catalogs import CatalogType
from lakeingest.core.schema import TableId
from lakeingest.errors import ForeignWrite, NotOurTable, StaleWriter, UnsupportedTable

_FOLDING = {"glue", "hive"}  # these change or refuse other names
_DIVIDING = {"sql", "rest"}  # a namespace has parts there, which dots divide
_FOLDED = re.compile(r"[a-z0-9_]+")


def assert_nameable(kind: CatalogType | None, name: tuple[str, str]) -> None:
    """UnsupportedTable when a catalog of this type cannot have the namespace and the name."""
    if (reason := unnameable(kind, name)) is not None:
        raise UnsupportedTable(f"{reason}; leave the table out, or name its target by target.table")


def unnameable(kind: CatalogType | None, name: tuple[str, str]) -> str | None:
    """Why a catalog of this type cannot have the namespace and the name; None where it can."""
    if kind in _FOLDING and not all(map(_FOLDED.fullmatch, name)):
        return f"a catalog of type {kind} has only names of a-z, 0-9 and _, not {'.'.join(name)}"
    if kind in _DIVIDING and not all(part.strip() for part in name[0].split(".")):
        return f"a catalog of type {kind} has no namespace {name[0]!r}: a part before or after a dot is empty"
    if kind == "rest" and name[1] in {".", ".."}:
        return f"a catalog of type rest has no table {name[1]!r}: it would be another place of its URLs"
    return None


def stale(table: TableId) -> StaleWriter:
    """Another writer changed the table since this run read it."""
    return StaleWriter(f"{table}: another writer is at work on it; run the same command again")


def published_by_another(table: TableId) -> StaleWriter:
    """Another run of ours published the table first."""
    return StaleWriter(f"{table}: another writer published it; run the same command again")


def not_ours(name: str, table: TableId) -> NotOurTable:
    """The lake has something else under the name of the table's copy."""
    return NotOurTable(f"{name} exists and is no copy of {table}; rename it or set target.table")


def foreign_write(table: TableId, commit: str, ours: str | None) -> ForeignWrite:
    """Someone else committed to the copy; `ours` is the commit of lakeingest below that."""
    if ours is None:
        return ForeignWrite(
            f"{table}: someone else wrote {commit} to it, which readers see, and no commit of lakeingest is left below"
            " it; drop the copy, it must be made again"
        )
    return ForeignWrite(
        f"{table}: someone else wrote {commit} to it, which readers see; `lakeingest rollback {table}` lets them see"
        f" {ours}, the last one of lakeingest, again"
    )
