"""Object stores that tables are in: what Iceberg's FileIO needs in Spark and in PyIceberg, in the words of each.

Credentials are not here. Both find them by themselves: in the environment (`AWS_*`), in a profile, by the role of the
machine, or from a REST catalog that lends them.
"""

from collections.abc import Mapping

from pydantic import Field, SecretStr

from lakeingest.config.frozen import Frozen

STORES = ("s3", "s3a")  # schemes of the URIs
_OBSTORE = {
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
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
S3_JAR = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
S3A_JAR = "org.apache.hadoop:hadoop-aws:3.3.4"  # of the Hadoop that PySpark 3.5 has


class Storage(Frozen):
    """What an S3-compatible store needs beyond the environment.

    `endpoint` is its URL. `path_style`: the bucket is in the path of a request's URL, not in the name of the host.
    `properties` are handed to Iceberg's FileIO in Spark and in PyIceberg as they are.
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    region: str | None = None
    path_style: bool = False
    properties: dict[str, SecretStr] = Field(default={})

    def pyiceberg(self) -> dict[str, str]:
        """The properties for PyIceberg."""
        virtual = None if self.path_style or self.endpoint is None else "true"
        return self._with_given(
            {
                "s3.endpoint": self.endpoint,
                "s3.region": self.region,
                "client.region": self.region,
                "s3.force-virtual-addressing": virtual,
            }
        )

    def spark(self) -> dict[str, str]:
        """The properties for Spark."""
        return self._with_given(
            {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint": self.endpoint,
                "client.region": self.region,
                "s3.path-style-access": "true" if self.path_style else None,
            }
        )

    def hadoop(self) -> dict[str, str]:
        """The properties for Hadoop's client of S3, by which Spark reads and writes tables that no FileIO opens."""
        return self._without_none(
            {
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self.region,
                "fs.s3a.path.style.access": "true" if self.path_style else None,
                "fs.s3a.aws.credentials.provider": ",".join(_CHAIN),
                # else each new file deletes the objects that stand for the folders above it; some stores refuse that
                "fs.s3a.directory.marker.retention": "keep",
                "fs.s3a.attempts.maximum": "5",  # of one request; each is tried several times again
            }
        ) | self._known(_HADOOP)

    def obstore(self, bucket: str) -> dict[str, str]:
        """The properties for the client of the state's files; of those that are given it knows the credentials."""
        own = {"endpoint": self.endpoint, "region": self.region}
        if self.endpoint is not None and not self.path_style:
            own |= {"endpoint": self.endpoint.replace("://", f"://{bucket}."), "virtual_hosted_style_request": "true"}
        return self._without_none(own) | self._known(_OBSTORE)

    def _with_given(self, properties: dict[str, str | None]) -> dict[str, str]:
        own = self._without_none(properties)
        return own | {name: value.get_secret_value() for name, value in self.properties.items()}

    def _known(self, names: Mapping[str, str]) -> dict[str, str]:
        """Those of the given properties that another client knows, under its names."""
        return {
            name: self.properties[given].get_secret_value() for name, given in names.items() if given in self.properties
        }

    @staticmethod
    def _without_none(properties: Mapping[str, str | None]) -> dict[str, str]:
        return {name: value for name, value in properties.items() if value is not None}
