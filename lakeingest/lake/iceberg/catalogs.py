"""Opens the catalog of a target, with the settings without which a run could wait for ever or lose a commit."""

import weakref
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from lakeingest import config
from lakeingest.disk import make_folder
from lakeingest.errors import NotBuiltYet, OperatorNeeded
from lakeingest.lake.iceberg.durable import IO, sync_commits

if TYPE_CHECKING:
    from sqlalchemy import Engine

_LOCK_SECONDS = 30  # that a commit waits for another one of the same table
_IDLE_SECONDS = 60  # PostgreSQL ends a transaction that is idle for longer


def open_catalog(settings: config.Target) -> Catalog:
    """The catalog; an embedded one is made where it does not exist."""
    properties = {**settings.pyiceberg_properties(), "py-io-impl": IO}
    if settings.catalog.type == "rest":
        from lakeingest.lake.iceberg.rest import TimedRestCatalog

        return TimedRestCatalog(settings.catalog.name, **properties)
    if settings.catalog.type == "glue":
        return _glue(settings.catalog.name, properties)
    if settings.catalog.type not in {"sql", None}:
        raise NotBuiltYet(f"target.catalog.type: {settings.catalog.type} is not built yet for a run")
    from lakeingest.lake.iceberg.sql import ParsingOnceSqlCatalog

    if settings.catalog.is_embedded:
        make_folder(settings.warehouse.path)
    try:
        catalog = ParsingOnceSqlCatalog(settings.catalog.name, **properties)
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{settings.catalog_place}: {error}; pip install 'lakeingest[postgresql]'") from error
    (sync_commits if settings.catalog.is_embedded else _limit_waits)(catalog.engine)
    weakref.finalize(catalog, catalog.engine.dispose)
    return catalog


def _glue(name: str, properties: dict[str, str]) -> Catalog:
    try:
        from lakeingest.lake.iceberg.glue import glue_catalog
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"the catalog Glue: {error}; pip install 'lakeingest[aws]'") from error
    return glue_catalog(name, properties)


def _limit_waits(engine: "Engine") -> None:
    """Let no commit wait for ever for the lock of a client that has vanished."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")  # type: ignore[attr-defined]
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before
