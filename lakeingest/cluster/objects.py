"""Object stores as a submitting machine reaches them: with the credentials that the tools of their clouds find."""

from dataclasses import replace

from lakeingest.config import amazon
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.files.stored import Stored

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


def on_amazon(uri: str, region: str, storage: Storage | None = None) -> Stored:
    """A folder of S3: an endpoint of `storage` counts, else AWS's variables do."""
    given = storage or Storage()
    endpoint = amazon.client("s3", given.region or region).meta.endpoint_url
    if given.endpoint is None and not endpoint.endswith(_AMAZON):
        given = given.model_copy(update={"endpoint": endpoint, "path_style": True})
    found = Stored.of(Place.of(uri), given.model_copy(update={"region": given.region or region}))
    options = {**dict(found.bucket.options), **amazon.credentials()}
    return replace(found, bucket=replace(found.bucket, options=tuple(sorted(options.items()))))


def on_google(uri: str) -> Stored:
    """A folder of Cloud Storage, with Google's default credentials."""
    return Stored.of(Place.of(uri), Storage())
