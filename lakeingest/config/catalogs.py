"""The catalogs that tables are found by, as a pipeline names them; `catalog_kinds` has the properties of each kind.

sql: SQLite under the warehouse, which is the default, or a PostgreSQL server that `uri` names. rest: a server of
Iceberg's REST protocol. glue: Amazon's. hive: a metastore of Hive. path: none, because Hudi's tables are found by their
folders; a metastore can name them, too.
"""

import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretStr, model_validator

from lakeingest.config.endpoints import assert_endpoint, endpoints_of, is_open
from lakeingest.config.frozen import Frozen
from lakeingest.config.postgresql import PostgreSql
from lakeingest.config.secrets import is_reference

if TYPE_CHECKING:
    from typing import Self

CatalogType = Literal["sql", "rest", "glue", "hive", "path"]
FirstPublishName = Literal["rename", "register", "own_name"]
CATALOG = "lake"  # the default name of a catalog in Spark and PyIceberg, and so in users' queries
# names of settings whose values Spark must not list: those of catalogs, stores and signed requests
SECRETS = (
    r"secret|password|token|access[.-]?key|account[.-]key|shared-key|api-?key|(en|de)cryption-key|connection-string"
    r"|credential|authorization|\.header\."
)
_SECRET = re.compile(f"(?i){SECRETS}")


def is_secret(name: str) -> bool:
    """Whether a setting or a property of this name holds a secret."""
    return _SECRET.search(name) is not None


class Catalog(Frozen):
    """Where tables are found by name; `type` None: the default of the format.

    `name` is the catalog's name in Spark. `properties` are handed to Spark and to PyIceberg as they are, or with Hudi
    to the tool that registers its tables. `first_publish` is how readers come to see a new table: for a server of REST
    that does not say what it offers.
    """

    type: CatalogType | None = None
    name: str = Field(default=CATALOG, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    uri: SecretStr | None = None
    properties: dict[str, SecretStr] = Field(default={})
    first_publish: FirstPublishName | Literal["auto"] = "auto"

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "Self":
        if is_reference(self.address):  # its value is known to the job alone
            return self
        scheme = self.address.partition("://")[0]
        if self.type == "rest" and scheme not in {"http", "https"}:
            raise ValueError("a catalog of type rest needs its uri: http://… or https://…")
        if self.type == "hive" and scheme != "thrift":
            raise ValueError("a catalog of type hive needs its uri: thrift://host:9083")
        if self.type in {"sql", None} and self.uri is not None:
            PostgreSql.parse(self.address)
        self._assert_endpoints()
        if self.type != "rest" and self.first_publish != "auto":
            raise ValueError("first_publish is for a catalog of type rest")
        if self.is_embedded and self.properties:
            raise ValueError("the embedded catalog has no properties")
        return self

    def _assert_endpoints(self) -> None:
        """ValueError for an endpoint with a password in it, and where a secret would leave in plain text.

        A request that is signed for AWS has no secret in it.
        """
        endpoints = endpoints_of(self.given)
        if self.type in {"rest", "hive"}:
            endpoints["uri"] = self.address
        for name, url in endpoints.items():
            assert_endpoint(name, url)
        of_stores = ("s3.", "gcs.", "client.")
        secrets = [name for name in self.given if is_secret(name) and not name.startswith(of_stores)]
        for name, url in endpoints.items():
            if self.type == "rest" and name in {"uri", "oauth2-server-uri"} and secrets and is_open(url):
                raise ValueError(
                    f"{name} is http://, on another host: whoever is between would read {secrets[0]}; use https://"
                )

    @property
    def unproven(self) -> str | None:
        """A warning where the server of the catalog need not prove who it is."""
        if is_reference(self.address):
            return None
        if self.type in {"sql", None} and self.uri is not None:
            return PostgreSql.parse(self.address).unproven
        if self.type == "rest" and is_open(self.address):
            return "target.catalog.uri is http://, so nothing proves the server: who is between changes what it says"
        return None

    @property
    def address(self) -> str:
        """The URI, with its password; empty for the embedded catalog."""
        return "" if self.uri is None else self.uri.get_secret_value()

    @property
    def password(self) -> str:
        """The password in the URI, which only that of a database may have."""
        if self.type not in {"sql", None} or not self.address or is_reference(self.address):
            return ""
        return str(PostgreSql.parse(self.address).url.password or "")

    @property
    def without_secrets(self) -> str:
        """The URI without user and password, which only that of a database may have."""
        if self.type not in {"sql", None} or not self.address or is_reference(self.address):
            return self.address
        return PostgreSql.parse(self.address).place

    @property
    def is_embedded(self) -> bool:
        """Whether it is a SQLite file under the warehouse, of no use to another machine."""
        return self.type in {"sql", None} and self.uri is None

    @property
    def gives_places(self) -> bool:
        """Whether the catalog itself chooses the place of a table, as S3 Tables does."""
        return self.given.get("rest.signing-name") == "s3tables"

    @property
    def given(self) -> dict[str, str]:
        """The properties, with their secrets."""
        return {name: value.get_secret_value() for name, value in self.properties.items()}
