"""Opens the catalog of a target, with settings by which no run waits for ever, and no commit is lost."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from lakeingest import config
from lakeingest.disk import make_folder
from lakeingest.errors import OperatorNeeded
from lakeingest.lake.iceberg.durable import IO, sync_commits

if TYPE_CHECKING:
    from sqlalchemy import Engine

_LOCK_SECONDS = 30  # how long a commit waits while another one locks the same table
_IDLE_SECONDS = 60  # PostgreSQL ends a transaction that is idle for so long


def open_catalog(settings: config.Target) -> Catalog:
    """Open the catalog of the target. An embedded catalog is made if it does not exist.

    Raises OperatorNeeded if the client library of this type of catalog is not installed.
    """
    catalog_type = _TYPES[settings.catalog.type or "sql"]
    try:
        return catalog_type.open(settings, {**settings.pyiceberg_properties(), "py-io-impl": IO})
    except ModuleNotFoundError as error:
        fix = f"pip install 'lakeingest[{catalog_type.extra}]'"
        raise OperatorNeeded(f"{settings.catalog_place}: {error}; {fix}") from error


def _rest(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.rest import TimedRestCatalog

    return TimedRestCatalog(settings.catalog.name, **properties)


def _glue(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.glue import glue_catalog

    return glue_catalog(settings.catalog.name, properties)


def _hive(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.hive import TimedHiveCatalog

    return TimedHiveCatalog(settings.catalog.name, **properties)


def _sql(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.sql import ParsingOnceSqlCatalog

    if settings.catalog.is_embedded:
        make_folder(settings.warehouse.path)
    catalog = ParsingOnceSqlCatalog(settings.catalog.name, **properties)
    if settings.catalog.is_embedded:  # SQLite
        sync_commits(catalog.engine)
    else:  # PostgreSQL
        _limit_waits(catalog.engine)
    weakref.finalize(catalog, catalog.engine.dispose)  # closes the connections when nobody uses the catalog any more
    return catalog


@dataclass(frozen=True, slots=True)
class _CatalogType:
    """A type of catalog: the function that opens one, and the extra of lakeingest with its client library."""

    open: Callable[[config.Target, dict[str, str]], Catalog]
    extra: str


_TYPES = {
    "sql": _CatalogType(_sql, "postgresql"),
    "rest": _CatalogType(_rest, "aws"),  # for signed requests
    "glue": _CatalogType(_glue, "aws"),
    "hive": _CatalogType(_hive, "hive"),
}


def _limit_waits(engine: "Engine") -> None:
    """Limit how long a commit waits for a lock, and how long a client that has vanished can hold one."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")  # type: ignore[attr-defined]
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before
