"""The catalog of Glue. Each request is sent once.

botocore would repeat a request. If the first request of a commit took effect and its answer was lost, the second would
be refused, and the commit would seem to have failed.
"""

from pyiceberg.catalog.glue import GlueCatalog

from lakeingest.lake.iceberg.places import OwnPlaces
from lakeingest.lake.iceberg.times import OrderedCatalog


class OrderedGlueCatalog(OrderedCatalog, OwnPlaces, GlueCatalog):
    """PyIceberg's client of Glue."""


def glue_catalog(name: str, properties: dict[str, str]) -> GlueCatalog:
    """PyIceberg's client of Glue. Raises ModuleNotFoundError without boto3."""
    once: dict[str, object] = {"glue.max-retries": 0}  # a number: botocore takes no text
    return OrderedGlueCatalog(name, **{**properties, **once})
