"""The kinds of object stores, by the scheme of their URIs: how each client gets the settings in `target.storage`.

Clients find credentials themselves: in the environment, in a profile, from the role of the machine, or from a REST
catalog that gives out temporary credentials.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakeingest.config.storage import Options, Storage, without_none


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of object store.

    `jar`: the jar that Iceberg needs in Spark for this store.
    `only`: the keys of target.storage, besides `properties`, that have a meaning for this store.
    `pyiceberg`, `spark`: functions that make the settings of Iceberg's FileIO from target.storage.
    `obstore`: a function that makes the settings of the client for the state folder, from target.storage and the
    folder's bucket.
    """

    jar: str
    only: tuple[str, ...]
    pyiceberg: Callable[[Storage], Options]
    spark: Callable[[Storage], Options]
    obstore: Callable[[Storage, str], Options]


def store_of(scheme: str | None) -> Store:
    """The kind of store whose URIs have this scheme. Raises KeyError for any other scheme."""
    return STORES[scheme or ""]


def _s3_pyiceberg(storage: Storage) -> Options:
    # without this property, PyIceberg's client acts as with `path_style`: it puts the bucket into the path of a URL
    has_bucket_in_host = storage.endpoint is not None and not storage.path_style
    return without_none(
        {
            "s3.endpoint": storage.endpoint,
            "s3.region": storage.region,
            "client.region": storage.region,
            "s3.force-virtual-addressing": "true" if has_bucket_in_host else None,
        }
    )


def _s3_spark(storage: Storage) -> Options:
    return without_none(
        {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": storage.endpoint,
            "client.region": storage.region,
            "s3.path-style-access": "true" if storage.path_style else None,
        }
    )


def _s3_obstore(storage: Storage, bucket: str) -> Options:
    """The settings of obstore's client. Without `path_style`, the bucket becomes a part of the endpoint's host."""
    settings: dict[str, str | None] = {"endpoint": storage.endpoint, "region": storage.region}
    if storage.endpoint is not None and not storage.path_style:
        endpoint = storage.endpoint.replace("://", f"://{bucket}.")
        settings |= {"endpoint": endpoint, "virtual_hosted_style_request": "true"}
    credentials = {
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
    }
    return without_none(settings) | storage.renamed_properties(credentials)


def _gcs_obstore(storage: Storage, _: str) -> Options:
    return without_none({"base_url": storage.endpoint}) | storage.renamed_properties(
        {"bearer_token": "gcs.oauth2.token"}
    )


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
    pyiceberg=lambda storage: without_none({"gcs.service.host": storage.endpoint}),
    spark=lambda storage: without_none(
        {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", "gcs.service.host": storage.endpoint}
    ),
    obstore=_gcs_obstore,
)
STORES: Mapping[str, Store] = {"s3": _S3, "s3a": _S3, "gs": _GCS}
S3_JAR = _S3.jar
