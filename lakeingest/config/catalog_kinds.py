"""The kinds of catalogs: the properties of each for PyIceberg and for Spark, and the jars that Spark needs for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakeingest.config.catalogs import Catalog, CatalogType
from lakeingest.config.place import Place
from lakeingest.config.postgresql import PostgreSql

POSTGRESQL_JAR = "org.postgresql:postgresql:42.7.8"


@dataclass(frozen=True, slots=True)
class CatalogKind:
    """A kind of catalog.

    `pyiceberg` and `spark` make the properties for PyIceberg and for Spark, given a catalog and the warehouse with its
    tables. `jars` are the Maven coordinates of the jars that Spark needs for such a catalog.
    """

    pyiceberg: Callable[[Catalog, Place], dict[str, str]]
    spark: Callable[[Catalog, Place], dict[str, str]]
    jars: tuple[str, ...] = ()


def kind_of(catalog: Catalog) -> CatalogKind:
    """The kind of a catalog."""
    return _EMBEDDED if catalog.is_embedded else _KINDS[catalog.type or "sql"]


def embedded_file(warehouse: Place) -> Path:
    """The SQLite file of the embedded catalog."""
    return warehouse.path / "catalog.db"


def _sqlite_uri(file: Path) -> str:
    """SQLAlchemy's URI of a SQLite file. SQLAlchemy decodes `%3F`, and takes all behind a question mark for options."""
    return f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}"


def _jdbc_properties(catalog: Catalog, warehouse: Place) -> dict[str, str]:
    """The properties of a PostgreSQL catalog for Spark."""
    return {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "warehouse": warehouse.uri,
        **PostgreSql.parse(catalog.address).jdbc(),
        **catalog.plain_properties,
    }


def _sqlalchemy_properties(catalog: Catalog, warehouse: Place) -> dict[str, str]:
    """The properties of a PostgreSQL catalog for PyIceberg."""
    return {
        "type": "sql",
        "uri": PostgreSql.parse(catalog.address).sqlalchemy(),
        "warehouse": warehouse.uri,
        **catalog.plain_properties,
    }


def _hive_properties(catalog: Catalog, warehouse: Place) -> dict[str, str]:
    return {"type": "hive", "uri": catalog.address, "warehouse": warehouse.uri, **catalog.plain_properties}


def _rest_properties(catalog: Catalog, _: Place) -> dict[str, str]:
    properties = catalog.plain_properties
    # Set the protocol's default URI for tokens: PyIceberg's default is wrong, because a slash is missing in it, and
    # Iceberg's Java client warns if the property is not set. The user's properties come last, so they override it.
    needs_token = "credential" in properties
    tokens = {"oauth2-server-uri": f"{catalog.address.rstrip('/')}/v1/oauth/tokens"} if needs_token else {}
    return {"type": "rest", "uri": catalog.address, **tokens, **properties}


_EMBEDDED = CatalogKind(
    pyiceberg=lambda _, warehouse: {"uri": _sqlite_uri(embedded_file(warehouse)), "warehouse": warehouse.uri},
    spark=lambda _, warehouse: {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{embedded_file(warehouse)}",
        "warehouse": warehouse.uri,
    },
    jars=("org.xerial:sqlite-jdbc:3.50.3.0",),
)
_KINDS: Mapping[CatalogType, CatalogKind] = {
    "sql": CatalogKind(_sqlalchemy_properties, _jdbc_properties, jars=(POSTGRESQL_JAR,)),
    "rest": CatalogKind(_rest_properties, _rest_properties),
    "hive": CatalogKind(_hive_properties, _hive_properties),
    "glue": CatalogKind(
        pyiceberg=lambda catalog, warehouse: {"type": "glue", "warehouse": warehouse.uri, **catalog.plain_properties},
        spark=lambda catalog, warehouse: {
            "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            "warehouse": warehouse.uri,
            **catalog.plain_properties,
        },
    ),
}
