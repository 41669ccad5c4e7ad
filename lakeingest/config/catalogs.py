"""`target.catalog` of pipeline.yml: the catalog of the copies.

The types are:
- `sql`: a PostgreSQL server that `uri` names; without `uri` a SQLite file in the warehouse, which is the default.
- `rest`: a server of Iceberg's REST protocol.
- `glue`: Amazon's catalog.
- `hive`: a Hive metastore, also for Hudi tables.
- `path`: no catalog, because readers find Hudi tables by their folders.

The module `catalog_kinds` has the properties of each type for its clients.
"""

import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretStr, model_validator

from lakeingest.config.endpoints import assert_endpoint, endpoints_of, is_plain_text
from lakeingest.config.frozen import Frozen
from lakeingest.config.postgresql import PostgreSql
from lakeingest.config.secrets import is_reference

if TYPE_CHECKING:
    from typing import Self

CatalogType = Literal["sql", "rest", "glue", "hive", "path"]
FirstPublishName = Literal["rename", "register", "own_name"]
CATALOG = "lake"  # the default name of the catalog in Spark and PyIceberg; users write it in their queries
# names of settings that hold secrets of catalogs, of stores and of signed requests: Spark must not show their values
SECRETS = (
    r"secret|password|token|access[.-]?key|account[.-]key|shared-key|api-?key|(en|de)cryption-key|connection-string"
    r"|credential|authorization|\.header\."
)
_SECRET = re.compile(f"(?i){SECRETS}")


def is_secret(name: str) -> bool:
    """Whether a setting or a property of this name holds a secret."""
    return _SECRET.search(name) is not None


class Catalog(Frozen):
    """The catalog, in which readers find tables by name.

    `type` None means the default type of the format. `name` is the catalog's name in Spark. `properties` are passed as
    they are: for Iceberg to Spark and PyIceberg, for Hudi to the tool that registers tables in the metastore.
    `first_publish` is how a new table becomes visible; it is for REST servers that do not say which ways they support.
    """

    type: CatalogType | None = None
    name: str = Field(default=CATALOG, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    uri: SecretStr | None = None
    properties: dict[str, SecretStr] = Field(default={})
    first_publish: FirstPublishName | Literal["auto"] = "auto"

    @model_validator(mode="after")
    def _assert_complete(self) -> "Self":
        """Raise ValueError if the type lacks its URI, if a key does not fit the type, or as `_assert_endpoints`."""
        if is_reference(self.address):  # only the job will know the URI behind the reference
            return self
        scheme = self.address.partition("://")[0]
        if self.type == "rest" and scheme not in {"http", "https"}:
            raise ValueError("a catalog of type rest needs its uri: http://… or https://…")
        if self.type == "hive" and scheme != "thrift":
            raise ValueError("a catalog of type hive needs its uri: thrift://host:9083")
        if self.type in {"sql", None} and self.uri is not None:
            PostgreSql.parse(self.address)  # raises ValueError for an address of another form
        self._assert_endpoints()
        if self.type != "rest" and self.first_publish != "auto":
            raise ValueError("first_publish is for a catalog of type rest")
        if self.is_embedded and self.properties:
            raise ValueError("the embedded catalog has no properties")
        return self

    def _assert_endpoints(self) -> None:
        """Raise ValueError if an endpoint has a password in it, or if a secret would be sent in plain text.

        Two kinds of secrets do not count, because they are not sent to the catalog: secrets of stores, and secrets with
        which requests to AWS are signed.
        """
        endpoints = endpoints_of(self.plain_properties)
        if self.type in {"rest", "hive"}:
            endpoints["uri"] = self.address
        for name, url in endpoints.items():
            assert_endpoint(name, url)
        not_sent = ("s3.", "gcs.", "client.")  # so begin the names of properties for S3, for GCS, and for signing
        sent_secrets = [name for name in self.plain_properties if is_secret(name) and not name.startswith(not_sent)]
        for name, url in endpoints.items():
            gets_secrets = self.type == "rest" and name in {"uri", "oauth2-server-uri"}
            if gets_secrets and sent_secrets and is_plain_text(url):
                raise ValueError(
                    f"{name} is http://, on another host: whoever is between would read {sent_secrets[0]}; use https://"
                )

    @property
    def proof_warning(self) -> str | None:
        """A warning if the catalog's server need not prove who it is.

        None if the server must prove it, if the server is on this machine, or if only the job will know the URI.
        """
        if is_reference(self.address):
            return None
        if self.type in {"sql", None} and self.uri is not None:
            return PostgreSql.parse(self.address).proof_warning
        if self.type == "rest" and is_plain_text(self.address):
            return "target.catalog.uri is http://, so nothing proves the server: who is between changes what it says"
        return None

    @property
    def address(self) -> str:
        """The URI, with its password; '' without a URI."""
        return "" if self.uri is None else self.uri.get_secret_value()

    @property
    def password(self) -> str:
        """The password in the URI; '' if there is none. Only the URI of a database can have a password."""
        if self.type not in {"sql", None} or not self.address or is_reference(self.address):
            return ""
        return str(PostgreSql.parse(self.address).url.password or "")

    @property
    def without_secrets(self) -> str:
        """The URI without user and password. Only the URI of a database can have them."""
        if self.type not in {"sql", None} or not self.address or is_reference(self.address):
            return self.address
        return PostgreSql.parse(self.address).place

    @property
    def is_embedded(self) -> bool:
        """Whether the catalog is a SQLite file in the warehouse, which other machines cannot use."""
        return self.type in {"sql", None} and self.uri is None

    @property
    def gives_places(self) -> bool:
        """Whether the catalog itself chooses the folder of each table, as Amazon S3 Tables does."""
        return self.plain_properties.get("rest.signing-name") == "s3tables"

    @property
    def plain_properties(self) -> dict[str, str]:
        """The properties with the values of secrets in plain text, for the clients of the catalog."""
        return {name: value.get_secret_value() for name, value in self.properties.items()}
