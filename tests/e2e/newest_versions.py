"""The versions of several copies that were the newest ones at one moment, as `docs/howto/points.md` finds them."""

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakeingest.core.tables.schema import TableId
from tests.e2e.pipe import Pipe


def loaded(pipe: Pipe, catalog: Catalog, name: str) -> Table:
    """The copy of a table, as the catalog has it now."""
    return catalog.load_table(pipe.config.target.identifier(TableId(pipe.database, name)))


def newest(pipe: Pipe, catalog: Catalog, names: Sequence[str]) -> tuple[Mapping[str, Table], Mapping[str, int]] | None:
    """All copies and their versions; None if a version has changed when all are looked at again."""
    first, again = ({name: loaded(pipe, catalog, name) for name in names} for _ in range(2))
    versions = _versions(first)
    return (first, versions) if _versions(again) == versions else None


def _versions(tables: Mapping[str, Table]) -> dict[str, int]:
    """What readers see of each table."""
    return {name: table.metadata.refs["main"].snapshot_id for name, table in tables.items()}
