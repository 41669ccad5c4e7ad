"""Folders in object stores, for the machine that submits a job: with the credentials that the clouds' tools find."""

from dataclasses import replace

from lakeingest.config import amazon
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.files.stored import Stored

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


def on_amazon(uri: str, region: str, storage: Storage | None = None) -> Stored:
    """A folder of S3. Its endpoint is that of `storage`, else that of AWS's environment variables, else AWS's own."""
    settings = storage or Storage()
    endpoint = amazon.client("s3", settings.region or region).meta.endpoint_url
    if settings.endpoint is None and not endpoint.endswith(_AMAZON):  # the variables name a store that is not AWS's
        settings = settings.model_copy(update={"endpoint": endpoint, "path_style": True})
    folder = Stored.of(Place.of(uri), settings.model_copy(update={"region": settings.region or region}))
    options = {**dict(folder.bucket.options), **amazon.credentials()}
    return replace(folder, bucket=replace(folder.bucket, options=tuple(sorted(options.items()))))


def on_google(uri: str) -> Stored:
    """A folder of Google Cloud Storage, with Google's default credentials."""
    return Stored.of(Place.of(uri), Storage())
