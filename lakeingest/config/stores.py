"""The object stores, by the scheme of their URIs: how each client takes the settings in `target.storage`.

Clients find credentials themselves: in the environment, in a profile, by the role of the machine, or from a REST
catalog that lends them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakeingest.config.storage import Options, Storage, given


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of object store: the jar that Iceberg needs for it in Spark, and the properties of each client.

    `pyiceberg` and `spark` are for Iceberg's FileIO. `obstore` is for files of the state, and takes their bucket, too.
    `only` are the keys of `target.storage` that the store has, besides `properties`.
    """

    jar: str
    only: tuple[str, ...]
    pyiceberg: Callable[[Storage], Options]
    spark: Callable[[Storage], Options]
    obstore: Callable[[Storage, str], Options]


def store_of(scheme: str | None) -> Store:
    """The kind of store of a scheme."""
    return STORES[scheme or ""]


def _s3_pyiceberg(storage: Storage) -> Options:
    virtual = None if storage.path_style or storage.endpoint is None else "true"
    return given(
        {
            "s3.endpoint": storage.endpoint,
            "s3.region": storage.region,
            "client.region": storage.region,
            "s3.force-virtual-addressing": virtual,
        }
    )


def _s3_spark(storage: Storage) -> Options:
    return given(
        {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": storage.endpoint,
            "client.region": storage.region,
            "s3.path-style-access": "true" if storage.path_style else None,
        }
    )


def _s3_obstore(storage: Storage, bucket: str) -> Options:
    own: dict[str, str | None] = {"endpoint": storage.endpoint, "region": storage.region}
    if storage.endpoint is not None and not storage.path_style:
        own |= {"endpoint": storage.endpoint.replace("://", f"://{bucket}."), "virtual_hosted_style_request": "true"}
    credentials = {
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
    }
    return given(own) | storage.known(credentials)


def _gcs_obstore(storage: Storage, _: str) -> Options:
    return given({"base_url": storage.endpoint}) | storage.known({"bearer_token": "gcs.oauth2.token"})


_S3 = Store(
    jar="org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    only=("endpoint", "region", "path_style"),
    pyiceberg=_s3_pyiceberg,
    spark=_s3_spark,
    obstore=_s3_obstore,
)
_GCS = Store(
    jar="org.apache.iceberg:iceberg-gcp-bundle:1.12.0",
    only=("endpoint",),
    pyiceberg=lambda storage: given({"gcs.service.host": storage.endpoint}),
    spark=lambda storage: given(
        {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", "gcs.service.host": storage.endpoint}
    ),
    obstore=_gcs_obstore,
)
STORES: Mapping[str, Store] = {"s3": _S3, "s3a": _S3, "gs": _GCS}
S3_JAR = _S3.jar
