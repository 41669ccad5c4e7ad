"""Object stores that tables are in: what Iceberg's FileIO needs in Spark and in PyIceberg, in the words of each.

Credentials are not here. Both find them by themselves: in the environment (`AWS_*`), in a profile, by the role of the
machine, or from a REST catalog that lends them.
"""

from pydantic import Field, SecretStr

from lakeingest.config.frozen import Frozen

STORES = ("s3", "s3a")  # schemes of the URIs
_OBSTORE = {
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
S3_JAR = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"


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

    def obstore(self, bucket: str) -> dict[str, str]:
        """The properties for the client of the state's files; of those that are given it knows the credentials."""
        own = {"endpoint": self.endpoint, "region": self.region}
        if self.endpoint is not None and not self.path_style:
            own |= {"endpoint": self.endpoint.replace("://", f"://{bucket}."), "virtual_hosted_style_request": "true"}
        given = {
            name: self.properties[of_pyiceberg].get_secret_value()
            for name, of_pyiceberg in _OBSTORE.items()
            if of_pyiceberg in self.properties
        }
        return {name: value for name, value in own.items() if value is not None} | given

    def _with_given(self, properties: dict[str, str | None]) -> dict[str, str]:
        own = {name: value for name, value in properties.items() if value is not None}
        return own | {name: value.get_secret_value() for name, value in self.properties.items()}
