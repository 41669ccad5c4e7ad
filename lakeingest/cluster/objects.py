"""Folders in object stores, for the machine that submits a job: with the credentials that the clouds' tools find."""

from dataclasses import replace
from typing import Any

from lakeingest.config import amazon
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.files.stored import Stored

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


def on_amazon(uri: str, region: str, storage: Storage | None = None) -> Stored:
    """A folder of S3. Its endpoint is that of `storage`, else that of AWS's environment variables, else AWS's own."""
    settings = storage or Storage()
    changes: dict[str, Any] = {"region": settings.region or region}
    endpoint = amazon.client("s3", changes["region"]).meta.endpoint_url
    if settings.endpoint is None and not endpoint.endswith(_AMAZON):  # the variables name a store that is not AWS's
        changes |= {"endpoint": endpoint, "path_style": True}
    folder = Stored.of(Place.of(uri), settings.model_copy(update=changes))
    options = {**dict(folder.bucket.options), **amazon.credentials()}
    bucket = replace(folder.bucket, options=tuple(sorted(options.items())))
    return replace(folder, bucket=bucket)


def on_google(uri: str) -> Stored:
    """A folder of Google Cloud Storage, with Google's default credentials."""
    return Stored.of(Place.of(uri), Storage())
