"""`target.storage` of pipeline.yml: what an object store needs beyond the environment."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr, model_validator

from lakeingest.config.endpoints import assert_endpoint, endpoints_of
from lakeingest.config.frozen import Frozen

if TYPE_CHECKING:
    from typing import Self

Options = dict[str, str]

_HADOOP = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
}
_CHAIN = (  # of Hadoop's client, which by itself reads neither profiles nor the token of a web identity
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
)
S3A_JARS = (  # of the Hadoop that PySpark 3.5 has
    "org.apache.hadoop:hadoop-aws:3.3.4",
    "com.amazonaws:aws-java-sdk-bundle:1.12.262",
)


class Storage(Frozen):
    """What an object store needs beyond the environment.

    `endpoint` is the URL of one that is not the cloud's own. `region` and `path_style` are of S3. `path_style`: the
    bucket is in the path of a request's URL, not in the name of the host. `properties` are handed to Iceberg's FileIO
    in Spark and in PyIceberg as they are.
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    region: str | None = None
    path_style: bool = False
    properties: dict[str, SecretStr] = Field(default={})

    @model_validator(mode="after")
    def _has_endpoints(self) -> "Self":
        named = {name: value.get_secret_value() for name, value in self.properties.items()}
        for name, url in endpoints_of({"endpoint": self.endpoint or "", **named}).items():
            assert_endpoint(name, url)
        return self

    def hadoop(self) -> dict[str, str]:
        """The properties for Hadoop's client of S3, by which Spark reads and writes tables that no FileIO opens."""
        return given(
            {
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self.region,
                "fs.s3a.path.style.access": "true" if self.path_style else None,
                "fs.s3a.aws.credentials.provider": ",".join(_CHAIN),
                # else each new file deletes the objects that stand for the folders above it; some stores refuse that
                "fs.s3a.directory.marker.retention": "keep",
                # a store that is away is named after about a minute, instead of five
                "fs.s3a.attempts.maximum": "5",
                "fs.s3a.retry.limit": "5",
            }
        ) | self.known(_HADOOP)

    def known(self, names: Mapping[str, str]) -> dict[str, str]:
        """Those of the given properties that another client knows, under its names."""
        return {
            name: self.properties[given].get_secret_value() for name, given in names.items() if given in self.properties
        }

    def properties_with(self, own: Mapping[str, str]) -> dict[str, str]:
        """Properties of a FileIO, and over them all that are given."""
        return {**own, **{name: value.get_secret_value() for name, value in self.properties.items()}}


def given(properties: Mapping[str, str | None]) -> Options:
    """Those that are not None."""
    return {name: value for name, value in properties.items() if value is not None}
