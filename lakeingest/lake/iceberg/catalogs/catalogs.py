"""Opens the catalog of a target, with settings by which no run waits for ever, and no commit is lost."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from lakeingest import config
from lakeingest.disk import make_folder
from lakeingest.errors import OperatorNeeded
from lakeingest.lake.iceberg.storage.durable import IO


def open_catalog(settings: config.Target) -> Catalog:
    """Open the catalog of the target. An embedded catalog is made if it does not exist.

    Raises OperatorNeeded if the client library of this type of catalog is not installed. Its own errors pass unchanged.
    """
    catalog_type = _TYPES[settings.catalog.type or "sql"]  # None: the embedded catalog
    try:
        return catalog_type.open(settings, {**settings.pyiceberg_properties(), "py-io-impl": IO})
    except ModuleNotFoundError as error:
        fix = f"pip install 'lakeingest[{catalog_type.extra}]'"
        raise OperatorNeeded(f"{settings.catalog_place}: {error}; {fix}") from error


def _rest(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.catalogs.rest import TimedRestCatalog

    return TimedRestCatalog(settings.catalog.name, **properties)


def _glue(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.catalogs.glue import glue_catalog

    return glue_catalog(settings.catalog.name, properties)


def _hive(settings: config.Target, properties: dict[str, str]) -> Catalog:
    from lakeingest.lake.iceberg.catalogs.hive import TimedHiveCatalog

    return TimedHiveCatalog(settings.catalog.name, **properties)


def _sql(settings: config.Target, properties: dict[str, str]) -> Catalog:
    """Open the embedded catalog, and make the folder of its warehouse; or open a catalog on PostgreSQL."""
    if settings.catalog.is_embedded:  # SQLite
        from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog

        make_folder(settings.warehouse.path)
        return EmbeddedCatalog(settings.catalog.name, **properties)
    from lakeingest.lake.iceberg.catalogs.sql import ParsingOnceSqlCatalog, limit_waits

    catalog = ParsingOnceSqlCatalog(settings.catalog.name, **properties)
    limit_waits(catalog.engine)
    weakref.finalize(catalog, catalog.engine.dispose)  # closes the connections when nobody uses the catalog any more
    return catalog


@dataclass(frozen=True, slots=True)
class _CatalogType:
    """A type of catalog: the function that opens one, and the extra of lakeingest that installs its client library."""

    open: Callable[[config.Target, dict[str, str]], Catalog]
    extra: str


_TYPES = {
    "sql": _CatalogType(_sql, "postgresql"),
    "rest": _CatalogType(_rest, "aws"),  # for signed requests
    "glue": _CatalogType(_glue, "aws"),
    "hive": _CatalogType(_hive, "hive"),
}
