"""`target.storage` of pipeline.yml: settings of an object store that its clients do not find in the environment."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr, model_validator

from lakeingest.config.endpoints import assert_endpoint, endpoints_of
from lakeingest.config.frozen import Frozen

if TYPE_CHECKING:
    from typing import Self

Options = dict[str, str]

_HADOOP_NAMES = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
}
# Where Hadoop's client looks for credentials. Its default is not used, because it reads neither profiles nor the token
# of a web identity.
_CHAIN = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
)
S3A_JARS = (  # Hadoop's client for S3, in the version of the Hadoop in PySpark 3.5
    "org.apache.hadoop:hadoop-aws:3.3.4",
    "com.amazonaws:aws-java-sdk-bundle:1.12.262",
)


class Storage(Frozen):
    """Settings of an object store that its clients do not find in the environment.

    `endpoint` is the URL of a store that is not the cloud's own. `region` and `path_style` are for S3. With
    `path_style`, the bucket is a part of the path in the URL of a request, not of the host's name. `properties` are
    passed to Iceberg's FileIO, in Spark and in PyIceberg, as they are.
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    region: str | None = None
    path_style: bool = False
    properties: dict[str, SecretStr] = Field(default={})

    @model_validator(mode="after")
    def _assert_endpoints(self) -> "Self":
        """Raise ValueError for an endpoint that is not the URL of a server, or has a password in it."""
        properties = {name: value.get_secret_value() for name, value in self.properties.items()}
        for name, url in endpoints_of({"endpoint": self.endpoint or "", **properties}).items():
            assert_endpoint(name, url)
        return self

    def hadoop(self) -> dict[str, str]:
        """The properties of Hadoop's client for S3, with which Spark reads and writes tables that have no FileIO."""
        return without_none(
            {
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self.region,
                "fs.s3a.path.style.access": "true" if self.path_style else None,
                "fs.s3a.aws.credentials.provider": ",".join(_CHAIN),
                # By default, the client deletes the marker objects of the folders above each new file. Some stores
                # refuse to delete them.
                "fs.s3a.directory.marker.retention": "keep",
                # if a store does not answer, the client gives up after about one minute; by default after five
                "fs.s3a.attempts.maximum": "5",
                "fs.s3a.retry.limit": "5",
            }
        ) | self.renamed_properties(_HADOOP_NAMES)

    def renamed_properties(self, names: Mapping[str, str]) -> dict[str, str]:
        """The values of `properties` under the names of another client.

        `names` maps each name of the other client to a name in `properties`. Names that `properties` lacks are left
        out.
        """
        return {
            other_name: self.properties[name].get_secret_value()
            for other_name, name in names.items()
            if name in self.properties
        }

    def properties_with(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """The properties of a FileIO: the user's `properties`, and `defaults` for names that the user has not set."""
        return {**defaults, **{name: value.get_secret_value() for name, value in self.properties.items()}}


def without_none(properties: Mapping[str, str | None]) -> Options:
    """The properties without those whose value is None."""
    return {name: value for name, value in properties.items() if value is not None}
