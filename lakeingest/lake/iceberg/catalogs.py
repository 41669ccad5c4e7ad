"""Opens the catalog of a target, with settings that keep a run from waiting for ever or losing a commit."""

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

_LOCK_SECONDS = 30  # how long a commit waits for another one of the same table
_IDLE_SECONDS = 60  # PostgreSQL ends a transaction that is idle for longer


def open_catalog(settings: config.Target) -> Catalog:
    """The catalog. An embedded one is made where it does not exist.

    Raises OperatorNeeded if the catalog's library is not installed.
    """
    kind = _OPENED[settings.catalog.type or "sql"]
    try:
        return kind.by(settings, {**settings.pyiceberg_properties(), "py-io-impl": IO})
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{settings.catalog_place}: {error}; pip install 'lakeingest[{kind.extra}]'") from error


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
    if settings.catalog.is_embedded:
        sync_commits(catalog.engine)
    else:
        _limit_waits(catalog.engine)
    weakref.finalize(catalog, catalog.engine.dispose)
    return catalog


@dataclass(frozen=True, slots=True)
class _Opened:
    """How a catalog of one type is opened, and the extra of lakeingest that has its library."""

    by: Callable[[config.Target, dict[str, str]], Catalog]
    extra: str


_OPENED = {
    "sql": _Opened(_sql, "postgresql"),
    "rest": _Opened(_rest, "aws"),  # for signed requests
    "glue": _Opened(_glue, "aws"),
    "hive": _Opened(_hive, "hive"),
}


def _limit_waits(engine: "Engine") -> None:
    """Limit how long a commit waits for the lock of a client that has vanished."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")  # type: ignore[attr-defined]
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before
