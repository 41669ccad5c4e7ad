"""`target.storage` of pipeline.yml: settings of an object store that the environment does not have."""

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
_CHAIN = (  # providers for Hadoop's client, whose default reads neither profiles nor the token of a web identity
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
)
S3A_JARS = (  # for the version of Hadoop in PySpark 3.5
    "org.apache.hadoop:hadoop-aws:3.3.4",
    "com.amazonaws:aws-java-sdk-bundle:1.12.262",
)


class Storage(Frozen):
    """Settings of an object store that the environment does not have.

    `endpoint` is the URL of a store other than the cloud's own. `region` and `path_style` are for S3. `path_style`: the
    bucket is in the path of a request's URL, not in the name of the host. `properties` are handed to Iceberg's FileIO
    in Spark and in PyIceberg as they are.
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    region: str | None = None
    path_style: bool = False
    properties: dict[str, SecretStr] = Field(default={})

    @model_validator(mode="after")
    def _has_endpoints(self) -> "Self":
        properties = {name: value.get_secret_value() for name, value in self.properties.items()}
        for name, url in endpoints_of({"endpoint": self.endpoint or "", **properties}).items():
            assert_endpoint(name, url)
        return self

    def hadoop(self) -> dict[str, str]:
        """The properties of Hadoop's client for S3, with which Spark reads and writes tables without a FileIO."""
        return given(
            {
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self.region,
                "fs.s3a.path.style.access": "true" if self.path_style else None,
                "fs.s3a.aws.credentials.provider": ",".join(_CHAIN),
                # otherwise each new file deletes the objects that mark the folders above it; some stores refuse that
                "fs.s3a.directory.marker.retention": "keep",
                # a store that does not answer is an error after about one minute, instead of five
                "fs.s3a.attempts.maximum": "5",
                "fs.s3a.retry.limit": "5",
            }
        ) | self.known(_HADOOP)

    def known(self, names: Mapping[str, str]) -> dict[str, str]:
        """The values of properties under another client's names, which `names` maps to the names of the properties."""
        return {
            name: self.properties[ours].get_secret_value() for name, ours in names.items() if ours in self.properties
        }

    def properties_with(self, own: Mapping[str, str]) -> dict[str, str]:
        """The properties of a FileIO: `own` ones, and over them the user's `properties`."""
        return {**own, **{name: value.get_secret_value() for name, value in self.properties.items()}}


def given(properties: Mapping[str, str | None]) -> Options:
    """The properties whose value is not None."""
    return {name: value for name, value in properties.items() if value is not None}
